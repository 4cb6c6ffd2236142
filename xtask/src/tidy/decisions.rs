//! Decision records (`docs/adr`): each states whether it still holds, and is short.

use super::{Breach, Tree};

/// The folder of the records. Its `README.md` is their index and not a record.
const FOLDER: &str = "docs/adr/";

/// The largest number of words in a record, as `wc -w` counts them.
const MAX_WORDS: usize = 250;

/// The beginning of the line that says whether a record still holds.
const STATUS: &str = "**Status:** ";

/// The allowed beginnings of a status.
const STATES: [&str; 2] = ["accepted", "superseded by "];

/// Records without a status, and records that are too long.
pub(crate) fn check(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for (path, text) in tree.with_ending(&["md"]) {
        let Some(name) = path.strip_prefix(FOLDER) else {
            continue;
        };
        if name == "README.md" {
            continue;
        }
        let is_known = |status: &str| STATES.iter().any(|state| status.starts_with(state));
        if !text.lines().filter_map(|line| line.strip_prefix(STATUS)).any(is_known) {
            let what = format!(
                "no line `{STATUS}accepted` or `{STATUS}superseded by N`: a reader cannot tell whether the decision holds"
            );
            breaches.push(Breach::new("decisions", path, what));
        }
        let words = text.split_whitespace().count();
        if words > MAX_WORDS {
            let what = format!(
                "{words} words, more than {MAX_WORDS}: a longer record is not read; move figures and rejected variants to record/notes"
            );
            breaches.push(Breach::new("decisions", path, what));
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        check(&Tree::of([(path, text)])).len()
    }

    #[test]
    fn a_record_with_a_status_passes() {
        for status in ["accepted", "accepted; amended by [2](0002-b.md)", "superseded by [2](0002-b.md)"] {
            assert_eq!(count("docs/adr/0001-a.md", &format!("# 1. A\n\n**Status:** {status}\n")), 0, "{status}");
        }
    }

    #[test]
    fn a_record_without_a_known_status_is_a_breach() {
        for text in ["# 1. A\n", "# 1. A\n\nStatus: accepted\n", "# 1. A\n\n**Status:** maybe\n"] {
            assert_eq!(count("docs/adr/0001-a.md", text), 1, "{text}");
        }
    }

    #[test]
    fn a_long_record_is_a_breach() {
        let of = |words: usize| format!("**Status:** accepted\n{}", "word ".repeat(words - 2));
        assert_eq!(count("docs/adr/0001-a.md", &of(MAX_WORDS)), 0);
        assert_eq!(count("docs/adr/0001-a.md", &of(MAX_WORDS + 1)), 1);
    }

    #[test]
    fn the_index_and_other_pages_are_free() {
        let long = "word ".repeat(MAX_WORDS + 1);
        assert_eq!(count("docs/adr/README.md", &long), 0);
        assert_eq!(count("docs/limits.md", &long), 0);
    }
}
