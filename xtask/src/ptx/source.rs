//! Which source is compiled to which file: kernels/STEM.cu to ptx/STEM.ptx and its variants, and the head of each that
//! says so.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};

/// The folder of the sources, and that of what they include.
pub(crate) const KERNELS: &str = "kernels/";
pub(crate) const INCLUDE: &str = "kernels/include/";

/// The folder of the compiled text, inside the crate that embeds it.
pub(crate) const PTX: &str = "crates/backend-cuda/ptx/";

/// The compiler: its release, and its name in the text that it writes.
pub(crate) const NVRTC: &str = "12.4.127";

/// Flags after the architecture. Nothing is contracted, flushed or approximated; every fused operation is written as
/// one. Generic lambdas run on the device only if that is the default.
pub(crate) const FLAGS: [&str; 7] = [
    "--fmad=false",
    "--prec-div=true",
    "--prec-sqrt=true",
    "--ftz=false",
    "--std=c++17",
    "--device-as-default-execution-space",
    "--include-path=kernels/include",
];

/// The architecture for which every source is compiled.
const BASE: u32 = 75;

/// Further architectures that a source may request by a line `// Variants: sm_90` in its head.
const NEWER: [u32; 1] = [90];

/// The kernels' sources by their path from the root, with `/` between the parts.
#[derive(Debug, Default)]
pub(crate) struct Sources(BTreeMap<String, String>);

/// A file of PTX: the source's path and stem, and the oldest architecture that it runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) source: String,
    pub(crate) stem: String,
    pub(crate) arch: u32,
}

impl Output {
    /// The file's name in [`PTX`].
    pub(crate) fn name(&self) -> String {
        if self.arch == BASE { format!("{}.ptx", self.stem) } else { format!("{}.sm_{}.ptx", self.stem, self.arch) }
    }

    pub(crate) fn flags(&self) -> Vec<String> {
        let arch = format!("--gpu-architecture=compute_{}", self.arch);
        std::iter::once(arch).chain(FLAGS.map(str::to_owned)).collect()
    }
}

impl Sources {
    /// The files from which kernels are made.
    pub(crate) fn of<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let wanted = files.into_iter().filter(|(path, _)| is_kernel(path) || is_included(path));
        Self(wanted.map(|(path, text)| (path.to_owned(), text.to_owned())).collect())
    }

    pub(crate) fn read(root: &Path) -> Result<Self> {
        let mut files = BTreeMap::new();
        for folder in [KERNELS, INCLUDE] {
            files.extend(texts(root, folder)?.into_iter().map(|(name, text)| (format!("{folder}{name}"), text)));
        }
        Ok(Self::of(files.iter().map(|(path, text)| (path.as_str(), text.as_str()))))
    }

    /// The text of a source.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.0.get(path).map(String::as_str)
    }

    /// Paths and texts of the kernels.
    pub(crate) fn kernels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter(|(path, _)| is_kernel(path)).map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// The files of PTX, in the order of their sources, older architectures first.
    ///
    /// # Errors
    /// A head that requests an unknown variant.
    pub(crate) fn outputs(&self) -> Result<Vec<Output>> {
        let mut outputs = Vec::new();
        for (path, text) in self.kernels() {
            let stem = path[KERNELS.len()..].trim_end_matches(".cu");
            for arch in std::iter::once(BASE).chain(variants(path, text)?) {
                outputs.push(Output { source: path.to_owned(), stem: stem.to_owned(), arch });
            }
        }
        Ok(outputs)
    }

    /// The lines before the compiler's text.
    pub(crate) fn head(&self, output: &Output) -> String {
        let kernel = self.text(&output.source).map(|text| (output.source.as_str(), text));
        let included = self.0.iter().filter(|(path, _)| is_included(path));
        let all = kernel.into_iter().chain(included.map(|(path, text)| (path.as_str(), text.as_str())));
        format!(
            "// {} for sm_{} and newer. Written by `cargo xtask ptx`: edit the source.\n// NVRTC {NVRTC} {}\n// sources sha256: {}\n",
            output.source,
            output.arch,
            output.flags().join(" "),
            sum(all)
        )
    }
}

