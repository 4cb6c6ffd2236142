//! Checks the book that mdBook wrote: every link leads to a page, a heading or a file.
//!
//! A page may link to a file of the repository that is no page of the book. Such a link is rewritten so that it leads
//! from the book to the file in the working tree.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};

/// Attributes that hold a link.
const LINKS: [&str; 2] = [" href=\"", " src=\""];

/// The positions of the values of an attribute.
fn values<'a>(html: &'a str, attribute: &'a str) -> impl Iterator<Item = (usize, &'a str)> + 'a {
    html.match_indices(attribute).filter_map(move |(at, _)| {
        let begin = at + attribute.len();
        Some((begin, &html[begin..begin + html[begin..].find('"')?]))
    })
}

/// A path without `.` and `..`; `None` if it leaves its root.
fn normal(path: &Path) -> Option<PathBuf> {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                if !out.pop() {
                    return None;
                }
            }
            part => out.push(part),
        }
    }
    Some(out)
}

/// Pages of HTML below a folder, by their relative path.
fn pages(folder: &Path, prefix: &Path, found: &mut BTreeMap<PathBuf, String>) -> Result<()> {
    let here = folder.join(prefix);
    for entry in fs::read_dir(&here).with_context(|| format!("cannot read {}", here.display()))? {
        let entry = entry?;
        let path = prefix.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            pages(folder, &path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "html") {
            let text = fs::read_to_string(folder.join(&path));
            found.insert(path.clone(), text.with_context(|| format!("cannot read {}", path.display()))?);
        }
    }
    Ok(())
}

/// The target of a page's link.
enum Target {
    /// Inside the book, or outside the repository; the link is right.
    Right,
    /// A file of the working tree, with the link that leads there.
    Other(String),
    /// Nothing.
    Dead,
}

fn target(root: &Path, book: &Path, page: &Path, link: &str, ids: &BTreeMap<PathBuf, BTreeSet<&str>>) -> Target {
    if link.is_empty() || link.contains(':') || link.starts_with("//") {
        return Target::Right;
    }
    let (path, fragment) = link.split_once('#').unwrap_or((link, ""));
    let folder = page.parent().unwrap_or(Path::new(""));
    let inside = if path.is_empty() { Some(page.to_owned()) } else { normal(&folder.join(path)) };
    if let Some(inside) = &inside {
        match ids.get(inside) {
            Some(known) if fragment.is_empty() || known.contains(fragment) => return Target::Right,
            Some(_) => return Target::Dead,
            None if book.join(inside).is_file() => return Target::Right,
            None => {}
        }
    }
    // In the sources, the same link begins at the page below `docs/`. mdBook has replaced `.md` by `.html`.
    let Some(outside) = normal(&Path::new("docs").join(folder).join(path)) else { return Target::Dead };
    let source = outside.with_extension("md");
    let known = [&source, &outside].into_iter().find(|path| root.join(path).exists());
    let depth = book.strip_prefix(root).unwrap_or(book).components().count() + folder.components().count();
    known.map_or(Target::Dead, |path| Target::Other(format!("{}{}", "../".repeat(depth), path.display())))
}

/// Checks and rewrites the links of a book. Returns how many pages it has, and its dead links.
///
/// # Errors
/// A page that cannot be read or written.
pub(crate) fn check(root: &Path, book: &Path) -> Result<(usize, Vec<String>)> {
    let mut found = BTreeMap::new();
    pages(book, Path::new(""), &mut found)?;
    let ids: BTreeMap<PathBuf, BTreeSet<&str>> =
        found.iter().map(|(path, html)| (path.clone(), values(html, " id=\"").map(|(_, id)| id).collect())).collect();
    let mut dead = Vec::new();
    for (path, html) in &found {
        let mut links: Vec<(usize, &str)> = LINKS.iter().flat_map(|attribute| values(html, attribute)).collect();
        links.sort_unstable();
        let (mut text, mut at) = (String::new(), 0);
        for (begin, link) in links {
            match target(root, book, path, link, &ids) {
                Target::Right => {}
                Target::Other(other) => {
                    text += &html[at..begin];
                    text += &other;
                    at = begin + link.len();
                }
                Target::Dead => dead.push(format!("{}: `{link}` leads nowhere", path.display())),
            }
        }
        if at > 0 {
            text += &html[at..];
            fs::write(book.join(path), text).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    Ok((found.len(), dead))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_a_book_are_followed() {
        let root = std::env::temp_dir().join(format!("spandrel-xtask-book-{}", std::process::id()));
        let book = root.join("target/book");
        let files = [
            ("docs/guide/a.md", ""),
            ("crates/x/README.md", ""),
            ("record/r.jsonl", ""),
            ("target/book/p.svg", ""),
            ("target/book/b.html", "<h1 id=\"top\">"),
            (
                "target/book/guide/a.html",
                "<a href=\"../b.html#top\"><img src=\"../p.svg\"><a href=\"#here\" id=\"here\"><a href=\"https://x.org/y\">\
                 <a href=\"../../crates/x/README.html\"><a href=\"../../record/r.jsonl\"><a href=\"../b.html#no\"><a href=\"c.html\">",
            ),
        ];
        for (file, text) in files {
            fs::create_dir_all(root.join(file).parent().expect("a folder")).expect("temporary folder");
            fs::write(root.join(file), text).expect("writable");
        }
        let (pages, dead) = check(&root, &book).expect("a book");
        let text = fs::read_to_string(book.join("guide/a.html")).expect("a page");
        fs::remove_dir_all(&root).expect("own folder");
        assert_eq!(pages, 2);
        assert_eq!(dead, ["guide/a.html: `../b.html#no` leads nowhere", "guide/a.html: `c.html` leads nowhere"]);
        assert!(
            text.contains("href=\"../../../crates/x/README.md\"") && text.contains("href=\"../../../record/r.jsonl\"")
        );
        assert!(text.contains("href=\"../b.html#top\"") && text.ends_with("<a href=\"c.html\">"), "{text}");
    }
}
