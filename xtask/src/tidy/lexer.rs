//! Code without its comments and literals, so that rules judge the words of the program and not those of its texts.

/// The code with every comment, string and character literal replaced by blanks. Lines keep their numbers. Understands
/// Rust, and the part of C++ that is alike.
pub(crate) fn code(text: &str) -> String {
    let mut out = text.as_bytes().to_vec();
    parts(text, |range, _| blank(&mut out[range]));
    // Whole literals and comments are blank now, and they begin and end at ASCII characters.
    String::from_utf8_lossy(&out).into_owned()
}

/// Only the comments; everything else is replaced by blanks.
pub(crate) fn comments(text: &str) -> String {
    let mut out = text.as_bytes().to_vec();
    blank(&mut out);
    parts(text, |range, is_comment| {
        if is_comment {
            out[range.clone()].copy_from_slice(&text.as_bytes()[range]);
        }
    });
    String::from_utf8_lossy(&out).into_owned()
}

/// String literals without escapes, each with the range of its quotes and its content.
pub(crate) fn literals(text: &str) -> Vec<(std::ops::Range<usize>, &str)> {
    let mut found = Vec::new();
    parts(text, |range, is_comment| {
        let inside = text[range.clone()].strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        if let Some(inside) = inside.filter(|inside| !is_comment && !inside.contains('\\')) {
            found.push((range, inside));
        }
    });
    found
}

/// Calls `found` with the range of every comment and literal, and whether it is a comment.
fn parts(text: &str, mut found: impl FnMut(std::ops::Range<usize>, bool)) {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes.get(at + 1) == Some(&b'/') => line_end(bytes, at),
            b'/' if bytes.get(at + 1) == Some(&b'*') => block_comment_end(bytes, at),
            b'"' => string_end(bytes, at),
            b'r' | b'b' | b'c' if !continues_word(bytes, at) => prefixed_end(bytes, at).unwrap_or(at),
            b'\'' => character_end(bytes, at).unwrap_or(at),
            _ => at,
        };
        if end > at {
            found(at..end, bytes[at] == b'/');
            at = end;
        } else {
            at += 1;
        }
    }
}

fn blank(bytes: &mut [u8]) {
    bytes.iter_mut().filter(|b| **b != b'\n').for_each(|b| *b = b' ');
}

fn continues_word(bytes: &[u8], at: usize) -> bool {
    at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_')
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|&b| b == b'\n').map_or(bytes.len(), |n| at + n)
}

fn block_comment_end(bytes: &[u8], at: usize) -> usize {
    let mut depth = 0;
    let mut k = at;
    while k + 1 < bytes.len() {
        match &bytes[k..k + 2] {
            b"/*" => (depth, k) = (depth + 1, k + 2),
            b"*/" => (depth, k) = (depth - 1, k + 2),
            _ => k += 1,
        }
        if depth == 0 {
            return k;
        }
    }
    bytes.len()
}

/// The end of a string that begins with the quote at `at`.
fn string_end(bytes: &[u8], at: usize) -> usize {
    let mut k = at + 1;
    while k < bytes.len() {
        match bytes[k] {
            b'\\' => k += 2,
            b'"' => return k + 1,
            _ => k += 1,
        }
    }
    bytes.len()
}

/// The end of `r"..."`, `r#"..."#`, `b"..."`, `br"..."`, `c"..."`, `b'.'`; `None` if the letter begins a word.
fn prefixed_end(bytes: &[u8], at: usize) -> Option<usize> {
    let letters = bytes[at..].iter().take_while(|b| b"rbc".contains(b)).count();
    let raw = bytes[at..at + letters].contains(&b'r');
    let open = at + letters;
    let hashes = bytes[open..].iter().take_while(|&&b| b == b'#').count();
    match bytes.get(open + hashes) {
        Some(b'"') if raw => {
            let close: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
            let body = open + hashes + 1;
            let found = bytes[body..].windows(close.len()).position(|w| w == close);
            Some(found.map_or(bytes.len(), |n| body + n + close.len()))
        }
        Some(b'"') if hashes == 0 => Some(string_end(bytes, open)),
        Some(b'\'') if hashes == 0 => character_end(bytes, open),
        _ => None,
    }
}

