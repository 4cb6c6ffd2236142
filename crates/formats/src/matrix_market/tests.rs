//! Every kind of legal file, every kind of illegal file, and round trips.

use super::*;
use crate::{Csr, Error, Real};
use proptest::prelude::*;
use std::io::Write as _;

mod streams;

const GENERAL: &str = "%%MatrixMarket matrix coordinate real general\n";

fn read(text: &str) -> crate::Result<Csr<f64>> {
    read_bytes("m.mtx", text.as_bytes())
}

/// Rows of a small matrix, to compare with.
fn rows(csr: &Csr<f64>) -> Vec<Vec<f64>> {
    (0..csr.nrows()).map(|i| (0..csr.ncols()).map(|j| csr.get(i, j).unwrap_or(0.0)).collect()).collect()
}

#[test]
fn legal_files() {
    let cases: &[(&str, &str, &[&[f64]])] = &[
        (
            "general",
            "%%MatrixMarket matrix coordinate real general\n2 3 2\n1 3 1.5\n2 1 -2e-3\n",
            &[&[0., 0., 1.5], &[-2e-3, 0., 0.]],
        ),
        (
            "any order",
            "%%MatrixMarket matrix coordinate real general\n2 2 3\n2 2 3\n1 2 2\n1 1 1\n",
            &[&[1., 2.], &[0., 3.]],
        ),
        (
            "duplicates",
            "%%MatrixMarket matrix coordinate real general\n2 2 4\n2 2 3\n1 1 1\n2 2 4\n2 1 1\n",
            &[&[1., 0.], &[1., 7.]],
        ),
        (
            "integer",
            "%%MatrixMarket matrix coordinate integer general\n1 2 2\n1 1 -7\n1 2 +12345678901\n",
            &[&[-7., 12345678901.]],
        ),
        ("pattern", "%%MatrixMarket matrix coordinate pattern general\n1 2 1\n1 2\n", &[&[0., 1.]]),
        (
            "pattern symmetric",
            "%%MatrixMarket matrix coordinate pattern symmetric\n2 2 2\n1 1\n2 1\n",
            &[&[1., 1.], &[1., 0.]],
        ),
        (
            "symmetric",
            "%%MatrixMarket matrix coordinate real symmetric\n3 3 4\n1 1 4\n2 1 -1\n3 1 5\n3 3 2\n",
            &[&[4., -1., 5.], &[-1., 0., 0.], &[5., 0., 2.]],
        ),
        ("skew", "%%MatrixMarket matrix coordinate real skew-symmetric\n2 2 1\n2 1 3\n", &[&[0., -3.], &[3., 0.]]),
        (
            "skew, zero diagonal",
            "%%MatrixMarket matrix coordinate real skew-symmetric\n2 2 2\n1 1 0\n2 1 3\n",
            &[&[0., -3.], &[3., 0.]],
        ),
        ("complex", "%%MatrixMarket matrix coordinate complex general\n1 1 1\n1 1 2.5 0\n", &[&[2.5]]),
        (
            "hermitian",
            "%%MatrixMarket matrix coordinate complex hermitian\n2 2 2\n1 1 1 0\n2 1 3 -0.0\n",
            &[&[1., 3.], &[3., 0.]],
        ),
        ("array", "%%MatrixMarket matrix array real general\n2 2\n1\n2\n3\n4\n", &[&[1., 3.], &[2., 4.]]),
        ("array integer", "%%MatrixMarket matrix array integer general\n1 2\n1\n-2\n", &[&[1., -2.]]),
        ("array complex", "%%MatrixMarket matrix array complex general\n1 2\n1 0\n-2 0\n", &[&[1., -2.]]),
        ("array symmetric", "%%MatrixMarket matrix array real symmetric\n2 2\n1\n2\n3\n", &[&[1., 2.], &[2., 3.]]),
        ("array skew", "%%MatrixMarket matrix array real skew-symmetric\n2 2\n2\n", &[&[0., -2.], &[2., 0.]]),
        ("CRLF", "%%MatrixMarket matrix coordinate real general\r\n% c\r\n1 1 1\r\n1 1 5\r\n", &[&[5.]]),
        (
            "comments, blanks, tabs",
            "%%MatrixMarket  matrix\tcoordinate real general\n\n%\n%% x\n  \t\n\t2 1\t2 \n% c\n\n 1\t1\t5 \n  % in between\n2 1 6\t\n\n%end",
            &[&[5.], &[6.]],
        ),
        ("no last line end", "%%MatrixMarket matrix coordinate real general\n1 1 1\n1 1 5", &[&[5.]]),
        ("capitals", "%%matrixmarket MATRIX Coordinate REAL General\n1 1 1\n1 1 5\n", &[&[5.]]),
        ("byte order mark", "\u{feff}%%MatrixMarket matrix coordinate real general\n1 1 1\n1 1 5\n", &[&[5.]]),
        (
            "numbers",
            "%%MatrixMarket matrix coordinate real general\n1 7 7\n1 1 +1.5\n1 2 .5\n1 3 5.\n1 4 1.5D+03\n1 5 1E-2\n1 6 -0\n1 0000000000007 2d0\n",
            &[&[1.5, 0.5, 5., 1500., 0.01, 0., 2.]],
        ),
        ("0 x 0", "%%MatrixMarket matrix coordinate real general\n0 0 0\n", &[]),
        ("0 x 0 array", "%%MatrixMarket matrix array real symmetric\n0 0\n", &[]),
        ("rows without columns", "%%MatrixMarket matrix coordinate real general\n2 0 0", &[&[], &[]]),
    ];
    for (name, text, expected) in cases {
        let csr = read(text).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(rows(&csr), *expected, "{name}");
        let (nrows, ncols, values) = read_dense_bytes::<f64>(name, text.as_bytes()).unwrap();
        assert_eq!((nrows, ncols), (csr.nrows(), csr.ncols()), "{name}");
        let dense: Vec<Vec<f64>> = (0..nrows).map(|i| (0..ncols).map(|j| values[i + nrows * j]).collect()).collect();
        assert_eq!(dense, *expected, "{name}, dense");
        let narrow = read_bytes::<f32>(name, text.as_bytes()).unwrap();
        assert_eq!(narrow.values(), csr.map(|v| v as f32).values(), "{name}, f32");
    }
}

