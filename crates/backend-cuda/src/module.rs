//! The kernels: one PTX text per noun, embedded as build.rs packs it. The driver compiles what it loads,
//! so each kernel is loaded by itself, when it is first launched. A text may have a variant for a newer
//! architecture, which is taken if the device has it.
//!
//! Early kernels, those of products and vectors, are launched while the previous kernel ends (programmatic dependent
//! launch), on devices that support it. Invariant: a kernel is [`Function::early`] if and only if its text got the wait
//! as its first instruction, here. So none touches memory before all earlier work in the queue has ended and is
//! visible. See docs/adr/0032.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use cudarc::driver::{CudaContext, CudaFunction, DriverError, sys};
use cudarc::nvrtc::Ptx;
use ruzstd::decoding::FrameDecoder;
use spandrel_backend::Result;

use crate::error::failed;
use crate::opened::locked;
use crate::registers::absolute;

/// A text of PTX, in parts, with [relative](crate::registers) register numbers.
#[derive(Debug)]
struct Text {
    /// The groups one after the other, each compressed separately.
    packed: &'static [u8],
    groups: &'static [Group],
    /// The text before the kernels as the first part, then one part per kernel.
    parts: &'static [Part],
}

/// Parts that are unpacked together.
#[derive(Debug)]
struct Group {
    /// Its end among the packed bytes; it begins at the end of the previous group.
    end: usize,
    /// Its bytes unpacked.
    len: usize,
}

/// A part of a text.
#[derive(Debug)]
struct Part {
    /// The kernel's name; empty for the text before all kernels.
    entry: &'static str,
    group: usize,
    /// Where it begins in its unpacked group.
    at: usize,
    /// Its bytes unpacked.
    len: usize,
}

impl Text {
    /// A group, unpacked; `None` if it does not exist.
    fn group(&self, number: usize) -> Option<String> {
        let Group { end, len } = *self.groups.get(number)?;
        let begin = number.checked_sub(1).map_or(0, |before| self.groups[before].end);
        let mut text = vec![0; len];
        let unpacked = FrameDecoder::new().decode_all(self.packed.get(begin..end)?, &mut text).ok()?;
        text.truncate(unpacked);
        String::from_utf8(text).ok().filter(|text| text.len() == len)
    }

    /// The unpacked text of a part; `None` if it does not exist.
    fn part(&self, at: usize) -> Option<String> {
        let Part { group, at, len, .. } = *self.parts.get(at)?;
        absolute(self.group(group)?.get(at..at + len)?)
    }

    /// The text with only the kernel `entry`. The driver compiles it at the kernel's first launch. To compile a whole
    /// module would take up to two seconds, mostly for kernels that a program never launches.
    fn alone(&self, entry: &str) -> Option<String> {
        let at = self.parts.iter().position(|part| part.entry == entry).filter(|&at| at > 0)?;
        let mut text = self.part(0)?;
        text += ENTRY;
        text += &self.part(at)?;
        text.push('\n');
        Some(text)
    }

    /// The whole text.
    fn whole(&self) -> Option<String> {
        let groups: Option<Vec<String>> = (0..self.groups.len()).map(|number| self.group(number)).collect();
        let groups = groups?;
        let part = |part: &Part| absolute(groups.get(part.group)?.get(part.at..part.at + part.len)?);
        Some(self.parts.iter().map(part).collect::<Option<Vec<String>>>()?.join(ENTRY))
    }
}

/// A module: its stem and its PTX, `(oldest compute capability, text)` with the newest variant first.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) stem: &'static str,
    /// Whether its kernels, of which many small ones run in a row, are launched early if the device supports it.
    early: bool,
    variants: &'static [(u32, Text)],
}

macro_rules! sources {
    (@early) => { false };
    (@early early) => { true };
    ($($NAME:ident = $stem:literal $([$newer:literal])? $($early:ident)?),* $(,)?) => {
        // Statics, so that each text is in the program once.
        $(pub(crate) static $NAME: Source = Source {
            stem: $stem,
            early: sources!(@early $($early)?),
            variants: &[
                $(($newer, include!(concat!(env!("OUT_DIR"), "/", $stem, ".sm_", $newer, ".rs"))),)?
                (75, include!(concat!(env!("OUT_DIR"), "/", $stem, ".rs"))),
            ],
        };)*
        /// All of them.
        static SOURCES: &[&Source] = &[$(&$NAME),*];
    };
}

