//! Every invariant of every format is violated once. Each gives the right typed error and never a panic.

use std::sync::Arc;

use spandrel_formats::{
    Array, Band, Bdia, Bsr, Bsrx, Coo, Csc, Csr, Dense, Dia, Ell, EllBlock, Error, Format, Hec, Hmec, Hyb, MAX_INDEX,
    PADDING, Sell,
};

/// Checks that the expression is this error and that it has a text.
macro_rules! refused {
    ($what:expr, $pattern:pat) => {
        match $what {
            Ok(_) => panic!("accepted: {}", stringify!($what)),
            Err(error) => {
                assert!(matches!(error, $pattern), "{error:?} is not {}", stringify!($pattern));
                assert!(!error.to_string().is_empty());
            }
        }
    };
}

const HUGE: usize = 1 << 31;
const P: u32 = PADDING;

#[test]
fn sizes_past_the_indices() {
    refused!(Csr::<f64>::new(HUGE, 1, vec![0], vec![], vec![]), Error::TooLarge { what: "rows", .. });
    refused!(Coo::<f64>::new(HUGE, 1, vec![], vec![], vec![]), Error::TooLarge { what: "rows", .. });
    refused!(Coo::<f64>::new(1, HUGE, vec![], vec![], vec![]), Error::TooLarge { what: "columns", .. });
    refused!(Csc::<f64>::new(1, HUGE, vec![0], vec![], vec![]), Error::TooLarge { what: "columns", .. });
    refused!(Ell::<f64>::new(HUGE, 1, 0, vec![], vec![]), Error::TooLarge { .. });
    refused!(Sell::<f64>::new(HUGE, 1, 32, 32, vec![0], vec![], vec![], vec![]), Error::TooLarge { .. });
    refused!(Dia::<f64>::new(HUGE, 1, vec![], vec![]), Error::TooLarge { .. });
    refused!(Bdia::<f64>::new(1, HUGE, vec![], vec![]), Error::TooLarge { .. });
    refused!(Bsr::<f64>::new(HUGE, 1, 2, vec![0], vec![], vec![]), Error::TooLarge { .. });
    refused!(Bsr::<f64>::new(1, 1, HUGE, vec![0, 0], vec![], vec![]), Error::TooLarge { .. });
    refused!(Bsrx::<f64>::new(1, HUGE, 2, vec![0], vec![0], vec![], vec![], vec![]), Error::TooLarge { .. });
    refused!(Dense::<f64>::new(HUGE, HUGE, vec![]), Error::TooLarge { .. });
    let rest = Csr::<f64>::new(0, 1, vec![0], vec![], vec![]).unwrap();
    refused!(Hmec::new(HUGE, 1, vec![], vec![], rest.clone(), 1), Error::TooLarge { .. });
    refused!(Hec::new(HUGE, 1, vec![], None, rest), Error::TooLarge { .. });
    refused!(EllBlock::<f64>::new(HUGE, 1, 1, vec![], vec![]), Error::TooLarge { .. });
}

#[test]
fn csr() {
    refused!(Csr::new(2, 2, vec![0, 1], vec![0], vec![1.0]), Error::Length { array: "row_ptr", expected: 3, .. });
    refused!(Csr::new(1, 2, vec![0, 1], vec![0], vec![1.0; 2]), Error::Length { array: "values", .. });
    refused!(Csr::new(1, 2, vec![1, 1], vec![0], vec![1.0]), Error::Pointer { at: 0, .. });
    refused!(Csr::new(2, 2, vec![0, 2, 1], vec![0], vec![1.0]), Error::Pointer { at: 2, .. });
    refused!(Csr::new(1, 2, vec![0, 2], vec![0], vec![1.0]), Error::Pointer { at: 1, found: 2, .. });
    refused!(Csr::new(1, 2, vec![0, 1], vec![2], vec![1.0]), Error::IndexOutOfRange { found: 2, bound: 2, .. });
    refused!(Csr::new(1, 2, vec![0, 2], vec![1, 1], vec![1.0; 2]), Error::Unsorted { at: 1, .. });
    let unsorted =
        |ptr: [u32; 2], cols: [u32; 2], n: usize| Csr::from_unsorted(1, 2, ptr.into(), cols.into(), vec![1.0; n]);
    refused!(unsorted([0, 2], [1, 2], 2), Error::IndexOutOfRange { at: 1, found: 2, bound: 2, .. });
    refused!(unsorted([0, 1], [1, 0], 2), Error::Pointer { at: 1, .. });
    refused!(unsorted([0, 2], [1, 0], 1), Error::Length { array: "values", .. });
    refused!(Csr::<f64>::from_unsorted(1, HUGE, vec![0, 0], vec![], vec![]), Error::TooLarge { what: "columns", .. });
}

