//! Downloads from our own server, which answers correctly, breaks off, or lies.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::server::{Answer, Server};
use super::*;

const TAG: Option<&str> = Some("\"one\"");

/// A folder that is deleted with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("spandrel-xtask-fetch-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a temporary folder");
        Self(path)
    }
    fn fetcher(&self, server: &Server) -> Fetcher {
        // Without the environment's proxy, because the server is on this machine.
        let agent = agent(Agent::config_builder().proxy(None));
        let lock = Lock::read(&self.0.join("matrices.lock")).expect("a lock file");
        Fetcher { agent, from: server.url.clone(), into: self.0.join("matrices"), lock }
    }
    fn matrix(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.0.join("matrices").join(format!("{name}.mtx"))).ok()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// An archive in the collection's form, with this text as its matrix.
fn packed(name: &str, text: &str) -> Vec<u8> {
    let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (path, data) in [(format!("{name}/{name}_b.mtx"), "b"), (format!("{name}/{name}.mtx"), text)] {
        let mut head = tar::Header::new_gnu();
        head.set_size(data.len() as u64);
        head.set_mode(0o644);
        head.set_cksum();
        builder.append_data(&mut head, path, data.as_bytes()).expect("an entry");
    }
    builder.into_inner().and_then(GzEncoder::finish).expect("an archive")
}

/// Enough numbers that no compression makes them small.
fn long() -> String {
    (0..20_000u64).map(|k| format!("{}\n", k.wrapping_mul(6_364_136_223_846_793_005).rotate_left(17))).collect()
}

#[test]
fn a_matrix_is_fetched_once_and_its_checksum_kept() {
    let (folder, server) = (Folder::new("once"), Server::new(&packed("tiny", "text"), TAG, &[Answer::File]));
    let said = folder.fetcher(&server).fetch("HB/tiny").expect("a matrix");
    assert!(said.contains("fetched, checksum recorded, sha256 "), "{said}");
    assert_eq!(folder.matrix("tiny").as_deref(), Some("text"));
    assert_eq!(folder.matrix("tiny_b"), None); // stays in the archive
    assert_eq!(server.requests(), [("/MM/HB/tiny.tar.gz".to_owned(), None)]);

    let said = folder.fetcher(&server).fetch("HB/tiny").expect("a matrix");
    assert!(said.starts_with("there already, sha256 "), "{said}");
    fs::remove_file(folder.0.join("matrices/tiny.mtx")).expect("a file");
    folder.fetcher(&server).fetch("HB/tiny").expect("a matrix");
    assert_eq!((folder.matrix("tiny").as_deref(), server.requests().len()), (Some("text"), 1));
}

#[test]
fn a_transfer_that_breaks_off_goes_on_where_it_was() {
    let body = packed("big", &long());
    assert!(body.len() > 100_000);
    let (folder, server) = (Folder::new("resume"), Server::new(&body, TAG, &[Answer::Cut(70_000), Answer::File]));
    folder.fetcher(&server).fetch("HB/big").expect("a matrix");
    assert_eq!(folder.matrix("big"), Some(long()));
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[1].1.as_deref(), Some("bytes=70000-"));
    let left = fs::read_dir(folder.0.join("matrices/archives/HB")).expect("a folder").count();
    assert_eq!(left, 1, "the archive alone");
}

#[test]
fn what_breaks_off_again_and_again_is_kept_for_the_next_time() {
    let body = packed("big", &long());
    let (folder, server) = (Folder::new("again"), Server::new(&body, TAG, &[Answer::Cut(10_000)]));
    let error = folder.fetcher(&server).fetch("HB/big").unwrap_err();
    assert!(matches!(error, Error::Truncated { found: 40_000, attempts: 4, .. }), "{error}");
    server.then(&[Answer::File]);
    folder.fetcher(&server).fetch("HB/big").expect("a matrix");
    assert_eq!(server.requests().last().and_then(|r| r.1.clone()).as_deref(), Some("bytes=40000-"));
    assert_eq!(folder.matrix("big"), Some(long()));
}

#[test]
fn another_version_is_not_patched_onto_the_first() {
    let (folder, server) = (Folder::new("version"), Server::new(&packed("big", &long()), TAG, &[Answer::Cut(50_000)]));
    folder.fetcher(&server).fetch("HB/big").unwrap_err();
    server.replace(&packed("big", "new"), "\"two\"");
    server.then(&[Answer::File]);
    folder.fetcher(&server).fetch("HB/big").expect("a matrix");
    assert_eq!(folder.matrix("big").as_deref(), Some("new"));
}

#[test]
fn servers_without_ranges_or_validators_are_asked_for_the_whole() {
    for (test, tag, after) in [("whole", TAG, Answer::Whole), ("untagged", None, Answer::File)] {
        let body = packed("big", &long());
        let (folder, server) = (Folder::new(test), Server::new(&body, tag, &[Answer::Cut(50_000), after]));
        folder.fetcher(&server).fetch("HB/big").expect("a matrix");
        assert_eq!(folder.matrix("big"), Some(long()), "{test}");
        assert_eq!(server.requests()[1].1.is_some(), tag.is_some());
    }
}

