//! Nouns are files: the table of storage formats and rooms, and its unexplained holes.

use std::fmt::Write;

use anyhow::{Context, Result, ensure};

use super::{Breach, Tree, stem};

/// The file that holds the one list of formats.
pub(crate) const REGISTRY: &str = "crates/formats/src/format.rs";

/// Where each format has a file (or a folder of its verbs) of its stem.
const ROOMS: [&str; 2] = ["crates/formats/src", "crates/backend-cpu/src"];

/// Formats without a file in a room, and why.
const HOLES: [(&str, &str, &str); 0] = [];

/// The stems in `for_each_format!`.
pub(crate) fn list(registry: &str) -> Result<Vec<String>> {
    let after = registry.split_once("macro_rules! for_each_format").context("for_each_format! is gone")?.1;
    let body = after.split_once("$callback! {").context("for_each_format! expands no callback")?.1;
    let body = body.split_once('}').context("for_each_format! does not end")?.0;
    let nouns: Vec<String> = body
        .split('(')
        .skip(1)
        .filter_map(|entry| entry.split_once(','))
        .map(|(stem, _)| stem.trim().to_owned())
        .filter(|stem| !stem.is_empty() && stem.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()))
        .collect();
    ensure!(!nouns.is_empty(), "for_each_format! lists no format as (stem, Type)");
    Ok(nouns)
}

fn lives_in(tree: &Tree, noun: &str, room: &str) -> bool {
    tree.text(&format!("{room}/{noun}.rs")).is_some() || tree.text(&format!("{room}/{noun}/mod.rs")).is_some()
}

fn explained(noun: &str, room: &str) -> Option<&'static str> {
    HOLES.iter().find(|(n, r, _)| *n == noun && *r == room).map(|(_, _, why)| *why)
}

/// Noun by noun and room by room, where there is a file.
pub(crate) fn table(tree: &Tree, nouns: &[String]) -> String {
    let mut text = format!("{:8}", "noun");
    ROOMS.iter().for_each(|room| _ = write!(text, "  {room}"));
    text.push('\n');
    for noun in nouns {
        _ = write!(text, "{noun:8}");
        for room in ROOMS {
            let cell = match (lives_in(tree, noun, room), explained(noun, room)) {
                (true, _) => "yes",
                (false, Some(why)) => why,
                (false, None) => "MISSING",
            };
            _ = write!(text, "  {cell:width$}", width = room.len());
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

/// Formats without a file in a room that nobody has explained, and explanations of holes that are none.
pub(crate) fn holes(tree: &Tree, nouns: &[String]) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for noun in nouns {
        for room in ROOMS {
            let place = format!("{room}/{noun}.rs");
            match (lives_in(tree, noun, room), explained(noun, room)) {
                (false, None) => breaches.push(Breach::new("nouns", place, "the format has no file in this room")),
                (true, Some(_)) => {
                    breaches.push(Breach::new("nouns", place, "the hole is filled: drop its explanation"))
                }
                _ => {}
            }
        }
    }
    breaches
}

/// Tests and benches run over the list of nouns, so none of their files bears the stem of one.
pub(crate) fn tests_named_after_nouns(tree: &Tree, nouns: &[String]) -> Vec<Breach> {
    tree.with_ending(&["rs"])
        .filter(|(path, _)| path.split('/').any(|part| part == "tests" || part == "benches"))
        .filter(|(path, _)| stem(path).split('_').any(|word| nouns.iter().any(|noun| noun == word)))
        .map(|(path, _)| {
            Breach::new("nouns", path, "a test or bench is named after one format: run over for_each_format!")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str =
        "macro_rules! for_each_format { ($callback:ident) => { $callback! { [] (coo, Coo),\n (csr, Csr) } }; }";

    fn nouns() -> Vec<String> {
        list(LIST).expect("a list")
    }

    #[test]
    fn the_list_is_read() {
        assert_eq!(nouns(), ["coo", "csr"]);
        assert!(list("macro_rules! other {}").is_err());
        assert!(list("macro_rules! for_each_format { $callback! { } }").is_err());
    }

    #[test]
    fn a_missing_file_is_a_hole_and_a_folder_is_none() {
        let tree = Tree::of([
            ("crates/formats/src/coo.rs", ""),
            ("crates/formats/src/csr/mod.rs", ""),
            ("crates/backend-cpu/src/csr.rs", ""),
        ]);
        let places: Vec<String> = holes(&tree, &nouns()).into_iter().map(|b| b.place).collect();
        assert_eq!(places, ["crates/backend-cpu/src/coo.rs"]);
        let table = table(&tree, &nouns());
        assert!(table.lines().any(|line| line.starts_with("coo") && line.ends_with("MISSING")), "{table}");
        assert!(table.lines().any(|line| line.starts_with("csr") && !line.contains("MISSING")), "{table}");
    }

    #[test]
    fn tests_bear_no_stem_of_a_noun() {
        let tree = Tree::of([
            ("crates/formats/tests/csr.rs", ""),
            ("crates/bench/benches/spmv_coo.rs", ""),
            ("crates/formats/tests/conversions.rs", ""),
            ("crates/formats/src/csr.rs", ""),
        ]);
        let places: Vec<String> = tests_named_after_nouns(&tree, &nouns()).into_iter().map(|b| b.place).collect();
        assert_eq!(places, ["crates/bench/benches/spmv_coo.rs", "crates/formats/tests/csr.rs"]);
    }
}
