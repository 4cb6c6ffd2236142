//! The kernels: one PTX module a noun, embedded, loaded when its first kernel is launched.
//!
//! A module may have a variant for a newer architecture, which is taken where the device has it.

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

/// Loaded modules and the functions looked up in them.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    modules: RefCell<HashMap<&'static str, Arc<CudaModule>>>,
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
        let module = self.module(context, capability, source)?;
        let full = format!("{name}_{element}");
        let function = module.load_function(&full).map_err(|error| failed(&format!("kernel {full}"), error))?;
        self.functions.borrow_mut().insert((name, element), function.clone());
        Ok(function)
    }

    fn module(&self, context: &Arc<CudaContext>, capability: u32, source: &Source) -> Result<Arc<CudaModule>> {
        if let Some(module) = self.modules.borrow().get(source.stem) {
            return Ok(module.clone());
        }
        let text = source.variants.iter().find(|(oldest, _)| *oldest <= capability).map_or("", |(_, text)| *text);
        // The text is ours and holds no zero byte; one would only end it early.
        debug_assert!(CString::new(text).is_ok());
        let what = || format!("loading the kernels of {}", source.stem);
        let module = context.load_module(Ptx::from_src(text)).map_err(|error| failed(&what(), error))?;
        self.modules.borrow_mut().insert(source.stem, module.clone());
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
