//! Packs the PTX of `ptx/` for the library: in groups of neighbouring kernels, which resemble each other, so that
//! little is unpacked when one of them is first launched.
//!
//! For each `ptx/NAME.ptx` two files: `NAME.packed`, the groups one after the other in Zstandard's format, and
//! `NAME.rs`, an expression of type `crate::module::Text` with the place of each group and part. The first part is what
//! stands before the kernels, and a group of its own.
//!
//! 22 MB of text become 4.3 MB if each kernel is packed by itself, by Deflate or Zstandard, 2.4 MB in groups, and 1.8
//! MB with registers that are numbered relative to each other (`src/registers.rs`).

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// What kernels of a text begin with, its declarations before them. As in `src/module.rs`.
const ENTRY: &str = "\n.visible .entry ";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=ptx");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/registers.rs");
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

#[path = "src/registers.rs"]
mod registers;

/// The least bytes of a group, but for the last of a text.
const GROUP: usize = 384 << 10;
/// Zstandard's level.
const LEVEL: i32 = 19;

/// Replaces each register number by its difference from the last of its class. [`registers::absolute`] undoes it.
fn relative(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut last: BTreeMap<&str, i64> = BTreeMap::new();
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        let after = &rest[at + 1..];
        let class = &after[..after.bytes().take_while(u8::is_ascii_lowercase).count()];
        let end = at + 1 + class.len();
        out += &rest[..end];
        rest = &rest[end..];
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let Ok(number) = rest[..digits].parse::<i64>() else { continue };
        let before = last.insert(class, number).unwrap_or(0);
        out += &format!("{:+}", number - before);
        rest = &rest[digits..];
    }
    out + rest
}

fn pack(path: &Path, out: &Path) -> Result<(), Box<dyn Error>> {
    let name = path.file_stem().and_then(|stem| stem.to_str()).ok_or("a name in UTF-8")?;
    let text = fs::read_to_string(path)?;
    let (mut packed, mut groups, mut parts) = (Vec::new(), String::new(), String::new());
    let (mut group, mut number) = (String::new(), 0);
    let mut pieces = text.split(ENTRY).enumerate().peekable();
    while let Some((k, original)) = pieces.next() {
        let part = &relative(original);
        if registers::absolute(part).as_deref() != Some(original) {
            return Err(format!("part {k} has no form with relative register numbers").into());
        }
        let entry = if k == 0 { "" } else { part.split('(').next().unwrap_or_default().trim() };
        let (at, len) = (group.len(), part.len());
        writeln!(parts, "    Part {{ entry: {entry:?}, group: {number}, at: {at}, len: {len} }},")?;
        group += part;
        if k == 0 || group.len() >= GROUP || pieces.peek().is_none() {
            packed.extend(zstd::bulk::compress(group.as_bytes(), LEVEL)?);
            writeln!(groups, "    Group {{ end: {}, len: {} }},", packed.len(), group.len())?;
            number += 1;
            group.clear();
        }
    }
    fs::write(out.join(format!("{name}.packed")), &packed)?;
    let of = format!(
        "Text {{\n  packed: include_bytes!(\"{name}.packed\"),\n  groups: &[\n{groups}  ],\n  parts: &[\n{parts}  ],\n}}\n"
    );
    Ok(fs::write(out.join(format!("{name}.rs")), of)?)
}
