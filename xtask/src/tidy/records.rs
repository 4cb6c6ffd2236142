//! Records: each begins with the machine, commit and command that it was measured with.

use serde_json::Value;

use super::{Breach, Tree};

/// Fields of the first line with text.
const TEXTS: [&str; 4] = ["date", "machine", "commit", "command"];

/// Fields with text where a GPU was measured, and null in a record of the CPU alone (`record/cpu-*`).
const GPU_TEXTS: [&str; 2] = ["driver", "ptx_sha256"];

/// Records that the documents rest on, so that they must be there.
const NEEDED: [&str; 3] = ["record/cpu-spmv.jsonl", "record/cpu-cg.jsonl", "record/cpu-solve.jsonl"];

/// Records that are missing.
pub(crate) fn missing(tree: &Tree) -> Vec<Breach> {
    let absent = NEEDED.iter().filter(|path| tree.text(path).is_none());
    absent.map(|path| Breach::new("records", *path, "is missing: measure it with spandrel-bench")).collect()
}

/// What the conformance suite said on the GPU.
const VERIFIED: &str = "record/h200-verify.jsonl";

/// Records of the GPU that were measured with other kernels than those of this hash, and the suite's where it is
/// missing. Warnings, not breaches.
pub(crate) fn stale(tree: &Tree, ptx_sha256: &str) -> Vec<Breach> {
    let mut warnings = Vec::new();
    if tree.text(VERIFIED).is_none() {
        warnings.push(Breach::new("records", VERIFIED, "is missing: run the suite on the GPU"));
    }
    for (path, text) in tree.with_ending(&["jsonl"]).filter(|(path, _)| path.starts_with("record/h200-")) {
        let header: Option<Value> = text.lines().next().and_then(|line| serde_json::from_str(line).ok());
        let measured = header.as_ref().and_then(|header| header.get("ptx_sha256")).and_then(Value::as_str);
        if measured != Some(ptx_sha256) {
            warnings.push(Breach::new("records", path, "is stale: measured with other kernels than those committed"));
        }
    }
    warnings
}

/// Records whose first line is not a header, and lines that are not JSON objects.
pub(crate) fn check(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for (path, text) in tree.with_ending(&["jsonl"]).filter(|(path, _)| path.starts_with("record/")) {
        let lines: Vec<&str> = text.lines().collect();
        if lines.is_empty() {
            breaches.push(Breach::new("records", path, "is empty"));
        }
        for (k, line) in lines.into_iter().enumerate() {
            let place = format!("{path}:{}", k + 1);
            let Ok(Value::Object(fields)) = serde_json::from_str(line) else {
                breaches.push(Breach::new("records", place, "is not a JSON object"));
                continue;
            };
            if k > 0 {
                continue;
            }
            if fields.get("header") != Some(&Value::Bool(true)) {
                breaches.push(Breach::new("records", place, "the first line is no header (\"header\": true)"));
                continue;
            }
            for name in TEXTS.iter().filter(|name| !fields.get(**name).is_some_and(Value::is_string)) {
                breaches.push(Breach::new("records", &place, format!("the header has no text {name:?}")));
            }
            let cpu_alone = path.starts_with("record/cpu-");
            for name in GPU_TEXTS {
                if !fields.get(name).is_some_and(|v| v.is_string() || (cpu_alone && v.is_null())) {
                    breaches.push(Breach::new("records", &place, format!("the header has no text {name:?}")));
                }
            }
            if !fields.get("copy_gbs").is_some_and(|v| v.is_number() || v.is_null()) {
                breaches.push(Breach::new("records", &place, "the header has no number (or null) \"copy_gbs\""));
            }
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = r#"{"header":true,"date":"2026-01-01","machine":"m","driver":"","commit":"c","ptx_sha256":"","command":"x","copy_gbs":20.0}"#;

    fn count(text: &str) -> usize {
        check(&Tree::of([("record/cpu-spmv.jsonl", text)])).len()
    }

    #[test]
    fn a_full_header_passes() {
        assert_eq!(count(&format!("{HEADER}\n{{\"op\":\"spmv\"}}\n")), 0);
    }

    #[test]
    fn each_lack_is_a_breach() {
        assert_eq!(count(""), 1);
        assert_eq!(count("{\"op\":\"spmv\"}\n"), 1);
        assert_eq!(count(&HEADER.replace("true", "false")), 1);
        assert_eq!(count(&format!("{HEADER}\nspmv 12.0\n")), 1);
        for name in TEXTS.into_iter().chain(GPU_TEXTS) {
            assert_eq!(count(&HEADER.replace(&format!("\"{name}\":"), "\"other\":")), 1, "{name}");
        }
        assert_eq!(count(&HEADER.replace("20.0", "\"20\"")), 1);
    }

    #[test]
    fn a_record_of_a_gpu_names_driver_and_kernels() {
        let null = HEADER.replace("\"driver\":\"\"", "\"driver\":null");
        assert_eq!(count(&null), 0);
        assert_eq!(check(&Tree::of([("record/h200-spmv.jsonl", null.as_str())])).len(), 1);
    }

    #[test]
    fn a_needed_record_that_is_missing_is_a_breach() {
        assert_eq!(missing(&Tree::default()).len(), NEEDED.len());
        assert_eq!(missing(&Tree::of([(NEEDED[0], HEADER), (NEEDED[1], HEADER)])).len(), 1);
        assert!(missing(&Tree::of(NEEDED.map(|path| (path, HEADER)))).is_empty());
    }

    #[test]
    fn a_record_of_other_kernels_is_stale() {
        let header = HEADER.replace("\"ptx_sha256\":\"\"", "\"ptx_sha256\":\"abc\"");
        let of = |path, header: &str, hash| stale(&Tree::of([(VERIFIED, header), (path, header)]), hash).len();
        assert_eq!(of("record/h200-spmv.jsonl", &header, "abc"), 0);
        assert_eq!(of("record/h200-spmv.jsonl", &header, "abd"), 2);
        assert_eq!(of("record/cpu-spmv.jsonl", &header, "abd"), 1);
        assert_eq!(of("record/h200-spmv.jsonl", "", "abc"), 2);
        assert_eq!(stale(&Tree::default(), "abc").len(), 1);
    }

    #[test]
    fn other_folders_are_free() {
        assert!(check(&Tree::of([("crates/a/testdata/x.jsonl", "free")])).is_empty());
    }
}
