//! The trait of all storage formats, and the one list of them.

use std::borrow::Cow;

use crate::{Bdia, Bsr, Bsrx, Coo, Csc, Csr, Dense, Dia, Ell, Hec, Hmec, Hyb, Real, Result, Sell, Traffic};

/// A storage format. CSR is the hub through which any format becomes any other.
pub trait Format: Traffic + Clone + std::fmt::Debug + Send + Sync + Sized + 'static {
    /// Element type.
    type Value: Real;
    /// The stem of its name in files, kernels, trials, benches and on the command line.
    const NAME: &'static str;
    /// Whether fill zeros inside the storage are multiplied like other entries (DIA, bDIA, BSR, dense). An infinite or
    /// NaN element of x then meets them. Formats with `false` skip their padding.
    const MULTIPLIES_FILL: bool;
    /// Number of rows.
    fn nrows(&self) -> usize;
    /// Number of columns.
    fn ncols(&self) -> usize;
    /// Number of entries, without padding. Formats that multiply fill count the entries that are not zero.
    fn nnz(&self) -> usize;
    /// Stores `csr` in this format with its default parameters.
    ///
    /// # Errors
    /// [`crate::Error::DoesNotFit`] if the format's storage would exceed its limits.
    fn from_csr(csr: &Csr<Self::Value>) -> Result<Self>;
    /// As [`Format::from_csr`], for a matrix that is not needed any more. CSR takes it over without a copy.
    ///
    /// # Errors
    /// As [`Format::from_csr`].
    fn from_csr_owned(csr: Csr<Self::Value>) -> Result<Self> {
        Self::from_csr(&csr)
    }
    /// The same matrix as CSR. Fill zeros are dropped. A format that multiplies fill cannot tell an explicit zero from
    /// fill and drops both.
    ///
    /// # Errors
    /// [`crate::Error::TooLarge`] if the entries do not fit CSR's offsets.
    fn to_csr(&self) -> Result<Csr<Self::Value>>;
    /// The same matrix as CSR; borrowed if it is CSR already, so that a large matrix is not copied on its way to
    /// another format.
    ///
    /// # Errors
    /// As [`Format::to_csr`].
    fn as_csr(&self) -> Result<Cow<'_, Csr<Self::Value>>> {
        self.to_csr().map(Cow::Owned)
    }
    /// The transpose in the same format. Goes through CSR with the format's default parameters, unless the format says
    /// otherwise.
    ///
    /// # Errors
    /// As [`Format::to_csr`] and [`Format::from_csr`]: the transpose may not fit even if the matrix did.
    fn transpose(&self) -> Result<Self> {
        Self::from_csr(&self.as_csr()?.try_transpose()?)
    }
}

/// Converts any format to any other through CSR, with the target's default parameters. Pairs that need no detour have
/// `From` or `TryFrom` beside the formats.
///
/// # Errors
/// As [`Format::to_csr`] and [`Format::from_csr`].
pub fn convert<A: Format, B: Format<Value = A::Value>>(a: &A) -> Result<B> {
    B::from_csr(a.as_csr()?.as_ref())
}

/// Expands `$callback!` once with the list of all storage formats, `(stem, Type)` each. This is the only registry: the
/// conformance suite, the bench and the program expand it.
#[macro_export]
macro_rules! for_each_format {
    ($callback:ident $(, $extra:tt)*) => {
        $callback! { [$($extra)*]
            (coo, Coo), (csr, Csr), (csc, Csc), (ell, Ell), (sell, Sell), (dia, Dia), (bdia, Bdia), (hyb, Hyb),
            (bsr, Bsr), (bsrx, Bsrx), (hec, Hec), (hmec, Hmec), (dense, Dense)
        }
    };
}

/// Gives every format of the list its shape and number of entries as inherent methods, so that callers need no import.
macro_rules! inherent_shape {
    ([] $(($stem:ident, $Format:ident)),*) => {
        $(impl<T: Real> $Format<T> {
            /// Number of rows.
            #[doc(alias = "nrow")]
            #[doc(alias = "rows")]
            pub fn nrows(&self) -> usize {
                Format::nrows(self)
            }

            /// Number of columns.
            #[doc(alias = "ncol")]
            #[doc(alias = "cols")]
            pub fn ncols(&self) -> usize {
                Format::ncols(self)
            }

            /// Number of entries, without padding. Formats that multiply fill ([`Format::MULTIPLIES_FILL`]) count the
            /// entries that are not zero.
            #[doc(alias = "nonzeros")]
            pub fn nnz(&self) -> usize {
                Format::nnz(self)
            }
        })*
    };
}

for_each_format!(inherent_shape);
