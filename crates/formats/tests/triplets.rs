//! Assembly from entries, and methods that need no import of a trait: the shape of every format, the product of CSR.

use spandrel_formats::{Csr, Error, MAX_INDEX, Real, Triplets, convert, for_each_format};

/// Sums of these depend on their order.
const ENTRIES: [(usize, usize, f64); 5] = [(1, 2, 1e16), (0, 0, 1.0), (1, 2, -1e16), (1, 2, 1.0), (1, 0, 4.0)];

#[test]
fn duplicates_are_summed_in_the_order_of_the_entries() {
    let a = Csr::from_triplets(2, 3, ENTRIES).unwrap();
    assert_eq!((a.row_ptr(), a.col_idx()), (&[0, 1, 3][..], &[0, 0, 2][..]));
    assert_eq!(a.values(), [1.0, 4.0, (1e16 - 1e16) + 1.0]);
    let back = Csr::from_triplets(2, 3, ENTRIES.into_iter().rev()).unwrap();
    assert_eq!(back.values(), [1.0, 4.0, (1.0 - 1e16) + 1e16]);
    assert_ne!(a.values()[2], back.values()[2], "the entries show no order");
    assert_eq!(Csr::<f32>::from_triplets(0, 0, []).unwrap().nnz(), 0);
}

#[test]
fn every_way_to_fill_triplets_is_the_same() {
    let expected = Csr::from_triplets(2, 3, ENTRIES).unwrap();
    let mut pushed = Triplets::with_capacity(2, 3, ENTRIES.len()).unwrap();
    ENTRIES.into_iter().try_for_each(|(row, col, value)| pushed.push(row, col, value)).unwrap();
    let mut extended = Triplets::new(2, 3).unwrap();
    extended.extend(ENTRIES[..2].iter().copied()).unwrap();
    extended.extend(ENTRIES.into_iter().skip(2)).unwrap();
    let collected = Triplets::from_entries(2, 3, ENTRIES.to_vec()).unwrap();
    for triplets in [pushed, extended, collected] {
        assert_eq!((triplets.nrows(), triplets.ncols(), triplets.len()), (2, 3, ENTRIES.len()));
        assert_eq!(triplets.to_csr().unwrap(), expected);
    }
}

/// Rows in any order give the same as triplets in that order, on every path: sorted, unsorted and with repeats, in one
/// task and in many.
#[test]
fn rows_in_any_order_are_what_their_entries_are() {
    let check =
        |nrows: usize, ncols: usize, column: &dyn Fn(usize, usize) -> usize, lengths: &dyn Fn(usize) -> usize| {
            let (mut row_ptr, mut col_idx, mut entries) = (vec![0u32], Vec::new(), Vec::new());
            for i in 0..nrows {
                for k in 0..lengths(i) {
                    entries.push((i, column(i, k) % ncols, 1.0 / (1.0 + (7 * i + 3 * k) as f64)));
                    col_idx.push((column(i, k) % ncols) as u32);
                }
                row_ptr.push(col_idx.len() as u32);
            }
            let values = entries.iter().map(|entry| entry.2).collect();
            let made = Csr::from_unsorted(nrows, ncols, row_ptr, col_idx, values).unwrap();
            assert_eq!(made, Csr::from_triplets(nrows, ncols, entries).unwrap());
        };
    check(3, 5, &|_, k| k, &|_| 4);
    check(3, 5, &|_, k| 4 * k, &|_| 4);
    check(3, 5, &|i, k| k / 2 + i, &|i| 2 * i);
    check(30_000, 977, &|i, k| 31 * i + 101 * k * k, &|i| i % 13);
    assert_eq!(Csr::<f64>::from_unsorted(0, 0, vec![0], vec![], vec![]).unwrap().nnz(), 0);
}

#[test]
fn an_entry_outside_is_refused_with_its_position() {
    let row = Csr::from_triplets(2, 2, [(0, 0, 1.0), (2, 0, 1.0)]).unwrap_err();
    assert_eq!(row.to_string(), "triplets: rows[1] = 2 is outside 0..2");
    let mut triplets = Triplets::new(2, 2).unwrap();
    let col = triplets.extend([(0, 1, 1.0), (1, 1, 2.0), (1, 5, 3.0), (0, 0, 4.0)]).unwrap_err();
    assert!(matches!(col, Error::IndexOutOfRange { array: "cols", at: 2, found: 5, bound: 2, .. }), "{col}");
    assert_eq!(triplets.len(), 2, "those ahead of it stay");
    let rows = Csr::<f64>::from_triplets(MAX_INDEX + 1, 1, []).unwrap_err();
    assert!(matches!(rows, Error::TooLarge { what: "rows", .. }), "{rows}");
}

/// The size that an iterator announces is checked before memory is requested.
#[test]
fn more_entries_than_an_index_counts_are_refused_at_once() {
    let endless = (0..usize::MAX).map(|_| (0, 0, 1.0f64));
    let announced = Csr::from_triplets(1, 1, endless).unwrap_err();
    assert!(matches!(announced, Error::TooLarge { what: "entries", .. }), "{announced}");
    let reserved = Triplets::<f64>::with_capacity(1, 1, usize::MAX).unwrap_err();
    assert!(matches!(reserved, Error::TooLarge { what: "entries", .. }), "{reserved}");
}

/// `Format` is not imported here: the methods belong to the formats themselves.
#[test]
fn every_format_tells_its_shape_without_an_import() {
    fn check<T: Real>() {
        let a = Csr::<T>::from_triplets(3, 4, [(0, 0, T::one()), (2, 3, T::one()), (1, 1, T::one())]).unwrap();
        macro_rules! each {
            ([] $(($stem:ident, $Format:ident)),*) => {
                $(
                    let b: spandrel_formats::$Format<T> = convert(&a).unwrap();
                    assert_eq!((b.nrows(), b.ncols(), b.nnz()), (3, 4, 3), stringify!($stem));
                )*
            };
        }
        for_each_format!(each);
    }
    check::<f32>();
    check::<f64>();
}

#[test]
fn a_product_needs_no_device() {
    let a = Csr::from_triplets(3, 2, [(0, 0, 2.0), (0, 1, 0.5), (2, 1, -1.0)]).unwrap();
    assert_eq!(a.mul_vec(&[1.0, 4.0]).unwrap(), [4.0, 0.0, -4.0]);
    let empty = a.mul_vec(&[f64::NAN, 4.0]).unwrap();
    assert!(empty[0].is_nan() && empty[1].to_bits() == 0 && empty[2] == -4.0);
    let wrong = a.mul_vec(&[1.0; 3]).unwrap_err();
    assert!(matches!(wrong, Error::Shape { op: "mul_vec", what: "x", found: 3, expected: 2 }), "{wrong}");
}