/// Memory of another owner is checked like a `Vec`, and read in place until it is written.
#[test]
fn csr_over_memory_of_another_owner() {
    let kept: Arc<[f64]> = Arc::from([1.0, 2.0, 3.0]);
    let of = |row_ptr: Vec<u32>| {
        Csr::from_arrays(2, 2, row_ptr.into(), vec![0, 0, 1].into(), Array::shared(Arc::clone(&kept)))
    };
    refused!(of(vec![0, 1, 2]), Error::Pointer { .. });
    let a = of(vec![0, 1, 3]).unwrap();
    assert!(std::ptr::eq(a.values(), &*kept) && std::ptr::eq(a.clone().values(), &*kept));
    assert_eq!(a, Csr::new(2, 2, vec![0, 1, 3], vec![0, 0, 1], kept.to_vec()).unwrap());
    let mut changed = a.clone();
    changed.values_mut()[0] = 9.0;
    assert_eq!((changed.values(), a.values()), (&[9.0, 2.0, 3.0][..], &*kept));
    assert_eq!(a.into_parts().4, &*kept);
}

#[test]
fn other_values_on_the_pattern_of_a_csr() {
    let mut a = Csr::from_triplets(2, 3, [(0, 0, 2.0), (0, 2, f64::NAN), (1, 1, f64::INFINITY)]).unwrap();
    let error = a.with_values(vec![1.0; 2]).unwrap_err();
    assert!(matches!(error, Error::Length { array: "values", found: 2, expected: 3, .. }), "{error}");
    for is_shared in [false, true] {
        let b = a.with_values(vec![1.0f32, 2.0, f32::MAX]).unwrap();
        assert_eq!((b.nrows(), b.ncols(), b.row_ptr(), b.col_idx()), (2, 3, a.row_ptr(), a.col_idx()));
        assert_eq!(b.values(), [1.0, 2.0, f32::MAX]);
        assert_eq!(std::ptr::eq(b.col_idx(), a.col_idx()), is_shared);
        a.share_pattern();
    }
}

#[test]
fn coo() {
    refused!(Coo::new(2, 2, vec![0], vec![0, 1], vec![1.0]), Error::Length { array: "cols", .. });
    refused!(Coo::new(2, 2, vec![0], vec![0], vec![1.0; 2]), Error::Length { array: "values", .. });
    refused!(Coo::new(2, 2, vec![2], vec![0], vec![1.0]), Error::IndexOutOfRange { array: "rows", .. });
    refused!(Coo::new(2, 2, vec![0], vec![2], vec![1.0]), Error::IndexOutOfRange { array: "cols", .. });
    refused!(Coo::new(2, 2, vec![1, 0], vec![0, 0], vec![1.0; 2]), Error::Unsorted { array: "rows", at: 1, .. });
    refused!(Coo::new(2, 2, vec![1, 1], vec![1, 0], vec![1.0; 2]), Error::Unsorted { array: "cols", at: 1, .. });
    refused!(Coo::new(2, 2, vec![1, 1], vec![1, 1], vec![1.0; 2]), Error::Unsorted { array: "cols", at: 1, .. });
}

