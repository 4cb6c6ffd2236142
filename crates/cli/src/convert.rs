//! `spandrel convert` and `spandrel generate`: matrices to Matrix Market files.

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;
use spandrel::Csr;
use spandrel_formats::generate;
use spandrel_formats::matrix_market::{self, Symmetry, WriteOptions};

use crate::args::{ConvertArgs, GenerateArgs};
use crate::failure::{Failure, Result};
use crate::input;
use crate::output::{self, DASH, Sink, Target};
use crate::progress::Spinner;

#[derive(Serialize)]
struct Written {
    matrix: Shape,
    out: String,
    bytes: u64,
    symmetric_storage: bool,
    /// Entries that `--compress` dropped.
    dropped: usize,
}

#[derive(Serialize)]
struct Shape {
    name: String,
    nrows: usize,
    ncols: usize,
    nnz: usize,
}

pub(crate) fn convert(args: &ConvertArgs) -> Result<()> {
    let target = target(&args.out)?;
    output::distinct(&[("OUT", Some(&target))], &[("MATRIX", input::file(&args.matrix))], args.json)?;
    let mut a = input::matrix::<f64>(&args.matrix)?;
    let before = a.nnz();
    if let Some(threshold) = args.compress {
        a = a.compress(threshold);
    }
    write(input::name(&args.matrix), &a, &target, args.symmetric, before - a.nnz(), args.json)
}

pub(crate) fn generate(args: &GenerateArgs) -> Result<()> {
    let (Some(spec), Some(out)) = (&args.spec, &args.out) else {
        return list(args.json);
    };
    if !generate::is_spec(spec) {
        let message =
            format!("{spec} is a file's name, not a generator: use `spandrel convert {spec} {}`", out.display());
        return Err(Failure::new("spec", message));
    }
    let target = target(out)?;
    output::distinct(&[("OUT", Some(&target))], &[], args.json)?;
    let a = input::generated::<f64>(spec, "; `spandrel generate --list` shows all")?;
    write(spec, &a, &target, args.symmetric, 0, args.json)
}

/// Stdout, or the file to write, whose name says that it is Matrix Market.
fn target(path: &Path) -> Result<Target> {
    let name = path.to_string_lossy().to_lowercase();
    let special = path.exists() && !path.is_file() && !path.is_dir();
    if !(name == DASH || name.ends_with(".mtx") || name.ends_with(".mtx.gz") || special) {
        let message =
            format!("cannot write {}: the name must end in .mtx or .mtx.gz, or be - for stdout", path.display());
        return Err(Failure::new("unsupported", message));
    }
    Target::check(path)
}

fn write(name: &str, a: &Csr<f64>, target: &Target, symmetric: bool, dropped: usize, json: bool) -> Result<()> {
    let options = WriteOptions {
        symmetry: if symmetric { Symmetry::Symmetric } else { Symmetry::General },
        ..WriteOptions::default()
    };
    {
        let _spinner = Spinner::start(format!("writing {}", target.name()));
        target.write_with(|sink| match sink {
            Sink::File(path) => Ok(matrix_market::write_csr(path, a, &options)?),
            Sink::Stdout(stdout) => Ok(matrix_market::write_csr_to(stdout, a, &options)?),
        })?;
    }
    let bytes = target.file().and_then(|path| std::fs::metadata(path).ok()).map(|found| found.len());
    if json {
        return output::print_json(&Written {
            matrix: Shape { name: name.to_string(), nrows: a.nrows(), ncols: a.ncols(), nnz: a.nnz() },
            out: target.name(),
            bytes: bytes.unwrap_or(0),
            symmetric_storage: symmetric,
            dropped,
        });
    }
    let mut text = format!("{name}: {}", input::describe(a));
    if dropped > 0 {
        let _ = write!(text, " ({} dropped)", input::grouped(dropped));
    }
    let how = [bytes.map(input::bytes), symmetric.then(|| "lower triangle".to_string())];
    let how: Vec<String> = how.into_iter().flatten().collect();
    let how = if how.is_empty() { String::new() } else { format!(" ({})", how.join(", ")) };
    let _ = writeln!(text, "\nwritten to {}{how}", target.name());
    output::report(&text, target.is_stdout())
}

#[derive(Serialize)]
struct Entry {
    name: &'static str,
    syntax: &'static str,
    about: &'static str,
}

#[derive(Serialize)]
struct List {
    generators: Vec<Entry>,
}

/// The generators with what they take.
fn list(json: bool) -> Result<()> {
    let known = generate::list();
    if json {
        let generators = known.iter().map(|g| Entry { name: g.name, syntax: g.syntax, about: g.about }).collect();
        return output::print_json(&List { generators });
    }
    let mut text = String::new();
    for generator in known {
        let _ = writeln!(text, "{}\n    {}", generator.syntax, generator.about);
    }
    text.push_str("\nAll take seed=N besides, e.g. banded:n=15600,d=33,seed=7.\n");
    output::print(&text)
}
