//! The operations of a backend, one trait each, so that a missing kernel is a compile error where it is needed.
//!
//! Every operation takes a gate ([`Gate`]), enqueues, returns without waiting, and may be recorded, unless its own text
//! says otherwise.
//!
//! [`crate::Mat`] and the solvers validate sizes before the first operation is enqueued, so that nothing is left half
//! done. A backend still never touches memory outside its operands. It compares their lengths once per operation, even
//! if the gate is closed, and a mismatch is [`crate::Error::Shape`] with the outputs unchanged. The default body of a
//! fused step consists of several operations: those before the mismatch have been enqueued.
//!
//! Bits: `fma` is the fused multiply-add with one rounding. Element-wise operations and everything declared
//! [`Order::Stored`] or [`Order::Tree`] give the same bits on every backend and for any number of threads.

use std::sync::Arc;

use spandrel_formats::{Format, Real, SparseVec};

use crate::{Device, Gate, Phase, Quantity, Result};

/// The order in which an operation sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Starts at +0 and takes the stored entries of the row in order, with one `fma` each.
    Stored,
    /// The tree of [`Backend::dot`], which depends only on the length.
    Tree,
    /// This many lanes per row take the stored entries in turn (lane l: entries l, l + lanes, ...); then a halving tree
    /// over the lanes.
    LaneTree(u32),
    /// A scan of affine maps.
    Scan,
    /// An order that the backend chooses for each matrix. It repeats its bits on this backend, but other backends have
    /// other bits.
    Own,
    /// Atomic additions: the order differs from run to run.
    Unordered,
}

/// A coefficient `host * (num[0]/den[0]) * (num[1]/den[1])` of device scalars.
///
/// The kernel computes it in that order, because forming the products first would underflow in f32. A missing numerator
/// or denominator counts as 1, and a pair without both is skipped.
#[derive(Debug)]
pub struct Coeff<'a, T, S> {
    /// The host's factor.
    pub host: T,
    /// Numerators on the device.
    pub num: [Option<&'a S>; 2],
    /// Denominators on the device.
    pub den: [Option<&'a S>; 2],
}

impl<T: Copy, S> Clone for Coeff<'_, T, S> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T: Copy, S> Copy for Coeff<'_, T, S> {}

impl<'a, T: Real, S> Coeff<'a, T, S> {
    /// A number that the host knows.
    pub fn host(value: T) -> Self {
        Self { host: value, num: [None; 2], den: [None; 2] }
    }
    /// The coefficient 1.
    pub fn one() -> Self {
        Self::host(T::one())
    }
    /// The coefficient 0.
    pub fn zero() -> Self {
        Self::host(T::zero())
    }
    /// Returns true for a number that the host knows to be 0.
    pub fn is_zero(self) -> bool {
        self.host == T::zero() && self.num.iter().chain(&self.den).all(Option::is_none)
    }
    /// A device scalar.
    pub fn scalar(num: &'a S) -> Self {
        Self { host: T::one(), num: [Some(num), None], den: [None; 2] }
    }
    /// A quotient of device scalars.
    pub fn ratio(num: &'a S, den: &'a S) -> Self {
        Self { host: T::one(), num: [Some(num), None], den: [Some(den), None] }
    }
    /// This coefficient times `num / den`, as the second quotient.
    #[must_use]
    pub fn times_ratio(self, num: &'a S, den: &'a S) -> Self {
        Self { num: [self.num[0], Some(num)], den: [self.den[0], Some(den)], ..self }
    }
    /// The negative of this coefficient (exact).
    #[must_use]
    pub fn negated(self) -> Self {
        Self { host: -self.host, ..self }
    }
}

/// Vectors and scalars of element type `T` on a device.
///
/// # Errors
/// Beside the errors that its text names, every operation may return [`crate::Error::Shape`] unless its vectors have
/// one length, with the outputs unchanged, and [`crate::Error::Device`] if the device fails.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a device with vectors of `{T}`",
    note = "devices are `Cpu` and `Cuda`, elements `f32` and `f64`; in generic code bound the device by `Backend<{T}>`",
    note = "an operation takes the device by reference, as its first argument: `&device`"
)]
pub trait Backend<T: Real>: Device {
    /// A device vector of fixed length. Threads may share it.
    type Vector: Send + Sync;
    /// A device scalar. Threads may share it.
    type Scalar: Send + Sync;

