//! Gzip files, pipes, devices, and streams that do not end.

use super::*;

#[test]
fn gzip_by_its_first_bytes_and_by_extension() {
    let dir = tempfile::tempdir().unwrap();
    let text = format!("{GENERAL}1 1 1\n1 1 5\n");
    let pack = |text: &[u8]| {
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gz.write_all(text).unwrap();
        gz.finish().unwrap()
    };
    let packed = pack(text.as_bytes());
    let expected = read(&text).unwrap();
    for name in ["m.mtx.gz", "m.mtx"] {
        let path = dir.path().join(name);
        std::fs::write(&path, &packed).unwrap();
        assert_eq!(read_csr::<f64>(&path).unwrap(), expected);
        assert_eq!(read_header(&path).unwrap().entries, 1);
    }
    assert_eq!(read_bytes::<f64>("m", &packed).unwrap(), expected);
    assert_eq!(read_from::<f64>("m", packed.as_slice()).unwrap(), expected);
    // Two members, as `cat a.gz b.gz` leaves them.
    let (head, tail) = text.as_bytes().split_at(20);
    assert_eq!(read_bytes::<f64>("m", &[pack(head), pack(tail)].concat()).unwrap(), expected);
    for len in 2..packed.len() {
        let error = read_bytes::<f64>("m", &packed[..len]).expect_err("a truncated gzip stream");
        assert!(matches!(error, Error::Io { .. }), "{len}: {error}");
    }
    let path = dir.path().join("plain.mtx.gz");
    std::fs::write(&path, &text).unwrap();
    assert!(matches!(read_csr::<f64>(&path).unwrap_err(), Error::Io { .. }));
}

/// The messages for a damaged gzip file tell a truncated file from appended data and from corruption.
#[test]
fn broken_gzip_says_what_is_wrong() {
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gz.write_all(format!("{GENERAL}1 1 1\n1 1 5\n").as_bytes()).unwrap();
    let packed = gz.finish().unwrap();
    let length = packed.len();
    let told = |bytes: &[u8]| {
        let error = read_bytes::<f64>("m.mtx.gz", bytes).unwrap_err().to_string();
        assert_eq!(read_from::<f64>("m.mtx.gz", bytes).unwrap_err().to_string(), error);
        error
    };
    let behind = format!(
        "m.mtx.gz: the gzip data ends after {length} bytes, and what follows is not gzip: cut the file off there, or fetch it again"
    );
    for garbage in
        [&b"x"[..], b"garbage", b"\x1f", b"\x1f\x8b", b"\x1f\x8bgarbage that is longer than a header", &[0; 600]]
    {
        assert_eq!(told(&[&packed, garbage].concat()), behind, "{garbage:?}");
    }
    let cut = "m.mtx.gz: the gzip data ends too soon: the file was cut off, fetch it again";
    assert_eq!(told(&packed[..length - 1]), cut);
    assert_eq!(told(&packed[..length / 2]), cut);
    assert_eq!(told(&[&packed, &packed[..length / 2]].concat()), cut);
    let mut damaged = packed.clone();
    damaged[length - 6] ^= 1;
    assert!(told(&damaged).starts_with("m.mtx.gz: the gzip data is damaged ("), "{}", told(&damaged));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("plain.mtx.gz");
    std::fs::write(&path, GENERAL).unwrap();
    let plain = read_csr::<f64>(&path).unwrap_err().to_string();
    assert!(plain.ends_with("not gzip, as its name says: give it a name that does not end in .gz"), "{plain}");
}

/// Yields its head, then a pattern again and again. Fails the test if more than `left` bytes are requested.
struct Endless {
    head: Vec<u8>,
    at: usize,
    pattern: u8,
    left: usize,
}

impl std::io::Read for Endless {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        self.left = self.left.checked_sub(buf.len()).expect("the reader does not stop");
        for place in buf.iter_mut() {
            *place = self.head.get(self.at).copied().unwrap_or(self.pattern);
            self.at += 1;
        }
        Ok(buf.len())
    }
}

#[test]
fn a_stream_without_an_end_is_refused() {
    let endless = |head: &str, pattern, left| {
        let reader = Endless { head: head.as_bytes().to_vec(), at: 0, pattern, left };
        read_from::<f64>("<stdin>", reader).unwrap_err().to_string()
    };
    let form = "a file begins '%%MatrixMarket matrix coordinate|array real|integer|complex|pattern \
                general|symmetric|skew-symmetric|hermitian'";
    assert_eq!(endless("", 0, 1 << 10), format!("<stdin>:1:1: no Matrix Market banner: {form}"));
    assert_eq!(endless("%%MatrixMarket", b'x', 1 << 10), format!("<stdin>:1:1: no Matrix Market banner: {form}"));
    let long = "a line of more than 1048576 bytes: this is no Matrix Market file";
    assert_eq!(endless("", b' ', 8 << 20), format!("<stdin>:1:1: {long}"));
    assert_eq!(endless(GENERAL.trim_end(), b' ', 8 << 20), format!("<stdin>:1:1: {long}"));
    assert_eq!(endless(&format!("{GENERAL}% c"), b'c', 8 << 20), format!("<stdin>:2:1: {long}"));
    assert_eq!(endless(&format!("{GENERAL}3 3 1\n1 1 1\n"), 0, 8 << 20), format!("<stdin>:4:1: {long}"));
    // The same inside gzip: 64 MiB of zeros in 64 KiB, of which only the first bytes are unpacked.
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gz.write_all(&vec![0; 64 << 20]).unwrap();
    let mut packed = gz.finish().unwrap();
    packed.truncate(4096);
    let error = read_bytes::<f64>("zeros.gz", &packed).unwrap_err().to_string();
    assert_eq!(error, format!("zeros.gz:1:1: no Matrix Market banner: {form}"));
}

/// Reads the device itself, in a process that nobody kills.
#[cfg(target_os = "linux")]
#[test]
fn devices_and_pipes_are_read_like_files() {
    assert!(matches!(read_csr::<f64>("/dev/zero"), Err(Error::Parse { line: 1, column: 1, .. })));
    assert!(matches!(read_header("/dev/zero"), Err(Error::Parse { line: 1, column: 1, .. })));
    assert!(matches!(read_vector::<f64>("/dev/urandom"), Err(Error::Parse { .. } | Error::Io { .. })));
    assert!(matches!(read_csr::<f64>("/dev/null"), Err(Error::Parse { line: 1, column: 1, .. })));
    let text = format!("{GENERAL}2 2 1\n2 1 5\n");
    let (reader, mut writer) = std::io::pipe().unwrap();
    let piped = {
        use std::os::fd::AsRawFd as _;
        format!("/dev/fd/{}", reader.as_raw_fd())
    };
    let sender = std::thread::spawn(move || writer.write_all(text.as_bytes()).unwrap());
    assert_eq!(read_csr::<f64>(piped).unwrap().get(1, 0), Some(5.0));
    sender.join().unwrap();
}
