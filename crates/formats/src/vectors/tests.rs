//! Vectors in every kind of file, and the faults of other files.

use super::*;
use crate::Error;
use std::io::Write;

fn read_f64(bytes: &[u8]) -> Result<Dense<f64>> {
    read_bytes("b", bytes)
}

/// Makes what `numpy.save` writes, version 1.0.
fn npy(header: &str, elements: &[u8]) -> Vec<u8> {
    let text = format!("{header:<117}\n");
    [super::npy::MAGIC, &[1, 0], &(text.len() as u16).to_le_bytes(), text.as_bytes(), elements].concat()
}

fn f8(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gz.write_all(bytes).unwrap();
    gz.finish().unwrap()
}

#[test]
fn every_kind_of_file_holds_the_same_columns() {
    let expected = Dense::new(3, 2, vec![1.0, 2.0, 3.5, -4.0, 5e-3, 6e10]).unwrap();
    let market = "%%MatrixMarket matrix array real general\n% two\n3 2\n1\n2\n3.5\n-4\n5e-3\n6e10\n";
    let coordinate =
        "%%MatrixMarket matrix coordinate real general\n3 2 6\n1 1 1\n2 1 2\n3 1 3.5\n1 2 -4\n2 2 5e-3\n3 2 6e10\n";
    let by_rows = f8(&[1.0, -4.0, 2.0, 5e-3, 3.5, 6e10]);
    let c_order = npy("{'descr': '<f8', 'fortran_order': False, 'shape': (3, 2), }", &by_rows);
    let fortran = npy("{'shape': (3,2), 'fortran_order': True, 'descr': \"<f8\"}", &f8(expected.values()));
    let mut version2 = [&c_order[..6], &[2, 0], &c_order[8..10], &[0, 0], &c_order[10..]].concat();
    let files: [&[u8]; 9] = [
        b"1 -4\n2 5e-3\n3.5 6e10\n",
        b"# a head\n\n  +1.0\t-4 % behind\r\n2 5d-3\r\n%\n3.5 60000000000 #",
        b"\xef\xbb\xbf1 -4\n2 5e-3\n3.5 6e10",
        market.as_bytes(),
        coordinate.as_bytes(),
        &c_order,
        &fortran,
        &version2,
        &gzipped(&c_order),
    ];
    let folder = tempfile::tempdir().unwrap();
    for (number, file) in files.into_iter().enumerate() {
        assert_eq!(read_f64(file).unwrap(), expected, "{number}");
        assert_eq!(read_f64(&gzipped(file)).unwrap_or_else(|_| read_f64(file).unwrap()), expected, "{number}, packed");
        assert_eq!(read_from::<f64>("<stdin>", file).unwrap(), expected, "{number}, from a reader");
        let path = folder.path().join(format!("{number}"));
        std::fs::write(&path, file).unwrap();
        assert_eq!(read::<f64>(&path).unwrap(), expected, "{number}, from a file");
        assert_eq!(read_bytes::<f32>("b", file).unwrap().column(1), [-4.0f32, 5e-3, 6e10], "{number}, in f32");
    }
    version2[6] = 3;
    assert!(matches!(read_f64(&version2), Err(Error::Binary { at: 6, .. })));
}

#[test]
fn one_column_and_its_shapes() {
    let column = Dense::new(3, 1, vec![1.0, f64::INFINITY, -0.5]).unwrap();
    let f4: Vec<u8> = [1.0f32, f32::INFINITY, -0.5].iter().flat_map(|v| v.to_le_bytes()).collect();
    for file in [
        b"1\ninf\n-0.5".to_vec(),
        b"1\n Infinity \n\n-5e-1\n\n".to_vec(),
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", &f4),
        npy("{'descr': '<f8', 'fortran_order': True, 'shape': (3,), }", &f8(column.values())),
    ] {
        assert_eq!(read_f64(&file).unwrap(), column);
    }
    assert!(read_f64(b"nan").unwrap().values()[0].is_nan());
    let empty = read_f64(&npy("{'descr': '<f8', 'fortran_order': False, 'shape': (0,), }", b"")).unwrap();
    assert_eq!((empty.nrows(), empty.ncols()), (0, 1));
}

/// More lines than one task takes, so that pieces are joined.
#[test]
fn long_files_do_not_depend_on_the_threads() {
    let numbers: Vec<f64> = (0..60_000).map(|i| f64::from(i) * 0.37 - 17.0).collect();
    let one: String = numbers.iter().map(|v| format!("{v:?}\n")).collect();
    let three: String = numbers.chunks(3).map(|v| format!("{:?} {:?}  {:?}\n", v[0], v[1], v[2])).collect();
    for threads in [1, 2, 5] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            assert_eq!(read_f64(one.as_bytes()).unwrap().values(), numbers);
            let wide = read_f64(three.as_bytes()).unwrap();
            assert_eq!((wide.nrows(), wide.ncols()), (20_000, 3));
            assert_eq!(wide.column(1)[19_999], numbers[59_998]);
        });
    }
}

