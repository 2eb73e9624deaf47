//! Parses decimal numbers digit by digit: a 64-bit float cannot represent today's times exactly in
//! nanoseconds.

use std::borrow::Cow;

/// Maximum size of an exponent. A larger exponent counts as this one, because no time needs so many
/// digits.
const EXPONENT_MAX: i64 = 400;

/// Returns the whole part of a number such as `17.5`, `9.5e-05` or `1.79E+9`, and the digits after
/// its point. A whole part that does not fit into 64 bits becomes the largest value. Returns `None`
/// if the text is not such a number.
#[must_use]
pub fn decimal(text: &str) -> Option<(u64, Cow<'_, str>)> {
    let (mantissa, exponent) = match text.find(['e', 'E']) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !are_digits(whole) || !are_digits(fraction) {
        return None;
    }
    let number = |digits: &str| match digits {
        "" => 0,
        digits => digits.parse().unwrap_or(u64::MAX),
    };
    let Some(exponent) = exponent else {
        return Some((number(whole), Cow::Borrowed(fraction)));
    };
    let digits_of = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if digits_of.is_empty() || !are_digits(digits_of) {
        return None;
    }
    let size = digits_of.parse().unwrap_or(EXPONENT_MAX);
    let size = size.min(EXPONENT_MAX);
    let sign = if exponent.starts_with('-') { -1 } else { 1 };
    let digits = format!("{whole}{fraction}");
    let point = i64::try_from(whole.len()).ok()? + sign * size;
    let Ok(point) = usize::try_from(point) else {
        let zeros = usize::try_from(point.unsigned_abs()).ok()?;
        return Some((0, format!("{}{digits}", "0".repeat(zeros)).into()));
    };
    if point >= digits.len() {
        let zeros = "0".repeat(point - digits.len());
        return Some((number(&format!("{digits}{zeros}")), Cow::Borrowed("")));
    }
    let (whole, fraction) = digits.split_at(point);
    Some((number(whole), fraction.to_owned().into()))
}

/// Parses a whole number, even if it is written with a point or an exponent, such as `1.79e15`.
/// Returns `None` for other texts, and for numbers of 2⁶⁴ − 1 or more.
#[must_use]
pub fn whole_number(text: &str) -> Option<u64> {
    let (whole, fraction) = decimal(text)?;
    (whole < u64::MAX && fraction.bytes().all(|digit| digit == b'0')).then_some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_stay_what_they_are() {
        for (text, whole, fraction) in [
            ("17", 17, ""),
            ("17.50", 17, "50"),
            ("9.5e-05", 0, "000095"),
            ("1.79e9", 1_790_000_000, ""),
            ("1.790000000123456789e9", 1_790_000_000, "123456789"),
            ("1790000000.123456789e0", 1_790_000_000, "123456789"),
            ("1790000000123456789E-9", 1_790_000_000, "123456789"),
            ("5e+3", 5_000, ""),
            ("5e-1", 0, "5"),
            ("0e99999999999999999999", 0, ""),
            ("1e99999999999999999999", u64::MAX, ""),
            ("99999999999999999999", u64::MAX, ""),
        ] {
            assert_eq!(decimal(text), Some((whole, fraction.into())), "{text}");
        }
        for text in [
            "", ".5", "-1", "1e", "1e+", "1e1.5", "1e--5", "e5", "1.5.5", "0x10", "NaN",
        ] {
            assert_eq!(decimal(text), None, "{text}");
        }
        let tiny = decimal("1e-99999999999").map(|(whole, fraction)| (whole, fraction.len()));
        assert_eq!(tiny, Some((0, 400)));
        assert_eq!(whole_number("1.79e15"), Some(1_790_000_000_000_000));
        assert_eq!(whole_number("15.0"), Some(15));
        assert_eq!(whole_number("1.5"), None);
        assert_eq!(whole_number("1e300"), None);
    }
}
