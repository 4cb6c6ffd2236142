//! Prose: comments and pages in the field's words, comments as wide as code, and short commit subjects.

use std::path::Path;
use std::process::Command;

use super::lexer::comments;
use super::{Breach, Tree};

/// Columns of a line that is a comment: those of code (`max_width` of rustfmt.toml).
pub(crate) const WIDTH: usize = 120;

/// Characters of a commit's subject.
const SUBJECT: usize = 72;

/// Subjects of earlier commits may be longer. A date, because a commit's hash changes if history is rewritten.
const SINCE: &str = "--since=2026-11-25T00:29:00Z";

/// Phrases that a reader has to read twice, each with what to write instead.
const PHRASES: [(&str, &str); 13] = [
    ("a thread a row", "one thread per row"),
    ("a row a thread", "one row per thread"),
    ("a warp a row", "one warp per row"),
    ("a mark a row", "one mark per row"),
    ("entries a row", "entries per row"),
    ("values a row", "values per row"),
    ("bytes an entry", "bytes per entry"),
    ("points a side", "points per side"),
    ("unknowns a point", "unknowns per point"),
    ("in the place of", "instead of, or `replaces`"),
    ("save where", "except if"),
    ("is said of", "refers to"),
    ("may not be recorded", "must not be recorded"),
];

/// Whether a comment is a row of a table, which cannot be wrapped.
pub(crate) fn is_row(line: &str) -> bool {
    line.trim_start().trim_start_matches(['/', '!']).starts_with(" | ")
}

/// The text of a page without its blocks of code. Lines keep their numbers.
fn without_code(page: &str) -> String {
    let mut is_code = false;
    let kept = page.lines().map(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        if is_code || is_fence { "" } else { line }
    });
    kept.collect::<Vec<_>>().join("\n")
}

/// Phrases of the list in comments and on pages, and comments that are wider than code. A row of a table is one line.
pub(crate) fn check(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for (path, text) in tree.with_ending(&["rs", "md"]) {
        let is_code = path.ends_with(".rs");
        // These lists hold the phrases themselves, and records are quoted as they were written.
        if path == file!() || path.starts_with("record/") {
            continue;
        }
        let prose = if is_code { comments(text) } else { without_code(text) };
        for (k, line) in prose.lines().enumerate() {
            let lower = line.to_lowercase();
            for (phrase, instead) in PHRASES.iter().filter(|(phrase, _)| holds(&lower, phrase)) {
                let what = format!("`{phrase}`: write {instead}");
                breaches.push(Breach::new("prose", format!("{path}:{}", k + 1), what));
            }
        }
        for (k, line) in text.lines().enumerate().filter(|_| is_code) {
            let width = line.chars().count();
            if line.trim_start().starts_with("//") && width > WIDTH && !is_row(line) {
                let what = format!("{width} columns, more than {WIDTH}: `cargo xtask tidy --wrap` wraps comments");
                breaches.push(Breach::new("comment width", format!("{path}:{}", k + 1), what));
            }
        }
    }
    breaches
}

/// Whether a phrase stands in a line by itself, not inside longer words.
fn holds(line: &str, phrase: &str) -> bool {
    let continues = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(phrase)
        .any(|(at, _)| !line[..at].ends_with(continues) && !line[at + phrase.len()..].starts_with(continues))
}

/// Commits since [`SINCE`] whose subject is too long. None without git, as in a source archive.
pub(crate) fn subjects(root: &Path) -> Vec<Breach> {
    let output = Command::new("git").arg("-C").arg(root).args(["log", "--format=%h %s", SINCE]).output();
    let Some(output) = output.ok().filter(|output| output.status.success()) else { return Vec::new() };
    too_long(&String::from_utf8_lossy(&output.stdout))
}

/// The lines `HASH SUBJECT` with a subject that is too long.
fn too_long(log: &str) -> Vec<Breach> {
    let long =
        log.lines().filter_map(|line| line.split_once(' ')).filter(|(_, subject)| subject.chars().count() > SUBJECT);
    let breach = |(hash, subject): (&str, &str)| {
        let what = format!("the subject has {} characters, more than {SUBJECT}: {subject}", subject.chars().count());
        Breach::new("commits", hash, what)
    };
    long.map(breach).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(path: &str, text: &str) -> Vec<&'static str> {
        check(&Tree::of([(path, text)])).into_iter().map(|breach| breach.rule).collect()
    }

    #[test]
    fn private_phrases_are_found_in_comments_and_pages() {
        assert_eq!(rules("a.rs", "//! A thread a row.\n"), ["prose"]);
        assert_eq!(rules("a.md", "Ten entries a row.\n"), ["prose"]);
        assert!(rules("a.rs", "//! One thread per row.\nconst A: &str = \"a thread a row\";\n").is_empty());
        assert!(rules("a.md", "```\na thread a row\n```\nten entries a rowing boat\n").is_empty());
        assert!(rules("record/a.md", "a thread a row").is_empty());
    }

    #[test]
    fn comments_are_as_wide_as_code() {
        let of = |begin: &str, width: usize| format!("{begin}{}\n", "x".repeat(width - begin.len()));
        assert!(rules("a.rs", &of("/// ", WIDTH)).is_empty());
        assert_eq!(rules("a.rs", &of("/// ", WIDTH + 1)), ["comment width"]);
        assert_eq!(rules("a.rs", &of("    // ", WIDTH + 1)), ["comment width"]);
        assert!(rules("a.rs", &of("//! | ", WIDTH + 1)).is_empty());
        assert!(rules("a.md", &of("", WIDTH + 1)).is_empty());
    }

    #[test]
    fn long_subjects_are_named_with_their_commit() {
        let log = format!("abc {}\ndef {}\n", "x".repeat(SUBJECT), "y".repeat(SUBJECT + 1));
        let found = too_long(&log);
        assert!(found.len() == 1 && found[0].place == "def", "{found:?}");
        assert!(subjects(Path::new("no-such-folder")).is_empty());
    }
}