fn is_kernel(path: &str) -> bool {
    path.strip_prefix(KERNELS).is_some_and(|name| name.ends_with(".cu") && !name.contains('/'))
}

fn is_included(path: &str) -> bool {
    path.starts_with(INCLUDE) && path.ends_with(".cuh")
}

/// Lines of the head comment, without its slashes.
pub(crate) fn head_lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map_while(|line| line.strip_prefix("//")).map(str::trim)
}

fn variants(path: &str, text: &str) -> Result<Vec<u32>> {
    let named = head_lines(text).filter_map(|line| line.strip_prefix("Variants:")).flat_map(str::split_whitespace);
    let mut variants = Vec::new();
    for name in named.map(|name| name.trim_end_matches([',', '.'])) {
        let arch = NEWER.into_iter().find(|arch| name == format!("sm_{arch}"));
        let arch = arch.with_context(|| format!("{path}: no variant `{name}`: its head may name sm_90"))?;
        ensure!(!variants.contains(&arch), "{path}: the variant `{name}` is named twice");
        variants.push(arch);
    }
    Ok(variants)
}

/// The files of a folder with their names, sorted; none if there is no such folder.
pub(crate) fn texts(root: &Path, folder: &str) -> Result<BTreeMap<String, String>> {
    let dir = root.join(folder);
    let mut files = BTreeMap::new();
    if !dir.is_dir() {
        return Ok(files);
    }
    for entry in fs::read_dir(&dir).with_context(|| format!("cannot read {folder}"))? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let text = fs::read_to_string(entry.path()).with_context(|| format!("cannot read {folder}{name}"))?;
            files.insert(name, text);
        }
    }
    Ok(files)
}

/// SHA-256 over names and texts in the order of the names: each name, a zero byte, its text, a zero byte.
pub(crate) fn sum<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let files: BTreeMap<&str, &str> = files.into_iter().collect();
    let mut hasher = Sha256::new();
    for (name, text) in files {
        for part in [name, text] {
            hasher.update(part);
            hasher.update([0]);
        }
    }
    format!("{:x}", hasher.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: [(&str, &str); 4] = [
        ("kernels/csr.cu", "// CSR.\n//\n// Variants: sm_90\nvoid f();\n// Variants: sm_91\n"),
        ("kernels/dia.cu", "// DIA.\n"),
        ("kernels/include/a.cuh", "// a\n"),
        ("kernels/resources.txt", "free"),
    ];

    #[test]
    fn a_head_may_ask_for_a_variant() {
        let outputs = Sources::of(FILES).outputs().expect("known variants");
        assert_eq!(outputs.iter().map(Output::name).collect::<Vec<_>>(), ["csr.ptx", "csr.sm_90.ptx", "dia.ptx"]);
        assert_eq!(outputs[1].flags()[0], "--gpu-architecture=compute_90");
        for bad in ["sm_91", "sm_90, sm_90", "sm_75", "90"] {
            let text = format!("// CSR.\n// Variants: {bad}\n");
            assert!(Sources::of([("kernels/csr.cu", text.as_str())]).outputs().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_head_changes_with_each_file_that_goes_in_and_with_no_other() {
        let head = |files: [(&str, &str); 4]| {
            let sources = Sources::of(files);
            sources.head(&sources.outputs().expect("outputs")[0])
        };
        let before = head(FILES);
        assert!(before.starts_with("// kernels/csr.cu for sm_75") && before.lines().count() == 3, "{before}");
        for (k, changes) in [(0, true), (1, false), (2, true), (3, false)] {
            let mut files = FILES;
            let text = format!("{}// more\n", files[k].1);
            files[k].1 = &text;
            assert_eq!(head(files) != before, changes, "{}", files[k].0);
        }
        let mut renamed = FILES;
        renamed[2].0 = "kernels/include/b.cuh";
        assert_ne!(head(renamed), before);
    }

    #[test]
    fn a_sum_tells_names_from_texts_and_no_order() {
        assert_eq!(sum([("a", "b"), ("c", "d")]), sum([("c", "d"), ("a", "b")]));
        assert_ne!(sum([("a", "bc")]), sum([("ab", "c")]));
        assert_eq!(sum([]), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }
}
