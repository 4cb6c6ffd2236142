//! Reads the parameters of kernels from PTX, which has sizes and alignments, and from CUDA C++, which has names and
//! types.
//!
//! Of the preprocessor, the kernels use includes and macros, with `##` and `...`. All branches of `#if` are read,
//! because they differ only in bodies.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Parameters by the name of their kernel, with its type.
pub(super) type Signatures<P> = BTreeMap<String, Vec<P>>;

/// A parameter in PTX.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct InPtx {
    pub(super) size: usize,
    pub(super) align: usize,
    /// Whether it is an array of bytes, as structures are.
    pub(super) bytes: bool,
}

/// A parameter in CUDA C++.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct InSource {
    pub(super) name: String,
    /// Without qualifiers, `T*` for any pointer.
    pub(super) of: String,
}

/// The kernels of a PTX text.
pub(super) fn of_ptx(text: &str) -> Signatures<InPtx> {
    let entries = text.split("\n.visible .entry ").skip(1).map(|entry| {
        let (name, rest) = entry.split_once('(').expect("a list of parameters");
        let list = rest.split_once("\n)").map_or(rest, |(list, _)| list);
        let lines = list.lines().map(str::trim).filter_map(|line| line.strip_prefix(".param "));
        (name.trim().to_owned(), lines.map(ptx_parameter).collect())
    });
    entries.collect()
}

/// `.u64 NAME`, or `.align 8 .b8 NAME[40]`.
fn ptx_parameter(line: &str) -> InPtx {
    let number = |text: &str| text.parse::<usize>().unwrap_or_else(|_| panic!("no number in `.param {line}`"));
    let mut words = line.trim_end_matches(',').split_whitespace();
    let mut align = None;
    let mut of = words.next();
    if of == Some(".align") {
        align = words.next().map(number);
        of = words.next();
    }
    let of = of.expect("a type");
    let each = number(of.trim_start_matches(|c: char| !c.is_ascii_digit())) / 8;
    match line.split_once('[') {
        Some((_, rest)) => {
            let count = rest.split_once(']').map_or(rest, |(count, _)| count);
            InPtx { size: each * number(count), align: align.unwrap_or(each), bytes: true }
        }
        None => InPtx { size: each, align: align.unwrap_or(each), bytes: false },
    }
}

/// The kernels of `STEM.cu` in a folder.
pub(super) fn of_source(folder: &Path, stem: &str) -> Signatures<InSource> {
    let mut reader = Reader { folder, seen: BTreeSet::new(), macros: BTreeMap::new(), out: Vec::new() };
    reader.read(&folder.join(format!("{stem}.cu")));
    signatures(&reader.out)
}

/// The same of a text that includes nothing.
pub(super) fn of_text(text: &str) -> Signatures<InSource> {
    let mut reader = Reader { folder: Path::new(""), seen: BTreeSet::new(), macros: BTreeMap::new(), out: Vec::new() };
    reader.take(text);
    signatures(&reader.out)
}

struct Macro {
    /// `None` for a macro without a list.
    parameters: Option<Vec<String>>,
    body: Vec<String>,
}

struct Reader<'a> {
    folder: &'a Path,
    seen: BTreeSet<String>,
    macros: BTreeMap<String, Macro>,
    /// The tokens after preprocessing.
    out: Vec<String>,
}

impl Reader<'_> {
    fn read(&mut self, path: &Path) {
        let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        self.take(&text);
    }

    fn take(&mut self, text: &str) {
        let text = without_comments(text).replace("\\\n", " ");
        let mut run = Vec::new();
        for line in text.lines() {
            let Some(directive) = line.trim_start().strip_prefix('#') else {
                run.extend(tokens(line));
                continue;
            };
            // The macros known so far expand the text before a directive.
            self.flush(&mut run);
            let directive = directive.trim_start();
            if let Some(rest) = directive.strip_prefix("include") {
                if let Some(name) = rest.split('"').nth(1).filter(|name| self.seen.insert((*name).to_owned())) {
                    let path = self.folder.join("include").join(name);
                    self.read(&path);
                }
            } else if let Some(rest) = directive.strip_prefix("define ") {
                self.define(rest.trim_start());
            }
        }
        self.flush(&mut run);
    }

    fn flush(&mut self, run: &mut Vec<String>) {
        let expanded = self.expand(std::mem::take(run), &[]);
        self.out.extend(expanded);
    }

    fn define(&mut self, text: &str) {
        let len = text.find(|c: char| !is_word(c)).unwrap_or(text.len());
        let (name, rest) = text.split_at(len);
        // A list of parameters follows without a blank.
        let (parameters, body) = match rest.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
            Some((list, body)) => (Some(list.split(',').map(|name| name.trim().to_owned()).collect()), body),
            None => (None, rest),
        };
        self.macros.insert(name.to_owned(), Macro { parameters, body: tokens(body) });
    }

    /// The tokens with macros expanded, except those that are being expanded.
    fn expand(&self, mut from: Vec<String>, active: &[&str]) -> Vec<String> {
        let mut out = Vec::new();
        from.reverse();
        while let Some(token) = from.pop() {
            let known = self.macros.get_key_value(token.as_str()).filter(|(name, _)| !active.contains(&name.as_str()));
            let Some((name, known)) = known else {
                out.push(token);
                continue;
            };
            let replaced = match &known.parameters {
                None => known.body.clone(),
                Some(parameters) if from.last().is_some_and(|next| next == "(") => {
                    let given = arguments(&mut from);
                    self.substitute(parameters, &known.body, &given, active)
                }
                Some(_) => {
                    out.push(token);
                    continue;
                }
            };
            let inner: Vec<&str> = active.iter().copied().chain([name.as_str()]).collect();
            out.extend(self.expand(replaced, &inner));
        }
        out
    }

    fn substitute(
        &self,
        parameters: &[String],
        body: &[String],
        given: &[Vec<String>],
        active: &[&str],
    ) -> Vec<String> {
        let value = |token: &str| -> Option<Vec<String>> {
            if token == "__VA_ARGS__" {
                let rest = &given[parameters.len() - 1..];
                return Some(rest.join(&",".to_owned()));
            }
            let at = parameters.iter().position(|name| name == token)?;
            Some(given.get(at).cloned().unwrap_or_default())
        };
        let mut out: Vec<String> = Vec::new();
        let mut pasted = false;
        for (k, token) in body.iter().enumerate() {
            if token == "##" {
                pasted = true;
                continue;
            }
            let beside = pasted || body.get(k + 1).is_some_and(|next| next == "##");
            let mut tokens = match value(token) {
                Some(tokens) if beside => tokens,
                Some(tokens) => self.expand(tokens, active),
                None => vec![token.clone()],
            };
            if pasted && !tokens.is_empty() && !out.is_empty() {
                let first = tokens.remove(0);
                out.last_mut().expect("one").push_str(&first);
            }
            // After an empty argument, the next token is pasted.
            pasted = false;
            out.extend(tokens);
        }
        out
    }
}