#[test]
fn csc() {
    refused!(Csc::new(2, 2, vec![0, 1], vec![0], vec![1.0]), Error::Length { array: "col_ptr", .. });
    refused!(Csc::<f64>::new(2, 1, vec![0, 1], vec![0], vec![]), Error::Length { array: "values", .. });
    refused!(Csc::new(2, 1, vec![0, 0], vec![0], vec![1.0]), Error::Pointer { array: "col_ptr", at: 1, .. });
    refused!(Csc::new(2, 1, vec![0, 1], vec![2], vec![1.0]), Error::IndexOutOfRange { array: "row_idx", .. });
    refused!(Csc::new(2, 1, vec![0, 2], vec![1, 0], vec![1.0; 2]), Error::Unsorted { array: "row_idx", .. });
}

#[test]
fn ell() {
    let ell = |cols: [u32; 4], values: [f64; 4]| Ell::new(2, 9, 2, cols.to_vec(), values.to_vec());
    ell([0, 1, 2, P], [1.0, 1.0, 1.0, 0.0]).unwrap();
    refused!(Ell::new(2, 9, 2, vec![0; 3], vec![1.0; 4]), Error::Length { array: "cols", expected: 4, .. });
    refused!(Ell::new(2, 9, 2, vec![0; 4], vec![1.0; 3]), Error::Length { array: "values", .. });
    refused!(Ell::<f64>::new(2, 9, usize::MAX, vec![], vec![]), Error::TooLarge { what: "columns", .. });
    refused!(Ell::<f64>::new(2, 9, 3, vec![], vec![]), Error::Length { array: "cols", expected: 6, .. });
    refused!(ell([0, 1, 9, P], [1.0, 1.0, 1.0, 0.0]), Error::IndexOutOfRange { at: 2, found: 9, bound: 9, .. });
    refused!(ell([2, 1, 2, P], [1.0, 1.0, 1.0, 0.0]), Error::Unsorted { at: 2, .. });
    refused!(ell([0, P, 2, 3], [1.0, 0.0, 1.0, 1.0]), Error::Invalid { .. });
    refused!(ell([0, 1, 2, P], [1.0; 4]), Error::Invalid { .. });
}

#[test]
fn sell() {
    let sell = |c, sigma, slice_ptr: &[u32], perm: &[u32], cols: &[u32], values: &[f64]| {
        Sell::new(3, 9, c, sigma, slice_ptr.to_vec(), perm.to_vec(), cols.to_vec(), values.to_vec())
    };
    let (ptr, perm, cols, values) = ([0, 1, 2], [0, 1, 2], [4, 4, 4, P], [1.0, 1.0, 1.0, 0.0]);
    sell(2, 2, &ptr, &perm, &cols, &values).unwrap();
    refused!(sell(0, 2, &ptr, &perm, &cols, &values), Error::Invalid { .. });
    refused!(sell(2, 0, &ptr, &perm, &cols, &values), Error::Invalid { .. });
    refused!(sell(2, 3, &ptr, &perm, &cols, &values), Error::Invalid { .. });
    refused!(sell(2, 2, &ptr[..2], &perm, &cols, &values), Error::Length { array: "slice_ptr", .. });
    refused!(sell(2, 2, &[1, 1, 2], &perm, &cols, &values), Error::Pointer { at: 0, .. });
    refused!(sell(2, 2, &[0, 3, 2], &perm, &cols, &values), Error::Pointer { at: 2, .. });
    refused!(sell(2, 2, &[0, 1, 3], &perm, &cols, &values), Error::Length { array: "cols", .. });
    refused!(sell(2, 2, &ptr, &perm[..2], &cols, &values), Error::Length { array: "perm", .. });
    refused!(sell(2, 2, &ptr, &[0, 1, 3], &cols, &values), Error::IndexOutOfRange { array: "perm", .. });
    refused!(sell(2, 2, &ptr, &[0, 0, 2], &cols, &values), Error::Invalid { .. });
    refused!(sell(2, 2, &ptr, &[2, 1, 0], &cols, &values), Error::Invalid { .. });
    refused!(sell(2, 2, &ptr, &perm, &cols, &values[..3]), Error::Length { array: "values", .. });
    refused!(sell(2, 2, &ptr, &perm, &[4, 4, 4, 4], &values), Error::Invalid { .. });
    refused!(sell(2, 2, &ptr, &perm, &cols, &[1.0; 4]), Error::Invalid { .. });
    refused!(sell(2, 2, &ptr, &perm, &[4, 9, 4, P], &values), Error::IndexOutOfRange { at: 1, .. });
    let two = [1.0, 1.0, 1.0, 0.0, 1.0, 0.0];
    refused!(sell(2, 2, &[0, 1, 3], &perm, &[4, 4, 4, P, 4, P], &two), Error::Unsorted { at: 4, .. });
    let csr = Csr::<f64>::identity(3).unwrap();
    refused!(Sell::from_csr_with(&csr, 0, 1), Error::Invalid { .. });
    refused!(Sell::from_csr_with(&csr, 4, 6), Error::Invalid { .. });
}