sources! {
    VECTOR = "vector" early,
    COO = "coo" early,
    DIA = "dia" early,
    CSR = "csr" [90] early,
    ELL = "ell" early,
    HEC = "hec" early,
    HMEC = "hmec" early,
    HYB = "hyb" early,
    SELL = "sell" early,
    BDIA = "bdia" early,
    BSR = "bsr" early,
    BSRX = "bsrx" early,
    DENSE = "dense" early,
    SPARSE_VEC = "sparse_vec" early,
    STRUCTURED = "structured",
    SERIAL = "serial",
    ELEMENTWISE = "elementwise",
    SYNCFREE = "syncfree",
    CAPELLINI = "capellini",
    LEVELSET = "levelset",
    CHAINS = "chains",
    SWEEP = "sweep" [90],
    WAVEFRONT = "wavefront" [90],
    TRIANGLE = "triangle",
    ILU0 = "ilu0",
    IC0 = "ic0",
    SSOR = "ssor",
    GRID = "grid",
    RUNS = "runs",
    SCAN = "scan",
    SPGEMM = "spgemm",
    TRANSPOSE = "transpose",
    RANKS = "ranks",
    RENUMBER = "renumber",
    COARSEN = "coarsen",
    STENCIL = "stencil" early,
}

/// The beginning of each kernel in a text, with the declarations before them. As in `build.rs`.
const ENTRY: &str = "\n.visible .entry ";

/// The oldest compute capability with early launches. A text with early kernels must be compiled for at least this one.
const HOPPER: u32 = 90;
const TARGET: &str = "\n.target sm_";

/// The instruction that waits until all earlier kernels have ended and their results can be read.
const WAIT: &str = "\tgriddepcontrol.wait;\n";

/// The text of one kernel with the wait as its first instruction, before any thread reads, writes or returns. `None` if
/// the text does not have the form that the compiler writes.
fn waiting(alone: &str) -> Option<String> {
    let (head, body) = alone.split_once(ENTRY)?;
    let (before, rest) = head.split_once(TARGET)?;
    let (arch, after) = rest.split_once('\n')?;
    let arch = arch.trim().parse::<u32>().ok()?.max(HOPPER);
    let (signature, instructions) = body.split_once("\n{\n")?;
    Some(format!("{before}{TARGET}{arch}\n{after}{ENTRY}{signature}\n{{\n{WAIT}{instructions}"))
}

/// A kernel, and whether it may be launched before the work ahead of it has ended, because its first instruction waits.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub(crate) function: CudaFunction,
    early: bool,
    /// The most bytes of shared memory that [`Function::allow_shared`] was asked for.
    shared: Arc<Mutex<u32>>,
}

impl Function {
    /// Lets launches ask for this many bytes of shared memory. Queues share the kernel, so the limit only grows.
    ///
    /// # Errors
    /// More than the device has.
    pub(crate) fn allow_shared(&self, bytes: u32) -> std::result::Result<(), DriverError> {
        let mut allowed = locked(&self.shared);
        if *allowed < bytes {
            let limit = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            self.function.set_attribute(limit, bytes as i32)?;
            *allowed = bytes;
        }
        Ok(())
    }

    pub(crate) fn early(&self) -> bool {
        self.early
    }
}

/// Loaded functions, each from its own module, for all queues of a device.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    functions: Mutex<HashMap<(&'static str, &'static str), Function>>,
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
    ) -> Result<Function> {
        if let Some(function) = locked(&self.functions).get(&(name, element)) {
            return Ok(function.clone());
        }
        // Loading takes long, so other queues do not wait for it. If two load the same kernel, one of them is kept.
        let entry = format!("{name}_{element}");
        let what = || format!("loading the kernel {entry} of {}", source.stem);
        let text = source.variants.iter().find(|(oldest, _)| *oldest <= capability).map(|(_, text)| text);
        // The driver reports a missing text.
        let alone = text.and_then(|text| text.alone(&entry)).unwrap_or_default();
        let waiting = if source.early && capability >= HOPPER { waiting(&alone) } else { None };
        let early = waiting.is_some();
        let function = Self::load(context, &what(), waiting.unwrap_or(alone), &entry)?;
        let function = Function { function, early, shared: Arc::default() };
        Ok(locked(&self.functions).entry((name, element)).or_insert(function).clone())
    }

    /// The kernel `entry` of a text.
    ///
    /// # Errors
    /// PTX that the driver refuses, or that has no such kernel.
    pub(crate) fn load(context: &Arc<CudaContext>, what: &str, text: String, entry: &str) -> Result<CudaFunction> {
        let module = context.load_module(Ptx::from_src(text)).map_err(|error| failed(what, error))?;
        // The function keeps its module alive.
        module.load_function(entry).map_err(|error| failed(what, error))
    }
}

