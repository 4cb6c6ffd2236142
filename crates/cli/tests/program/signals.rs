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

fn send(child: &Child, signal: &str) {
    let status = Command::new("kill").args([signal, &child.id().to_string()]).status().expect("kill runs");
    assert!(status.success());
}

fn interrupt(child: &Child) {
    send(child, "-INT");
}

#[test]
fn a_reader_that_has_left_is_no_error() {
    let folder = Folder::new();
    let out = folder.name("a.mtx");
    let commands: [&[&str]; 15] = [
        &["generate", "poisson2d:20", "-", "--quiet"],
        &["solve", "poisson2d:20", "--out", "-", "--quiet"],
        &["solve", "poisson2d:20", "--plot", "-", "--quiet"],
        &["completions", "bash"],
        &["man"],
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
    for args in [&["devices"][..], &["generate", "poisson2d:200", "-"], &["completions", "zsh"]] {
        let (code, stderr) = wait(start(args, full.try_clone().expect("a file").into()));
        assert_eq!(code, Some(1), "{args:?}");
        assert!(stderr.starts_with("error: stdout: "), "{stderr}");
    }
}

#[test]
fn the_exit_status_stays_that_of_the_work() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    assert_eq!(wait(start(&["solve", "poisson2d:20", "--max-iters", "2"], writer.into())).0, Some(3));
}

/// A solve that goes on for minutes: an ill-conditioned matrix cannot reach this goal, and the limit of iterations is
/// high.
const LONG: [&str; 8] =
    ["solve", "anisotropic2d:700,eps=0.0001", "--precond", "none", "--rtol", "1e-13", "--max-iters", "100000000"];

/// Starts the program until a Ctrl-C arrives during its iteration, and returns what `then` makes of that. During
/// set-up, Ctrl-C ends the program, which says so; the next attempt then waits longer.
fn interrupt_the_iteration(
    args: &[&str],
    then: impl Fn(Child) -> (Option<i32>, String, String),
) -> (Option<i32>, String, String) {
    let mut delay = Duration::from_millis(1500);
    loop {
        let mut child = start(args, Stdio::piped());
        std::thread::sleep(delay);
        assert!(child.try_wait().expect("a child").is_none(), "the solve is over too soon for this test");
        interrupt(&child);
        let (code, stdout, stderr) = then(child);
        if code != Some(130) || stderr.contains("iterating") {
            return (code, stdout, stderr);
        }
        assert!(delay < Duration::from_secs(60), "no iteration so far: {stderr}");
        delay *= 2;
    }
}

/// The exit status of a child, its stdout and its stderr.
fn ended(mut child: Child) -> (Option<i32>, String, String) {
    let mut stdout = String::new();
    child.stdout.take().expect("piped").read_to_string(&mut stdout).expect("text");
    let (code, stderr) = wait(child);
    (code, stdout, stderr)
}

