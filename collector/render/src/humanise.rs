//! Formats durations, instants and shares for people.

use chrono::DateTime;

/// Formats a duration: whole nanoseconds below a microsecond, then about three digits and a unit,
/// and two units from two minutes on: `7ns`, `12.3ms`, `5min 20s`.
pub fn duration(ns: f64) -> String {
    let (scaled, unit) = match ns.abs() {
        ns_abs if ns_abs < 999.5 => return format!("{ns:.0}ns"),
        ns_abs if ns_abs < 999.5e3 => (ns / 1e3, "µs"),
        ns_abs if ns_abs < 999.5e6 => (ns / 1e6, "ms"),
        ns_abs if ns_abs < 120e9 => (ns / 1e9, "s"),
        _ => return long_duration(ns / 1e9),
    };
    three_digits(scaled) + unit
}

fn long_duration(seconds: f64) -> String {
    let sign = if seconds < 0.0 { "-" } else { "" };
    let seconds = seconds.abs().round() as u64;
    let (size, unit, smaller, smaller_unit) = match seconds {
        0..7_200 => (60, "min", 1, "s"),
        7_200..172_800 => (3_600, "h", 60, "min"),
        _ => (86_400, "d", 3_600, "h"),
    };
    let rounded = (seconds + smaller / 2) / smaller * smaller;
    let (whole, rest) = (rounded / size, rounded % size / smaller);
    format!("{sign}{whole}{unit} {rest}{smaller_unit}")
}

/// Formats a number with two decimals below 10, one decimal below 100, and none from there on.
pub(crate) fn three_digits(number: f64) -> String {
    let decimals = if number.abs() < 10.0 {
        2
    } else {
        usize::from(number.abs() < 100.0)
    };
    format!("{number:.decimals$}")
}

/// Formats an instant, in ns since the Unix epoch, as a UTC time to the microsecond.
pub fn instant(at_ns: i64) -> String {
    let at = DateTime::from_timestamp_nanos(at_ns);
    at.format("%Y-%m-%d %H:%M:%S%.6f").to_string()
}

/// Formats a duration for pages and pictures, with a space that does not break.
pub fn duration_spaced(ns: f64) -> String {
    spaced(&duration(ns))
}

/// Formats a duration on an axis, without trailing zeros after its point.
pub fn duration_tick(ns: f64) -> String {
    let text = duration(ns);
    let unit = text.find(char::is_alphabetic).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit);
    let number = match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number,
    };
    spaced(&format!("{number}{unit}"))
}

fn spaced(text: &str) -> String {
    if text.contains(' ') {
        return text.replace(' ', "\u{a0}");
    }
    let unit = text.find(char::is_alphabetic).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit);
    format!("{number}\u{a0}{unit}")
}

/// Formats a count. From 10,000 on, separates thousands by narrow no-break spaces.
pub fn count_spaced(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) && digits.len() > 4 {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// Formats a share in percent, with one decimal.
pub fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

/// Formats a count with its noun: `1 batch`, `2 batches`.
pub fn counted(count: u64, one: &str) -> String {
    if count == 1 {
        return format!("1 {one}");
    }
    let after_vowel = |stem: &str| stem.ends_with(['a', 'e', 'i', 'o', 'u']);
    match one.strip_suffix('y') {
        Some(stem) if !after_vowel(stem) => format!("{count} {stem}ies"),
        _ if ["s", "x", "ch", "sh"].iter().any(|end| one.ends_with(end)) => {
            format!("{count} {one}es")
        }
        _ => format!("{count} {one}s"),
    }
}

/// Returns `is` for a count of 1, else `are`.
pub fn are(count: u64) -> &'static str {
    if count == 1 { "is" } else { "are" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_for_people() {
        let check = |ns: f64, text: &str| assert_eq!(duration(ns), text);
        check(0.0, "0ns");
        check(999.0, "999ns");
        check(1_234.0, "1.23µs");
        check(12_345_678.0, "12.3ms");
        check(123_456_789.0, "123ms");
        check(999_999.0, "1.00ms");
        check(1.5e9, "1.50s");
        check(119.9e9, "120s");
        check(-125e9, "-2min 5s");
        check(7_788e9, "2h 10min");
        check(200_000e9, "2d 8h");
    }

    #[test]
    fn one_is_not_several() {
        let check = |count: u64, one: &str, text: &str| assert_eq!(counted(count, one), text);
        check(1, "window", "1 window");
        check(0, "window", "0 windows");
        check(2, "batch", "2 batches");
        check(1, "process", "1 process");
        check(3, "process", "3 processes");
        check(2, "category", "2 categories");
        check(2, "key", "2 keys");
        check(1, "complete trace", "1 complete trace");
        assert_eq!([are(0), are(1), are(2)], ["are", "is", "are"]);
    }

    #[test]
    fn pages_have_spaces() {
        assert_eq!(duration_spaced(1_234.0), "1.23\u{a0}µs");
        assert_eq!(duration_tick(1e6), "1\u{a0}ms");
        assert_eq!(duration_tick(2.5e8), "250\u{a0}ms");
        assert_eq!(duration_tick(0.0), "0\u{a0}ns");
        assert_eq!(duration_tick(300e9), "5min\u{a0}0s");
        assert_eq!(count_spaced(1234), "1234");
        assert_eq!(count_spaced(1_234_567), "1\u{202f}234\u{202f}567");
    }
}
