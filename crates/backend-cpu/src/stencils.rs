//! Stencil matrices of geometric multigrid on the CPU: the host's functions, by the threads of the device.
//!
//! Order: that of [`spandrel_formats::Coarsening`]. Cost: see [`spandrel_backend::Stencils`]; a smoothing step reads
//! four vectors and writes two.

use std::sync::Arc;

use spandrel_backend::error::expect_len;
use spandrel_backend::{Converted, Error, Gate, Load, Relax, Result, Spectrum, Stencils};
use spandrel_formats::{Coarsening, Dia, Diagonals, Divisor, Neighbours, Real, Traffic};

use crate::backend::GRANULE;
use crate::device::open;
use crate::simd::simd_fn;
use crate::spgemm::typed;
use crate::threads::Shared;
use crate::{Cpu, CpuDia, Vector};

simd_fn! {
    /// See [`Stencils::relax`].
    fn relax_slices<T>(step: Relax<T>, d: &[T], s: &[T], z: &mut [T], x: &mut [T]) {
        let Relax { kept, taken, weight, adds } = step;
        let rows = d.iter().zip(s).zip(z.iter_mut().zip(x));
        match (kept, adds) {
            (Some(kept), _) => rows.for_each(|((&d, &s), (z, x))| {
                *z = kept * *z + taken * (d * s);
                *x = if adds { *x + weight * *z } else { weight * *z };
            }),
            (None, true) => rows.for_each(|((&d, &s), (z, x))| {
                *z = taken * (d * s);
                *x += weight * *z;
            }),
            (None, false) => rows.for_each(|((&d, &s), (z, x))| {
                *z = taken * (d * s);
                *x = weight * *z;
            }),
        }
    }
}

/// The offsets and values of a matrix.
///
/// # Errors
/// [`Error::Unsupported`] unless it equals its transpose.
fn upper<'a, T: Real>(op: &'static str, a: &'a CpuDia<T>, of: &Neighbours) -> Result<(&'a [i32], Diagonals<'a, T>)> {
    let (offsets, values) = a.diagonals();
    if of.is_symmetric(offsets, values).map_err(typed)? {
        return Ok((offsets, values));
    }
    Err(Error::Unsupported { op, noun: "a matrix", why: "it must equal its transpose".to_owned() })
}

/// Takes a matrix that fills a stencil.
fn loaded<T: Real>(cpu: &Cpu, of: &Neighbours, made: Dia<T>) -> Result<Converted<CpuDia<T>>> {
    let (nnz, storage, spmv_bytes) = (of.entries(), made.storage(), made.spmv_bytes());
    let resident = cpu.load(Arc::new(made))?;
    let (storage, spmv_bytes) = Load::<Dia<T>>::traffic(cpu, &resident).unwrap_or((storage, spmv_bytes));
    Ok(Converted { resident, nnz, storage, spmv_bytes })
}

impl<T: Real> Stencils<T> for Cpu {
    fn stencil_offsets(&self, a: &CpuDia<T>) -> Vec<i32> {
        a.diagonals().0.to_vec()
    }

    fn coarser_stencil(&self, a: &CpuDia<T>, of: &Neighbours, to: &Coarsening) -> Result<Converted<CpuDia<T>>> {
        let (offsets, values) = upper("coarser_stencil", a, of)?;
        loaded(self, &of.coarser(to), of.galerkin(offsets, values, to).map_err(typed)?)
    }

    /// Only values that are kept in f32 get new memory.
    fn coarser_stencil_into(
        &self,
        a: &CpuDia<T>,
        of: &Neighbours,
        to: &Coarsening,
        coarse: &mut CpuDia<T>,
    ) -> Result<bool> {
        if let Some(coarse) = coarse.host_mut() {
            let (offsets, values) = upper("coarser_stencil_into", a, of)?;
            of.galerkin_into(offsets, values, to, coarse).map_err(typed)?;
            return Ok(true);
        }
        let made = self.coarser_stencil(a, of, to)?.resident;
        expect_len("coarser_stencil_into", "the diagonals", coarse.diagonals().0.len(), made.diagonals().0.len())?;
        self.copy_stencil(&made, coarse)
    }

    /// Shares the values.
    fn copy_stencil(&self, from: &CpuDia<T>, to: &mut CpuDia<T>) -> Result<bool> {
        let is_alike = from.diagonals().0 == to.diagonals().0 && from.is_narrow() == to.is_narrow();
        if is_alike {
            *to = from.clone();
        }
        Ok(is_alike)
    }

