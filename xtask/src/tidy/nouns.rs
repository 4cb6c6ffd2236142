//! Nouns are files: the table of storage formats and rooms, and its unexplained holes.

use std::fmt::Write;

use anyhow::{Context, Result, ensure};

use super::{Breach, Tree, stem};

/// The file that holds the one list of formats.
pub(crate) const REGISTRY: &str = "crates/formats/src/format.rs";

/// Where each format has a file (or a folder of its verbs) of its stem, with the file's ending.
const ROOMS: [(&str, &str); 4] = [
    ("crates/formats/src", "rs"),
    ("crates/backend-cpu/src", "rs"),
    ("crates/backend-cuda/src", "rs"),
    ("kernels", "cu"),
];

/// Rooms, or formats in a room, without a file, and why; `*` is every format.
const HOLES: &[Hole] =
    &[Hole { noun: "csc", room: "kernels", why: "a matrix by columns is multiplied by the kernels of CSR" }];

/// An explained absence.
#[derive(Clone, Copy, Debug)]
struct Hole {
    noun: &'static str,
    room: &'static str,
    why: &'static str,
}

/// The stems in `for_each_format!`.
///
/// # Errors
/// Where the list is not `(stem, Type)` throughout, or a stem is not lower-case letters and digits.
pub(crate) fn list(registry: &str) -> Result<Vec<String>> {
    let after = registry.split_once("macro_rules! for_each_format").context("for_each_format! is gone")?.1;
    let body = after.split_once("$callback! {").context("for_each_format! expands no callback")?.1;
    let body = body.split_once('}').context("for_each_format! does not end")?.0;
    // The callback's own arguments stand in brackets ahead of the list.
    let body = body.split_once(']').map_or(body, |(_, list)| list);
    let mut nouns: Vec<String> = Vec::new();
    for entry in body.split('(').skip(1) {
        let (stem, _) =
            entry.split_once(',').with_context(|| format!("for_each_format!: `({entry}` is no (stem, Type)"))?;
        let stem = stem.trim();
        ensure!(
            !stem.is_empty() && stem.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()),
            "for_each_format!: the stem `{stem}` is not of lower-case letters and digits alone, as files and kernels need it"
        );
        ensure!(!nouns.iter().any(|noun| noun == stem), "for_each_format!: `{stem}` stands there twice");
        nouns.push(stem.to_owned());
    }
    ensure!(!nouns.is_empty(), "for_each_format! lists no format as (stem, Type)");
    Ok(nouns)
}

/// The files and folders of a format's stem in a room, at any depth below it.
fn homes(tree: &Tree, noun: &str, (room, ending): (&str, &str)) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for (path, _) in tree.with_ending(&[ending]) {
        let Some(inside) = path.strip_prefix(room).and_then(|rest| rest.strip_prefix('/')) else { continue };
        let mut place = room.to_owned();
        for part in inside.split('/') {
            place = format!("{place}/{part}");
            if stem(part) == noun {
                // What lies below a folder of the stem is part of it.
                if !found.contains(&place) {
                    found.push(place);
                }
                break;
            }
        }
    }
    found
}

fn explained(holes: &[Hole], noun: &str, room: &str) -> Option<&'static str> {
    holes.iter().find(|hole| (hole.noun == "*" || hole.noun == noun) && hole.room == room).map(|hole| hole.why)
}

/// Noun by noun and room by room, where there is a file.
pub(crate) fn table(tree: &Tree, nouns: &[String]) -> String {
    draw(tree, nouns, HOLES)
}

