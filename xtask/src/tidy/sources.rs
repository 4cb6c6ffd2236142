//! How a source file looks: head comment, length, name, words.

use super::lexer::{code, comments, words};
use super::{Breach, Tree, stem};

/// Lines past which a file becomes a folder of its verbs.
const MAX_LINES: usize = 600;

/// Files that may be longer, and why.
const LONG: [(&str, &str); 0] = [];

/// Names that say nothing of what a file holds.
const EMPTY_NAMES: [&str; 3] = ["utils", "common", "helpers"];

/// Macros that mark unfinished work or forgotten debugging.
const UNFINISHED: [&str; 3] = ["todo", "unimplemented", "dbg"];

/// Words of remarks that put work off. With an issue's number, `TODO(#12)`, they may stand.
const PUT_OFF: [&str; 3] = ["TODO", "FIXME", "XXX"];

/// Words that say nothing of what a thing is.
const EMPTY_WORDS: [&str; 3] = ["handle", "ctx", "process"];

/// Prefixes that repeat what the type says.
const PREFIXES: [&str; 2] = ["d_", "h_"];

pub(crate) fn check(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for (path, text) in tree.with_ending(&["rs", "cu", "cuh"]) {
        let head = if path.ends_with(".rs") { "//!" } else { "//" };
        if !text.starts_with(head) {
            breaches.push(Breach::new("heads", path, format!("does not begin with `{head}` and what the file holds")));
        }
        let lines = text.lines().count();
        if lines > MAX_LINES && !LONG.iter().any(|(long, _)| *long == path) {
            breaches.push(Breach::new(
                "length",
                path,
                format!("{lines} lines, more than {MAX_LINES}: split it by verbs"),
            ));
        }
        if path.split('/').any(|part| EMPTY_NAMES.contains(&stem(part))) {
            breaches.push(Breach::new("file names", path, "the name says nothing: name what it holds"));
        }
        for (k, line) in comments(text).lines().enumerate() {
            for word in PUT_OFF.iter().filter(|word| puts_off(line, word)) {
                let what = format!("{word} without an issue: do it, or write {word}(#number)");
                breaches.push(Breach::new("unfinished", format!("{path}:{}", k + 1), what));
            }
        }
        for word in words(&code(text)) {
            let place = format!("{path}:{}", word.line);
            if word.is_macro && UNFINISHED.contains(&word.text) {
                breaches.push(Breach::new("unfinished", place, format!("{}!", word.text)));
            } else if is_empty_word(word.text) && !word.in_path {
                breaches.push(Breach::new("words", place, format!("`{}`: say what it is", word.text)));
            }
        }
    }
    for (path, text) in tree.with_ending(&["py", "pyi"]) {
        if !text.starts_with("\"\"\"") {
            breaches.push(Breach::new("heads", path, "does not begin with a document that says what the file holds"));
        }
        let lines = text.lines().count();
        if lines > MAX_LINES {
            let what = format!("{lines} lines, more than {MAX_LINES}: split it by verbs");
            breaches.push(Breach::new("length", path, what));
        }
        if path.split('/').any(|part| EMPTY_NAMES.contains(&stem(part).trim_start_matches('_'))) {
            breaches.push(Breach::new("file names", path, "the name says nothing: name what it holds"));
        }
    }
    for (long, _) in LONG {
        if tree.text(long).is_none_or(|text| text.lines().count() <= MAX_LINES) {
            breaches.push(Breach::new("length", long, "is not long (any more): drop it from the list"));
        }
    }
    breaches
}

/// Whether the word stands in the line, by itself and without the number of an issue behind it.
fn puts_off(line: &str, word: &str) -> bool {
    let continues = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let behind = &line[at + word.len()..];
        let numbered = behind.strip_prefix("(#").is_some_and(|rest| {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            digits > 0 && rest[digits..].starts_with(')')
        });
        !line[..at].ends_with(continues) && !behind.starts_with(continues) && !numbered
    })
}

fn is_empty_word(word: &str) -> bool {
    EMPTY_WORDS.contains(&word) || word.contains("Manager") || PREFIXES.iter().any(|prefix| word.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(path: &str, text: &str) -> Vec<&'static str> {
        check(&Tree::of([(path, text)])).into_iter().map(|b| b.rule).collect()
    }

    #[test]
    fn a_good_file_breaks_nothing() {
        let text = "//! todo! is forbidden.\nuse std::process;\nfn f() { std::process::exit(\"ctx\".len() as i32) }\n";
        assert!(rules("crates/a/src/b.rs", text).is_empty());
        assert!(rules("kernels/csr.cu", "// CSR.\n").is_empty());
    }

    #[test]
    fn a_file_without_a_head() {
        assert_eq!(rules("a.rs", "fn f() {}"), ["heads"]);
        assert_eq!(rules("a.rs", "// only a remark\n"), ["heads"]);
        assert_eq!(rules("a.cu", "#include <x>\n"), ["heads"]);
    }

    #[test]
    fn a_long_file() {
        assert!(rules("a.rs", &"//! a\n".repeat(MAX_LINES)).is_empty());
        assert_eq!(rules("a.rs", &"//! a\n".repeat(MAX_LINES + 1)), ["length"]);
    }

    #[test]
    fn files_of_python_have_heads_lengths_and_names_too() {
        assert!(rules("a/_files.py", "\"\"\"Files.\"\"\"\n").is_empty());
        assert_eq!(rules("a/_files.pyi", "import os\n"), ["heads"]);
        assert_eq!(rules("a/files.py", &"\"\"\"a\"\"\"\n".repeat(MAX_LINES + 1)), ["length"]);
        assert_eq!(rules("a/_utils.py", "\"\"\"a\"\"\"\n"), ["file names"]);
    }

    #[test]
    fn names_that_say_nothing() {
        assert_eq!(rules("crates/a/src/utils.rs", "//! a\n"), ["file names"]);
        assert_eq!(rules("crates/a/tests/common/mod.rs", "//! a\n"), ["file names"]);
        assert_eq!(rules("crates/a/src/helpers.rs", "//! a\n"), ["file names"]);
    }

    #[test]
    fn unfinished_work() {
        for text in ["todo!()", "unimplemented!(\"later\")", "dbg!(x)"] {
            assert_eq!(rules("a.rs", &format!("//! a\nfn f() {{ {text} }}")), ["unfinished"], "{text}");
        }
    }

    #[test]
    fn work_put_off_in_a_remark_needs_an_issue() {
        for remark in ["// TODO: later", "/* FIXME */", "/// XXX", "fn g() {} // see TODO(later)", "// TODO(#)"] {
            assert_eq!(rules("a.rs", &format!("//! a\n{remark}\nfn f() {{}}\n")), ["unfinished"], "{remark}");
        }
        for text in ["// TODO(#12): later", "// TODOS", "const WORD: &str = \"TODO\";"] {
            assert!(rules("a.rs", &format!("//! a\n{text}\n")).is_empty(), "{text}");
        }
    }

    #[test]
    fn empty_words() {
        for word in ["handle", "ctx", "process", "QueueManager", "d_x", "h_values"] {
            assert_eq!(rules("a.rs", &format!("//! a\nfn f() {{ let {word} = 1; }}")), ["words"], "{word}");
        }
    }
}
