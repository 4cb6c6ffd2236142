//! `cargo xtask book`: the pages of `docs/` as a book, built by mdBook, and a check of its links.
//!
//! mdBook is a separate program, not a dependency: it is pinned here and installed once below `target/tools`. `cargo
//! xtask tidy` checks the links of the sources without it.

mod built;
mod mdbook;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;

/// Where the book is built; `docs/book.toml` says the same.
const BOOK: &str = "target/book";

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Install the pinned mdBook first if it is missing
    #[arg(long)]
    install: bool,
}

/// Builds the book and checks it.
///
/// If `--install` is given and no registry has mdBook, the book is not built. This is reported and is not a failure,
/// because `tidy` has checked the sources.
///
/// # Errors
/// No mdBook without `--install`; a page that cannot be built or read.
pub(crate) fn run(root: &Path, options: &Options) -> Result<ExitCode> {
    let program = match mdbook::find(root) {
        Ok(program) => program,
        Err(error) if !options.install => return Err(error.into()),
        Err(_) => match mdbook::install(root) {
            Ok(program) => program,
            Err(error) => {
                println!("the book is NOT built: {error}");
                return Ok(ExitCode::SUCCESS);
            }
        },
    };
    mdbook::build(&program, root)?;
    let book = root.join(BOOK);
    let (pages, dead) = built::check(root, &book)?;
    for link in &dead {
        eprintln!("{link}");
    }
    println!("{pages} pages, {} dead links: {}", dead.len(), book.join("index.html").display());
    Ok(if dead.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