#[test]
fn values_that_are_not_finite_are_values() {
    let csr = read(&format!("{GENERAL}1 4 4\n1 1 NaN\n1 2 inf\n1 3 -Infinity\n1 4 1e-999\n")).unwrap();
    assert!(csr.values()[0].is_nan());
    assert_eq!(&csr.values()[1..], [f64::INFINITY, f64::NEG_INFINITY, 0.0]);
}

#[test]
fn a_number_too_large_for_the_element_type_is_refused_with_its_place() {
    let digits = "9".repeat(400);
    for (kind, size, line, column) in [
        ("coordinate real general", "2 2 2", "2 2 1e400", 5),
        ("coordinate real general", "2 2 2", "2  2\t-1e999999  ", 6),
        ("coordinate real symmetric", "2 2 2", "2 1 1.0D+400", 5),
        ("coordinate integer general", "2 2 2", &format!("2 2 {digits}"), 5),
        ("coordinate complex general", "2 2 2", "2 2 1e400 0", 5),
        ("array real general", "2 1", "-1e400", 1),
    ] {
        let first = match kind.split(' ').collect::<Vec<_>>()[..] {
            ["array", ..] => "1",
            [_, "complex", ..] => "1 1 1 0",
            _ => "1 1 1",
        };
        let text = format!("%%MatrixMarket matrix {kind}\n{size}\n{first}\n{line}\n");
        let error = read(&text).unwrap_err().to_string();
        assert!(error.starts_with(&format!("m.mtx:4:{column}: value '")), "{error}");
        assert!(
            error.ends_with("' is too large for f64, whose largest value is 1.7976931348623157e308")
                || error.ends_with("...' is too large for f64, whose largest value is 1.7976931348623157e308"),
            "{error}"
        );
        assert!(read_dense_bytes::<f64>("m.mtx", text.as_bytes()).is_err());
    }
    let text = format!("{GENERAL}1 1 1\n1 1 1e300\n");
    assert_eq!(read(&text).unwrap().values(), [1e300]);
    let narrow = read_bytes::<f32>("m.mtx", text.as_bytes()).unwrap_err().to_string();
    let why = "value '1e300' is too large for f32, whose largest value is 3.4028235e38; read it as f64";
    assert_eq!(narrow, format!("m.mtx:3:5: {why}"));
}

