//! Links of the pages: each leads to an existing file and heading, and the book has every page of `docs/`.

use std::collections::{BTreeMap, BTreeSet};

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::{Breach, Tree};

/// The table of contents of the book.
const SUMMARY: &str = "docs/SUMMARY.md";

/// The links of a page, and its targets for links.
#[derive(Debug, Default)]
struct Page {
    /// The line and the target of each link and picture.
    links: Vec<(usize, String)>,
    anchors: BTreeSet<String>,
}

/// The anchor of a heading for mdBook and code hosts.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

fn read(text: &str) -> Page {
    let mut page = Page::default();
    let mut heading: Option<String> = None;
    let parser = Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter();
    for (event, range) in parser {
        match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                page.links.push((text[..range.start].matches('\n').count() + 1, dest_url.into_string()));
            }
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::Text(words) | Event::Code(words) => {
                if let Some(heading) = &mut heading {
                    *heading += &words;
                }
            }
            Event::End(TagEnd::Heading(_)) => {
                let name = anchor(&heading.take().unwrap_or_default());
                let earlier = (1..).map(|k| format!("{name}-{k}"));
                let free = [name.clone()].into_iter().chain(earlier).find(|name| !page.anchors.contains(name));
                page.anchors.extend(free);
            }
            _ => {}
        }
    }
    page
}

/// The path of `target`, relative to the page at `from`, as a path from the root; `None` if it is outside the
/// repository.
fn resolved(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Whether a link leaves the repository, or names an item of the API documentation.
fn is_foreign(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:") || target.contains("::")
}

/// Dead links, and pages of `docs/` that the book lacks. `exists` tells whether a path from the root exists.
pub(crate) fn check(tree: &Tree, exists: &dyn Fn(&str) -> bool) -> Vec<Breach> {
    let pages: BTreeMap<&str, Page> = tree.with_ending(&["md"]).map(|(path, text)| (path, read(text))).collect();
    let mut breaches = Vec::new();
    for (path, page) in &pages {
        for (line, link) in page.links.iter().filter(|(_, link)| !is_foreign(link)) {
            let (target, fragment) = link.split_once('#').unwrap_or((link, ""));
            let target = if target.is_empty() { Some((*path).to_owned()) } else { resolved(path, target) };
            let why = match &target {
                None => "leaves the repository",
                Some(target) if !exists(target) => "leads to a file that does not exist",
                Some(target) if !fragment.is_empty() => match pages.get(target.as_str()) {
                    Some(page) if page.anchors.contains(fragment) => continue,
                    _ => "leads to a heading that does not exist",
                },
                Some(_) => continue,
            };
            breaches.push(Breach::new("links", format!("{path}:{line}"), format!("`{link}` {why}")));
        }
    }
    breaches.extend(contents(&pages));
    breaches
}

/// Pages that are missing in the table of contents, or that it has twice.
fn contents(pages: &BTreeMap<&str, Page>) -> Vec<Breach> {
    let Some(summary) = pages.get(SUMMARY) else {
        return vec![Breach::new("book", SUMMARY, "is missing")];
    };
    let listed: Vec<String> = summary.links.iter().filter_map(|(_, link)| resolved(SUMMARY, link)).collect();
    let in_book = |path: &&&str| path.starts_with("docs/") && **path != SUMMARY;
    let counted = pages.keys().filter(in_book).map(|path| (path, listed.iter().filter(|known| known == path).count()));
    let wrong = counted.filter(|(_, count)| *count != 1);
    wrong
        .map(|(path, count)| Breach::new("book", *path, format!("stands {count} times in {SUMMARY}, not once")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaches(page: &str) -> Vec<String> {
        let summary = "[a](a.md)\n[b](b/b.md)\n";
        let tree =
            Tree::of([(SUMMARY, summary), ("docs/a.md", page), ("docs/b/b.md", "# Two `words`\n\n# Two words\n")]);
        let known = |path: &str| tree.text(path).is_some() || ["README.md", "docs/b", "docs/p.svg"].contains(&path);
        check(&tree, &known).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn links_that_lead_somewhere_pass() {
        let page = "# Top\n[x](#top) [b](b/b.md#two-words) [c](b/b.md#two-words-1) ![p](p.svg) [r](../README.md) [d](b)\n\
                    [w](https://example.org/#x) [i](crate::Item) `[no](link.md)`\n```\n[no](link.md)\n```\n";
        assert_eq!(breaches(page), Vec::<String>::new());
    }

    #[test]
    fn dead_links_are_named_with_their_line() {
        for (link, why) in [
            ("c.md", "does not exist"),
            ("b/b.md#other", "heading that does not exist"),
            ("#top", "heading that does not exist"),
            ("../../x.md", "leaves the repository"),
            ("../README.md#x", "heading that does not exist"),
        ] {
            let found = breaches(&format!("text\n\n[x]({link})\n"));
            assert_eq!(found.len(), 1, "{link}: {found:?}");
            assert!(found[0].starts_with("docs/a.md:3: ") && found[0].contains(why), "{found:?}");
        }
    }

    #[test]
    fn the_book_has_every_page_once() {
        let of = |summary: &str| {
            let tree = Tree::of([(SUMMARY, summary), ("docs/a.md", ""), ("README.md", "")]);
            check(&tree, &|_| true).len()
        };
        assert_eq!(of("[a](a.md)"), 0);
        assert_eq!((of(""), of("[a](a.md) [a](a.md)")), (1, 1));
        assert_eq!(check(&Tree::of([("README.md", "")]), &|_| true).len(), 1);
    }
}
