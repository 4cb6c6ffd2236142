//! The kernels: one PTX text a noun, embedded. The driver compiles what it loads, so a text is loaded in parts when their first kernel is
//! launched: the kernels of each type of elements, and each persistent kernel of each type by itself.
//!
//! A text may have a variant for a newer architecture, which is taken where the device has it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaFunction, CudaModule};
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
}

/// What kernels of a text begin with, its declarations before them.
const ENTRY: &str = "\n.visible .entry ";

/// The kernels of a text that are compiled together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Part {
    stem: &'static str,
    element: &'static str,
    /// A persistent kernel, which takes as long to compile as many others: alone.
    alone: Option<&'static str>,
}

impl Part {
    /// Verbs of the persistent kernels.
    const PERSISTENT: [&'static str; 2] = ["cg", "bicgstab"];

    /// The part of the kernel `name_type`.
    fn of(stem: &'static str, name: &'static str, element: &'static str) -> Self {
        Self { stem, element, alone: Self::is_persistent(stem, name).then_some(name) }
    }

    fn is_persistent(stem: &str, name: &str) -> bool {
        let verb = name.strip_suffix(stem).and_then(|verb| verb.strip_suffix('_'));
        verb.is_some_and(|verb| Self::PERSISTENT.contains(&verb))
    }

    fn has(&self, entry: &str) -> bool {
        let Some(name) = entry.strip_suffix(self.element).and_then(|name| name.strip_suffix('_')) else {
            return false;
        };
        match self.alone {
            Some(alone) => name == alone,
            None => !Self::is_persistent(self.stem, name),
        }
    }

    /// The text with these kernels alone.
    fn cut(&self, text: &str) -> String {
        let mut pieces = text.split(ENTRY);
        let mut part = pieces.next().unwrap_or_default().to_owned();
        for piece in pieces.filter(|piece| piece.split('(').next().is_some_and(|entry| self.has(entry.trim()))) {
            part += ENTRY;
            part += piece;
        }
        part.push('\n');
        part
    }
}

/// Loaded modules and the functions looked up in them.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    modules: RefCell<HashMap<Part, Arc<CudaModule>>>,
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
        let module = self.module(context, capability, source, Part::of(source.stem, name, element))?;
        let full = format!("{name}_{element}");
        let function = module.load_function(&full).map_err(|error| failed(&format!("kernel {full}"), error))?;
        self.functions.borrow_mut().insert((name, element), function.clone());
        Ok(function)
    }

    fn module(
        &self,
        context: &Arc<CudaContext>,
        capability: u32,
        source: &Source,
        part: Part,
    ) -> Result<Arc<CudaModule>> {
        if let Some(module) = self.modules.borrow().get(&part) {
            return Ok(module.clone());
        }
        let text = source.variants.iter().find(|(oldest, _)| *oldest <= capability).map_or("", |(_, text)| *text);
        // The text is ours and holds no zero byte; one would only end it early.
        debug_assert!(CString::new(text).is_ok());
        let what = || format!("loading the kernels of {}", source.stem);
        let module = context.load_module(Ptx::from_src(part.cut(text))).map_err(|error| failed(&what(), error))?;
        self.modules.borrow_mut().insert(part, module.clone());
        Ok(module)
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
    fn every_kernel_is_in_one_part() {
        for source in SOURCES {
            for (_, text) in source.variants {
                let names: Vec<_> =
                    entries(text).iter().map(|entry| entry.rsplit_once('_').expect("typed").0).collect();
                let mut parts: Vec<_> = ["f32", "f64"]
                    .iter()
                    .flat_map(|&element| names.iter().map(move |name| Part::of(source.stem, name, element)))
                    .collect();
                parts.sort_by_key(|part| (part.element, part.alone));
                parts.dedup();
                let cut: Vec<_> = parts.iter().map(|part| part.cut(text)).collect();
                let mut found: Vec<_> = cut.iter().flat_map(|text| entries(text)).collect();
                let mut all = entries(text);
                found.sort_unstable();
                all.sort_unstable();
                assert_eq!(found, all, "{}", source.stem);
                assert!(cut.iter().all(|part| part.starts_with(text.split(ENTRY).next().expect("a beginning"))));
            }
        }
        assert_eq!(Part::of("dia", "bicgstab_dia", "f64").alone, Some("bicgstab_dia"));
        assert_eq!(Part::of("vector", "cg_update_vector", "f64").alone, None);
    }
}
