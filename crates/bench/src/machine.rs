//! The machine: its name for the record, and its own bandwidth as contenders.
//!
//! Bandwidth counts the bytes that the program names, as STREAM does (McCalpin 1995): copy 16 and triad 24 bytes per
//! element of f64, plain stores. The read that a cache makes before it may write a line (write-allocate) is not
//! counted.

use std::process::{Command, Output, Stdio};

use rayon::prelude::*;

use crate::contender::Contender;

/// Elements of each array: 128 MiB of f64, four times a 32 MiB cache.
const LEN: usize = 1 << 24;

/// STREAM copy (`c = a`) or triad (`a = b + s c`) over all threads of the pool.
pub struct Stream {
    triad: bool,
    chunk: usize,
    a: Vec<f64>,
    b: Vec<f64>,
    c: Vec<f64>,
}

impl Stream {
    /// Arrays for the current rayon pool, touched by the threads that will use them.
    pub fn new(triad: bool) -> Self {
        let chunk = LEN.div_ceil(rayon::current_num_threads());
        let fresh = |value: f64| {
            let mut v = vec![0.0; LEN];
            v.par_chunks_mut(chunk).for_each(|part| part.fill(value));
            v
        };
        Self { triad, chunk, a: fresh(1.0), b: fresh(2.0), c: fresh(0.5) }
    }
}

impl Contender for Stream {
    fn noun(&self) -> String {
        if self.triad { "triad".into() } else { "copy".into() }
    }
    fn name(&self) -> &'static str {
        "machine"
    }
    fn bytes(&self) -> u64 {
        (LEN * if self.triad { 24 } else { 16 }) as u64
    }
    fn run(&mut self) {
        let chunk = self.chunk;
        if self.triad {
            self.a.par_chunks_mut(chunk).zip(self.b.par_chunks(chunk)).zip(self.c.par_chunks(chunk)).for_each(
                |((a, b), c)| {
                    for ((a, b), c) in a.iter_mut().zip(b).zip(c) {
                        *a = b + 3.0 * c;
                    }
                },
            );
        } else {
            self.c.par_chunks_mut(chunk).zip(self.a.par_chunks(chunk)).for_each(|(c, a)| c.copy_from_slice(a));
        }
    }
    fn poison(&mut self) {}
    fn answer(&self) -> Option<Vec<f64>> {
        None
    }
}

/// The processor model and the number of threads in use.
pub fn describe(threads: usize) -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |key: &str| {
        cpuinfo
            .lines()
            .find(|l| l.starts_with(key))
            .and_then(|l| l.split(':').nth(1))
            .map(|v| v.trim().to_owned())
            .unwrap_or_else(|| "unknown".into())
    };
    format!(
        "{} (family {}, model {}), cache {}, {} threads of {}",
        field("model name"),
        field("cpu family"),
        field("model\t"),
        field("cache size"),
        threads,
        std::thread::available_parallelism().map_or(1, usize::from)
    )
}

/// The first line of a command's output, or `"unknown"`.
pub fn ask(program: &str, args: &[&str]) -> String {
    Command::new(program)
        .args(args)
        .output()
        .ok()
        .filter(|o| o.status.success())
        .and_then(|o| String::from_utf8(o.stdout).ok())
        .and_then(|s| s.lines().next().map(str::to_owned))
        .unwrap_or_else(|| "unknown".into())
}

/// The measured commit, with `+changes` if the tree differs from it; `unknown` outside a repository.
pub fn commit() -> String {
    let git = |arguments: &[&str]| Command::new("git").args(arguments).stderr(Stdio::null()).output().ok();
    let succeeded = |output: &Output| output.status.success();
    let Some(head) = git(&["rev-parse", "--short=12", "HEAD"]).filter(succeeded) else { return "unknown".into() };
    let head = String::from_utf8_lossy(&head.stdout).trim().to_owned();
    let clean =
        git(&["diff", "--quiet", "HEAD", "--", "crates", "Cargo.toml", "Cargo.lock"]).is_some_and(|o| succeeded(&o));
    if clean { head } else { format!("{head}+changes") }
}
