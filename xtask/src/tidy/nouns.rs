//! Nouns are files: the table of storage formats and plans by folder, and its unexplained holes.

use std::fmt::Write;

use anyhow::{Context, Result, ensure};

use super::{Breach, Tree, stem};

/// A list of nouns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registry {
    /// The file with the list.
    pub(crate) file: &'static str,
    /// The macro that expands it.
    list: &'static str,
    /// The folder of its nouns' files on the host.
    home: &'static str,
}

/// The storage formats.
pub(crate) const FORMATS: Registry =
    Registry { file: "crates/formats/src/format.rs", list: "for_each_format", home: "crates/formats/src" };
/// The plans of the triangular solve.
pub(crate) const PLANS: Registry =
    Registry { file: "crates/sptrsv/src/plan.rs", list: "for_each_plan", home: "crates/sptrsv/src" };

/// Folders in which each noun has a file (or a folder of its verbs) with its stem, and the file's ending.
fn rooms(registry: Registry) -> [(&'static str, &'static str); 4] {
    [(registry.home, "rs"), ("crates/backend-cpu/src", "rs"), ("crates/backend-cuda/src", "rs"), ("kernels", "cu")]
}

/// Folders, or nouns in a folder, without a file, with the reason; `*` is every noun.
const HOLES: &[Hole] =
    &[Hole { noun: "csc", room: "kernels", why: "a matrix by columns is multiplied by the kernels of CSR" }];

/// An explained absence.
#[derive(Clone, Copy, Debug)]
struct Hole {
    noun: &'static str,
    room: &'static str,
    why: &'static str,
}

/// The stems in a registry's list.
///
/// # Errors
/// A list that is not `(stem, Type)` throughout, or a stem that is not lower-case letters and digits.
pub(crate) fn list(registry: Registry, text: &str) -> Result<Vec<String>> {
    let name = registry.list;
    let after = text.split_once(&format!("macro_rules! {name}")).with_context(|| format!("{name}! is gone"))?.1;
    let body = after.split_once("$callback! {").with_context(|| format!("{name}! expands no callback"))?.1;
    let body = body.split_once('}').with_context(|| format!("{name}! does not end"))?.0;
    // The callback's own arguments are in brackets before the list.
    let body = body.split_once(']').map_or(body, |(_, list)| list);
    let mut nouns: Vec<String> = Vec::new();
    for entry in body.split('(').skip(1) {
        let (stem, _) = entry.split_once(',').with_context(|| format!("{name}!: `({entry}` is no (stem, Type)"))?;
        let stem = stem.trim();
        ensure!(
            !stem.is_empty() && stem.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()),
            "{name}!: the stem `{stem}` is not of lower-case letters and digits alone, as files and kernels need it"
        );
        ensure!(!nouns.iter().any(|noun| noun == stem), "{name}!: `{stem}` stands there twice");
        nouns.push(stem.to_owned());
    }
    ensure!(!nouns.is_empty(), "{name}! lists nothing as (stem, Type)");
    Ok(nouns)
}