#[test]
fn a_plus_ahead_of_indices_sizes_and_values() {
    let csr = read(&format!("{GENERAL}+2 +2 +1\n+2 +1 +1.5\n")).unwrap();
    assert_eq!((csr.nrows(), csr.ncols(), csr.get(1, 0)), (2, 2, Some(1.5)));
    for word in ["++1", "+", "+-1"] {
        assert!(read(&format!("{GENERAL}2 2 1\n{word} 1 1\n")).is_err(), "{word}");
        assert!(read(&format!("{GENERAL}{word} 2 1\n1 1 1\n")).is_err(), "{word}");
    }
}

#[test]
fn zeros_are_entries_of_coordinate_files_only() {
    assert_eq!(read(&format!("{GENERAL}1 2 2\n1 1 0\n1 2 1\n")).unwrap().nnz(), 2);
    assert_eq!(read("%%MatrixMarket matrix array real general\n1 2\n0\n1\n").unwrap().nnz(), 1);
}

#[test]
fn bad_files() {
    let body = |text: &str| format!("{GENERAL}{text}");
    let kind = |kind: &str, text: &str| format!("%%MatrixMarket matrix {kind}\n{text}");
    let cases = [
        ("empty", String::new()),
        ("blank", "\n\n".into()),
        ("no banner", "3 3 1\n1 1 1\n".into()),
        ("binary", "\u{0}\u{1}\u{7f}".into()),
        ("half a banner", "%%MatrixMarket matrix coordinate".into()),
        ("object", "%%MatrixMarket vector coordinate real general\n".into()),
        ("format", kind("sparse real general", "")),
        ("field", kind("coordinate quaternion general", "")),
        ("symmetry", kind("coordinate real upper", "")),
        ("banner goes on", kind("coordinate real general please", "")),
        ("array pattern", kind("array pattern general", "")),
        ("skew pattern", kind("coordinate pattern skew-symmetric", "")),
        ("header, then end of file", body("")),
        ("comments, then end of file", body("% one\n% two\n")),
        ("size line short", body("3 3\n")),
        ("size line long", body("3 3 1 1\n1 1 1\n")),
        ("size line negative", body("3 -3 1\n1 1 1\n")),
        ("size line not whole", body("3 3.5 1\n1 1 1\n")),
        ("size past 64 bits", body("3 3 99999999999999999999\n")),
        ("rows past 2^31", body("2147483648 3 1\n1 1 1\n")),
        ("columns past 2^31", body("3 3000000000 1\n1 1 1\n")),
        ("hardly anything but empty rows", body("2000000000 1 1\n1 1 1\n")),
        ("not square", kind("coordinate real symmetric", "3 4 1\n1 1 1\n")),
        ("10^18 entries", body("3 3 1000000000000000000\n1 1 1\n")),
        ("too few", body("3 3 3\n1 1 1\n% c\n2 2 1\n")),
        ("too few, no last line end", body("3 3 3\n1 1 1\n2 2 1")),
        ("too many", body("3 3 1\n1 1 1\n\n% c\n 2 2 1\n3 3 1\n")),
        ("row 0", body("3 3 1\n0 1 1\n")),
        ("column 0", body("3 3 1\n1 0 1\n")),
        ("row too large", body("3 3 1\n4 1 1\n")),
        ("column too large", body("3 3 1\n1 4294967297 1\n")),
        ("index past 64 bits", body("3 3 1\n1 99999999999999999999 1\n")),
        ("negative index", body("3 3 1\n-1 1 1\n")),
        ("index not whole", body("3 3 1\n1.5 1 1\n")),
        ("index with an exponent", body("1000 3 1\n1e3 1 1\n")),
        ("index with a point", body("3 3 1\n1 2.0 1\n")),
        ("size with an exponent", body("3 1e3 1\n1 1 1\n")),
        ("index not a number", body("3 3 1\nx 1 1\n")),
        ("index alone", body("3 3 1\n1\n")),
        ("no value", body("3 3 1\n1 1  \n")),
        ("value not a number", body("3 3 1\n1 1 1.5e\n")),
        ("value with a comma", body("3 3 1\n1 1 1,5\n")),
        ("value hexadecimal", body("3 3 1\n1 1 0x10\n")),
        ("trailing word", body("3 3 1\n1 1 1 % no\n")),
        ("pattern with a value", kind("coordinate pattern general", "3 3 1\n1 1 1\n")),
        ("integer with a fraction", kind("coordinate integer general", "3 3 1\n1 1 1.5\n")),
        ("integer infinite", kind("coordinate integer general", "3 3 1\n1 1 inf\n")),
        ("imaginary part", kind("coordinate complex general", "3 3 1\n1 1 1 0.5\n")),
        ("imaginary part missing", kind("coordinate complex general", "3 3 1\n1 1 1\n")),
        ("both sides of the diagonal", kind("coordinate real symmetric", "3 3 3\n1 1 1\n3 1 2\n1 3 2\n")),
        ("both sides, pattern", kind("coordinate pattern symmetric", "3 3 3\n1 3\n1 1\n3 1\n")),
        ("both sides, skew", kind("coordinate real skew-symmetric", "3 3 2\n3 1 2\n1 3 -2\n")),
        ("skew diagonal", kind("coordinate real skew-symmetric", "3 3 1\n2 2 1.5\n")),
        ("array too few", kind("array real general", "2 2\n1\n2\n3\n")),
        ("array too many", kind("array real general", "2 2\n1\n2\n3\n4\n5\n")),
        ("array two on a line", kind("array real general", "2 2\n1 2\n3 4\n")),
        ("array not a number", kind("array real general", "1 1\none\n")),
        ("array huge", kind("array real general", "2147483647 2147483647\n1\n")),
        ("array of columns alone", kind("array real general", "0 2147483647\n")),
        ("array columns past 2^31", kind("array real general", " 3  4000000000\n1\n")),
        ("array symmetric too few", kind("array real symmetric", "2 2\n1\n2\n")),
        ("a long word", body(&format!("3 3 1\n{} 1 1\n", "y".repeat(1000)))),
    ];
    let mut messages = String::new();
    for (name, text) in cases {
        let error = read(&text).expect_err(name);
        let narrow = read_bytes::<f32>("m.mtx", text.as_bytes()).expect_err(name);
        assert_eq!(error.to_string(), narrow.to_string(), "{name}");
        let dense = read_dense_bytes::<f64>("m.mtx", text.as_bytes());
        // Without rows there is nothing to hold except one pointer per column, because CSR is made as a transpose.
        assert!(dense.is_err() || name == "array of columns alone", "{name}: read as dense");
        messages += &format!("{name}\n    {error}\n");
    }
    insta::assert_snapshot!("bad_files", messages);
}

