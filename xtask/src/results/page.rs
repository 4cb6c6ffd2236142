//! A page below `docs/`: a text in which paths of the repository's files become links.

use super::record::Line;

/// A generated file, by its path from the repository's root.
pub(crate) struct Page {
    pub(crate) path: &'static str,
    pub(crate) text: String,
}

impl Page {
    /// A page of Markdown. Paths of records, decisions and sources in `text` become links that are relative to `path`.
    pub(crate) fn new(path: &'static str, text: &str) -> Self {
        Self { path, text: linked(path, text) }
    }
}

/// The folders whose files are linked.
const FOLDERS: [&str; 4] = ["record/", "docs/adr/", "docs/targets.toml", "crates/"];

/// The path of `to` for a page at `from`. Both are paths from the root.
fn relative(from: &str, to: &str) -> String {
    let folder: Vec<&str> = from.rsplit_once('/').map_or(vec![], |(folder, _)| folder.split('/').collect());
    let target: Vec<&str> = to.split('/').collect();
    let shared = folder.iter().zip(&target).take_while(|(a, b)| a == b).count();
    format!("{}{}", "../".repeat(folder.len() - shared), target[shared..].join("/"))
}

/// The anchor of a heading on a page.
pub(crate) fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

/// `decision 7` for `docs/adr/0007-...`, else the path.
fn label(path: &str) -> String {
    let number = path.strip_prefix("docs/adr/").and_then(|name| name.get(..4)).and_then(|n| n.parse::<u32>().ok());
    number.map_or(path.to_owned(), |number| format!("decision {number}"))
}

/// Turns each path below [`FOLDERS`] into a link. A path in code or in a link stays as it is.
fn linked(page: &str, text: &str) -> String {
    let is_path = |c: char| c.is_ascii_alphanumeric() || "/-_.".contains(c);
    let mut out = String::new();
    let mut rest = text;
    while let Some((at, _)) = FOLDERS.iter().filter_map(|f| Some((rest.find(f)?, f))).min() {
        let (before, found) = rest.split_at(at);
        let path = &found[..found.find(|c| !is_path(c)).unwrap_or(found.len())];
        let path = path.trim_end_matches(['.', '/']);
        out += before;
        let is_free = !before.ends_with(|c: char| is_path(c) || "`[*".contains(c)) && !before.ends_with("](");
        if is_free && path.contains('.') {
            out += &format!("[{}]({})", label(path), relative(page, path));
        } else {
            out += path;
        }
        rest = &found[path.len()..];
    }
    out + rest
}

/// A sentence that says where the lines of a table were measured.
pub(crate) fn source<'a>(lines: impl IntoIterator<Item = &'a Line>) -> String {
    let mut runs: Vec<(String, String, Vec<&str>)> = Vec::new();
    for line in lines {
        let (machine, commit) = (line.machine(), line.header.commit.as_str());
        match runs.iter_mut().find(|run| run.0 == line.file && run.1 == machine) {
            Some((.., commits)) if commits.contains(&commit) => {}
            Some((.., commits)) => commits.push(commit),
            None => runs.push((line.file.clone(), machine, vec![commit])),
        }
    }
    let said = runs.iter().map(|(file, machine, commits)| {
        let plural = if commits.len() == 1 { "" } else { "s" };
        format!("{file} ({machine}, commit{plural} {})", commits.join(", "))
    });
    format!("\nSource: {}.\n", said.collect::<Vec<_>>().join("; "))
}

#[cfg(test)]
mod tests {
    use super::super::record::Records;
    use super::*;

    #[test]
    fn paths_become_links_relative_to_the_page() {
        let of = |page: &'static str, text: &str| Page::new(page, text).text;
        assert_eq!(of("docs/papers.md", "(record/a.jsonl)."), "([record/a.jsonl](../record/a.jsonl)).");
        assert_eq!(
            of("docs/results/x.md", "see docs/adr/0007-a-b.md, crates/a/src/b.rs"),
            "see [decision 7](../adr/0007-a-b.md), [crates/a/src/b.rs](../../crates/a/src/b.rs)"
        );
        for text in ["`record/a.jsonl`", "[x](../record/a.jsonl)", "[record/a.jsonl](b)", "from record/ alone"] {
            assert_eq!(of("docs/papers.md", text), text);
        }
    }

    #[test]
    fn a_table_names_its_records_machines_and_commits() {
        let mut records = Records::default();
        let header = |commit: &str| format!("{{\"header\":true,\"machine\":\"0: G, 1 GiB\",\"commit\":\"{commit}\"}}");
        let text = format!("{}\n{{}}\n{{}}\n{}\n{{}}\n", header("a"), header("b"));
        records.add("record/r.jsonl", &text).expect("lines");
        let lines = records.of("record/r.jsonl");
        assert_eq!(source(&lines[..2]), "\nSource: record/r.jsonl (G, commit a).\n");
        assert_eq!(source(lines), "\nSource: record/r.jsonl (G, commits a, b).\n");
    }
}