#[test]
fn dia() {
    Dia::new(2, 2, vec![-1, 1], vec![0.0, 1.0, 1.0, 0.0]).unwrap();
    refused!(Dia::new(2, 2, vec![0], vec![1.0]), Error::Length { array: "values", .. });
    refused!(Dia::new(2, 2, vec![1, 0], vec![0.0; 4]), Error::Unsorted { at: 1, .. });
    refused!(Dia::new(2, 2, vec![0, 0], vec![0.0; 4]), Error::Unsorted { at: 1, .. });
    refused!(Dia::new(2, 2, vec![2], vec![0.0; 2]), Error::Invalid { .. });
    refused!(Dia::new(2, 2, vec![-2], vec![0.0; 2]), Error::Invalid { .. });
    refused!(Dia::new(2, 2, vec![i32::MIN], vec![0.0; 2]), Error::Invalid { .. });
    refused!(Dia::new(2, 2, vec![1], vec![1.0; 2]), Error::Invalid { .. });
    refused!(Dia::new(2, 2, vec![-1], vec![1.0; 2]), Error::Invalid { .. });
}

#[test]
fn bdia() {
    let band = |start, width| Band { start, width };
    Bdia::new(2, 2, vec![band(-1, 2)], vec![0.0, 1.0, 1.0, 1.0]).unwrap();
    refused!(Bdia::new(2, 2, vec![band(-1, 2)], vec![0.0; 2]), Error::Length { array: "values", .. });
    refused!(Bdia::new(2, 2, vec![band(-1, 2), band(0, 1)], vec![0.0; 6]), Error::Unsorted { array: "bands", .. });
    refused!(Bdia::new(2, 2, vec![band(0, 0)], vec![0.0; 0]), Error::Invalid { .. });
    refused!(Bdia::new(2, 2, vec![band(0, 3)], vec![0.0; 6]), Error::Invalid { .. });
    refused!(Bdia::new(2, 2, vec![band(0, u32::MAX)], vec![0.0; 6]), Error::Invalid { .. });
    refused!(Bdia::new(2, 2, vec![band(-2, 2)], vec![0.0; 4]), Error::Invalid { .. });
    refused!(Bdia::new(2, 2, vec![band(0, 2)], vec![1.0; 4]), Error::Invalid { .. });
}

