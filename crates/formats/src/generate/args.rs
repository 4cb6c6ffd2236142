//! Parses the text of a specification, `name:FIRST,key=value,...`. Errors say what would be right.

use std::str::FromStr;

use crate::nearest::suggestion;
use crate::{Error, Result};

/// The arguments of one specification. The first may come without a key.
pub(super) struct Args<'a> {
    spec: &'a str,
    syntax: &'static str,
    pairs: Vec<(&'static str, &'a str)>,
}

/// Splits `name:arguments`; a bare `name` has no arguments.
pub(super) fn split(spec: &str) -> (&str, &str) {
    spec.split_once(':').unwrap_or((spec, ""))
}

impl<'a> Args<'a> {
    /// Parses `spec`. A first argument without a key gets the key `first`. Keys outside `keys` are refused, except
    /// `seed`. Case does not matter in keys.
    pub(super) fn new(spec: &'a str, syntax: &'static str, first: &'static str, keys: &[&'static str]) -> Result<Self> {
        let known = || ["seed", first].into_iter().chain(keys.iter().copied());
        let mut args = Self { spec, syntax, pairs: Vec::new() };
        let (_, text) = split(spec);
        for (position, part) in text.split(',').enumerate() {
            if part.trim().is_empty() {
                if text.is_empty() {
                    break;
                }
                return Err(args.wrong("an argument is empty"));
            }
            let (key, value) = match part.split_once('=') {
                Some((key, value)) => (key.trim(), value.trim()),
                None if position == 0 => (first, part.trim()),
                None => return Err(args.wrong(format!("{part:?} has no key"))),
            };
            let Some(key) = known().find(|name| name.eq_ignore_ascii_case(key)) else {
                return Err(args.wrong(format!("there is no argument {key:?}{}", suggestion(key, known()))));
            };
            if args.pairs.iter().any(|&(known, _)| known == key) {
                return Err(args.wrong(format!("{key} is given twice")));
            }
            args.pairs.push((key, value));
        }
        Ok(args)
    }

    /// An error about this specification that says what would be right.
    pub(super) fn wrong(&self, why: impl std::fmt::Display) -> Error {
        Error::Spec { spec: self.spec.to_owned(), why: format!("{why}; write {}", self.syntax) }
    }

    fn get(&self, key: &str) -> Option<&'a str> {
        self.pairs.iter().find(|pair| pair.0 == key).map(|pair| pair.1)
    }

    fn parse<V: FromStr>(&self, key: &str, what: &str) -> Result<Option<V>> {
        self.get(key)
            .map(|text| text.parse().map_err(|_| self.wrong(format!("{key}={text} is not {what}"))))
            .transpose()
    }

    /// The number of `key`, at least `least`. If it is not given, `default`, or an error without a default.
    pub(super) fn count(&self, key: &'static str, least: usize, default: Option<usize>) -> Result<usize> {
        let Some(text) = self.get(key) else {
            return default.ok_or_else(|| self.wrong(format!("{key} is missing")));
        };
        self.count_of(key, text, least)
    }

    fn count_of(&self, key: &str, text: &str, least: usize) -> Result<usize> {
        let number = text.parse::<usize>().ok().or_else(|| {
            let number: f64 = text.parse().ok()?;
            (number.fract() == 0.0 && (0.0..=9e15).contains(&number)).then_some(number as usize)
        });
        let Some(number) = number else {
            let huge = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            return Err(
                self.wrong(format!("{key}={text} is {}", if huge { "too large" } else { "not a whole number" }))
            );
        };
        if number < least {
            return Err(self.wrong(format!("{key}={text} is below {least}")));
        }
        Ok(number)
    }

    /// The extents of `key` in `dims` dimensions: one number for all, or `AxB`, `AxBxC`. Missing dimensions are 1.
    pub(super) fn extents(&self, key: &'static str, dims: usize) -> Result<[usize; 3]> {
        let Some(text) = self.get(key) else {
            return Err(self.wrong("the size is missing"));
        };
        let parts: Vec<usize> =
            text.split(['x', 'X']).map(|part| self.count_of("size", part, 1)).collect::<Result<_>>()?;
        let mut size = [1; 3];
        match parts[..] {
            [n] => size[..dims].fill(n),
            _ if parts.len() == dims => size[..dims].copy_from_slice(&parts),
            _ => return Err(self.wrong(format!("size {text} has {} extents in {dims} dimensions", parts.len()))),
        }
        Ok(size)
    }

    /// The number of `key` inside `low..=high`. If it is not given, `default`, or an error without a default.
    pub(super) fn real(&self, key: &'static str, low: f64, high: f64, default: Option<f64>) -> Result<f64> {
        let number = match (self.parse::<f64>(key, "a number")?, default) {
            (Some(number), _) | (None, Some(number)) => number,
            (None, None) => return Err(self.wrong(format!("{key} is missing"))),
        };
        if !(low..=high).contains(&number) {
            return Err(self.wrong(format!("{key}={number} is outside {low}..{high}")));
        }
        Ok(number)
    }

    /// The index in `words` of the argument `key`; the first word if it is not given.
    pub(super) fn word(&self, key: &'static str, words: &[&'static str]) -> Result<usize> {
        let Some(text) = self.get(key) else {
            return Ok(0);
        };
        words
            .iter()
            .position(|word| word.eq_ignore_ascii_case(text))
            .ok_or_else(|| self.wrong(format!("{key}={text} is none of {}", words.join(", "))))
    }

    /// The seed; [`super::DEFAULT_SEED`] if none is given.
    pub(super) fn seed(&self) -> Result<u64> {
        Ok(self.parse("seed", "a whole number below 2^64")?.unwrap_or(super::DEFAULT_SEED))
    }
}