    /// Makes a vector of zeros. Allocates; must not be recorded.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`].
    fn zeros(&self, len: usize) -> Result<Self::Vector>;
    /// Copies host data to a new vector. Allocates; must not be recorded.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`].
    fn upload(&self, host: &[T]) -> Result<Self::Vector>;
    /// Overwrites a vector of the same length with host data. Must not be recorded.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] unless the lengths agree.
    fn write(&self, host: &[T], v: &mut Self::Vector) -> Result<()>;
    /// Copies a vector to the host. Blocks; must not be recorded.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`].
    fn download(&self, v: &Self::Vector) -> Result<Vec<T>>;
    /// Number of elements.
    fn len(&self, v: &Self::Vector) -> usize;
    /// Makes a scalar with an initial value. Allocates; must not be recorded.
    fn scalar(&self, value: T) -> Result<Self::Scalar>;
    /// Returns the value of a scalar. Blocks; must not be recorded.
    fn download_scalar(&self, s: &Self::Scalar) -> Result<T>;

    /// Makes `count` scalars with one initial value, which are read together: see [`Backend::download_scalars`].
    /// Allocates; must not be recorded. The default makes one allocation per scalar; a backend overrides it if adjacent
    /// scalars are cheaper.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`].
    fn scalars(&self, count: usize, value: T) -> Result<Vec<Self::Scalar>> {
        (0..count).map(|_| self.scalar(value)).collect()
    }
    /// Returns the values of several scalars, in order. Blocks; must not be recorded.
    ///
    /// The default waits once per scalar. A backend overrides it to fetch neighbours from one [`Backend::scalars`] call
    /// in one transfer.
    fn download_scalars(&self, scalars: &[Self::Scalar]) -> Result<Vec<T>> {
        scalars.iter().map(|s| self.download_scalar(s)).collect()
    }

