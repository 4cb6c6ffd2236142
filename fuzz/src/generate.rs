//! The specifications of generators: any text is a specification or a typed error. A specification prints as the same
//! text and builds the matrix that it names.

use spandrel_formats::generate::{Family, Spec, is_spec};
use spandrel_formats::{Csr, Error, MAX_INDEX, Real};

/// The largest number of entries for which a matrix is built.
const SMALL: usize = 1 << 14;

/// Parses the bytes as text, and builds the matrix if it is small, or so large that it must be refused.
///
/// # Panics
/// If a specification or its matrix breaks a promise.
pub fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(spec) = Spec::parse(text) else { return };
    assert!(is_spec(text), "{text:?} is taken for a path");
    let printed = spec.to_string();
    assert_eq!(Spec::parse(&printed).as_ref().ok(), Some(&spec), "{text:?} prints as {printed:?}");
    let (rows, entries) = size(&spec);
    if rows > MAX_INDEX {
        assert!(matches!(spec.build::<f64>(), Err(Error::TooLarge { .. })), "{text:?} has {rows} rows");
    } else if entries <= SMALL {
        let matrix = spec.build::<f64>().unwrap_or_else(|error| panic!("{text:?}: {error}"));
        assert_eq!((matrix.nrows(), matrix.ncols()), (rows, rows), "{text:?}");
        sound(&matrix);
        sound(&spec.build::<f32>().unwrap_or_else(|error| panic!("{text:?}: {error}")));
        let nonsymmetric = ["convdiff", "tridiag", "powerlaw", "random"].iter().any(|name| printed.starts_with(name));
        assert!(nonsymmetric || matrix.is_symmetric(), "{text:?} is not symmetric");
    }
}

fn sound<T: Real>(matrix: &Csr<T>) {
    let (nrows, ncols, row_ptr, col_idx, values) = matrix.clone().into_parts();
    Csr::new(nrows, ncols, row_ptr, col_idx, values).expect("what was generated keeps the invariants");
}

/// The number of rows, and a bound of the number of entries.
fn size(spec: &Spec) -> (usize, usize) {
    let times = |factors: &[usize]| factors.iter().fold(1usize, |product, &factor| product.saturating_mul(factor));
    match spec.family() {
        Family::Stencil { size, stencil, .. } => (times(size), times(&[times(size), stencil.offsets().len()])),
        Family::Banded { n, d } => (*n, times(&[*n, *d])),
        Family::Gfem { size, p, dim, .. } => {
            (times(size), times(&[times(size), (4 * p + 3).pow(u32::try_from(*dim).unwrap_or(2))]))
        }
        // A rotation may fill more than asked for, and rows may be long.
        Family::RandSpd { n, .. } | Family::PowerLaw { n, .. } => (*n, times(&[*n, *n])),
        Family::Random { n, nnz_per_row } => (*n, times(&[*n, *nnz_per_row])),
        Family::Electrostatic { n } => (*n, times(&[*n, 15])),
        _ => (0, usize::MAX),
    }
}
