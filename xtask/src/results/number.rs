//! Numbers in tables.

/// Three significant digits, without an exponent where that is readable.
pub(crate) fn digits(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    if !(1e-4..1e7).contains(&size) {
        return format!("{value:.2e}");
    }
    let before = size.log10().floor() as i32;
    format!("{value:.*}", (2 - before).max(0) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_are_kept() {
        let said: Vec<String> = [0.0, 3.44159, 60.45, 225.2, 4485.2, 0.00418, 1.5e9].into_iter().map(digits).collect();
        assert_eq!(said, ["0", "3.44", "60.5", "225", "4485", "0.00418", "1.50e9"]);
    }
}
