//! Numbers and notes in sentences.

/// A number of things: one thing, or several. Thousands are grouped.
pub(crate) fn counted(n: usize, thing: &str) -> String {
    let digits = n.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    format!("{grouped} {thing}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_has_no_plural() {
        assert_eq!(counted(1, "iteration"), "1 iteration");
        assert_eq!(counted(0, "iteration"), "0 iterations");
        assert_eq!(counted(1_234_567, "row"), "1,234,567 rows");
    }
}
