//! The kernels: one PTX text a noun, embedded. The driver compiles what it loads, so a kernel is loaded by itself when it is first launched.
//!
//! A text may have a variant for a newer architecture, which is taken where the device has it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaFunction};
use cudarc::nvrtc::Ptx;
use spandrel_backend::Result;

use crate::error::failed;

/// A module: its stem and its PTX, `(oldest compute capability, text)` with the newest variant first.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) stem: &'static str,
    variants: &'static [(u32, &'static str)],
}

macro_rules! sources {
    ($($NAME:ident = $stem:literal $([$newer:literal])?),* $(,)?) => {
        $(pub(crate) const $NAME: Source = Source {
            stem: $stem,
            variants: &[
                $(($newer, include_str!(concat!("../ptx/", $stem, ".sm_", $newer, ".ptx"))),)?
                (75, include_str!(concat!("../ptx/", $stem, ".ptx"))),
            ],
        };)*
        /// All of them.
        const SOURCES: &[&Source] = &[$(&$NAME),*];
    };
}

sources! {
    VECTOR = "vector",
    COO = "coo",
    DIA = "dia",
    CSR = "csr" [90],
    ELL = "ell",
    HEC = "hec",
    HMEC = "hmec",
    HYB = "hyb",
    SELL = "sell",
    BDIA = "bdia",
    BSR = "bsr",
    BSRX = "bsrx",
    DENSE = "dense",
    SPARSE_VEC = "sparse_vec",
    STRUCTURED = "structured",
    SERIAL = "serial",
    ELEMENTWISE = "elementwise",
    SYNCFREE = "syncfree",
    CAPELLINI = "capellini",
    LEVELSET = "levelset",
    SWEEP = "sweep" [90],
    WAVEFRONT = "wavefront" [90],
    TRIANGLE = "triangle",
    ILU0 = "ilu0",
    IC0 = "ic0",
    SSOR = "ssor",
    GRID = "grid",
}

/// What kernels of a text begin with, its declarations before them.
const ENTRY: &str = "\n.visible .entry ";

/// The text of a module with the kernel `entry` alone: what the driver compiles when that is first launched. A whole module takes up to
/// two seconds, most of it for kernels that a program never launches.
fn cut(text: &str, entry: &str) -> String {
    let mut pieces = text.split(ENTRY);
    let mut part = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces.filter(|piece| piece.split('(').next().is_some_and(|name| name.trim() == entry)) {
        part += ENTRY;
        part += piece;
    }
    part.push('\n');
    part
}

/// Functions loaded, each from a module of its own.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    functions: RefCell<HashMap<(&'static str, &'static str), CudaFunction>>,
}

impl Modules {
    /// The function `name_type` of a module, for a device of that compute capability (10 major + minor).
    ///
    /// # Errors
    /// PTX that the driver refuses.
    pub(crate) fn function(
        &self,
        context: &Arc<CudaContext>,
        capability: u32,
        source: &Source,
        name: &'static str,
        element: &'static str,
    ) -> Result<CudaFunction> {
        if let Some(function) = self.functions.borrow().get(&(name, element)) {
            return Ok(function.clone());
        }
        let entry = format!("{name}_{element}");
        let what = || format!("loading the kernel {entry} of {}", source.stem);
        let text = source.variants.iter().find(|(oldest, _)| *oldest <= capability).map_or("", |(_, text)| *text);
        // The text is ours and holds no zero byte; one would only end it early.
        debug_assert!(CString::new(text).is_ok());
        let module = context.load_module(Ptx::from_src(cut(text, &entry))).map_err(|error| failed(&what(), error))?;
        // The function keeps its module.
        let function = module.load_function(&entry).map_err(|error| failed(&what(), error))?;
        self.functions.borrow_mut().insert((name, element), function.clone());
        Ok(function)
    }
}

/// The embedded PTX: `(file name, text)` of each module and variant, by name.
pub fn ptx() -> Vec<(String, &'static str)> {
    let name = |stem: &str, oldest: u32| match oldest {
        75 => format!("{stem}.ptx"),
        newer => format!("{stem}.sm_{newer}.ptx"),
    };
    let files = SOURCES
        .iter()
        .flat_map(|source| source.variants.iter().map(|(oldest, text)| (name(source.stem, *oldest), *text)));
    let mut files: Vec<_> = files.collect();
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(text: &str) -> Vec<&str> {
        text.split(ENTRY).skip(1).filter_map(|piece| piece.split('(').next()).collect()
    }

    #[test]
    fn every_kernel_can_be_had_alone() {
        for source in SOURCES {
            for (_, text) in source.variants {
                let before = text.split(ENTRY).next().expect("a head");
                let all = entries(text);
                assert!(!all.is_empty());
                for entry in &all {
                    let alone = cut(text, entry);
                    assert_eq!(entries(&alone), [*entry], "{}", source.stem);
                    assert!(alone.starts_with(before));
                }
                let sum: usize = all.iter().map(|entry| cut(text, entry).len() - before.len() - 1).sum();
                assert_eq!(sum + before.len(), text.len(), "{}: every line is in one kernel", source.stem);
            }
        }
    }
}