    fn stencil_spectrum(
        &self,
        a: &CpuDia<T>,
        of: &Neighbours,
        divisor: Divisor,
        inverse: &mut Vector<T>,
    ) -> Result<Spectrum> {
        let (offsets, values) = upper("stencil_spectrum", a, of)?;
        let (bound, unfit, entries) = of.spectrum(offsets, values, divisor, inverse.as_mut_slice()).map_err(typed)?;
        Ok(Spectrum { bound, unfit, entries })
    }

    fn stencil_rows(&self, a: &CpuDia<T>, of: &Neighbours, begin: usize, step: usize) -> Result<Vec<T>> {
        let (offsets, values) = upper("stencil_rows", a, of)?;
        of.rows(offsets, values, begin, step).map_err(typed)
    }

    fn stencil_diagonals(&self, a: &CpuDia<T>, of: &Neighbours) -> Result<Vec<Vector<T>>> {
        let (offsets, values) = upper("stencil_diagonals", a, of)?;
        let diagonal = |offset: i32| {
            let mut out = Vector::zeros(self, of.points())?;
            of.copy_diagonal(offsets, values, offset, out.as_mut_slice()).map_err(typed)?;
            Ok(out)
        };
        of.upper_offsets().into_iter().map(diagonal).collect()
    }

    fn stencil_of_diagonals(&self, of: &Neighbours, upper: &[Vector<T>]) -> Result<Converted<CpuDia<T>>> {
        let upper: Vec<&[T]> = upper.iter().map(Vector::as_slice).collect();
        loaded(self, of, of.of_diagonals(&upper).map_err(typed)?)
    }

    fn restrict(&self, gate: Gate<'_, Self>, to: &Coarsening, r: &Vector<T>, s: &mut Vector<T>) -> Result<()> {
        let [cx, cy, cz] = to.coarse();
        expect_len("restrict", "r", r.len(), to.fine().iter().product())?;
        expect_len("restrict", "s", s.len(), cx * cy * cz)?;
        if open(gate) {
            let (r, s) = (r.as_slice(), Shared::new(s.as_mut_slice()));
            let bytes = r.len() / (cy * cz).max(1) * T::BYTES;
            self.split(cy * cz, bytes, 1, |lines| {
                let mut work = Default::default();
                for line in lines {
                    // SAFETY: `split` hands out disjoint ranges of lines.
                    let s = unsafe { s.part(line * cx..(line + 1) * cx) };
                    to.restrict_line(r, [line % cy, line / cy], &mut work, s);
                }
            });
        }
        Ok(())
    }

    fn prolong(&self, gate: Gate<'_, Self>, to: &Coarsening, e: &Vector<T>, x: &mut Vector<T>) -> Result<()> {
        let [nx, ny, nz] = to.fine();
        expect_len("prolong", "e", e.len(), to.coarse().iter().product())?;
        expect_len("prolong", "x", x.len(), nx * ny * nz)?;
        if open(gate) {
            let (e, x) = (e.as_slice(), Shared::new(x.as_mut_slice()));
            self.split(ny * nz, 3 * nx * T::BYTES, 1, |lines| {
                let mut work = Default::default();
                for line in lines {
                    // SAFETY: `split` hands out disjoint ranges of lines.
                    let x = unsafe { x.part(line * nx..(line + 1) * nx) };
                    to.prolong_line(e, [line % ny, line / ny], &mut work, x);
                }
            });
        }
        Ok(())
    }

    fn relax(
        &self,
        gate: Gate<'_, Self>,
        step: Relax<T>,
        d: &Vector<T>,
        s: &Vector<T>,
        z: &mut Vector<T>,
        x: &mut Vector<T>,
    ) -> Result<()> {
        for (what, len) in [("s", s.len()), ("z", z.len()), ("x", x.len())] {
            expect_len("relax", what, len, d.len())?;
        }
        if open(gate) {
            let (simd, d, s) = (self.simd(), d.as_slice(), s.as_slice());
            let (z, x) = (Shared::new(z.as_mut_slice()), Shared::new(x.as_mut_slice()));
            self.split(d.len(), 6 * T::BYTES, GRANULE, |rows| {
                // SAFETY: `split` hands out disjoint ranges of z and x.
                let (z, x) = unsafe { (z.part(rows.clone()), x.part(rows.clone())) };
                relax_slices(simd, step, &d[rows.clone()], &s[rows], z, x);
            });
        }
        Ok(())
    }
}
