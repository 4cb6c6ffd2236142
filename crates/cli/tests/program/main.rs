//! The program as its users see it: it is run as a process, and exit status, stdout, stderr and files are checked.

mod bad_input;
mod columns;
mod commands;
mod documented;
mod gpu;
mod memory;
mod near_null;
mod ranks;
mod reasons;
mod shells;
mod signals;
mod snapshots;
mod solving;
mod streams;
mod wording;

use std::path::{Path, PathBuf};
use std::process::Output;

use assert_cmd::Command;
use serde_json::Value;

macro_rules! stems {
    ([] $(($stem:ident, $Type:ident)),*) => { &[$(stringify!($stem)),*] };
}
/// The storage formats.
const FORMATS: &[&str] = spandrel_formats::for_each_format!(stems);

/// The driver's variable that names the visible GPUs; empty means none.
const HIDES_GPUS: &str = "CUDA_VISIBLE_DEVICES";

/// The path of the program: cargo's, or `SPANDREL_PROGRAM` if there is none.
fn program() -> std::ffi::OsString {
    std::env::var_os("SPANDREL_PROGRAM").unwrap_or_else(|| env!("CARGO_BIN_EXE_spandrel").into())
}

/// The program with a fixed width for its help, and on the CPU; the tests of [`gpu`] show it the GPUs.
fn spandrel() -> Command {
    let mut command = Command::new(program());
    command.env("COLUMNS", "100").env_remove("CLICOLOR_FORCE").env(HIDES_GPUS, "").env("SPANDREL_CALIBRATION", "");
    command
}

fn run(args: &[&str]) -> Output {
    spandrel().args(args).output().expect("the program starts")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("stdout is text")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("stderr is text")
}

/// Exactly one JSON object on stdout.
fn json(output: &Output) -> Value {
    let text = stdout(output);
    assert_eq!(text.lines().count(), 1, "one line: {text}");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

/// Runs with `--json` and returns exit status and object.
fn run_json(args: &[&str]) -> (i32, Value) {
    let output = run(&[args, &["--json"]].concat());
    (output.status.code().expect("not killed"), json(&output))
}

/// A folder for a test, and files in it.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }
    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
    fn name(&self, name: &str) -> String {
        text(&self.path(name))
    }
    /// Writes a file and returns its name.
    fn file(&self, name: &str, contents: &str) -> String {
        std::fs::write(self.path(name), contents).expect("the folder can be written");
        self.name(name)
    }
    /// A Matrix Market file of a general real matrix.
    fn matrix(&self, name: &str, nrows: usize, ncols: usize, entries: &[(usize, usize, &str)]) -> String {
        let mut contents =
            format!("%%MatrixMarket matrix coordinate real general\n{nrows} {ncols} {}\n", entries.len());
        for (row, col, value) in entries {
            contents.push_str(&format!("{row} {col} {value}\n"));
        }
        self.file(name, &contents)
    }
}

fn text(path: &Path) -> String {
    path.to_str().expect("a plain name").to_string()
}
