//! Durations as text: `500us`, `2.5ms`, `1h30m`. Command-line flags, URLs, forms and Jaeger's
//! queries that take durations with units use this grammar. Formulas and TraceQL have the same
//! units, but only one number for each duration.

/// The accepted units, for error messages. The spellings of `us` with µ are left out.
pub const UNITS: &str = "ns, us, ms, s, m or min, h, d, w";

const UNITS_NS: [(&str, u64); 11] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000), // the Greek letter; the one above is the sign
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
    ("w", 604_800_000_000_000),
];

/// Returns the length of a unit in ns; `None` for an unknown unit.
#[must_use]
pub fn unit_ns(unit: &str) -> Option<u64> {
    let known = UNITS_NS.iter().find(|(name, _)| *name == unit);
    known.map(|&(_, ns)| ns)
}

/// Parses a duration to ns. The text is a sequence of numbers with units. The duration is their
/// sum, after each is rounded to whole ns. Returns `None` if the text has another form, or if the
/// duration exceeds [`u64::MAX`] ns, about 584 years.
#[must_use]
pub fn parse_ns(text: &str) -> Option<u64> {
    let (mut rest, mut sum) = (text.trim(), 0u64);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let is_number = |c: char| c.is_ascii_digit() || c == '.';
        let unit = rest.find(|c| !is_number(c))?;
        let (number, after) = rest.split_at(unit);
        let after = after.trim_start();
        let end = after.find(|c| is_number(c) || c == ' ');
        let (unit, after) = after.split_at(end.unwrap_or(after.len()));
        sum = sum.checked_add(scaled(number, unit_ns(unit)?)?)?;
        rest = after.trim_start();
    }
    Some(sum)
}

/// Converts a decimal number of a unit to ns. Rounds to the nearest ns, using the first 18 decimal
/// places. Floating point would be inexact beyond 53 bits.
fn scaled(number: &str, unit_ns: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let whole: u64 = match whole {
        "" => 0,
        whole => whole.parse().ok()?,
    };
    // Further digits are below 1 ns in any unit: a week has fewer than 10¹⁸ ns.
    let fraction = fraction.get(..18).unwrap_or(fraction);
    let parts: u128 = match fraction {
        "" => 0,
        fraction => fraction.parse::<u64>().ok()?.into(),
    };
    let of = 10u128.pow(u32::try_from(fraction.len()).ok()?);
    let fraction_ns = (parts * u128::from(unit_ns) + of / 2) / of;
    let fraction_ns = u64::try_from(fraction_ns).ok()?;
    whole.checked_mul(unit_ns)?.checked_add(fraction_ns)
}

/// Formats a duration such that [`parse_ns`] restores it exactly: `133.352143ms`.
#[must_use]
pub fn exact(ns: u64) -> String {
    let (per_unit, unit) = match ns {
        0..1_000 => (1, "ns"),
        1_000..1_000_000 => (1_000, "µs"),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    let (whole, rest) = (ns / per_unit, ns % per_unit);
    let digits = per_unit.ilog10() as usize;
    let fraction = format!("{rest:0digits$}");
    match fraction.trim_end_matches('0') {
        "" => format!("{whole}{unit}"),
        fraction => format!("{whole}.{fraction}{unit}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_numbers_with_units() {
        for (text, ns) in [
            ("2.5ms", 2_500_000),
            ("3 us", 3_000),
            ("1µs", 1_000),
            ("1μs", 1_000),
            ("2s", 2_000_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("0.4ns", 0),
            ("0.5ns", 1),
            ("1h30m", 5_400_000_000_000),
            ("1h 30min", 5_400_000_000_000),
            ("2w", 1_209_600_000_000_000),
            ("1d", 86_400_000_000_000),
            ("18446744073709551615ns", u64::MAX),
            ("0.1234567890123456789012345s", 123_456_789),
        ] {
            assert_eq!(parse_ns(text), Some(ns), "{text}");
        }
        for text in [
            "",
            " ",
            "ms",
            "7",
            "-1ms",
            "1 fortnight",
            "1e400s",
            ".s",
            "1..2s",
            "0.123456789012345678.5s",
            "1ms7",
            "18446744073709551616ns",
            "99999w",
            "1s-1ms",
            "+1s",
        ] {
            assert_eq!(parse_ns(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_exactly_is_read_back(ns: u64) {
            prop_assert_eq!(parse_ns(&exact(ns)), Some(ns));
        }

        #[test]
        fn any_text_is_read_or_refused(text: String) {
            let _ = parse_ns(&text);
        }
    }
}