#[test]
fn the_upper_triangle_of_a_symmetric_file_is_read_with_a_note() {
    let lower = "%%MatrixMarket matrix coordinate real symmetric\n3 3 4\n1 1 4\n2 1 -1\n3 1 5\n3 3 2\n";
    let upper = "%%MatrixMarket matrix coordinate real symmetric\n3 3 4\n1 1 4\n1 2 -1\n1 3 5\n3 3 2\n";
    let skew = "%%MatrixMarket matrix coordinate real skew-symmetric\n2 2 1\n1 2 3\n";
    let pattern = "%%MatrixMarket matrix coordinate pattern symmetric\n3 3 3\n1  3\n1 3\n2 2\n";
    assert_eq!(read(lower).unwrap(), read(upper).unwrap());
    assert_eq!((read(skew).unwrap().get(0, 1), read(skew).unwrap().get(1, 0)), (Some(3.0), Some(-3.0)));
    // A place listed twice on one side is summed, as below the diagonal.
    assert_eq!(read(pattern).unwrap().get(2, 0), Some(2.0));
    let notes = |text: &str| read_from_noted::<f64>("m.mtx", text.as_bytes()).unwrap().1;
    assert_eq!(notes(lower), []);
    assert_eq!(
        notes(upper)[0].to_string(),
        "m.mtx:4: 2 entries lie above the diagonal; a symmetric file should list the lower triangle. Read as mirror images"
    );
    assert!(notes(skew)[0].to_string().starts_with("m.mtx:3: 1 entry lies above the diagonal; a skew-symmetric file"));
    let (nrows, _, dense) = read_dense_bytes::<f64>("m.mtx", upper.as_bytes()).unwrap();
    assert_eq!((nrows, dense[1], dense[3]), (3, -1.0, -1.0));
}