/// The end of a character literal; `None` if the quote begins a lifetime.
fn character_end(bytes: &[u8], at: usize) -> Option<usize> {
    if bytes.get(at + 1) == Some(&b'\\') {
        let rest = bytes.get(at + 3..)?;
        return rest.iter().position(|&b| b == b'\'').map(|n| at + 4 + n);
    }
    // One character of up to four bytes, then the closing quote.
    let text = std::str::from_utf8(&bytes[at + 1..]).ok()?;
    let first = text.chars().next()?;
    (bytes.get(at + 1 + first.len_utf8()) == Some(&b'\'')).then(|| at + 2 + first.len_utf8())
}

/// A word of the program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Word<'a> {
    pub(crate) text: &'a str,
    /// Line, from 1.
    pub(crate) line: usize,
    /// Whether it is next to `::`, and so may name something of another crate.
    pub(crate) in_path: bool,
    /// Whether `!` follows, which makes it a macro's name.
    pub(crate) is_macro: bool,
}

/// The words of blanked code, without those of `use` declarations.
pub(crate) fn words(code: &str) -> Vec<Word<'_>> {
    let bytes = code.as_bytes();
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b >= 0x80;
    let (mut words, mut at, mut line, mut in_use) = (Vec::new(), 0, 1, false);
    while at < bytes.len() {
        if !is_word(bytes[at]) {
            line += usize::from(bytes[at] == b'\n');
            in_use &= bytes[at] != b';';
            at += 1;
            continue;
        }
        let end = bytes[at..].iter().position(|&b| !is_word(b)).map_or(bytes.len(), |n| at + n);
        let text = &code[at..end];
        in_use |= text == "use";
        if !in_use {
            let in_path = code[..at].ends_with("::") || code[end..].starts_with("::");
            let is_macro = code[end..].starts_with('!') && !code[end..].starts_with("!=");
            words.push(Word { text, line, in_path, is_macro });
        }
        at = end;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<String> {
        words(&code(source)).into_iter().map(|w| w.text.to_owned()).collect()
    }

    #[test]
    fn comments_and_literals_are_no_words() {
        let source = r####"
            let a = "b \" c"; // d
            /* e /* f */ g */ let h = 'i'; let j = '\''; let k = b'l'; let m: &'n str = r#"o " p"#; let q = '\u{41}'; let ü = br"r";
        "####;
        assert_eq!(
            texts(source),
            ["let", "a", "let", "h", "let", "j", "let", "k", "let", "m", "n", "str", "let", "q", "let", "ü"]
        );
    }

    #[test]
    fn imports_are_no_words_and_paths_are_marked() {
        assert_eq!(texts("use std::{fs, process};\nuse a::b as c; d"), ["d"]);
        let code = code("std::process::exit(a);\nb != c!()");
        let words = words(&code);
        assert!(words[1].in_path && words[1].text == "process");
        assert_eq!((words[3].text, words[3].in_path, words[3].line), ("a", false, 1));
        assert_eq!((words[4].is_macro, words[5].is_macro, words[5].line), (false, true, 2));
    }

    #[test]
    fn literals_are_what_stands_between_quotes() {
        let source = "f(\"a_b\", 'c', /* \"d\" */ \"\", \"e\\n\"); // \"f\"\n\"g";
        let found: Vec<&str> = literals(source).into_iter().map(|(_, text)| text).collect();
        assert_eq!(found, ["a_b", ""]);
        assert_eq!(literals(source)[0].0, 2..7);
    }

    #[test]
    fn unfinished_text_ends_at_the_end() {
        for source in ["\"a", "/* a", "'", "r#\"a", "b'", "'\\", "a //"] {
            assert_eq!(code(source).len(), source.len(), "{source}");
        }
    }
}
