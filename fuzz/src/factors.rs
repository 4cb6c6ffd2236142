//! Incomplete factorisations, and everything else that reads the structure. Any square matrix gives finite factors on
//! the promised pattern, or a typed breakdown. Statistics, the recognition of grids and the choice of formats accept
//! any matrix.

use arbitrary::{Result, Unstructured};
use spandrel_formats::{Csr, Grid, Permutation, Profile, Real, Stats, choose, product};
use spandrel_sptrsv::{Error, Factor, Ilu0, Iluk, Ilut, IlutOptions, Ssor, for_each_factor, part, serial, split};

use super::input::{self, same};

/// Factors a matrix from the bytes in every way.
///
/// # Panics
/// If a factorisation breaks a promise.
pub fn check(bytes: &[u8]) {
    // Missing bytes are zeros: what is there is used to its end.
    let _ = with_bytes(&mut Unstructured::new(bytes));
}

macro_rules! by_each_factor {
    ([$csr:ident $T:ident] $(($stem:ident, $Factor:ident)),*) => {
        $( finite::<spandrel_sptrsv::$Factor<$T>>($csr, spandrel_sptrsv::$Factor::<$T>::symbolic($csr)); )*
    };
}

fn with_bytes(u: &mut Unstructured<'_>) -> Result<()> {
    let [level, omega, kind] = u.arbitrary::<[u8; 3]>()?;
    if kind % 8 == 7 {
        looked_at(&input::matrix::<f64>(u)?);
        return Ok(());
    }
    let mut csr = input::square::<f64>(u)?;
    if kind % 2 == 0 {
        csr = dominant(&csr);
    }
    let csr = &csr;
    looked_at(csr);
    for_each_factor!(by_each_factor, csr, f64);
    finite(csr, Iluk::with_level(csr, usize::from(level % 16)));
    let thresholds = IlutOptions {
        drop: f64::from(omega) / 255.0,
        fill: 1.0 + f64::from(level) / 16.0,
        pivot: f64::from(kind) / 255.0,
    };
    finite(csr, Ilut::new(csr, thresholds));
    let (q, pivoted) = Ilut::pivoted(csr, thresholds).expect("options in range");
    finite(&q.permute_columns(csr).expect("a square matrix"), Ok(pivoted));
    finite(csr, Ssor::with_omega(csr, f64::from(omega) / 100.0));
    let narrow = &csr.map(|v| v as f32);
    for_each_factor!(by_each_factor, narrow, f32);
    // Without a level there is no fill.
    if let (Ok(without), Ok(level)) = (Ilu0::factor(csr), Iluk::with_level(csr, 0)) {
        let level = level.triangles(level.numeric(csr.values()).expect("ILU(0) has it")).expect("ILU(0) has it");
        assert!(same(without.lower.csr().values(), level.lower.csr().values()), "L of level 0");
        let upper = |of: &spandrel_sptrsv::Triangles<f64>| of.upper.as_ref().map(|u| u.csr().clone());
        assert_eq!(upper(&without), upper(&level), "U of level 0");
    }
    let parts = split(csr).expect("a square matrix");
    assert_eq!(part(csr, spandrel_sptrsv::Triangle::Lower).expect("a square matrix").nnz(), parts.lower.nnz());
    Ok(())
}

/// A matrix of the same pattern whose diagonal outweighs each row.
fn dominant(csr: &Csr<f64>) -> Csr<f64> {
    let n = csr.nrows();
    let mut triplets = spandrel_formats::Triplets::new(n, n).expect("a small shape");
    for i in 0..n {
        let (cols, values) = csr.row(i);
        let mut sum = 1.0;
        for (&j, &v) in cols.iter().zip(values).filter(|&(&j, v)| j as usize != i && v.is_finite()) {
            triplets.push(i, j as usize, v).expect("an entry inside");
            sum += v.abs();
        }
        triplets.push(i, i, sum).expect("an entry inside");
    }
    triplets.to_csr().expect("a small matrix")
}

fn finite<F: Factor>(csr: &Csr<F::Value>, symbolic: spandrel_sptrsv::Result<F>) {
    let values = csr.values();
    let symbolic = match symbolic {
        Ok(symbolic) => symbolic,
        Err(Error::MissingPivot { row }) => return assert!(csr.get(row, row).is_none(), "{}: row {row}", F::NAME),
        Err(Error::Omega { .. }) => return,
        Err(error) => panic!("{}: {error}", F::NAME),
    };
    assert_eq!((symbolic.nrows(), symbolic.nnz_given()), (csr.nrows(), csr.nnz()), "{}", F::NAME);
    if let Some(Ok(mended)) = symbolic.mended(values) {
        assert!(
            mended.lower.iter().chain(&mended.upper).all(|v| v.as_f64().is_finite()),
            "{}: mended, not finite",
            F::NAME
        );
        assert!(symbolic.triangles(mended).is_ok(), "{}: mended, with a zero pivot", F::NAME);
    }
    let factors = match symbolic.numeric(values) {
        Ok(factors) => factors,
        Err(
            Error::NotFinite { .. } | Error::ZeroPivot { .. } | Error::TinyPivot { .. } | Error::NotPositive { .. },
        ) => return,
        Err(error) => panic!("{}: {error}", F::NAME),
    };
    assert!(factors.lower.iter().chain(&factors.upper).all(|v| v.as_f64().is_finite()), "{}: not finite", F::NAME);
    let triangles = match symbolic.triangles(factors) {
        Ok(triangles) => triangles,
        // SSOR divides the diagonal, and may so reach 0.
        Err(Error::ZeroDiagonal { .. }) => return,
        Err(error) => panic!("{}: {error}", F::NAME),
    };
    let b = vec![F::Value::from_f64(1.0); csr.nrows()];
    let mut x = b.clone();
    serial::solve(&triangles.lower, &b, &mut x).expect("equal sizes");
    if let Some(upper) = &triangles.upper {
        serial::solve(upper, &b, &mut x).expect("equal sizes");
    }
}

/// Calls everything that reads a matrix and accepts every one.
fn looked_at(csr: &Csr<f64>) {
    let stats = Stats::of(csr).expect("a small matrix");
    assert_eq!(stats.is_square(), csr.nrows() == csr.ncols());
    for profile in [Profile::reference(), Profile::invented(&[])] {
        let choice = choose(csr, &profile);
        assert!(!choice.to_string().is_empty());
    }
    if let Ok(grid) = Grid::detect(csr) {
        assert!(grid.places() >= csr.nnz() as u64, "a grid with more entries than places");
    }
    let square = product(csr, &csr.transpose()).expect("a small matrix");
    assert_eq!((square.nrows(), square.ncols()), (csr.nrows(), csr.nrows()));
    // Reversed twice.
    let n = csr.nrows();
    let reverse = Permutation::new((0..n as u32).rev().collect()).expect("a permutation");
    let twice = reverse.permute_rows(&reverse.permute_rows(csr).expect("rows fit")).expect("rows fit");
    assert_eq!((twice.row_ptr(), twice.col_idx()), (csr.row_ptr(), csr.col_idx()));
}