#[test]
fn hyb() {
    let ell = Ell::new(2, 9, 1, vec![3, P], vec![1.0, 0.0]).unwrap();
    let coo = |i, j| Coo::new(2, 9, vec![i], vec![j], vec![1.0]).unwrap();
    Hyb::new(ell.clone(), coo(0, 4)).unwrap();
    refused!(Hyb::new(ell.clone(), coo(0, 3)), Error::Unsorted { array: "coo.cols", at: 0, .. });
    refused!(Hyb::new(ell.clone(), coo(1, 4)), Error::Invalid { .. });
    let other = |nrows, ncols| Coo::new(nrows, ncols, vec![], vec![], vec![]).unwrap();
    refused!(Hyb::new(ell.clone(), other(3, 9)), Error::Shape { found: 3, expected: 2, .. });
    refused!(Hyb::new(ell, other(2, 8)), Error::Shape { found: 8, expected: 9, .. });
}

#[test]
fn bsr() {
    let block = [1.0; 4];
    Bsr::new(3, 3, 2, vec![0, 1, 1], vec![0], block.to_vec()).unwrap();
    refused!(Bsr::<f64>::new(3, 3, 0, vec![0], vec![], vec![]), Error::Invalid { .. });
    refused!(Bsr::new(3, 3, 2, vec![0, 1], vec![0], block.to_vec()), Error::Length { array: "row_ptr", .. });
    refused!(Bsr::new(3, 3, 2, vec![0, 1, 1], vec![0], vec![1.0]), Error::Length { array: "values", .. });
    refused!(Bsr::new(3, 3, 2, vec![0, 1, 2], vec![0], block.to_vec()), Error::Pointer { at: 2, .. });
    refused!(Bsr::new(3, 3, 2, vec![0, 1, 1], vec![2], block.to_vec()), Error::IndexOutOfRange { bound: 2, .. });
    refused!(Bsr::new(3, 3, 2, vec![0, 2, 2], vec![0, 0], vec![1.0; 8]), Error::Unsorted { at: 1, .. });
    refused!(Bsr::new(3, 3, 2, vec![0, 1, 1], vec![1], block.to_vec()), Error::Invalid { .. });
    refused!(Bsr::new(3, 3, 2, vec![0, 0, 1], vec![0], block.to_vec()), Error::Invalid { .. });
    refused!(Bsr::from_csr_with(&Csr::<f64>::identity(3).unwrap(), 0), Error::Invalid { .. });
}

#[test]
fn bsrx() {
    let bsrx = |start: [u32; 2], end: [u32; 2], cols: &[u32], mask: &[u32]| {
        let (start, end, values) = (start.to_vec(), end.to_vec(), vec![1.0; 4 * cols.len()]);
        Bsrx::new(4, 4, 2, start, end, cols.to_vec(), values, mask.to_vec())
    };
    // A gap between the rows and one at the end, in which anything may be.
    bsrx([0, 2], [1, 3], &[1, 77, 0, 99], &[1]).unwrap();
    refused!(bsrx([0, 1], [2, 2], &[0, 1], &[0]), Error::Invalid { .. });
    refused!(bsrx([1, 1], [0, 1], &[0], &[0]), Error::Invalid { .. });
    refused!(bsrx([0, 1], [1, 2], &[0], &[0]), Error::Invalid { .. });
    refused!(bsrx([0, 1], [1, 2], &[0, 2], &[0]), Error::IndexOutOfRange { array: "col_idx", at: 1, .. });
    refused!(bsrx([0, 2], [2, 2], &[1, 0], &[0]), Error::Unsorted { array: "col_idx", .. });
    refused!(bsrx([0, 1], [1, 2], &[0, 1], &[2]), Error::IndexOutOfRange { array: "mask", .. });
    refused!(bsrx([0, 1], [1, 2], &[0, 1], &[1, 1]), Error::Unsorted { array: "mask", .. });
    let short = |start: Vec<u32>, end: Vec<u32>| Bsrx::<f64>::new(4, 4, 2, start, end, vec![], vec![], vec![]);
    refused!(short(vec![0], vec![0, 0]), Error::Length { array: "row_start", expected: 2, .. });
    refused!(short(vec![0, 0], vec![0]), Error::Length { array: "row_end", expected: 2, .. });
    refused!(Bsrx::<f64>::new(4, 4, 0, vec![], vec![], vec![], vec![], vec![]), Error::Invalid { .. });
    refused!(Bsrx::new(4, 4, 2, vec![0; 2], vec![0; 2], vec![], vec![1.0], vec![]), Error::Length { .. });
    refused!(Bsrx::new(3, 3, 2, vec![0, 0], vec![0, 1], vec![0], vec![1.0; 4], vec![]), Error::Invalid { .. });
}