    /// y <- value, element by element.
    fn fill(&self, gate: Gate<'_, Self>, value: T, y: &mut Self::Vector) -> Result<()>;
    /// y <- x.
    fn copy(&self, gate: Gate<'_, Self>, x: &Self::Vector, y: &mut Self::Vector) -> Result<()>;
    /// y <- fma(a, x, b*y); with b = 0, y <- a*x and y is never read.
    #[doc(alias = "axpy")]
    #[doc(alias = "scal")]
    fn axpby(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Self::Scalar>,
        x: &Self::Vector,
        b: Coeff<'_, T, Self::Scalar>,
        y: &mut Self::Vector,
    ) -> Result<()>;
    /// Fused: y <- fma(a, x, b*y), then z <- fma(c, y, d*z) with the new y, each as [`Backend::axpby`]. The default
    /// body is the specification: an override gives the same bits, and the conformance suite compares the two.
    fn axpby_chain(
        &self,
        gate: Gate<'_, Self>,
        [a, b]: [Coeff<'_, T, Self::Scalar>; 2],
        x: &Self::Vector,
        y: &mut Self::Vector,
        [c, d]: [Coeff<'_, T, Self::Scalar>; 2],
        z: &mut Self::Vector,
    ) -> Result<()> {
        self.axpby(gate, a, x, b, y)?;
        self.axpby(gate, c, y, d, z)
    }
    /// z <- fma(a, x, fma(b, y, c*z)); with c = 0, z <- fma(a, x, b*y) and z is never read.
    fn axpbypcz(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Self::Scalar>,
        x: &Self::Vector,
        b: Coeff<'_, T, Self::Scalar>,
        y: &Self::Vector,
        c: Coeff<'_, T, Self::Scalar>,
        z: &mut Self::Vector,
    ) -> Result<()>;
    /// z <- x .* y, element by element (a diagonal matrix times a vector).
    #[doc(alias = "elementwise")]
    fn hadamard(&self, gate: Gate<'_, Self>, x: &Self::Vector, y: &Self::Vector, z: &mut Self::Vector) -> Result<()>;
    /// out <- coefficient.
    fn assign(&self, gate: Gate<'_, Self>, value: Coeff<'_, T, Self::Scalar>, out: &mut Self::Scalar) -> Result<()>;

    /// out <- x . y in the order [`Order::Tree`].
    ///
    /// The elements are cut into blocks of 1024. Inside a block, lane l of 32 takes elements l, l + 32, ... by `fma`
    /// from +0; then a halving tree sums the lanes (lane l += lane l + 16, 8, 4, 2, 1). The block results are summed by
    /// the same rule, with additions instead of `fma`, until one is left. So the tree depends only on the length. An
    /// empty vector gives +0.
    #[doc(alias = "inner_product")]
    fn dot(&self, gate: Gate<'_, Self>, x: &Self::Vector, y: &Self::Vector, out: &mut Self::Scalar) -> Result<()>;
    /// out <- sqrt(x . x): the correctly rounded root of the dot product's value.
    #[doc(alias = "nrm2")]
    fn norm2(&self, gate: Gate<'_, Self>, x: &Self::Vector, out: &mut Self::Scalar) -> Result<()>;

    /// Hands the squared residual norm of an iteration to the monitor. The norm is its square root in `T`, which is
    /// then exact in f64. A stopped monitor ignores it: the monitor is its own gate.
    ///
    /// [`Phase::Full`] counts the iteration and then stops for the first reason that holds: `NotFinite(Residual)` if
    /// the norm is infinite or NaN (also for a negative square), `Converged` if it is at most the threshold, `Diverged`
    /// if it exceeds the divergence limit, `MaxIterations` at the iteration limit. [`Phase::Half`] checks only the
    /// first two: `NotFinite(Residual)`, then `ConvergedHalf`.
    ///
    /// The history takes every norm of a full phase, and the norm of a half phase only if it stops the iteration. A
    /// norm that is not finite is included.
    fn observe(&self, squared: &Self::Scalar, phase: Phase, monitor: &mut Self::Monitor) -> Result<()>;
    /// Stops the monitor as `NotFinite(what)` if `value` is infinite or NaN, else as `NotPositive(what)` unless `value
    /// > 0`. A stopped monitor ignores it.
    fn require_positive(&self, value: &Self::Scalar, what: Quantity, monitor: &mut Self::Monitor) -> Result<()>;
    /// Stops the monitor as `NotFinite(what)` if `value` is infinite or NaN, else as `Zero(what)` if `value` is +0 or
    /// -0. A stopped monitor ignores it.
    fn require_nonzero(&self, value: &Self::Scalar, what: Quantity, monitor: &mut Self::Monitor) -> Result<()>;

    /// Fused: z <- d .* r; rz <- r . z, as for a diagonal preconditioner. The default body is the specification: an
    /// override gives the same bits, and the conformance suite compares the two.
    fn hadamard_dot(
        &self,
        gate: Gate<'_, Self>,
        d: &Self::Vector,
        r: &Self::Vector,
        z: &mut Self::Vector,
        rz: &mut Self::Scalar,
    ) -> Result<()> {
        self.hadamard(gate, d, r, z)?;
        self.dot(gate, r, z, rz)
    }
}

/// Loads a host object onto the device, once. The host object is shared, so a backend in host memory copies nothing.
///
/// # Safety
/// Recorded steps contain operations with loaded objects. So every call of one of them ([`Spmv`], [`SpmvTransposed`],
/// [`Spmm`], [`SparseVector`], the numeric phases of [`crate::Spgemm`] and [`crate::Transpose`]) on the same resident
/// must enqueue the same work. The buffers that it uses besides its operands must be neither freed nor moved while the
/// resident is borrowed, not even through interior mutability, because a captured graph holds their addresses. An
/// operation that cannot meet this must refuse to be recorded.
#[diagnostic::on_unimplemented(
    message = "`{H}` cannot be loaded on the device `{Self}`",
    note = "what is loaded is a host object: a storage format such as `Csr<f64>`, a plan of a triangle, a symbolic factorisation",
    note = "in generic code bound the device by the operation that is needed, such as `Spmv<{H}>`, or by `EveryFormat<T>`"
)]
pub unsafe trait Load<H>: Device {
    /// The object on the device. Threads may share it. It borrows nothing, so its type can be identified at run time
    /// ([`crate::Operator::stored`]).
    type Resident: Send + Sync + 'static;
    /// Loads the object. Allocates; must not be recorded.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`], [`crate::Error::Unsupported`].
    fn load(&self, host: Arc<H>) -> Result<Self::Resident>;
    /// Bytes of the stored arrays and bytes of y = A x, if the device keeps the matrix in fewer bytes than the host.
    /// `None` means that [`spandrel_formats::Traffic::storage`] and [`spandrel_formats::Traffic::spmv_bytes`] hold.
    fn traffic(&self, _resident: &Self::Resident) -> Option<(u64, u64)> {
        None
    }
    /// Returns true if f64 values are kept in f32 because every one of them fits exactly. Products then have the same
    /// bits.
    fn is_narrow(&self, _resident: &Self::Resident) -> bool {
        false
    }
}

/// What [`Convert::convert`] returns: the resident form and its sizes.
#[derive(Clone, Copy, Debug)]
pub struct Converted<R> {
    /// The matrix on the device.
    pub resident: R,
    /// [`Format::nnz`].
    pub nnz: usize,
    /// Bytes of the stored arrays: [`spandrel_formats::Traffic::storage`], or as [`Load::traffic`] says.
    pub storage: u64,
    /// Bytes of one product: [`spandrel_formats::Traffic::spmv_bytes`], or as [`Load::traffic`] says.
    pub spmv_bytes: u64,
}

/// Converts one resident format to another without bringing the matrix to the host.
///
/// The result is bit for bit what [`Load::load`] makes of `B::from_csr` of the host's matrix, and it is refused for the
/// same matrices. Both matrices stay.
///
/// This pays if the matrix is already on the device. The host would read and write every entry at its own memory
/// bandwidth and send the result over the bus (3.6 GB for 27 diagonals of 16.7 million rows of f64). The device moves
/// the same bytes in its own memory, about a hundred times as fast.
pub trait Convert<A: Format, B: Format<Value = A::Value>>: Load<A> + Load<B> {
    /// Converts the matrix. Blocks; allocates; must not be recorded.
    ///
    /// # Errors
    /// [`crate::Error::Format`] if `B::from_csr` would refuse the matrix; [`crate::Error::OutOfMemory`];
    /// [`crate::Error::Device`] while a step is being recorded.
    fn convert(&self, from: &<Self as Load<A>>::Resident) -> Result<Converted<<Self as Load<B>>::Resident>>;

    /// As [`Convert::convert`], with the same bits and the same form of storage. `like` is the conversion of a matrix
    /// that may share the memory of its pattern with `from`; a backend may then skip the search for where entries go.
    ///
    /// # Errors
    /// As [`Convert::convert`].
    fn convert_like(
        &self,
        from: &<Self as Load<A>>::Resident,
        like: &<Self as Load<B>>::Resident,
    ) -> Result<Converted<<Self as Load<B>>::Resident>> {
        let _ = like;
        self.convert(from)
    }
}

/// y <- a A x + b y for one storage format. x has as many elements as A has columns, and y as many as A has rows.
///
/// # Errors
/// [`crate::Error::Shape`] for other lengths, with y unchanged; [`crate::Error::Device`] if the device fails.
#[doc(alias = "matvec")]
#[doc(alias = "gemv")]
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not multiply with matrices in the format `{F}`",
    note = "in generic code bound the device by `Spmv<{F}>`, or by `EveryFormat<T>` for the formats of the registry",
    note = "a matrix is loaded before it is multiplied with: `Mat::load(&device, &csr)?`"
)]
pub trait Spmv<F: Format>: Load<F> + Backend<F::Value> {
    /// The order in which a row of this format is summed on this device.
    fn order(&self) -> Order;

    /// Computes y <- fma(a, acc, b*y), where acc sums the stored entries of the row by `fma` from +0. If b = 0, y <-
    /// a*acc and y is never read.
    ///
    /// Later blocks of HYB, HEC and HMEC continue the same accumulator. BSRX touches only the rows of its mask.
    fn spmv(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, F::Value, Self::Scalar>,
        m: &Self::Resident,
        x: &Self::Vector,
        b: Coeff<'_, F::Value, Self::Scalar>,
        y: &mut Self::Vector,
    ) -> Result<()>;

    /// Fused: r <- b - A x, with the bits of a copy of b to r and [`Spmv::spmv`] with a = -1, b = 1 and y = r.
    fn residual(
        &self,
        gate: Gate<'_, Self>,
        m: &Self::Resident,
        b: &Self::Vector,
        x: &Self::Vector,
        r: &mut Self::Vector,
    ) -> Result<()> {
        self.copy(gate, b, r)?;
        self.spmv(gate, Coeff::host(-<F::Value as num_traits::One>::one()), m, x, Coeff::one(), r)
    }

    /// Fused: y <- A x; wy <- w . y; and, if asked for, yy <- y . y. `w` may be `x`.
    fn spmv_dot(
        &self,
        gate: Gate<'_, Self>,
        m: &Self::Resident,
        x: &Self::Vector,
        y: &mut Self::Vector,
        w: &Self::Vector,
        wy: &mut Self::Scalar,
        yy: Option<&mut Self::Scalar>,
    ) -> Result<()> {
        self.spmv(gate, Coeff::one(), m, x, Coeff::zero(), y)?;
        self.dot(gate, w, y, wy)?;
        match yy {
            Some(yy) => self.dot(gate, y, y, yy),
            None => Ok(()),
        }
    }
}

/// y <- a A^T x + b y without forming A^T, for the formats that offer it (CSR, CSC).
#[doc(alias = "rmatvec")]
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not multiply with the transpose of matrices in the format `{F}`",
    note = "CSR and CSC offer it; another format is transposed by way of CSR, and then multiplied with"
)]
pub trait SpmvTransposed<F: Format>: Spmv<F> {
    /// The order in which an element of y is summed on this device.
    fn transposed_order(&self) -> Order;
    /// As [`Spmv::spmv`] with A^T: x has `nrows` elements and y has `ncols`.
    fn spmv_transposed(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, F::Value, Self::Scalar>,
        m: &Self::Resident,
        x: &Self::Vector,
        b: Coeff<'_, F::Value, Self::Scalar>,
        y: &mut Self::Vector,
    ) -> Result<()>;
}

/// Y <- a A X + b Y for several columns at once, for the formats that offer it (CSR, SELL, DIA, BSR).
///
/// X (ncols x k) and Y (nrows x k) are tall column-major blocks in one vector each. Each column has the same bits as
/// [`Spmv::spmv`] of that column.
#[doc(alias = "matmat")]
#[doc(alias = "gemm")]
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not multiply several columns at once with matrices in the format `{F}`",
    note = "CSR, SELL, DIA and BSR offer it; with another format, multiply column by column"
)]
pub trait Spmm<F: Format>: Spmv<F> {
    /// Multiplies `k` columns at once. [`crate::Error::Shape`] unless X has `ncols * k` and Y `nrows * k` elements.
    fn spmm(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, F::Value, Self::Scalar>,
        m: &Self::Resident,
        k: usize,
        x: &Self::Vector,
        b: Coeff<'_, F::Value, Self::Scalar>,
        y: &mut Self::Vector,
    ) -> Result<()>;
}

