//! PTX whose registers are numbered relative to each other, which packs into three quarters of the bytes.
//!
//! The compiler numbers the registers of a kernel one after the other, so equal pieces of code have other numbers. Each
//! number is replaced by its difference from the last number of a register of that class: `%rd7` after `%rd5` becomes
//! `%rd+2`. `build.rs` does that (`relative` there), and checks that this file undoes it.

/// Puts the register numbers back. `None` for a text that no relative one stands for.
pub(crate) fn absolute(relative: &str) -> Option<String> {
    let mut text = String::with_capacity(relative.len() + relative.len() / 8);
    let mut last: Vec<(&str, i64)> = Vec::new();
    let mut rest = relative;
    while let Some(at) = rest.find('%') {
        let after = &rest[at + 1..];
        let class = &after[..after.bytes().take_while(u8::is_ascii_lowercase).count()];
        let end = at + 1 + class.len();
        text += &rest[..end];
        rest = &rest[end..];
        let sign = rest.bytes().next().filter(|sign| matches!(sign, b'+' | b'-'));
        let digits = rest.bytes().skip(1).take_while(u8::is_ascii_digit).count();
        let (Some(sign), 1..) = (sign, digits) else { continue };
        let size: i64 = rest[1..=digits].parse().ok()?;
        let step = if sign == b'-' { size.checked_neg()? } else { size };
        let number = match last.iter_mut().find(|(known, _)| *known == class) {
            Some((_, number)) => {
                *number = number.checked_add(step)?;
                *number
            }
            None => {
                last.push((class, step));
                step
            }
        };
        text += &number.to_string();
        rest = &rest[digits + 1..];
    }
    text += rest;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        let relative = "\tmad.lo.s32 \t%r+7, %r-2, %r+0, %rd+5;\n\tld.f64 %fd+1, [%rd-1+8];\n\tmov.u32 %r+3, %tid.x;\n\t.reg .b32 %r<9>;";
        let text =
            "\tmad.lo.s32 \t%r7, %r5, %r5, %rd5;\n\tld.f64 %fd1, [%rd4+8];\n\tmov.u32 %r8, %tid.x;\n\t.reg .b32 %r<9>;";
        assert_eq!(absolute(relative).as_deref(), Some(text));
        assert_eq!(absolute("100%").as_deref(), Some("100%"));
        assert_eq!(absolute("%r+99999999999999999999"), None);
        assert_eq!(absolute("%r+9223372036854775807 %r+1"), None);
    }
}