#[test]
fn bad_vectors() {
    let shape =
        read_vector_bytes::<f64>("v.mtx", b"%%MatrixMarket matrix array real general\n1 2\n1\n2\n").unwrap_err();
    let sparse = format!("{GENERAL}2000000000 1 1\n1 1 1\n");
    let sparse = read_vector_bytes::<f64>("v.mtx", sparse.as_bytes()).unwrap_err();
    insta::assert_snapshot!("bad_vectors", format!("{shape}\n{sparse}"));
}

#[test]
fn bad_places() {
    let dir = tempfile::tempdir().unwrap();
    let missing = read_csr::<f64>(dir.path().join("missing.mtx")).unwrap_err();
    assert!(matches!(&missing, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound), "{missing}");
    let folder = read_csr::<f64>(dir.path()).unwrap_err();
    assert!(matches!(&folder, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::IsADirectory));
    let empty = dir.path().join("empty.mtx");
    std::fs::write(&empty, b"").unwrap();
    assert!(matches!(read_csr::<f64>(&empty).unwrap_err(), Error::Parse { line: 1, column: 1, .. }));
    let into_nothing = write_vector(dir.path().join("no/such/folder/v.mtx"), &[1.0]).unwrap_err();
    assert!(matches!(into_nothing, Error::Io { .. }));
}

#[test]
fn a_fault_deep_in_a_large_file_is_placed_and_the_first_one_wins() {
    let mut text = format!("{GENERAL}% a comment\n200000 200000 200000\n");
    for i in 1..=200_000 {
        match i {
            150_000 => text += "150000 0 1.0\n",
            199_000 => text += "nonsense\n",
            _ => text += &format!("{i} {i} 1.0\n"),
        }
    }
    for threads in [1, 2, 5] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let error = pool.install(|| read(&text)).unwrap_err();
        assert_eq!(error.to_string(), "m.mtx:150003:8: column index 0, indices start at 1");
    }
}

#[test]
fn sums_do_not_depend_on_the_threads() {
    // Every entry of a 40 x 40 matrix 250 times in a scrambled order, with values whose sum depends on the order.
    let n = 100_000u64;
    let mut text = format!("{GENERAL}40 40 {n}\n");
    for k in 0..n {
        let at = k.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        text += &format!("{} {} {:?}\n", at % 40 + 1, at / 40 % 40 + 1, 0.1 + (k as f64).sqrt());
    }
    let mut expected = crate::Triplets::new(40, 40).unwrap();
    for k in 0..n {
        let at = k.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        expected.push((at % 40) as usize, (at / 40 % 40) as usize, 0.1 + (k as f64).sqrt()).unwrap();
    }
    let expected = expected.to_csr().unwrap();
    for threads in [1, 2, 7] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        assert_eq!(pool.install(|| read(&text)).unwrap(), expected, "{threads} threads");
    }
}

