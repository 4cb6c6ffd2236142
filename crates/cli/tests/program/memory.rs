//! The memory of a solve is at most the matrix, its vectors and one copy of the matrix, and a third more.
#![cfg(target_os = "linux")]

use std::process::{Command, Stdio};

use super::*;

/// Runs a solve, and returns its peak resident memory in bytes and its object. The kernel's count is read while the
/// program runs, so a peak in the last milliseconds could be missed. But the iteration needs the most memory, until the
/// end.
fn peak(args: &[&str]) -> (u64, Value) {
    let mut child = Command::new(program())
        .env(HIDES_GPUS, "")
        .args(args)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let status = format!("/proc/{}/status", child.id());
    let mut most = 0;
    while child.try_wait().expect("a child").is_none() {
        let contents = std::fs::read_to_string(&status).unwrap_or_default();
        let line = contents.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().strip_suffix("kB")).and_then(|kib| kib.trim().parse::<u64>().ok());
        most = most.max(kib.unwrap_or(0) * 1024);
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let output = child.wait_with_output().expect("a child");
    (most, json(&output))
}

#[test]
fn a_solve_holds_the_matrix_its_vectors_and_one_copy() {
    let n = 96u64.pow(3);
    for (format, vectors) in [("dia", 7), ("csr", 7)] {
        let (peak, object) =
            peak(&["solve", "d3n7:96", "--json", "--max-iters", "10", "--format", format, "--precond", "jacobi"]);
        let nnz = object["matrix"]["nnz"].as_u64().expect("a number");
        let matrix = 12 * nnz + 4 * (n + 1);
        let copy = if format == "dia" { 8 * 7 * n } else { matrix };
        let allowed = (matrix + vectors * 8 * n + copy) * 13 / 10;
        assert!(peak > matrix, "{peak} bytes cannot be all");
        assert!(peak <= allowed, "{format}: {peak} bytes, {allowed} allowed");
        // The program counts the same, up to the megabytes of its last moments.
        let said = object["peak_memory_bytes"].as_u64().expect("a number");
        assert!(said.abs_diff(peak) <= peak / 20, "{said} bytes by its own word, {peak} seen");
    }
    let report = stdout(&run(&["solve", "poisson2d:4"]));
    assert!(report.lines().any(|line| line.starts_with("peak memory ") && line.ends_with(" MB")), "{report}");
}