#[test]
fn hmec() {
    let block = |rows, cols: &[u32]| {
        let values = cols.iter().map(|&j| if j == P { 0.0 } else { 1.0 }).collect();
        EllBlock::new(rows, cols.len() / rows, 9, cols.to_vec(), values).unwrap()
    };
    let rest = |row_ptr: &[u32], cols: &[u32]| {
        Csr::new(row_ptr.len() - 1, 9, row_ptr.to_vec(), cols.to_vec(), vec![1.0; cols.len()]).unwrap()
    };
    let (first, second) = (block(3, &[2, 3, P]), block(2, &[4, P]));
    let none = rest(&[0], &[]);
    let hmec = |perm: &[u32], blocks: &[&EllBlock<f64>], rest: &Csr<f64>, p| {
        Hmec::new(3, 9, perm.to_vec(), blocks.iter().map(|&b| b.clone()).collect(), rest.clone(), p)
    };
    let perm = [2, 0, 1];
    hmec(&perm, &[&first, &second], &rest(&[0, 1], &[5]), 2).unwrap();
    refused!(hmec(&perm, &[&first, &second], &none, 1), Error::Invalid { .. });
    refused!(hmec(&perm, &[], &none, 0), Error::Invalid { .. });
    refused!(hmec(&perm, &[&second, &first], &none, 2), Error::Invalid { .. });
    refused!(hmec(&perm[..2], &[], &none, 1), Error::Length { array: "perm", .. });
    refused!(hmec(&[0, 0, 1], &[], &none, 1), Error::Invalid { .. });
    refused!(hmec(&[0, 3, 1], &[], &none, 1), Error::IndexOutOfRange { array: "perm", .. });
    refused!(hmec(&perm, &[&first, &block(2, &[2, P])], &none, 2), Error::Unsorted { at: 0, .. });
    refused!(hmec(&perm, &[&first, &block(3, &[4, 5, 6])], &none, 2), Error::Invalid { .. });
    refused!(hmec(&perm, &[&first], &rest(&[0, 1], &[2]), 1), Error::Unsorted { .. });
    refused!(hmec(&perm, &[&second], &rest(&[0, 0, 1], &[5]), 1), Error::Invalid { .. });
    refused!(hmec(&perm, &[&second], &rest(&[0, 0, 0, 0], &[]), 1), Error::Invalid { .. });
    let narrow = Csr::new(0, 8, vec![0], vec![], vec![]).unwrap();
    refused!(hmec(&perm, &[], &narrow, 1), Error::Length { expected: 9, .. });
    let wide = EllBlock::new(3, 1, 99, vec![50, P, P], vec![1.0, 0.0, 0.0]).unwrap();
    refused!(hmec(&perm, &[&wide], &none, 1), Error::IndexOutOfRange { found: 50, bound: 9, .. });
    let empty = EllBlock::<f64>::new(3, 0, 9, vec![], vec![]).unwrap();
    refused!(hmec(&perm, &[&empty], &none, 1), Error::Invalid { .. });
    refused!(EllBlock::new(2, 1, 9, vec![1], vec![1.0]), Error::Length { .. });
    refused!(EllBlock::new(1, 2, 9, vec![1, 1], vec![1.0; 2]), Error::Unsorted { .. });
    refused!(EllBlock::new(1, 2, 9, vec![P, 1], vec![0.0, 1.0]), Error::Invalid { .. });
    refused!(Hec::new(3, 9, perm.to_vec(), Some(wide), none), Error::IndexOutOfRange { .. });
    refused!(Hmec::from_csr_with(&Csr::<f64>::identity(3).unwrap(), 0), Error::Invalid { .. });
}