/// Vector operations with a sparse vector s whose length `n` is that of the vectors y. The bits are the same on every
/// backend.
///
/// # Errors
/// [`crate::Error::Shape`] for a y of another length, with the outputs unchanged; [`crate::Error::Device`] if the
/// device fails.
pub trait SparseVector<T: Real>: Load<SparseVec<T>> + Backend<T> {
    /// `y[i] <- fma(a, s[i], y[i])` at the stored entries.
    fn sparse_axpy(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Self::Scalar>,
        s: &Self::Resident,
        y: &mut Self::Vector,
    ) -> Result<()>;
    /// out <- s . y over the stored entries, by the tree of [`Backend::dot`] over the packed entries.
    fn sparse_dot(
        &self,
        gate: Gate<'_, Self>,
        s: &Self::Resident,
        y: &Self::Vector,
        out: &mut Self::Scalar,
    ) -> Result<()>;
    /// s's values <- y at the stored positions. The pattern stays.
    fn gather(&self, gate: Gate<'_, Self>, y: &Self::Vector, s: &mut Self::Resident) -> Result<()>;
    /// y at the stored positions <- s's values.
    fn scatter(&self, gate: Gate<'_, Self>, s: &Self::Resident, y: &mut Self::Vector) -> Result<()>;
    /// Copies the packed values to the host. Blocks.
    fn download_sparse(&self, s: &Self::Resident) -> Result<Vec<T>>;
}