#[test]
fn bad_files() {
    let plain = "{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }";
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("empty", b"".to_vec()),
        ("comments alone", b"# nothing\n%\n".to_vec()),
        ("a word", b"1\ntwo\n".to_vec()),
        ("commas", b"1,5\n2,5\n".to_vec()),
        ("a row too short", b"1 2\n3 # 4\n".to_vec()),
        ("a row too long", b"1\n2 3\n".to_vec()),
        ("too large", b"1\n2\n1e400\n".to_vec()),
        ("too large, negative, in columns", b"1 2\n3 -1e999999\n".to_vec()),
        ("zeros", vec![0; 10]),
        ("market, one value too few", b"%%MatrixMarket matrix array real general\n2 1\n1\n".to_vec()),
        ("market, too large", b"%%MatrixMarket matrix array real general\n2 1\n1\n-1e400\n".to_vec()),
        ("npy, magic alone", super::npy::MAGIC.to_vec()),
        ("npy, cut off in its header", npy(plain, &f8(&[1.0, 2.0]))[..40].to_vec()),
        ("npy, cut off", npy(plain, &f8(&[1.0, 2.0])[..12])),
        ("npy, one element too many", npy(plain, &f8(&[1.0, 2.0, 3.0]))),
        ("npy, big-endian", npy("{'descr': '>f8', 'fortran_order': False, 'shape': (1,), }", &[0; 8])),
        ("npy, whole numbers", npy("{'descr': '<i8', 'fortran_order': False, 'shape': (1,), }", &[0; 8])),
        ("npy, fields", npy("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (1,), }", &[0; 8])),
        ("npy, no dimension", npy("{'descr': '<f8', 'fortran_order': False, 'shape': (), }", &[0; 8])),
        ("npy, three dimensions", npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1, 1, 1), }", &[0; 8])),
        (
            "npy, a huge claim",
            npy("{'descr': '<f8', 'fortran_order': False, 'shape': (2147483647, 2147483647), }", &[]),
        ),
        ("npy, rows past 2^31", npy("{'descr': '<f8', 'fortran_order': False, 'shape': (2147483648,), }", &[])),
        ("npy, a size past 64 bits", npy("{'descr': '<f8', 'shape': (99999999999999999999,), }", &[])),
        ("npy, a key missing", npy("{'descr': '<f8', 'shape': (1,), }", &[0; 8])),
        ("npy, a key twice", npy("{'descr': '<f8', 'descr': '<f8', 'shape': (1,), }", &[0; 8])),
        ("npy, another key", npy("{'order': 'C', 'shape': (1,), }", &[0; 8])),
        ("npy, no dictionary", npy("import os", &[0; 8])),
        ("npy, an open quote", npy("{'descr", &[0; 8])),
        ("npy, text behind it", npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1,)} + 1", &[0; 8])),
        ("npy, a long header", b"\x93NUMPY\x02\x00\xff\xff\xff\x7f{".to_vec()),
    ];
    let mut messages = String::new();
    for (name, file) in cases {
        let error = read_f64(&file).expect_err(name);
        let streamed = read_from::<f64>("b", file.as_slice()).expect_err(name);
        assert!(matches!(error, Error::Parse { .. } | Error::Binary { .. }), "{name}: {error:?}");
        if !name.starts_with("zeros") {
            assert_eq!(error.to_string(), streamed.to_string(), "{name}");
        }
        messages += &format!("{name}\n    {error}\n");
    }
    insta::assert_snapshot!("bad_files", messages);
}

#[test]
fn what_f32_cannot_hold_is_refused_with_its_place() {
    let text = read_bytes::<f32>("b", b"1\n 1e300\n").unwrap_err().to_string();
    assert_eq!(text, "b:2:2: value '1e300' is too large for f32, whose largest value is 3.4028235e38; read it as f64");
    let file = npy("{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }", &f8(&[1.0, -1e300]));
    let binary = read_bytes::<f32>("b", &file).unwrap_err().to_string();
    let why = "value -1e300 is too large for f32, whose largest value is 3.4028235e38; read it as f64";
    assert_eq!(binary, format!("b: byte 136: {why}"));
}

/// Yields the pattern again and again, and fails the test if more is requested than a reader may need.
struct Endless {
    pattern: &'static [u8],
    left: usize,
}

impl std::io::Read for Endless {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        self.left = self.left.checked_sub(buf.len()).expect("the reader does not stop");
        buf.iter_mut().zip(self.pattern.iter().cycle()).for_each(|(to, from)| *to = *from);
        Ok(buf.len())
    }
}

#[test]
fn a_stream_without_an_end_is_refused() {
    let zeros = read_from::<f64>("/dev/zero", Endless { pattern: &[0], left: 1 << 10 }).unwrap_err();
    let why = "byte 0 is no text: give numbers between blanks, a Matrix Market file or NumPy's .npy";
    assert_eq!(zeros.to_string(), format!("/dev/zero:1:1: {why}"));
    let file = npy("{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }", &f8(&[1.0, 2.0]));
    let tail = std::io::Cursor::new(file).chain(Endless { pattern: b"x", left: 1 << 16 });
    assert!(matches!(read_from::<f64>("b", tail), Err(Error::Binary { at: 144, .. })));
}

#[test]
fn several_columns_come_back_as_they_were_written() {
    let matrix = Dense::new(3, 2, vec![1.5, -0.0, 1e-320, f64::INFINITY, 0.1, 3.0]).unwrap();
    let mut text = Vec::new();
    crate::matrix_market::write_dense_to(&mut text, &matrix).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("b.mtx.gz");
    crate::matrix_market::write_dense(&path, &matrix).unwrap();
    for back in [read_bytes::<f64>("b.mtx", &text).unwrap(), read::<f64>(&path).unwrap()] {
        assert_eq!((back.nrows(), back.ncols()), (3, 2));
        assert!(back.values().iter().zip(matrix.values()).all(|(a, b)| a.to_bits() == b.to_bits()), "{back:?}");
    }
}
