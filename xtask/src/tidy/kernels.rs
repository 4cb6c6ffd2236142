//! Kernels: the content of their heads, their names, and that the backend names each.
//!
//! Names are those of the compiled text, in which every macro is expanded. The backend names a kernel where it declares
//! its parameters. A test of that crate (`crates/backend-cuda/src/kernel/tests.rs`) checks that the declaration is
//! right.

use std::collections::{BTreeMap, BTreeSet};

use super::lexer::literals;
use super::{Breach, Tree, stem};
use crate::ptx::{KERNELS, PTX, head_lines};

/// What the head of a kernel file must say.
const HEAD: [&str; 4] = ["Layout:", "Grid:", "Order:", "Bytes:"];

/// Where kernels are declared and launched.
const BACKEND: &str = "crates/backend-cuda/src/";

/// Types of elements, one kernel for each.
const TYPES: [&str; 2] = ["f32", "f64"];

/// Files that contain the kernels of further nouns, with these nouns.
const FURTHER_NOUNS: [(&str, &str); 1] = [("vector", "scalar")];

/// Heads of kernel files that lack something.
pub(crate) fn heads(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for (path, text) in tree.with_ending(&["cu"]).filter(|(path, _)| path.starts_with(KERNELS)) {
        for name in HEAD.iter().filter(|name| !head_lines(text).any(|line| line.starts_with(**name))) {
            breaches.push(Breach::new("kernels", path, format!("the head has no line `// {name} ...`")));
        }
    }
    breaches
}

/// Kernels with another name than `verb_noun_type`, without a type, or in only one variant of a module; kernels that
/// the backend does not name, and names of missing kernels.
pub(crate) fn entries(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let mut modules: BTreeMap<&str, (&str, BTreeSet<&str>)> = BTreeMap::new();
    for (path, text) in tree.with_ending(&["ptx"]).filter(|(path, _)| path.starts_with(PTX)) {
        let entries: BTreeSet<&str> = entry_names(text).collect();
        match modules.get(stem(path)) {
            // The backend uses one variant for all kernels of the module.
            Some((other, kernels)) => {
                for name in entries.symmetric_difference(kernels) {
                    breaches.push(Breach::new("kernels", path, format!("`{name}` is not in both this and {other}")));
                }
            }
            None => _ = modules.insert(stem(path), (path, entries)),
        }
    }

    let mut kernels: BTreeMap<&str, &str> = BTreeMap::new();
    for (noun, (path, entries)) in &modules {
        for entry in entries {
            let Some((name, element)) = entry.rsplit_once('_').filter(|(_, element)| TYPES.contains(element)) else {
                breaches.push(Breach::new("kernels", *path, format!("`{entry}` does not end in _f32 or _f64")));
                continue;
            };
            // Kernels that narrow f64 to f32 do not exist for f32.
            let alone = element == "f64" && name.contains("in_f32_");
            let other = TYPES.iter().find(|other| !entries.contains(format!("{name}_{other}").as_str()));
            if let Some(other) = other.filter(|_| !alone) {
                breaches.push(Breach::new(
                    "kernels",
                    *path,
                    format!("`{name}` is there for {element}, not for {other}"),
                ));
            }
            if !nouns(noun).any(|noun| is_of(name, noun)) {
                breaches.push(Breach::new("kernels", *path, format!("`{entry}` is not called verb_{noun}_{element}")));
            }
            kernels.insert(name, path);
        }
    }

    let mut named = BTreeSet::new();
    for (path, text) in tree.with_ending(&["rs"]).filter(|(path, _)| path.starts_with(BACKEND)) {
        for (range, literal) in literals(text) {
            let kernel_like = modules.keys().flat_map(|noun| nouns(noun)).any(|noun| is_of(literal, noun));
            if !kernels.contains_key(literal) && kernel_like {
                let place = format!("{path}:{}", text[..range.start].lines().count().max(1));
                breaches.push(Breach::new("kernels", place, format!("there is no kernel `{literal}`")));
            }
            named.insert(literal);
        }
    }
    for (name, path) in kernels.iter().filter(|(name, _)| !named.contains(**name)) {
        breaches.push(Breach::new("kernels", *path, format!("nothing in {BACKEND} declares \"{name}\"")));
    }
    breaches
}

/// Names of the kernels in PTX.
fn entry_names(text: &str) -> impl Iterator<Item = &str> {
    let entries = text.lines().filter_map(|line| line.trim_start().strip_prefix(".visible .entry "));
    entries.map(|rest| rest.split(['(', ' ']).next().unwrap_or_default())
}

/// The file's own noun and the further ones.
fn nouns(stem: &str) -> impl Iterator<Item = &str> {
    std::iter::once(stem).chain(FURTHER_NOUNS.into_iter().filter(move |(file, _)| *file == stem).map(|(_, noun)| noun))
}

