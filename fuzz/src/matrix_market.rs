//! The reader of Matrix Market files: any bytes are a matrix or a typed error. A matrix keeps its invariants and
//! survives writing.

use spandrel_formats::matrix_market::{
    WriteOptions, read_bytes, read_dense_bytes, read_vector_bytes, write_csr_to, write_vector_to,
};
use spandrel_formats::{Csr, Error, Real};

use super::input::same;

/// Reads the bytes in every possible way.
///
/// # Panics
/// If the result breaks a promise.
pub fn check(bytes: &[u8]) {
    if is_merely_large(bytes) {
        return;
    }
    read::<f64>(bytes);
    read::<f32>(bytes);
}

/// Whether a size of seven or eight digits is declared. Up to 2^26 rows it is legal, but slow, and it tests nothing
/// new.
pub fn is_merely_large(bytes: &[u8]) -> bool {
    let lines = bytes.split(|&b| b == b'\n').skip(1);
    let mut sizes = lines.skip_while(|line| line.trim_ascii().is_empty() || line.trim_ascii().starts_with(b"%"));
    let digits = |word: &[u8]| word.iter().skip_while(|&&b| b == b'0').filter(|b| b.is_ascii_digit()).count();
    sizes.next().is_some_and(|line| line.split(u8::is_ascii_whitespace).any(|word| matches!(digits(word), 7 | 8)))
}

fn read<T: Real>(bytes: &[u8]) {
    let csr = read_bytes::<T>("fuzz", bytes);
    let dense = read_dense_bytes::<T>("fuzz", bytes);
    let vector = read_vector_bytes::<T>("fuzz", bytes);
    let csr = match csr {
        Ok(csr) => csr,
        // A file that one reader refuses is refused by the others.
        Err(Error::Parse { .. }) => return assert!(dense.is_err() && vector.is_err(), "refused as CSR alone"),
        Err(_) => return,
    };
    let (nrows, ncols, row_ptr, col_idx, values) = csr.clone().into_parts();
    Csr::new(nrows, ncols, row_ptr, col_idx, values).expect("what was read keeps the invariants");
    let mut text = Vec::new();
    write_csr_to(&mut text, &csr, &WriteOptions::default()).expect("a writer into memory");
    let back = read_bytes::<T>("fuzz", &text).expect("what was written");
    assert_eq!((back.row_ptr(), back.col_idx()), (csr.row_ptr(), csr.col_idx()), "written and read");
    assert!(same(back.values(), csr.values()), "written and read");
    if let Ok((nrows, ncols, values)) = dense {
        assert_eq!((nrows, ncols, values.len()), (csr.nrows(), csr.ncols(), nrows * ncols));
        for i in 0..nrows {
            let (cols, stored) = csr.row(i);
            for (&j, &stored) in cols.iter().zip(stored) {
                assert!(same(&[values[i + nrows * j as usize]], &[stored]), "dense and CSR at ({i}, {j})");
            }
        }
    }
    if let Ok(vector) = vector {
        assert_eq!((vector.len(), 1), (csr.nrows(), csr.ncols()));
        let mut text = Vec::new();
        write_vector_to(&mut text, &vector).expect("a writer into memory");
        assert!(same(&read_vector_bytes::<T>("fuzz", &text).expect("what was written"), &vector));
    }
}