#[test]
fn ctrl_c_ends_the_solve_with_what_it_has() {
    let folder = Folder::new();
    let (out, csv) = (folder.name("x.mtx"), folder.name("h.csv"));
    let files = ["--json", "--check-every", "1", "--out", &out, "--history", &csv];
    let (code, text, stderr) = interrupt_the_iteration(&[&LONG[..], &files].concat(), ended);
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
fn ctrl_c_ends_a_solve_on_ranks_with_what_it_has() {
    let folder = Folder::new();
    let out = folder.name("x.mtx");
    let options = ["--json", "--ranks", "3", "--check-every", "1", "--out", &out];
    let (code, text, stderr) = interrupt_the_iteration(&[&LONG[..], &options].concat(), ended);
    assert_eq!((code, stderr.as_str()), (Some(3), ""), "{text}");
    let object: Value = serde_json::from_str(&text).expect("one object");
    assert_eq!(object["status"], "interrupted");
    assert!(object["iterations"].as_u64().unwrap() > 0 && object["true_residual"].as_f64().unwrap().is_finite());
    let written = std::fs::read_to_string(&out).expect("x is written");
    assert_eq!(written.lines().filter(|line| !line.starts_with('%')).count(), 700 * 700 + 1);
}

/// Presses Ctrl-C after a while: the program ends at once with status 130, and names its current work.
#[track_caller]
fn ended_while(args: &[&str], stdin: Stdio, doing: &[&str]) {
    let mut child = Command::new(program())
        .env(HIDES_GPUS, "")
        .args(args)
        .stdin(stdin)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    // Keeps a pipe open.
    let _stdin = child.stdin.take();
    std::thread::sleep(Duration::from_millis(3000));
    assert!(child.try_wait().expect("a child").is_none(), "{args:?} is over too soon for this test");
    let begin = Instant::now();
    interrupt(&child);
    let (code, stderr) = wait(child);
    assert!(begin.elapsed() < Duration::from_secs(5), "{args:?} went on for {:?}", begin.elapsed());
    assert_eq!(code, Some(130), "{args:?}: {stderr}");
    let said = doing.iter().any(|doing| stderr == format!("interrupted while {doing}\n"));
    assert!(said, "{args:?}: {stderr}");
}

#[test]
fn ctrl_c_ends_a_set_up_at_once() {
    ended_while(&["info", "-"], Stdio::piped(), &["reading stdin"]);
    ended_while(&["solve", "poisson2d:4", "--rhs", "-", "--json"], Stdio::piped(), &["reading stdin"]);
    // A cube has much fill: factoring takes far more than a minute.
    let cube = ["solve", "poisson3d:60", "--solver", "direct"];
    ended_while(&cube, Stdio::null(), &["setting up: factorisation", "setting up: the symbolic factorisation"]);
    let filled = ["solve", "poisson3d:40", "--precond", "iluk=30", "--solver", "gmres"];
    ended_while(
        &filled,
        Stdio::null(),
        &["setting up: iluk=30", "setting up: symbolic factorisation", "setting up: factorisation"],
    );
}

/// Whether this process ignores SIGHUP: its children then do, too.
fn hangup_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).map(str::trim);
    mask.and_then(|mask| u64::from_str_radix(mask, 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

/// `nohup` starts a program with the hangup ignored, and the program leaves it so.
#[test]
fn a_hangup_ends_the_program_unless_it_is_ignored() {
    for (before, expected) in [("", Some(130)), ("trap '' HUP; ", Some(1))] {
        if before.is_empty() && hangup_is_ignored() {
            println!(
                "skipped the first half: this test was started with hangups ignored, as by nohup, and so is every program it starts"
            );
            continue;
        }
        let mut child = Command::new("sh")
            .args(["-c", &format!("{before}exec \"$0\" info -")])
            .arg(program())
            .env(HIDES_GPUS, "")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a shell");
        let stdin = child.stdin.take();
        std::thread::sleep(Duration::from_millis(3000));
        send(&child, "-HUP");
        std::thread::sleep(Duration::from_millis(1000));
        // If the hangup is ignored, the empty stdin ends the program: it contains no matrix.
        drop(stdin);
        let (code, stderr) = wait(child);
        assert_eq!(code, expected, "{before:?}: {stderr}");
    }
}

/// On a terminal of 60 columns that shows `^C`, the moving line leaves room for it, so that both are cleared together.
#[cfg(target_os = "linux")]
#[test]
fn ctrl_c_on_a_terminal_leaves_nothing_of_the_moving_line() {
    use std::io::Write;
    const COLUMNS: usize = 60;
    let program = program().into_string().expect("a plain name");
    let inside = format!("stty cols {COLUMNS} rows 20; exec '{program}' info -");
    let started = Command::new("script")
        .args(["-qec", &inside, "/dev/null"])
        .env(HIDES_GPUS, "")
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = started else {
        eprintln!("skipped: there is no `script` to make a terminal");
        return;
    };
    let mut keyboard = child.stdin.take().expect("piped");
    std::thread::sleep(Duration::from_millis(3000));
    keyboard.write_all(b"\x03").expect("a terminal");
    let (code, text, _) = ended(child);
    assert_eq!(code, Some(130), "{text:?}");
    let (shown, cleared) = text.split_once("^C").expect("an echo");
    assert!(cleared.starts_with("\r\x1b[2Kinterrupted while reading stdin"), "{cleared:?}");
    // The last line drawn, without the sequences that colour it.
    let line = shown.rsplit("\r\x1b[2K").next().unwrap_or_default();
    let plain = line.split("\x1b[").enumerate().map(|(k, part)| match part.split_once('m') {
        Some((_, rest)) if k > 0 => rest,
        _ => part,
    });
    let width = plain.collect::<String>().chars().count();
    assert!(line.contains("reading stdin") && width + 2 <= COLUMNS, "{width} columns: {line:?}");
}

/// A half-written file is removed, and the old file stays.
#[test]
fn ctrl_c_leaves_no_half_written_file() {
    let folder = Folder::new();
    let old = folder.file("a.mtx.gz", "the old one");
    let child = start(&["generate", "poisson3d:110", &old], Stdio::null());
    let names = || -> Vec<_> {
        std::fs::read_dir(folder.0.path()).expect("readable").map(|f| f.expect("a name").file_name()).collect()
    };
    let begin = Instant::now();
    while names().len() < 2 {
        assert!(begin.elapsed() < Duration::from_secs(60), "nothing is written");
        std::thread::sleep(Duration::from_millis(2));
    }
    interrupt(&child);
    let (code, stderr) = wait(child);
    assert_eq!((code, stderr), (Some(130), format!("interrupted while writing {old}\n")));
    assert_eq!(names(), ["a.mtx.gz"]);
    assert_eq!(std::fs::read_to_string(&old).expect("still there"), "the old one");
}

/// After SIGKILL nothing can clean up. Still the old file stays, and no other file is left.
#[test]
fn a_killed_solve_leaves_nothing_behind() {
    let folder = Folder::new();
    let (out, csv) = (folder.file("x.mtx", "the old one"), folder.name("h.csv"));
    let mut child = start(&[&LONG[..], &["--out", &out, "--history", &csv]].concat(), Stdio::null());
    std::thread::sleep(Duration::from_millis(3000));
    child.kill().expect("a child");
    assert_eq!(wait(child).0, None, "ended by the signal");
    let left: Vec<_> =
        std::fs::read_dir(folder.0.path()).expect("readable").map(|f| f.expect("a name").file_name()).collect();
    assert_eq!(left, ["x.mtx"]);
    assert_eq!(std::fs::read_to_string(&out).expect("still there"), "the old one");
}

#[test]
fn a_second_ctrl_c_ends_the_program() {
    // An iteration of 2000 products takes so long that the first one is not noticed in time.
    let args = ["solve", "poisson3d:64", "--solver", "cg", "--precond", "ic0-jacobi=1000", "--format", "csr"];
    let twice = |child: Child| {
        std::thread::sleep(Duration::from_millis(50));
        interrupt(&child);
        ended(child)
    };
    let (code, stdout, stderr) = interrupt_the_iteration(&args, twice);
    assert_eq!((code, stdout.as_str(), stderr.as_str()), (Some(130), "", "interrupted while iterating by cg\n"));
}