/// Whether it is `verb_noun`, each of one word without other characters.
fn is_of(name: &str, noun: &str) -> bool {
    name.strip_suffix(noun).and_then(|rest| rest.strip_suffix('_')).is_some_and(|verb| {
        !verb.is_empty() && verb.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADED: &str =
        "// CSR.\n//\n// Layout: rows.\n// Grid: a thread a row.\n// Order: stored.\n// Bytes: once.\nvoid f();\n";
    const CSR: &str = ".visible .entry spmv_csr_f32(\n)\n.visible .entry spmv_csr_f64(\n)\n";
    const VECTOR: &str = ".visible .entry assign_scalar_f32(\n)\n.visible .entry assign_scalar_f64()\n";
    const NAMED: &str = "//! a\nkernels! {\nstruct A {} in CSR { ENTRY: \"spmv_csr\" }\nstruct B {} in VECTOR { ENTRY: \"assign_scalar\" }\n}\n";

    fn breaches(csr: &str, newer: &str, rust: &str) -> Vec<String> {
        let tree = Tree::of([
            ("crates/backend-cuda/ptx/csr.ptx", csr),
            ("crates/backend-cuda/ptx/csr.sm_90.ptx", newer),
            ("crates/backend-cuda/ptx/vector.ptx", VECTOR),
            ("crates/backend-cuda/src/csr.rs", rust),
            ("crates/backend-cuda/tests/csr.rs", "\"none_csr\""),
        ]);
        entries(&tree).into_iter().map(|breach| breach.to_string()).collect()
    }

    #[test]
    fn a_head_names_all_four() {
        assert!(heads(&Tree::of([("kernels/csr.cu", HEADED), ("kernels/include/a.cuh", "// a")])).is_empty());
        for name in HEAD {
            let less = HEADED.replace(name, "More:");
            assert_eq!(heads(&Tree::of([("kernels/csr.cu", less.as_str())])).len(), 1, "{name}");
        }
        let late = HEADED.replace("// Bytes", "\n// Bytes");
        assert_eq!(heads(&Tree::of([("kernels/csr.cu", late.as_str())])).len(), 1);
    }

    #[test]
    fn kernels_that_are_declared_pass() {
        assert_eq!(breaches(CSR, CSR, NAMED), Vec::<String>::new());
    }

    #[test]
    fn names_of_kernels() {
        for (bad, what) in [
            (CSR.replace("spmv_csr_f", "spmv_ell_f"), "is not called verb_csr_f"),
            (CSR.replace("spmv_csr_f", "spmvcsr_f"), "is not called verb_csr_f"),
            (CSR.replace("spmv_csr_f64", "spmv_csr"), "does not end in _f32 or _f64"),
            (CSR.replace("spmv_csr_f64", "spmm_csr_f64"), "not for f32"),
        ] {
            let found = breaches(&bad, &bad, NAMED);
            assert!(found.iter().any(|breach| breach.contains(what)), "{what}: {found:?}");
        }
    }

    #[test]
    fn values_in_f32_are_of_f64_alone() {
        let with = |entry: &str| format!("{CSR}.visible .entry {entry}()\n");
        let named = format!("{NAMED}const A: &str = \"spmv_in_f32_csr\";");
        let (of_f64, of_f32) = (with("spmv_in_f32_csr_f64"), with("spmv_in_f32_csr_f32"));
        assert_eq!(breaches(&of_f64, &of_f64, &named), Vec::<String>::new());
        assert!(breaches(&of_f32, &of_f32, &named)[0].contains("is there for f32, not for f64"));
    }

    #[test]
    fn a_variant_has_the_kernels_of_the_other() {
        assert_eq!(breaches(CSR, &CSR.replace("spmv_csr_f64", "spmm_csr_f64"), NAMED).len(), 2);
    }

    #[test]
    fn a_kernel_that_nothing_declares() {
        for undeclared in
            [NAMED.replace("\"spmv_csr\"", "name"), NAMED.replace("\"spmv_csr\"", "/* \"spmv_csr\" */ name")]
        {
            let found = breaches(CSR, CSR, &undeclared);
            assert!(found.len() == 1 && found[0].contains("declares \"spmv_csr\""), "{found:?}");
        }
    }

    #[test]
    fn a_declaration_of_no_kernel() {
        let found = breaches(CSR, CSR, &NAMED.replace("spmv_csr", "spmm_csr"));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("csr.rs:3") && found[0].contains("spmm_csr"), "{found:?}");
        // Texts that are not names of kernels.
        assert!(
            breaches(CSR, CSR, &format!("{NAMED}const A: &str = \"values of csr\"; const B: &str = \"csr\";"))
                .is_empty()
        );
    }
}
