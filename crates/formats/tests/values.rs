//! Values of every kind in every format of the registry. Duplicates are summed in the order of pushing. NaNs,
//! infinities, subnormals and stored zeros come back with their bits, from shapes down to 0 x n.

use std::collections::BTreeMap;

use proptest::prelude::*;
use spandrel_formats::{Csr, Error, Format, Real, Triplets, first_not_finite, for_each_format};

/// Whether two values have equal bits. All NaNs are equal.
fn bits<T: Real>(values: &[T]) -> Vec<u64> {
    values.iter().map(|v| if v.is_nan() { u64::MAX } else { v.as_f64().to_bits() }).collect()
}

fn parts<T: Real>(csr: &Csr<T>) -> (usize, usize, &[u32], &[u32], Vec<u64>) {
    (csr.nrows(), csr.ncols(), csr.row_ptr(), csr.col_idx(), bits(csr.values()))
}

fn without_zeros<T: Real>(csr: &Csr<T>) -> Csr<T> {
    let (mut row_ptr, mut col_idx, mut values) = (vec![0], Vec::new(), Vec::new());
    for i in 0..csr.nrows() {
        let (cols, stored) = csr.row(i);
        for (&j, &v) in cols.iter().zip(stored).filter(|(_, v)| **v != T::zero()) {
            col_idx.push(j);
            values.push(v);
        }
        row_ptr.push(values.len() as u32);
    }
    Csr::new(csr.nrows(), csr.ncols(), row_ptr, col_idx, values).unwrap()
}

fn values_survive<F: Format>(csr: &Csr<F::Value>) {
    let stored = match F::from_csr(csr) {
        Ok(stored) => stored,
        Err(Error::DoesNotFit { .. }) => return,
        Err(error) => panic!("{}: {error}", F::NAME),
    };
    let kept = if F::MULTIPLIES_FILL { without_zeros(csr) } else { csr.clone() };
    assert_eq!(parts(&stored.to_csr().unwrap()), parts(&kept), "{}", F::NAME);
    assert_eq!((stored.nrows(), stored.ncols(), stored.nnz()), (csr.nrows(), csr.ncols(), kept.nnz()), "{}", F::NAME);
    let transposed = stored.transpose().unwrap();
    assert_eq!(parts(&transposed.to_csr().unwrap()), parts(&kept.transpose()), "{} transposed", F::NAME);
}

macro_rules! each {
    ([$csr:ident $T:ident] $(($stem:ident, $Type:ident)),*) => { $(
        values_survive::<spandrel_formats::$Type<$T>>($csr);
    )* };
}

fn every_kind() -> impl Strategy<Value = f64> {
    let edges = vec![0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 5e-324, -1e-310, f64::MAX, 1.0];
    prop_oneof![prop::sample::select(edges), any::<u64>().prop_map(f64::from_bits), -4.0..4.0f64]
}

/// A shape, down to nothing, and entries of which some come twice.
fn entries() -> impl Strategy<Value = (usize, usize, Vec<(usize, usize, f64)>)> {
    let extent = || prop_oneof![Just(0usize), Just(1), 2usize..30];
    (extent(), extent()).prop_flat_map(|(nrows, ncols)| {
        let most = if nrows * ncols == 0 { 0 } else { 120 };
        let entry = (0..nrows.max(1), 0..ncols.max(1), every_kind());
        (Just(nrows), Just(ncols), prop::collection::vec(entry, 0..=most))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(96) })]

    #[test]
    fn of_every_format((nrows, ncols, entries) in entries()) {
        let mut triplets = Triplets::new(nrows, ncols).unwrap();
        let mut summed: BTreeMap<(usize, usize), f64> = BTreeMap::new();
        for &(i, j, v) in &entries {
            triplets.push(i, j, v).unwrap();
            summed.entry((i, j)).and_modify(|sum| *sum += v).or_insert(v);
        }
        let csr = &triplets.to_csr().unwrap();
        let expected: Vec<f64> = summed.values().copied().collect();
        prop_assert_eq!(bits(csr.values()), bits(&expected), "duplicates are summed in their order");
        for_each_format!(each, csr, f64);
        let narrow = &csr.map(|v| v as f32);
        for_each_format!(each, narrow, f32);
    }
}

#[test]
fn the_first_number_that_is_not_finite_is_found_in_every_piece() {
    let last = 3 * (1 << 14) + 4;
    for at in [0, 1, (1 << 14) - 1, 1 << 14, 40_000, last] {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let mut v = vec![f64::MAX; last + 1];
            assert_eq!(first_not_finite(&v), None);
            (v[at], v[last]) = (bad, f64::NAN);
            assert_eq!(first_not_finite(&v), Some(at));
        }
    }
    let a = Csr::from_triplets(2, 2, [(0, 0, 2.0), (1, 1, f64::NAN)]).unwrap();
    assert_eq!((first_not_finite(a.values()), bits(&a.into_values())), (Some(1), bits(&[2.0, f64::NAN])));
}