fn draw(tree: &Tree, nouns: &[String], explanations: &[Hole]) -> String {
    let mut text = format!("{:8}", "noun");
    ROOMS.iter().for_each(|(room, _)| _ = write!(text, "  {room}"));
    text.push('\n');
    for noun in nouns {
        _ = write!(text, "{noun:8}");
        for room in ROOMS {
            let cell = match (homes(tree, noun, room).is_empty(), explained(explanations, noun, room.0)) {
                (false, _) => "yes",
                (true, Some(_)) => "-",
                (true, None) => "MISSING",
            };
            _ = write!(text, "  {cell:width$}", width = room.0.len());
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    for Hole { noun, room, why } in explanations {
        _ = writeln!(text, "- {noun} in {room}: {why}");
    }
    text
}

/// Formats without a file in a room that nobody has explained, formats with several, and explanations of holes that are none.
pub(crate) fn holes(tree: &Tree, nouns: &[String]) -> Vec<Breach> {
    judge(tree, nouns, HOLES)
}

fn judge(tree: &Tree, nouns: &[String], explanations: &[Hole]) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for noun in nouns {
        for room in ROOMS {
            let place = format!("{}/{noun}.{}", room.0, room.1);
            let homes = homes(tree, noun, room);
            match (homes.as_slice(), explained(explanations, noun, room.0)) {
                ([], None) => breaches.push(Breach::new("nouns", place, "the format has no file in this room")),
                ([], Some(_)) | ([_], None) => {}
                ([_, ..], Some(_)) => {
                    breaches.push(Breach::new("nouns", place, "the hole is filled: drop its explanation"))
                }
                (several, None) => {
                    let what = format!("one file or folder of a stem in each room, not {}", several.join(", "));
                    breaches.push(Breach::new("nouns", place, what));
                }
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

    const LIST: &str = "macro_rules! for_each_format { ($callback:ident) => { $callback! { [$($extra)*] (coo, Coo),\n (csr, Csr) } }; }";

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
    fn a_stem_that_cannot_be_a_file_is_an_error() {
        for stem in ["my_csr", "Csr", "", "coo"] {
            let bad = LIST.replace("(csr,", &format!("({stem},"));
            assert!(list(&bad).is_err(), "{stem}");
        }
        assert!(list(&LIST.replace("(csr, Csr)", "(csr)")).is_err());
    }

    /// No kernels, and nothing of one format in the other room of the GPU.
    const EXPLAINED: [Hole; 2] = [
        Hole { noun: "*", room: "kernels", why: "no kernel is written" },
        Hole { noun: "coo", room: "crates/backend-cuda/src", why: "slow" },
    ];

    #[test]
    fn a_missing_file_is_a_hole_and_a_folder_is_none() {
        let tree = Tree::of([
            ("crates/formats/src/coo.rs", ""),
            ("crates/formats/src/csr/mod.rs", ""),
            ("crates/formats/src/csr/csr.rs", ""),
            ("crates/backend-cpu/src/csr.rs", ""),
            ("crates/backend-cuda/src/csr.rs", ""),
        ]);
        let places: Vec<String> = judge(&tree, &nouns(), &EXPLAINED).into_iter().map(|b| b.place).collect();
        assert_eq!(places, ["crates/backend-cpu/src/coo.rs"]);
        assert_eq!(judge(&tree, &nouns(), &[]).len(), 4);
        let table = draw(&tree, &nouns(), &EXPLAINED);
        assert!(table.lines().any(|line| line.starts_with("coo") && line.contains("MISSING")), "{table}");
        assert!(table.lines().any(|line| line.starts_with("csr") && !line.contains("MISSING")), "{table}");
        assert!(table.contains(EXPLAINED[0].why) && table.contains(EXPLAINED[1].why), "{table}");
    }

    #[test]
    fn a_second_file_of_a_stem_is_a_breach() {
        let files = [("crates/formats/src/coo.rs", ""), ("crates/backend-cpu/src/coo.rs", "")];
        let only = [nouns().remove(0)];
        assert!(judge(&Tree::of(files), &only, &EXPLAINED).is_empty());
        for second in ["crates/formats/src/coo/mod.rs", "crates/formats/src/more/coo.rs"] {
            assert_eq!(judge(&Tree::of([files[0], files[1], (second, "")]), &only, &EXPLAINED).len(), 1, "{second}");
        }
    }

    #[test]
    fn an_explanation_of_a_hole_that_is_filled_is_a_breach() {
        let files = [("crates/formats/src/coo.rs", ""), ("crates/backend-cpu/src/coo.rs", "")];
        let only = [nouns().remove(0)];
        for filled in ["crates/backend-cuda/src/coo.rs", "kernels/coo.cu"] {
            let breaches = judge(&Tree::of([files[0], files[1], (filled, "")]), &only, &EXPLAINED);
            assert_eq!(breaches.len(), 1, "{filled}");
            assert!(breaches[0].what.contains("drop its explanation"));
        }
        let everywhere = [files[0], files[1], ("crates/backend-cuda/src/coo.rs", ""), ("kernels/coo.cu", "")];
        assert!(judge(&Tree::of(everywhere), &only, &[]).is_empty());
        assert_eq!(judge(&Tree::of(files), &only, &[]).len(), 2);
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
