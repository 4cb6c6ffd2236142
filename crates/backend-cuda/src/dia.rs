//! DIA on the GPU.
//!
//! Layout: the host's. A matrix that equals its transpose bit for bit keeps only the diagonals at or above the main one: half the memory
//! and nearly half the traffic, the second use of an entry coming from the cache.
//! Order: stored, by ascending offset, in both forms. Cost: [`spandrel_formats::Traffic::spmv`], or half of its values.
//! Kernels: kernels/dia.cu.

use std::sync::Arc;

use rayon::prelude::*;
use spandrel_backend::{Coeff, Convert, Converted, Gate, Load, Order, Result, Spmm, Spmv};
use spandrel_formats::{Csr, Dia, Format, Real};

use crate::convert::Diagonals;
use crate::launch::{BLOCK, Grid, Own, Product, ProductDot};
use crate::memory::Buffer;
use crate::module::DIA;
use crate::persistent::Resident;
use crate::{Cuda, CudaCsr, Monitor, Scalar, Vector};

/// A DIA matrix in device memory.
#[derive(Debug)]
pub struct CudaDia<T> {
    nrows: usize,
    ncols: usize,
    offsets: Buffer<i32>,
    values: Buffer<T>,
    symmetric: bool,
    /// Diagonals in all, and how far they reach below and above the main one.
    diagonals: usize,
    reach: (usize, usize),
}

impl<T: Real> CudaDia<T> {
    /// What products take of it first: values, offsets, diagonals.
    fn arguments(&self) -> [Own<'static>; 3] {
        [self.values.pointer().into(), self.offsets.pointer().into(), (self.offsets.len() as u32).into()]
    }

    /// The same for kernels that take either form: values, offsets, diagonals, symmetric.
    fn half_or_whole(&self) -> [Own<'static>; 4] {
        let [values, offsets, diagonals] = self.arguments();
        [values, offsets, diagonals, u32::from(self.symmetric).into()]
    }

    fn persistent(&self) -> Resident<'static> {
        Resident {
            source: &DIA,
            n: self.nrows,
            below: self.reach.0,
            above: self.reach.1,
            fixed: (4 * self.diagonals).next_multiple_of(16),
            units: self.diagonals,
            unit: T::BYTES,
        }
    }
}

impl<T> CudaDia<T> {
    /// Whether only the upper half is stored.
    pub fn is_symmetric(&self) -> bool {
        self.symmetric
    }
}

/// Whether the offsets, ascending, are those of a matrix whose transpose has the same.
fn mirrored(offsets: &[i32]) -> bool {
    offsets.iter().zip(offsets.iter().rev()).all(|(&a, &b)| i64::from(a) == -i64::from(b))
}

/// How far ascending offsets reach below and above the main diagonal.
fn reach(offsets: &[i32]) -> (usize, usize) {
    let farthest = |offset: Option<&i32>, below: bool| {
        offset.map_or(0, |&offset| if (offset < 0) == below { offset.unsigned_abs() as usize } else { 0 })
    };
    (farthest(offsets.first(), true), farthest(offsets.last(), false))
}

/// The place of the first diagonal at or above the main one, if the matrix equals its transpose bit for bit (so that products have the same
/// bits from either half).
fn upper_half<T: Real>(m: &Dia<T>) -> Option<usize> {
    let (n, offsets, values) = (m.nrows(), m.offsets(), m.values());
    if n != m.ncols() || !mirrored(offsets) {
        return None;
    }
    let first = offsets.partition_point(|&offset| offset < 0);
    let equal = (0..first).into_par_iter().all(|k| {
        let d = offsets[k].unsigned_abs() as usize;
        let lower = &values[k * n + d..(k + 1) * n];
        let mirror = offsets.len() - 1 - k;
        let upper = &values[mirror * n..(mirror + 1) * n - d];
        lower == upper
    });
    equal.then_some(first)
}

