//! Trials of a GPU: rows of large matrices that repeat are sent as runs. In device memory they must be the same as on
//! the host, bit for bit.

use std::sync::Arc;

use spandrel_backend::{Backend, Coeff, Device, Mat, Tri};
use spandrel_backend_cpu::Cpu;
use spandrel_backend_cuda::Cuda;
use spandrel_formats::{Bsr, Csr, Real, generate};
use spandrel_sptrsv::{Diagonal, Plan, Serial, System, Systems, Triangle, Triangular, part};

use crate::case::numbers;
use crate::reference::difference;
use crate::trial::{Finding, Verdict, wrong};

/// Rows given by their periods: the gaps between the columns of each row, and how often the period is repeated.
#[derive(Default)]
struct Rows {
    ptr: Vec<u32>,
    cols: Vec<u32>,
}

impl Rows {
    fn repeated(mut self, period: &[Vec<u32>], times: u32) -> Self {
        if self.ptr.is_empty() {
            self.ptr.push(0);
        }
        for time in 0..times {
            for row in period {
                let mut col = time * period.len() as u32;
                for gap in row {
                    col += gap;
                    self.cols.push(col);
                }
                self.ptr.push(self.cols.len() as u32);
            }
        }
        self
    }

    /// Rows of random lengths below `most` with random gaps, each different from the previous one.
    fn random(mut self, rows: usize, most: u32, next: &mut dyn FnMut(u32) -> u32) -> Self {
        for _ in 0..rows {
            let row = (0..next(most)).map(|_| 1 + next(1000)).collect();
            self = self.repeated(&[row], 1);
        }
        self
    }

    fn csr<T: Real>(self) -> std::result::Result<Csr<T>, Finding> {
        let ncols = self.cols.iter().max().map_or(1, |col| col + 1);
        let values = numbers(self.cols.len() as u64, self.cols.len());
        Ok(Csr::new(self.ptr.len() - 1, ncols as usize, self.ptr, self.cols, values)?)
    }
}

/// Random numbers below a bound.
fn numbers_below() -> impl FnMut(u32) -> u32 {
    let mut state = 1u64;
    move |bound| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % u64::from(bound.max(1))) as u32
    }
}

/// Overwrites the memory that a load is likely to get, so that no array of an earlier load is left there.
fn poison(be: &Cuda, bytes: usize) -> Verdict {
    drop(be.upload(&vec![f64::NAN; bytes / 8 + 1])?);
    Ok(be.synchronize()?)
}

fn lies_there<T: Real>(be: &Cuda, what: &str, host: &Arc<Csr<T>>) -> Verdict {
    poison(be, 4 * (host.nrows() + host.nnz()) + T::BYTES * host.nnz())?;
    let loaded = Mat::<Cuda, Csr<T>>::load(be, Arc::clone(host))?;
    let (row_ptr, col_idx) = loaded.resident().download_pattern()?;
    for (array, found, wanted) in [("row_ptr", &row_ptr, host.row_ptr()), ("col_idx", &col_idx, host.col_idx())] {
        let differs = found.iter().zip(wanted).position(|(found, wanted)| found != wanted);
        if found.len() != wanted.len() || differs.is_some() {
            let (here, there) = (wanted.len(), found.len());
            return Err(wrong(format!("{what}: {array}, {here} here and {there} there, differs at {differs:?}")));
        }
    }
    Ok(())
}

