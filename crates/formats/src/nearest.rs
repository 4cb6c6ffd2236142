//! Suggests the name from a list that an unknown word was meant to be.

/// The name of which `word` may be a misspelling, by edit distance: at most one edit per three letters. Case does not
/// count; among equals the first wins.
///
/// ```
/// use spandrel_formats::nearest::nearest;
///
/// assert_eq!(nearest("poison2d", ["poisson1d", "poisson2d"]), Some("poisson2d"));
/// assert_eq!(nearest("unlike", ["poisson1d", "poisson2d"]), None);
/// ```
#[doc(alias = "did_you_mean")]
pub fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Longer words are no misspellings, and the cost is quadratic in their length.
    const LONGEST: usize = 64;
    if word.len() > LONGEST {
        return None;
    }
    let word = word.to_ascii_lowercase();
    let distance = |name: &str| strsim::osa_distance(&word, &name.to_ascii_lowercase());
    let near = names.into_iter().map(|name| (distance(name), name));
    near.filter(|&(edits, name)| 3 * edits <= name.len().max(word.len()))
        .min_by_key(|&(edits, _)| edits)
        .map(|(_, name)| name)
}

/// Returns ` (did you mean NAME?)`, or an empty text.
pub(crate) fn suggestion<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, names).map_or_else(String::new, |name| format!(" (did you mean {name}?)"))
}