#[test]
fn written_files() {
    let csr = read(&format!("{GENERAL}3 3 5\n1 1 4\n1 2 -1\n2 1 -1\n2 2 4.25\n3 3 1e-300\n")).unwrap();
    let text = |options: &WriteOptions| {
        let mut out = Vec::new();
        write_csr_to(&mut out, &csr, options).map(|()| String::from_utf8(out).unwrap())
    };
    let comment = "two\nlines".to_owned();
    let mut all = text(&WriteOptions { comment, ..WriteOptions::default() }).unwrap();
    all += &text(&WriteOptions { symmetry: Symmetry::Symmetric, ..WriteOptions::default() }).unwrap();
    all += &text(&WriteOptions { field: Field::Pattern, ..WriteOptions::default() }).unwrap();
    for options in [
        WriteOptions { field: Field::Integer, ..WriteOptions::default() },
        WriteOptions { field: Field::Complex, ..WriteOptions::default() },
        WriteOptions { symmetry: Symmetry::SkewSymmetric, ..WriteOptions::default() },
    ] {
        all += &format!("{}\n", text(&options).unwrap_err());
    }
    let integer = WriteOptions { field: Field::Integer, ..WriteOptions::default() };
    let mut out = Vec::new();
    write_csr_to(&mut out, &csr.map(|v| (v * 4.0).round()), &integer).unwrap();
    all += &String::from_utf8(out).unwrap();
    let mut out = Vec::new();
    write_vector_to(&mut out, &[1.0f32, -0.0, f32::NAN, f32::INFINITY, 0.1]).unwrap();
    all += &String::from_utf8(out).unwrap();
    insta::assert_snapshot!("written_files", all);
}

/// All matrices of the collection named by the environment have the shape and the entries that its index states.
#[test]
fn collection() {
    let Some(folder) = std::env::var_os("SPANDREL_MATRICES").map(std::path::PathBuf::from) else {
        eprintln!("skipped: SPANDREL_MATRICES names no folder of matrices with an INDEX.tsv");
        return;
    };
    let index = std::fs::read_to_string(folder.join("INDEX.tsv")).unwrap();
    let mut read_files = 0;
    for line in index.lines().skip(1) {
        let fields: Vec<&str> = line.split('\t').collect();
        let path = folder.join(format!("{}.mtx.gz", fields[0]));
        let header = read_header(&path).unwrap();
        assert_eq!((header.field.word(), header.symmetry.word()), (fields[4], fields[5]), "{line}");
        match read_csr::<f64>(&path) {
            Ok(csr) => {
                let found = [csr.nrows(), csr.ncols(), csr.nnz()].map(|n| n.to_string());
                assert_eq!(found, fields[1..4], "{line}");
                let parts = csr.into_parts();
                Csr::new(parts.0, parts.1, parts.2, parts.3, parts.4).unwrap();
            }
            Err(Error::Parse { why, .. }) if header.field == Field::Complex => {
                assert!(why.starts_with("imaginary part"), "{line}: {why}");
            }
            Err(error) => panic!("{line}: {error}"),
        }
        read_files += 1;
    }
    assert!(read_files > 0, "an index without a matrix");
}

fn bits<T: Real>(values: &[T]) -> Vec<u64> {
    values.iter().map(|v| if v.is_nan() { u64::MAX } else { v.as_f64().to_bits() }).collect()
}