// SAFETY: what operations with it use is allocated here, and stays in place until it is dropped.
unsafe impl<T: Real> Load<Dia<T>> for Cuda {
    type Resident = CudaDia<T>;

    fn load(&self, host: Arc<Dia<T>>) -> Result<CudaDia<T>> {
        let (nrows, ncols) = (host.nrows(), host.ncols());
        let half = upper_half(&host);
        let first = half.unwrap_or(0);
        let offsets = Buffer::from_host(self.stream(), &host.offsets()[first..], "a matrix's offsets")?;
        let values = Buffer::from_host(self.stream(), &host.values()[first * nrows..], "a matrix's values")?;
        let (reach, diagonals) = (reach(host.offsets()), host.offsets().len());
        Ok(CudaDia { nrows, ncols, offsets, values, symmetric: half.is_some(), diagonals, reach })
    }
}

impl<T: Real> Convert<Csr<T>, Dia<T>> for Cuda {
    /// Marks the occupied diagonals (which the host looks at, a bit each) and spreads the entries. Where they are mirrored, at first on those
    /// at or above the main one, with which the others are then compared: a symmetric matrix never takes more memory than it keeps.
    fn convert(&self, from: &CudaCsr<T>) -> Result<Converted<CudaDia<T>>> {
        let (nrows, ncols) = (from.nrows(), from.ncols());
        let offsets = self.occupied(from)?;
        Dia::<T>::check_storage(nrows, offsets.len(), from.nnz())?;
        let fill = |first: usize, compare: bool| {
            let diagonals = Diagonals { offsets: &offsets, first, stride: nrows };
            let values = Buffer::zeros(self.stream(), nrows * (offsets.len() - first), "a matrix's values")?;
            let counts = self.fill_diagonals(from, diagonals, &values, compare)?;
            Ok::<_, spandrel_backend::Error>((values, counts))
        };
        let upper = offsets.partition_point(|&offset| offset < 0);
        let half = if nrows == ncols && mirrored(&offsets) {
            Some(fill(upper, true)?).filter(|(_, counts)| counts.symmetric())
        } else {
            None
        };
        let (symmetric, first) = (half.is_some(), if half.is_some() { upper } else { 0 });
        let (values, counts) = match half {
            Some(half) => half,
            None => fill(0, false)?,
        };
        let stored = Buffer::from_host(self.stream(), &offsets[first..], "a matrix's offsets")?;
        let (reach, diagonals) = (reach(&offsets), offsets.len());
        let resident = CudaDia { nrows, ncols, offsets: stored, values, symmetric, diagonals, reach };
        let (storage, spmv_bytes) = Dia::<T>::traffic_of(nrows, ncols, &offsets);
        Ok(Converted { resident, nnz: counts.nonzeros(), storage, spmv_bytes })
    }
}

impl<T: Real> Spmv<Dia<T>> for Cuda {
    fn order(&self) -> Order {
        Order::Stored
    }

    fn spmv(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Scalar<T>>,
        m: &CudaDia<T>,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        let product = Product::new((m.nrows, m.ncols), gate, a, x, b, y)?;
        let ([values, offsets, diagonals], grid) = (m.arguments(), Grid::of(m.nrows.div_ceil(BLOCK), 512));
        let (nrows, ncols) = ((m.nrows as u64).into(), (m.ncols as u64).into());
        if m.symmetric {
            let own = [values, offsets, diagonals, nrows];
            // SAFETY: spmv_symmetric_dia(values, offsets, diagonals, nrows, a, x, b, y, gate).
            return unsafe { product.launch(self, &DIA, "spmv_symmetric_dia", grid, &own) };
        }
        let own = [values, offsets, diagonals, nrows, ncols];
        // SAFETY: spmv_dia(values, offsets, diagonals, nrows, ncols, a, x, b, y, gate).
        unsafe { product.launch(self, &DIA, "spmv_dia", grid, &own) }
    }