/// Stencils, bands, unknowns, arrays that do not repeat, and mixtures: rows without entries, lines of one row, rows
/// longer than a piece, runs that pass from piece to piece, and ends inside a period. The sizes are around the one from
/// which runs are searched for.
pub(super) fn arrays(be: &Cuda) -> Verdict {
    for spec in [
        "d3n7:120x81x90",
        "d3n27:60x61x60",
        "banded:n=150000,d=33",
        "poisson2d:1523x717",
        "random:n=600000,nnz_per_row=9",
    ] {
        lies_there::<f64>(be, spec, &Arc::new(generate::csr(spec)?))?;
        lies_there::<f32>(be, &format!("{spec} in f32"), &Arc::new(generate::csr(spec)?))?;
    }
    let next = &mut numbers_below();
    for step in 2..=6usize {
        let period: Vec<Vec<u32>> = (0..step).map(|k| vec![1; 3 * step + k % 2]).collect();
        let times = (5_000_000 / (step * (3 * step + 1))) as u32;
        let rows = Rows::default().repeated(&period, times).repeated(&period[..step - 1], 1);
        lies_there::<f64>(be, &format!("{step} unknowns"), &Arc::new(rows.csr()?))?;
    }
    let five = || vec![vec![1, 2, 3, 4, 5]];
    let mixed = Rows::default()
        .repeated(&[vec![]], 3)
        .repeated(&five(), 400_000)
        .random(60_000, 12, next)
        .repeated(&[vec![]], 700_000)
        .repeated(&[vec![1; 600_000]], 1)
        .repeated(&five(), 100_000)
        .repeated(&[vec![1; 1_200_000]], 2)
        .repeated(&[vec![7]], 900_000)
        .random(1, 12, next)
        .repeated(&[vec![]], 1);
    lies_there::<f64>(be, "mixed", &Arc::new(mixed.csr()?))?;
    let mut lengths = Rows::default();
    for _ in 0..30_000 {
        let period: Vec<Vec<u32>> = (0..1 + next(3)).map(|_| (0..next(9)).map(|_| 1 + next(50)).collect()).collect();
        let times = 1 + next(60);
        lengths = lengths.repeated(&period, times);
    }
    lies_there::<f64>(be, "runs of random lengths", &Arc::new(lengths.csr()?))?;
    lies_there::<f64>(be, "rows without entries", &Arc::new(Rows::default().repeated(&[vec![]], 5_000_000).csr()?))?;
    for rows in (1 << 20) - 3..=(1 << 20) + 1 {
        let of = |rows| Rows::default().repeated(&[vec![2, 1, 1]], rows);
        lies_there::<f64>(be, &format!("{rows} rows"), &Arc::new(of(rows).csr()?))?;
    }
    Ok(())
}

/// The other matrices whose rows reach the device in this way: blocks and triangles. Their results must be the CPU's.
pub(super) fn blocks_and_triangles(be: &Cuda) -> Verdict {
    let cpu = Cpu::new();
    let period = vec![vec![1; 8]; 2];
    let blocks: Csr<f64> = Rows::default().repeated(&period, 750_000).csr()?;
    let bsr = Arc::new(Bsr::from_csr_with(&blocks, 2)?);
    let (n, x) = (blocks.nrows(), numbers::<f64>(2, blocks.ncols()));
    poison(be, 16 * blocks.nnz())?;
    let here = Mat::<Cpu, Bsr<f64>>::load(&cpu, Arc::clone(&bsr))?;
    let there = Mat::<Cuda, Bsr<f64>>::load(be, bsr)?;
    let (mut wanted, mut found) = (cpu.upload(&vec![f64::NAN; n])?, be.upload(&vec![f64::NAN; n])?);
    here.spmv(&cpu, None, Coeff::one(), &cpu.upload(&x)?, Coeff::zero(), &mut wanted)?;
    there.spmv(be, None, Coeff::one(), &be.upload(&x)?, Coeff::zero(), &mut found)?;
    let same = |what: &str, found: &[f64], wanted: &[f64]| {
        difference(found, wanted).map_or(Ok(()), |detail| Err(wrong(format!("{what}: {detail}"))))
    };
    same("blocks", &be.download(&found)?, &cpu.download(&wanted)?)?;

    let a: Csr<f64> = generate::csr("d3n7:110x100x85")?;
    let n = a.nrows();
    let lower = part(&a, Triangle::Lower).map_err(wrong)?;
    let triangle = Arc::new(Triangular::new(lower, Triangle::Lower, Diagonal::NonUnit).map_err(wrong)?);
    let plan = || Serial::analyze(Arc::clone(&triangle), Systems::Both).map_err(wrong);
    poison(be, 64 * n)?;
    let (here, there) = (Tri::<Cpu, Serial<f64>>::load(&cpu, plan()?)?, Tri::<Cuda, Serial<f64>>::load(be, plan()?)?);
    let b = numbers::<f64>(3, n);
    for system in [System::Plain, System::Transposed] {
        let (mut wanted, mut found) = (cpu.upload(&vec![f64::NAN; n])?, be.upload(&vec![f64::NAN; n])?);
        here.sptrsv(&cpu, None, system, &cpu.upload(&b)?, &mut wanted)?;
        there.sptrsv(be, None, system, &be.upload(&b)?, &mut found)?;
        same(&format!("a triangle, {system:?}"), &be.download(&found)?, &cpu.download(&wanted)?)?;
    }
    Ok(())
}