#[test]
fn a_part_that_is_longer_than_the_file_is_begun_anew() {
    let body = packed("tiny", "text");
    let (folder, server) = (Folder::new("longer"), Server::new(&body, TAG, &[Answer::File]));
    let archives = folder.0.join("matrices/archives/HB");
    fs::create_dir_all(&archives).expect("a folder");
    fs::write(archives.join("tiny.tar.gz.part"), vec![0; body.len() + 5]).expect("a file");
    fs::write(archives.join("tiny.tar.gz.part.tag"), "\"one\"").expect("a file");
    folder.fetcher(&server).fetch("HB/tiny").expect("a matrix");
    assert_eq!((folder.matrix("tiny").as_deref(), server.requests().len()), (Some("text"), 2));
}

#[test]
fn an_archive_that_changed_is_refused() {
    let (folder, server) = (Folder::new("changed"), Server::new(&packed("tiny", "text"), TAG, &[Answer::File]));
    folder.fetcher(&server).fetch("HB/tiny").expect("a matrix");
    fs::remove_dir_all(folder.0.join("matrices")).expect("a folder");
    server.replace(&packed("tiny", "other"), "\"two\"");
    let error = folder.fetcher(&server).fetch("HB/tiny").unwrap_err();
    assert!(matches!(error, Error::Checksum { .. }), "{error}");
    assert!(error.to_string().contains("HB/tiny: the archive's sha256 is "), "{error}");
    assert_eq!(folder.matrix("tiny"), None);
    // It is not taken for the right one the next time either.
    assert!(matches!(folder.fetcher(&server).fetch("HB/tiny"), Err(Error::Checksum { .. })));
}

#[test]
fn what_is_no_archive_is_refused_and_locks_nothing() {
    let mut broken = packed("big", &long());
    broken.truncate(60_000);
    let page = b"<html>not here</html>".to_vec();
    let cases = [("broken", broken), ("page", page), ("other", packed("other", "text")), ("none", Vec::new())];
    for (test, body) in cases {
        let (folder, server) = (Folder::new(test), Server::new(&body, TAG, &[Answer::File]));
        let error = folder.fetcher(&server).fetch("HB/big").unwrap_err();
        assert!(matches!(error, Error::Archive { .. }), "{test}: {error}");
        assert!(!folder.0.join("matrices.lock").exists() && folder.matrix("big").is_none(), "{test}");
        server.replace(&packed("big", "right"), "\"two\"");
        folder.fetcher(&server).fetch("HB/big").expect("the next time");
    }
}

#[test]
fn statuses_have_their_words() {
    let (folder, server) = (Folder::new("status"), Server::new(b"", TAG, &[Answer::Status(404)]));
    let error = folder.fetcher(&server).fetch("HB/none").unwrap_err();
    assert!(matches!(&error, Error::NotThere { url } if url.ends_with("/MM/HB/none.tar.gz")), "{error}");
    server.then(&[Answer::Status(503)]);
    assert!(matches!(folder.fetcher(&server).fetch("HB/none"), Err(Error::Status { status: 503, .. })));
    let (folder, server) =
        (Folder::new("range"), Server::new(&packed("big", &long()), TAG, &[Answer::Cut(50_000), Answer::OtherRange]));
    assert!(matches!(folder.fetcher(&server).fetch("HB/big"), Err(Error::Range { expected: 50_000, .. })));
}

#[test]
fn nobody_there_is_said() {
    let (folder, server) = (Folder::new("gone"), Server::new(b"", TAG, &[Answer::File]));
    let mut fetcher = folder.fetcher(&server);
    drop(server);
    let error = fetcher.fetch("HB/tiny").unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
}

#[test]
fn names_lead_nowhere_else() {
    let (folder, server) = (Folder::new("names"), Server::new(b"", TAG, &[Answer::File]));
    for name in ["tiny", "HB/", "/tiny", "HB/../x", "../x", "HB/a/b", "HB/a b", "HB/.x", "HB/a%2f", ""] {
        assert!(matches!(folder.fetcher(&server).fetch(name), Err(Error::Name(_))), "{name}");
    }
    assert!(server.requests().is_empty());
}

#[test]
fn two_groups_may_not_share_a_name() {
    let (folder, server) = (Folder::new("clash"), Server::new(&packed("tiny", "text"), TAG, &[Answer::File]));
    folder.fetcher(&server).fetch("HB/tiny").expect("a matrix");
    let error = folder.fetcher(&server).fetch("Bai/tiny").unwrap_err();
    assert!(matches!(&error, Error::Clash { other, .. } if other == "HB/tiny"), "{error}");
}

#[test]
fn a_lock_file_that_is_not_understood_is_an_error() {
    let folder = Folder::new("lock");
    let path = folder.0.join("matrices.lock");
    for line in ["HB/tiny", "HB/tiny abc 3", "HB/tiny abc", &format!("HB/tiny {} x", "0".repeat(64))] {
        let mut file = File::create(&path).expect("a file");
        write!(file, "# remark\n{line}\n").expect("a line");
        assert!(matches!(Lock::read(&path), Err(Error::Lock { line: 2, .. })), "{line}");
    }
    let mut file = File::create(&path).expect("a file");
    write!(file, "# remark\nHB/tiny {} 3\n", "0".repeat(64)).expect("a line");
    let lock = Lock::read(&path).expect("a lock file");
    assert_eq!(lock.get("HB/tiny").map(|sum| sum.bytes), Some(3));
}