    fn spmv_dot(
        &self,
        gate: Gate<'_, Self>,
        m: &CudaDia<T>,
        x: &Vector<T>,
        y: &mut Vector<T>,
        w: &Vector<T>,
        wy: &mut Scalar<T>,
        yy: Option<&mut Scalar<T>>,
    ) -> Result<()> {
        let product = ProductDot::new(self, (m.nrows, m.ncols), gate, x, y, w, wy, yy)?;
        let ([values, offsets, diagonals], grid) = (m.arguments(), Grid::of(m.nrows.div_ceil(BLOCK), 512));
        let (nrows, ncols) = ((m.nrows as u64).into(), (m.ncols as u64).into());
        if m.symmetric {
            let own = [values, offsets, diagonals, nrows];
            // SAFETY: spmv_dot_symmetric_dia(values, offsets, diagonals, nrows, x, y, w, tree, gate).
            return unsafe { product.launch::<T>(self, &DIA, "spmv_dot_symmetric_dia", grid, &own, None) };
        }
        let own = [values, offsets, diagonals, nrows, ncols];
        // SAFETY: spmv_dot_dia(values, offsets, diagonals, nrows, ncols, x, y, w, tree, gate).
        unsafe { product.launch::<T>(self, &DIA, "spmv_dot_dia", grid, &own, None) }
    }

    fn cg_iterations(
        &self,
        m: &CudaDia<T>,
        count: usize,
        x: &mut Vector<T>,
        r: &mut Vector<T>,
        p: &mut Vector<T>,
        q: &mut Vector<T>,
        pq: &mut Scalar<T>,
        rr: &mut Scalar<T>,
        rz: &mut Scalar<T>,
        monitor: &mut Monitor,
    ) -> Result<bool> {
        if m.nrows != m.ncols {
            return Ok(false);
        }
        let matrix = m.half_or_whole();
        // SAFETY: cg_dia(values, offsets, diagonals, symmetric, ...) of a square matrix with this reach.
        unsafe { self.cg_persistent(&m.persistent(), "cg_dia", &matrix, count, x, r, p, q, pq, rr, rz, monitor) }
    }

    fn bicgstab_iterations(
        &self,
        m: &CudaDia<T>,
        count: usize,
        shadow: &Vector<T>,
        x: &mut Vector<T>,
        r: &mut Vector<T>,
        p: &mut Vector<T>,
        v: &mut Vector<T>,
        t: &mut Vector<T>,
        scalars: [&mut Scalar<T>; 7],
        monitor: &mut Monitor,
    ) -> Result<bool> {
        if m.nrows != m.ncols {
            return Ok(false);
        }
        let matrix = m.half_or_whole();
        // SAFETY: bicgstab_dia(values, offsets, diagonals, symmetric, ...) of a square matrix with this reach.
        unsafe {
            self.bicgstab_persistent(
                &m.persistent(),
                "bicgstab_dia",
                &matrix,
                count,
                shadow,
                x,
                r,
                p,
                v,
                t,
                scalars,
                monitor,
            )
        }
    }
}

impl<T: Real> Spmm<Dia<T>> for Cuda {
    fn spmm(
        &self,
        gate: Gate<'_, Self>,
        a: Coeff<'_, T, Scalar<T>>,
        m: &CudaDia<T>,
        k: usize,
        x: &Vector<T>,
        b: Coeff<'_, T, Scalar<T>>,
        y: &mut Vector<T>,
    ) -> Result<()> {
        let product = Product::of_columns((m.nrows, m.ncols), k, gate, a, x, b, y)?;
        let [values, offsets, diagonals, symmetric] = m.half_or_whole();
        let [nrows, ncols, k] = [m.nrows, m.ncols, k].map(|n| (n as u64).into());
        let (own, grid) =
            ([values, offsets, diagonals, symmetric, nrows, ncols, k], Grid::of(m.nrows.div_ceil(256), 256));
        // SAFETY: spmm_dia(values, offsets, diagonals, symmetric, nrows, ncols, k, a, x, b, y, gate).
        unsafe { product.launch(self, &DIA, "spmm_dia", grid, &own) }
    }
}