/// The files and folders of a noun's stem in a folder, at any depth.
fn homes(tree: &Tree, noun: &str, (room, ending): (&str, &str)) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for (path, _) in tree.with_ending(&[ending]) {
        let Some(inside) = path.strip_prefix(room).and_then(|rest| rest.strip_prefix('/')) else { continue };
        let mut place = room.to_owned();
        for part in inside.split('/') {
            place = format!("{place}/{part}");
            if stem(part) == noun {
                // Everything below a folder of the stem belongs to it.
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

/// The places with a file, noun by noun and folder by folder.
pub(crate) fn table(registry: Registry, tree: &Tree, nouns: &[String]) -> String {
    let holes: Vec<Hole> = HOLES.iter().filter(|hole| nouns.iter().any(|noun| noun == hole.noun)).copied().collect();
    draw(registry, tree, nouns, &holes)
}

fn draw(registry: Registry, tree: &Tree, nouns: &[String], explanations: &[Hole]) -> String {
    let mut text = format!("{:11}", "noun");
    rooms(registry).iter().for_each(|(room, _)| _ = write!(text, "  {room}"));
    text.push('\n');
    for noun in nouns {
        _ = write!(text, "{noun:11}");
        for room in rooms(registry) {
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

/// Nouns without a file in a folder and without an explanation, formats with several files, and explanations of holes
/// that do not exist.
pub(crate) fn holes(registry: Registry, tree: &Tree, nouns: &[String]) -> Vec<Breach> {
    judge(registry, tree, nouns, HOLES)
}

fn judge(registry: Registry, tree: &Tree, nouns: &[String], explanations: &[Hole]) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for noun in nouns {
        for room in rooms(registry) {
            let place = format!("{}/{noun}.{}", room.0, room.1);
            let homes = homes(tree, noun, room);
            match (homes.as_slice(), explained(explanations, noun, room.0)) {
                ([], None) => breaches.push(Breach::new("nouns", place, "the noun has no file in this room")),
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

/// Tests and benches run over the list of nouns, so none of their files has the stem of one.
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
        list(FORMATS, LIST).expect("a list")
    }

    #[test]
    fn the_list_is_read() {
        assert_eq!(nouns(), ["coo", "csr"]);
        assert!(list(FORMATS, "macro_rules! other {}").is_err());
        assert!(list(FORMATS, "macro_rules! for_each_format { $callback! { } }").is_err());
    }

    #[test]
    fn a_stem_that_cannot_be_a_file_is_an_error() {
        for stem in ["my_csr", "Csr", "", "coo"] {
            let bad = LIST.replace("(csr,", &format!("({stem},"));
            assert!(list(FORMATS, &bad).is_err(), "{stem}");
        }
        assert!(list(FORMATS, &LIST.replace("(csr, Csr)", "(csr)")).is_err());
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
        let places: Vec<String> = judge(FORMATS, &tree, &nouns(), &EXPLAINED).into_iter().map(|b| b.place).collect();
        assert_eq!(places, ["crates/backend-cpu/src/coo.rs"]);
        assert_eq!(judge(FORMATS, &tree, &nouns(), &[]).len(), 4);
        let table = draw(FORMATS, &tree, &nouns(), &EXPLAINED);
        assert!(table.lines().any(|line| line.starts_with("coo") && line.contains("MISSING")), "{table}");
        assert!(table.lines().any(|line| line.starts_with("csr") && !line.contains("MISSING")), "{table}");
        assert!(table.contains(EXPLAINED[0].why) && table.contains(EXPLAINED[1].why), "{table}");
    }

    #[test]
    fn a_second_file_of_a_stem_is_a_breach() {
        let files = [("crates/formats/src/coo.rs", ""), ("crates/backend-cpu/src/coo.rs", "")];
        let only = [nouns().remove(0)];
        assert!(judge(FORMATS, &Tree::of(files), &only, &EXPLAINED).is_empty());
        for second in ["crates/formats/src/coo/mod.rs", "crates/formats/src/more/coo.rs"] {
            assert_eq!(
                judge(FORMATS, &Tree::of([files[0], files[1], (second, "")]), &only, &EXPLAINED).len(),
                1,
                "{second}"
            );
        }
    }

    #[test]
    fn an_explanation_of_a_hole_that_is_filled_is_a_breach() {
        let files = [("crates/formats/src/coo.rs", ""), ("crates/backend-cpu/src/coo.rs", "")];
        let only = [nouns().remove(0)];
        for filled in ["crates/backend-cuda/src/coo.rs", "kernels/coo.cu"] {
            let breaches = judge(FORMATS, &Tree::of([files[0], files[1], (filled, "")]), &only, &EXPLAINED);
            assert_eq!(breaches.len(), 1, "{filled}");
            assert!(breaches[0].what.contains("drop its explanation"));
        }
        let everywhere = [files[0], files[1], ("crates/backend-cuda/src/coo.rs", ""), ("kernels/coo.cu", "")];
        assert!(judge(FORMATS, &Tree::of(everywhere), &only, &[]).is_empty());
        assert_eq!(judge(FORMATS, &Tree::of(files), &only, &[]).len(), 2);
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