fn round_trip<T: Real>(nrows: usize, ncols: usize, entries: &[(usize, usize, T)], gz: bool) {
    let mut seen = std::collections::BTreeMap::new();
    for &(i, j, v) in entries {
        seen.insert((i % nrows, j % ncols), v);
    }
    let mut triplets = crate::Triplets::new(nrows, ncols).unwrap();
    seen.iter().for_each(|(&(i, j), &v)| triplets.push(i, j, v).unwrap());
    let csr = triplets.to_csr().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(if gz { "m.mtx.gz" } else { "m.mtx" });
    write_csr(&path, &csr, &WriteOptions::default()).unwrap();
    let back = read_csr::<T>(&path).unwrap();
    assert_eq!((back.row_ptr(), back.col_idx()), (csr.row_ptr(), csr.col_idx()));
    assert_eq!(bits(back.values()), bits(csr.values()));
    write_vector(&path, csr.values()).unwrap();
    assert_eq!(bits(&read_vector::<T>(&path).unwrap()), bits(csr.values()));
    // A + A^T is symmetric to the last bit.
    if nrows == ncols {
        let mut triplets = crate::Triplets::new(nrows, nrows).unwrap();
        for (&(i, j), &v) in seen.iter().filter(|((i, j), _)| i >= j) {
            triplets.push(i, j, v).unwrap();
            if i != j {
                triplets.push(j, i, v).unwrap();
            }
        }
        let csr = triplets.to_csr().unwrap();
        write_csr(&path, &csr, &WriteOptions { symmetry: Symmetry::Symmetric, ..WriteOptions::default() }).unwrap();
        assert!(read_header(&path).unwrap().entries as usize <= csr.nnz());
        let back = read_csr::<T>(&path).unwrap();
        assert_eq!((back.row_ptr(), back.col_idx()), (csr.row_ptr(), csr.col_idx()));
        assert_eq!(bits(back.values()), bits(csr.values()));
    }
}

/// A file of every kind, for mutation.
fn valid_file() -> impl Strategy<Value = Vec<u8>> {
    let kinds = prop::sample::select(vec![
        ("coordinate real general", "3 4 3\n1 1 1.5\n3 2 -2e3\n2 4 7\n"),
        ("coordinate integer symmetric", "3 3 3\n1 1 15\n3 2 -2\n3 3 7\n"),
        ("coordinate pattern general", "3 4 3\n1 1\n3 2\n2 4\n"),
        ("coordinate complex hermitian", "3 3 2\n1 1 1.5 0\n3 2 -2e3 0\n"),
        ("coordinate real skew-symmetric", "3 3 2\n2 1 1.5\n3 2 -2e3\n"),
        ("array real general", "2 2\n1\n2\n3\n4\n"),
        ("array real skew-symmetric", "3 3\n1\n2\n3\n"),
    ]);
    kinds.prop_map(|(kind, body)| format!("%%MatrixMarket matrix {kind}\n% c\n{body}").into_bytes())
}

fn never_panics(bytes: &[u8]) {
    if let Ok(csr) = read_bytes::<f64>("m", bytes) {
        let (nrows, ncols, row_ptr, col_idx, values) = csr.into_parts();
        Csr::new(nrows, ncols, row_ptr, col_idx, values).expect("what was read keeps the invariants");
    }
    let _ = read_bytes::<f32>("m", bytes);
    let _ = read_dense_bytes::<f64>("m", bytes);
    let _ = read_vector_bytes::<f64>("m", bytes);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn round_trips_f64(
        n in 1usize..40, m in 1usize..40, square in any::<bool>(), gz in any::<bool>(),
        entries in prop::collection::vec((any::<usize>(), any::<usize>(), any::<u64>().prop_map(f64::from_bits)), 0..200),
    ) {
        round_trip(n, if square { n } else { m }, &entries, gz);
    }

    #[test]
    fn round_trips_f32(
        n in 1usize..40, m in 1usize..40, square in any::<bool>(), gz in any::<bool>(),
        entries in prop::collection::vec((any::<usize>(), any::<usize>(), any::<u32>().prop_map(f32::from_bits)), 0..200),
    ) {
        round_trip(n, if square { n } else { m }, &entries, gz);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        never_panics(&bytes);
        never_panics(&[GENERAL.as_bytes(), &bytes].concat());
        never_panics(&[GENERAL.as_bytes(), b"5 5 9\n", &bytes].concat());
    }

    #[test]
    fn mutated_files_never_panic(
        mut bytes in valid_file(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0u8..4, any::<u8>(), 0usize..14), 1..6),
    ) {
        const PALETTE: &[u8; 14] = b"0123456789 \n-%";
        for (at, kind, byte, pick) in edits {
            let at = at.index(bytes.len());
            match kind {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, PALETTE[pick]),
                2 => bytes[at] = PALETTE[pick],
                _ if bytes.len() > 1 => { bytes.remove(at); }
                _ => {}
            }
        }
        never_panics(&bytes);
    }
}
