//! Which of a list of names was meant by a word that is none of them.

/// The name that `word` may be a slip of, by its distance in single edits: at most one for each three letters. Case does not
/// count; of several the first.
///
/// ```
/// use spandrel_formats::nearest::nearest;
///
/// assert_eq!(nearest("poison2d", ["poisson1d", "poisson2d"]), Some("poisson2d"));
/// assert_eq!(nearest("unlike", ["poisson1d", "poisson2d"]), None);
/// ```
#[doc(alias = "did_you_mean")]
pub fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Longer words are no slips, and cost a square of their length.
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

/// ` (did you mean NAME?)`, or nothing.
pub(crate) fn suggestion<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, names).map_or_else(String::new, |name| format!(" (did you mean {name}?)"))
}