/// The arguments of a call, from the tokens that follow, which are in reverse order.
fn arguments(from: &mut Vec<String>) -> Vec<Vec<String>> {
    let (mut given, mut depth) = (vec![Vec::new()], 0);
    while let Some(token) = from.pop() {
        match token.as_str() {
            "(" => depth += 1,
            ")" => depth -= 1,
            "," if depth == 1 => {
                given.push(Vec::new());
                continue;
            }
            _ => {}
        }
        if depth == 0 {
            return given;
        }
        if depth > 1 || token != "(" {
            given.last_mut().expect("one").push(token);
        }
    }
    panic!("a call of a macro does not end");
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn tokens(line: &str) -> Vec<String> {
    let (mut tokens, mut rest) = (Vec::new(), line.trim_start());
    while let Some(c) = rest.chars().next() {
        let len = if is_word(c) {
            rest.find(|c: char| !is_word(c)).unwrap_or(rest.len())
        } else if c == '"' {
            rest[1..].find('"').map_or(rest.len(), |end| end + 2)
        } else if rest.starts_with("##") {
            2
        } else {
            c.len_utf8()
        };
        tokens.push(rest[..len].to_owned());
        rest = rest[len..].trim_start();
    }
    tokens
}

fn without_comments(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let (code, comment) = line.split_once("//").map_or((line, ""), |(code, comment)| (code, comment));
        assert!(!code.contains("/*"), "comments are those of lines: {line}");
        out += code;
        // A comment in a macro would hide the rest of it.
        assert!(!comment.ends_with('\\'), "a comment goes on: {line}");
        out.push('\n');
    }
    out
}

/// The kernels among tokens.
fn signatures(tokens: &[String]) -> Signatures<InSource> {
    let mut found = Signatures::new();
    let mut at = 0;
    while let Some(next) = tokens[at..].iter().position(|token| token == "__global__") {
        at += next + 1;
        let (mut name, mut depth) = (String::new(), 0);
        let mut parameters: Vec<Vec<&str>> = Vec::new();
        while let Some(token) = tokens.get(at) {
            at += 1;
            match token.as_str() {
                "(" | "<" if depth > 0 => depth += 1,
                ")" | ">" if depth > 1 => depth -= 1,
                "(" => {
                    depth = 1;
                    parameters = vec![Vec::new()];
                    continue;
                }
                // The bounds of a launch are not parameters.
                ")" if name == "__launch_bounds__" => {
                    depth = 0;
                    continue;
                }
                ")" => break,
                "," if depth == 1 => {
                    parameters.push(Vec::new());
                    continue;
                }
                word if depth == 0 => {
                    word.clone_into(&mut name);
                    continue;
                }
                _ => {}
            }
            parameters.last_mut().expect("one").push(token);
        }
        let parameters: Vec<InSource> = parameters.iter().map(|tokens| parameter(tokens)).collect();
        if let Some(other) = found.get(&name) {
            assert_eq!(other, &parameters, "{name} is there twice");
        }
        found.insert(name, parameters);
    }
    found
}

/// `const T* x`, or `u64 n`.
fn parameter(tokens: &[&str]) -> InSource {
    const QUALIFIERS: [&str; 3] = ["const", "__restrict__", "__grid_constant__"];
    let words: Vec<&str> = tokens.iter().copied().filter(|token| !QUALIFIERS.contains(token)).collect();
    let (name, of) = words.split_last().expect("a name");
    let of = if of.last() == Some(&"*") { "T*".to_owned() } else { of.concat() };
    InSource { name: (*name).to_owned(), of }
}