#[test]
fn dense() {
    refused!(Dense::new(2, 2, vec![1.0; 3]), Error::Length { array: "values", expected: 4, .. });
}

/// First row, first column and main diagonal of n x n.
fn arrow(n: usize) -> Csr<f64> {
    let row_ptr = std::iter::once(0).chain((0..n).map(|i| (n + 2 * i) as u32)).collect();
    let body = (1..n as u32).flat_map(|i| [0, i]);
    let col_idx: Vec<u32> = (0..n as u32).chain(body).collect();
    let values = vec![1.0; col_idx.len()];
    Csr::new(n, n, row_ptr, col_idx, values).unwrap()
}

#[test]
fn storage_that_would_explode_is_refused_before_it_is_allocated() {
    let arrow = arrow(1 << 20);
    refused!(Ell::from_csr(&arrow), Error::DoesNotFit { format: "ell", .. });
    refused!(Dia::from_csr(&arrow), Error::DoesNotFit { format: "dia", .. });
    refused!(Bdia::from_csr(&arrow), Error::DoesNotFit { format: "bdia", .. });
    refused!(Dense::from_csr(&arrow), Error::DoesNotFit { format: "dense", .. });
    refused!(Hyb::from_csr_with(&arrow, 1 << 20), Error::DoesNotFit { format: "hyb", .. });
    refused!(Hyb::from_csr_with(&arrow, usize::MAX), Error::DoesNotFit { format: "hyb", .. });
    refused!(Bsr::from_csr_with(&arrow, 1 << 16), Error::DoesNotFit { format: "bsr", .. });
    refused!(Sell::from_csr_with(&arrow, 1 << 20, 1 << 20), Error::DoesNotFit { format: "sell", .. });
    // The same matrix in the formats that can store it.
    for nnz in [
        Hyb::from_csr(&arrow).unwrap().nnz(),
        Hmec::from_csr(&arrow).unwrap().nnz(),
        Hec::from_csr(&arrow).unwrap().nnz(),
        Bsr::from_csr(&arrow).unwrap().nnz(),
        Sell::from_csr(&arrow).unwrap().nnz(),
        Coo::from_csr(&arrow).unwrap().nnz(),
    ] {
        assert_eq!(nnz, arrow.nnz());
    }
    // One row of 2^20 diagonals is small; its transpose would be 2^40 values.
    let n = 1 << 20;
    let row = Csr::new(1, n, vec![0, n as u32], (0..n as u32).collect(), vec![1.0; n]).unwrap();
    refused!(Dia::from_csr(&row).unwrap().transpose(), Error::DoesNotFit { .. });
    refused!(Bdia::from_csr(&row).unwrap().transpose(), Error::DoesNotFit { .. });
}

#[test]
fn empty_storage_of_any_width_has_bytes_to_count() {
    fn counted<F: Format>(matrix: &F) {
        assert_eq!(matrix.flops(), 0);
        assert!(matrix.storage() <= matrix.spmv_bytes());
    }
    refused!(Ell::<f64>::new(0, 5, usize::MAX, vec![], vec![]), Error::TooLarge { what: "columns", .. });
    refused!(EllBlock::<f64>::new(0, usize::MAX, 5, vec![], vec![]), Error::TooLarge { what: "columns", .. });
    let widest = MAX_INDEX;
    let ell = Ell::<f64>::new(0, 5, widest, vec![], vec![]).unwrap();
    counted(&ell);
    counted(&Hyb::new(ell, Coo::new(0, 5, vec![], vec![], vec![]).unwrap()).unwrap());
    counted(&Bsr::<f64>::new(1, 1, widest, vec![0, 0], vec![], vec![]).unwrap());
    counted(&Bsrx::<f64>::new(1, 1, widest, vec![0], vec![0], vec![], vec![], vec![0]).unwrap());
}
