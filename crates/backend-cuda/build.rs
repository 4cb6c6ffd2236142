//! Packs the PTX of `ptx/` for the library: each kernel by itself, so that one of them is unpacked when it is first
//! launched.
//!
//! For each `ptx/NAME.ptx` two files: `NAME.packed`, the parts one after the other in Deflate's format, and `NAME.rs`,
//! an expression of type `crate::module::Text` with the place of each part. The first part is what stands before the
//! kernels.

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::DeflateEncoder;

/// What kernels of a text begin with, its declarations before them. As in `src/module.rs`.
const ENTRY: &str = "\n.visible .entry ";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=ptx");
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    let mut files: Vec<PathBuf> =
        fs::read_dir("ptx")?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    files.retain(|path| path.extension().is_some_and(|ending| ending == "ptx"));
    files.sort();
    // Packing all of them takes seconds without optimisation, as build scripts are compiled.
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(files.len().max(1));
    let work = &|worker: usize| -> Result<(), String> {
        let mut share = files.iter().skip(worker).step_by(workers);
        share.try_for_each(|path| pack(path, &out).map_err(|error| format!("{}: {error}", path.display())))
    };
    let done: Vec<Result<(), String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|worker| scope.spawn(move || work(worker))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err("a packing thread panicked".into())))
            .collect()
    });
    Ok(done.into_iter().collect::<Result<(), String>>()?)
}

fn pack(path: &Path, out: &Path) -> Result<(), Box<dyn Error>> {
    let name = path.file_stem().and_then(|stem| stem.to_str()).ok_or("a name in UTF-8")?;
    let text = fs::read_to_string(path)?;
    let (mut packed, mut parts) = (Vec::new(), String::new());
    for (k, part) in text.split(ENTRY).enumerate() {
        let entry = if k == 0 { "" } else { part.split('(').next().unwrap_or_default().trim() };
        let mut encoder = DeflateEncoder::new(&mut packed, Compression::default());
        encoder.write_all(part.as_bytes())?;
        encoder.finish()?;
        writeln!(parts, "    Part {{ entry: {entry:?}, end: {}, len: {} }},", packed.len(), part.len())?;
    }
    fs::write(out.join(format!("{name}.packed")), &packed)?;
    let of = format!("Text {{\n  packed: include_bytes!(\"{name}.packed\"),\n  parts: &[\n{parts}  ],\n}}\n");
    Ok(fs::write(out.join(format!("{name}.rs")), of)?)
}
