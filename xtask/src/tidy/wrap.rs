//! `cargo xtask tidy --wrap`: wraps comments that are wider than code. rustfmt leaves comments as they are.
//!
//! A wide line is joined with the following lines of its paragraph and broken at blanks. Tables, blocks of code and
//! words that are too long stay.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::Tree;
use super::prose::{WIDTH, is_row};

/// A line that is a comment: what stands before its text (`    /// `), and the text.
fn comment(line: &str) -> Option<(&str, &str)> {
    let text = line.trim_start();
    let marker = ["///", "//!", "//"].into_iter().find(|marker| text.starts_with(marker))?;
    let lead = line.len() - text.len() + marker.len();
    let blank = usize::from(line[lead..].starts_with(' '));
    Some((&line[..lead + blank], &line[lead + blank..]))
}

/// The bytes of the bullet or number that begins an item of a list, with its indent; none for another text.
fn bullet(text: &str) -> Option<usize> {
    let item = text.trim_start();
    let indent = text.len() - item.len();
    let digits = item.bytes().take_while(u8::is_ascii_digit).count();
    let mark = if item.starts_with("- ") || item.starts_with("* ") {
        1
    } else if digits > 0 && item[digits..].starts_with(". ") {
        digits + 1
    } else {
        return None;
    };
    Some(indent + mark + 1)
}

/// Whether a line goes on with the paragraph before it.
fn continues(text: &str, indent: &str) -> bool {
    let begins = ["|", "#", "```", "Reference", "Order:", "Cost", "Layout", "Invariant"];
    !text.trim().is_empty()
        && bullet(text).is_none()
        && text.starts_with(indent)
        && !text[indent.len()..].starts_with(' ')
        && !begins.iter().any(|begin| text.trim_start().starts_with(begin))
}

/// The text of a file with its wide comments wrapped.
fn wrapped(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut out: Vec<String> = Vec::new();
    let (mut at, mut is_code) = (0, false);
    while let Some(&line) = lines.get(at) {
        at += 1;
        let Some((lead, body)) = comment(line) else {
            is_code = false;
            out.push(line.to_owned());
            continue;
        };
        is_code ^= body.trim_start().starts_with("```");
        if is_code || is_row(line) || line.chars().count() <= WIDTH {
            out.push(line.to_owned());
            continue;
        }
        let first = bullet(body).unwrap_or(body.len() - body.trim_start().len());
        let indent = " ".repeat(first);
        let mut words: Vec<&str> = body[first..].split_whitespace().collect();
        while let Some((next, body)) = lines.get(at).and_then(|line| comment(line)) {
            if next != lead || !continues(body, &indent) {
                break;
            }
            words.extend(body.split_whitespace());
            at += 1;
        }
        let mut row = format!("{lead}{}", &body[..first]);
        let mut is_empty = true;
        for word in words {
            if !is_empty && row.chars().count() + 1 + word.chars().count() > WIDTH {
                out.push(row);
                row = format!("{lead}{indent}");
                is_empty = true;
            }
            if !is_empty {
                row.push(' ');
            }
            row += word;
            is_empty = false;
        }
        out.push(row);
    }
    out.join("\n") + if text.ends_with('\n') { "\n" } else { "" }
}

/// Wraps the comments of all sources in Rust; prints what it wrote.
///
/// # Errors
/// A file that cannot be written.
pub(crate) fn run(root: &Path, tree: &Tree) -> Result<()> {
    for (path, text) in tree.with_ending(&["rs"]) {
        let made = wrapped(text);
        if made != text {
            fs::write(root.join(path), made).with_context(|| format!("cannot write {path}"))?;
            println!("{path}: wrapped");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wide_paragraph_is_filled_again() {
        let long = "word ".repeat(30);
        let text = format!("/// {}\n/// end.\nfn f() {{}}\n", long.trim_end());
        let made = wrapped(&text);
        assert!(made.lines().all(|line| line.len() <= WIDTH), "{made}");
        assert!(made.ends_with("word end.\nfn f() {}\n") && made.lines().count() == 3, "{made}");
        assert_eq!(wrapped(&made), made);
    }

    #[test]
    fn items_hang_and_paragraphs_end() {
        let long = "word ".repeat(30);
        let text = format!("    //! - {}\n    //! - next\n    //!\n    //! {}\n", long.trim_end(), long.trim_end());
        let made = wrapped(&text);
        assert!(
            made.contains("\n    //!   word") && made.contains("\n    //! - next\n    //!\n    //! word"),
            "{made}"
        );
    }

    #[test]
    fn code_tables_and_narrow_lines_stay() {
        let wide = "x ".repeat(80);
        let (wide, link) = (wide.trim_end(), "y".repeat(130));
        let text = format!("//! | {wide} |\n//! ```\n//! {wide}\n//! ```\n// {link}\nlet a = \"{wide}\";\n// narrow\n");
        assert_eq!(wrapped(&text), text);
    }
}