/// The embedded PTX: `(file name, text)` of each module and variant, by name. Unpacks all of it.
pub fn ptx() -> Vec<(String, String)> {
    let name = |stem: &str, oldest: u32| match oldest {
        75 => format!("{stem}.ptx"),
        newer => format!("{stem}.sm_{newer}.ptx"),
    };
    let files = SOURCES.iter().flat_map(|source| {
        let text = |text: &Text| text.whole().unwrap_or_default();
        source.variants.iter().map(move |(oldest, of)| (name(source.stem, *oldest), text(of)))
    });
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

    /// The library returns every byte of `ptx/`.
    #[test]
    fn packing_loses_nothing() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/ptx");
        let mut names: Vec<_> = std::fs::read_dir(folder)
            .expect("the folder")
            .map(|entry| entry.expect("a file").file_name().into_string().expect("UTF-8"))
            .collect();
        names.sort();
        let all = ptx();
        assert_eq!(all.iter().map(|(name, _)| name).collect::<Vec<_>>(), names.iter().collect::<Vec<_>>());
        for (name, text) in all {
            let file = std::fs::read_to_string(format!("{folder}/{name}")).expect("a text");
            assert!(file == text, "{name} differs");
            // A zero byte would end the text early for the driver.
            assert!(!text.contains('\0'), "{name}");
        }
        let (packed, whole) = SOURCES
            .iter()
            .flat_map(|source| source.variants)
            .map(|(_, text)| (text.packed.len(), text.parts.iter().map(|part| part.len).sum::<usize>()))
            .fold((0, 0), |(a, b), (c, d)| (a + c, b + d));
        assert!(packed < whole / 8, "{packed} bytes for {whole}");
    }

    #[test]
    fn every_kernel_can_be_had_alone() {
        for (_, text) in SOURCES.iter().flat_map(|source| source.variants) {
            let whole = text.whole().expect("a text");
            let before = whole.split(ENTRY).next().expect("a head");
            let all = entries(&whole);
            assert!(!all.is_empty());
            let mut sum = 0;
            for entry in &all {
                let alone = text.alone(entry).expect("a kernel");
                assert_eq!(entries(&alone), [*entry]);
                assert!(alone.starts_with(before));
                sum += alone.len() - before.len() - 1;
            }
            assert_eq!(sum + before.len(), whole.len(), "every line is in one kernel");
        }
    }

    #[test]
    fn what_is_not_there_is_not_given() {
        let (_, text) = &VECTOR.variants[0];
        assert_eq!(text.alone("none_vector_f64"), None);
        assert_eq!(text.alone(""), None, "that is what stands before all");
        assert_eq!(text.part(text.parts.len()), None);
        let cut = Text { packed: &text.packed[..8], groups: text.groups, parts: text.parts };
        assert_eq!((cut.part(0), cut.whole()), (None, None));
        let parts = &[Part { entry: "", group: 0, at: 0, len: 100 }];
        let other = Text { packed: &[0xff; 64], groups: &[Group { end: 64, len: 100 }], parts };
        assert_eq!(other.part(0), None);
    }

    /// The first instruction of a thread: the first line that is not a declaration.
    fn first_instruction(alone: &str) -> &str {
        let body = alone.split_once(ENTRY).and_then(|(_, entry)| entry.split_once("\n{\n")).expect("a kernel").1;
        let declares =
            |line: &&str| line.is_empty() || [".reg", ".shared", "//"].iter().any(|word| line.starts_with(word));
        body.lines().map(str::trim).find(|line| !declares(line)).expect("an instruction")
    }

    #[test]
    fn an_early_kernel_waits_before_all_else() {
        for source in SOURCES.iter().filter(|source| source.early) {
            for (_, text) in source.variants {
                let whole = text.whole().expect("a text");
                for entry in entries(&whole) {
                    let plain = text.alone(entry).expect("a kernel");
                    assert_ne!(first_instruction(&plain), WAIT.trim(), "{entry}");
                    let early = waiting(&plain).expect("a text of the compiler's");
                    assert_eq!(first_instruction(&early), WAIT.trim(), "{entry}");
                    assert!(early.contains("\n.target sm_90\n") && !early.contains(".target sm_75"), "{entry}");
                    // Nothing else differs.
                    let target = plain.lines().find(|line| line.starts_with(".target")).expect("a target");
                    assert_eq!(early.replacen(WAIT, "", 1).replacen(".target sm_90", target, 1), plain, "{entry}");
                }
            }
        }
        let names: Vec<_> = SOURCES.iter().filter(|source| source.early).map(|source| source.stem).collect();
        assert!(names.contains(&"vector") && names.contains(&"csr") && !names.contains(&"sweep"), "{names:?}");
    }

    #[test]
    fn a_text_that_is_no_kernels_gets_no_wait() {
        assert_eq!(waiting(""), None);
        assert_eq!(waiting("\n.target sm_75\n.visible .entry a()\n{ ret; }\n"), None);
        assert_eq!(waiting("\n.visible .entry a()\n{\n\tret;\n}\n"), None, "no target");
    }
}
