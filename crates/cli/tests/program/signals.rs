//! Readers that leave and users who interrupt.
#![cfg(unix)]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::*;

fn start(args: &[&str], stdout: Stdio) -> Child {
    Command::new(program())
        .env(HIDES_GPUS, "")
        .args(args)
        .stdout(stdout)
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts")
}

/// Waits for the end, at most a minute.
fn wait(mut child: Child) -> (Option<i32>, String) {
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child") {
            break status;
        }
        if begin.elapsed() > Duration::from_secs(60) {
            child.kill().expect("a child");
            panic!("the program did not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let mut stderr = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut stderr).expect("text");
    (status.code(), stderr)
}

fn interrupt(child: &Child) {
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill runs");
    assert!(status.success());
}

#[test]
fn a_reader_that_has_left_is_no_error() {
    let folder = Folder::new();
    let out = folder.name("a.mtx");
    let commands: [&[&str]; 10] = [
        &["spmv", "poisson2d:20", "--format", "csr"],
        &["convert", "poisson2d:20", &out],
        &["generate", "poisson2d:20", &out],
        &["info", "poisson2d:20"],
        &["solve", "poisson2d:20"],
        &["solve", "poisson2d:20", "--json"],
        &["generate", "--list"],
        &["devices"],
        &["--help"],
        &["solve", "--help"],
    ];
    for args in commands {
        // A pipe whose reading end is closed before the first byte.
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let (code, stderr) = wait(start(args, writer.into()));
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn a_reader_that_leaves_after_a_line_is_no_error() {
    let mut child = start(&["info", "poisson2d:20"], Stdio::piped());
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    assert!(line.starts_with("matrix"));
    assert_eq!(wait(child), (Some(0), String::new()));
}

#[test]
fn a_full_disk_is_an_error() {
    let Ok(full) = std::fs::OpenOptions::new().write(true).open("/dev/full") else {
        eprintln!("skipped: this system has no /dev/full");
        return;
    };
    let (code, stderr) = wait(start(&["devices"], full.into()));
    assert_eq!(code, Some(1));
    assert!(stderr.starts_with("error: stdout: "), "{stderr}");
}

#[test]
fn the_exit_status_stays_that_of_the_work() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    assert_eq!(wait(start(&["solve", "poisson2d:20", "--max-iters", "2"], writer.into())).0, Some(3));
}

/// A solve that goes on for minutes: the goal is out of reach of an ill-conditioned matrix with as many iterations.
const LONG: [&str; 8] =
    ["solve", "anisotropic2d:700,eps=0.0001", "--precond", "none", "--rtol", "1e-13", "--max-iters", "100000000"];

/// Waits until the program listens for Ctrl-C, which it does once the matrix is there, and a little longer.
pub(super) fn await_handler(child: &mut Child) {
    /// SIGINT in the mask of caught signals.
    const SIGINT: u64 = 1 << 1;
    let begin = Instant::now();
    let status = format!("/proc/{}/status", child.id());
    while begin.elapsed() < Duration::from_secs(60) {
        assert!(child.try_wait().expect("a child").is_none(), "the solve is over too soon for this test");
        let Ok(contents) = std::fs::read_to_string(&status) else {
            // No such file system here: a wait that is long enough by far.
            std::thread::sleep(Duration::from_secs(10));
            return;
        };
        let caught = contents.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        if caught.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).is_ok_and(|mask| mask & SIGINT != 0)) {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(1500));
}

#[test]
fn ctrl_c_ends_the_solve_with_what_it_has() {
    let folder = Folder::new();
    let (out, csv) = (folder.name("x.mtx"), folder.name("h.csv"));
    let files = ["--json", "--check-every", "1", "--out", &out, "--history", &csv];
    let mut child = start(&[&LONG[..], &files].concat(), Stdio::piped());
    await_handler(&mut child);
    interrupt(&child);
    let mut text = String::new();
    child.stdout.take().expect("piped").read_to_string(&mut text).expect("text");
    let (code, stderr) = wait(child);
    assert_eq!((code, stderr.as_str()), (Some(3), ""), "{text}");
    let object: Value = serde_json::from_str(&text).expect("one object");
    assert_eq!(object["status"], "interrupted");
    assert!(object["iterations"].as_u64().unwrap() > 0);
    assert!(object["true_residual"].as_f64().unwrap().is_finite());
    let written = std::fs::read_to_string(&out).expect("x is written");
    assert_eq!(written.lines().filter(|line| !line.starts_with('%')).count(), 700 * 700 + 1);
    assert_eq!(
        std::fs::read_to_string(&csv).expect("the history is written").lines().count(),
        object["history"].as_array().unwrap().len() + 1
    );
}

#[test]
fn ctrl_c_ends_a_direct_solve_at_once() {
    use std::os::unix::process::ExitStatusExt;
    /// SIGINT.
    const INTERRUPT: i32 = 2;
    // Fill of a cube: far more than a minute of factoring.
    let mut child = Command::new(program())
        .env(HIDES_GPUS, "")
        .args(["solve", "poisson3d:60", "--solver", "direct"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    std::thread::sleep(Duration::from_millis(1500));
    assert!(child.try_wait().expect("a child").is_none(), "the solve is over too soon for this test");
    interrupt(&child);
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child") {
            break status;
        }
        if begin.elapsed() > Duration::from_secs(5) {
            child.kill().expect("a child");
            panic!("Ctrl-C was swallowed");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(status.signal() == Some(INTERRUPT) || status.code() == Some(130), "{status}");
}

/// SIGKILL, which nothing can tidy up after: what lies there stays, and no file is left beside it.
#[test]
fn a_killed_solve_leaves_nothing_behind() {
    let folder = Folder::new();
    let (out, csv) = (folder.file("x.mtx", "the old one"), folder.name("h.csv"));
    let mut child = start(&[&LONG[..], &["--out", &out, "--history", &csv]].concat(), Stdio::null());
    await_handler(&mut child);
    child.kill().expect("a child");
    assert_eq!(wait(child).0, None, "ended by the signal");
    let left: Vec<_> =
        std::fs::read_dir(folder.0.path()).expect("readable").map(|f| f.expect("a name").file_name()).collect();
    assert_eq!(left, ["x.mtx"]);
    assert_eq!(std::fs::read_to_string(&out).expect("still there"), "the old one");
}

#[test]
fn a_second_ctrl_c_ends_the_program() {
    // The host looks so rarely that the first one is not noticed.
    let mut child = start(&[&LONG[..], &["--check-every", "1000000"]].concat(), Stdio::null());
    await_handler(&mut child);
    interrupt(&child);
    std::thread::sleep(Duration::from_millis(300));
    interrupt(&child);
    assert_eq!(wait(child).0, Some(130));
}
