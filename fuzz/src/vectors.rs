//! The readers of dense vectors: any bytes are columns or a typed error. Columns survive writing and are the same from
//! a file and from a stream.

use spandrel_formats::{Dense, Error, Real, vectors};

use super::input::same;
use super::matrix_market::is_merely_large;

/// Reads the bytes in every possible way.
///
/// # Panics
/// If the result breaks a promise.
pub fn check(bytes: &[u8]) {
    if bytes.starts_with(b"%%") && is_merely_large(bytes) {
        return;
    }
    let wide = read::<f64>(bytes);
    let narrow = read::<f32>(bytes);
    if let (Some(wide), Some(narrow)) = (wide, narrow) {
        assert_eq!((wide.nrows(), wide.ncols()), (narrow.nrows(), narrow.ncols()), "f64 and f32");
    }
}

fn read<T: Real>(bytes: &[u8]) -> Option<Dense<T>> {
    let read = vectors::read_bytes::<T>("fuzz", bytes);
    // A reader that returns little at a time, as a pipe does.
    let streamed = vectors::read_from::<T>("fuzz", std::io::BufReader::with_capacity(3, bytes));
    assert_eq!(read.is_ok(), streamed.is_ok(), "{:?} and {:?}", read.err(), streamed.err());
    let columns = match read {
        Ok(columns) => columns,
        Err(Error::Parse { line, column, .. }) => {
            assert!(line > 0 && column > 0);
            return None;
        }
        Err(_) => return None,
    };
    let (nrows, ncols) = (columns.nrows(), columns.ncols());
    assert!(same(columns.values(), streamed.expect("as above").values()), "from a stream");
    for (kind, text) in [("text", plain(&columns)), ("npy", npy(&columns))] {
        if columns.values().is_empty() && kind == "text" {
            continue;
        }
        let back = vectors::read_bytes::<T>("fuzz", &text).unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert_eq!((back.nrows(), back.ncols()), (nrows, ncols), "{kind}");
        assert!(same(back.values(), columns.values()), "{kind}, written and read");
    }
    Some(columns)
}

/// A line per row.
fn plain<T: Real>(columns: &Dense<T>) -> Vec<u8> {
    let mut text = String::from("# written\n");
    for row in 0..columns.nrows() {
        for col in 0..columns.ncols() {
            text += &format!("{:?} ", columns.column(col)[row]);
        }
        text += "\n";
    }
    text.into_bytes()
}

/// The bytes that `numpy.save` writes for an array in Fortran order.
fn npy<T: Real>(columns: &Dense<T>) -> Vec<u8> {
    let shape = (columns.nrows(), columns.ncols());
    let header = format!("{{'descr': '<f{}', 'fortran_order': True, 'shape': {shape:?}, }}\n", T::BYTES);
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.bytes());
    for &value in columns.values() {
        if T::BYTES == 4 {
            file.extend((value.as_f64() as f32).to_le_bytes());
        } else {
            file.extend(value.as_f64().to_le_bytes());
        }
    }
    file
}
