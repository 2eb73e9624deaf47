//! Instants and durations in addresses, and for people.

use chrono::{DateTime, NaiveDateTime};

/// An instant for people: UTC, to the microsecond.
pub(super) fn instant(at_ns: i64) -> String {
    let at = DateTime::from_timestamp_nanos(at_ns);
    at.format("%Y-%m-%d %H:%M:%S%.6f").to_string()
}

/// An instant as it may stand in an address or a form.
pub(super) fn parse_instant(text: &str) -> Result<i64, String> {
    let text = text.trim();
    if let Ok(ns) = text.parse::<i64>() {
        return Ok(ns);
    }
    let plain = text.trim_end_matches(['Z', 'z']).replace('T', " ");
    let forms = ["%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M"];
    let parsed = forms
        .iter()
        .find_map(|form| NaiveDateTime::parse_from_str(&plain, form).ok());
    parsed
        .and_then(|at| at.and_utc().timestamp_nanos_opt())
        .ok_or_else(|| {
            format!(
                "{text:?} is no time: write ns since the Unix epoch, or UTC such as 2026-11-21 10:00:00.5"
            )
        })
}

/// What stands in an address, as a form shows it: an instant that is written in ns as people write it.
pub(super) fn readable_instant(text: &str) -> String {
    match text.parse::<i64>() {
        Ok(ns) if ns % 1_000 == 0 => instant(ns),
        Ok(ns) => DateTime::from_timestamp_nanos(ns)
            .format("%Y-%m-%d %H:%M:%S%.9f")
            .to_string(),
        Err(_) => text.to_owned(),
    }
}

/// The same of a duration that is written in ns.
pub(super) fn readable_duration(text: &str) -> String {
    let Ok(ns) = text.parse::<u64>() else {
        return text.to_owned();
    };
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

/// A duration as it may stand in an address or a form, in ns.
pub(super) fn parse_duration(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let per_unit = match unit.trim() {
        "" | "ns" => Some(1.0),
        "us" | "µs" | "μs" => Some(1e3),
        "ms" => Some(1e6),
        "s" => Some(1e9),
        "m" | "min" => Some(60e9),
        _ => None,
    };
    if let (Ok(ns), "" | "ns") = (number.parse::<u64>(), unit.trim()) {
        return Ok(ns);
    }
    let ns = number
        .parse::<f64>()
        .ok()
        .zip(per_unit)
        .map(|(n, per)| n * per);
    match ns.filter(|ns| *ns < 9e18) {
        Some(ns) => Ok(ns.round() as u64),
        None => Err(format!(
            "{text:?} is no duration: write a number and ns, us, ms or s, such as 2.5ms"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_show_what_people_write() {
        for ns in [
            0,
            7,
            1_000,
            133_352_143,
            2_500_000,
            1_000_000_000,
            12_345_678_901,
        ] {
            let shown = readable_duration(&ns.to_string());
            assert_eq!(parse_duration(&shown), Ok(ns), "{shown}");
        }
        assert_eq!(readable_duration("133352143"), "133.352143ms");
        assert_eq!(readable_duration("2ms"), "2ms");
        assert_eq!(
            readable_instant("1795309397123456789"),
            "2026-11-22 01:03:17.123456789"
        );
        assert_eq!(
            parse_instant(&readable_instant("1795309397123456789")),
            Ok(1_795_309_397_123_456_789)
        );
        assert_eq!(readable_instant("2026-11-21 10:00"), "2026-11-21 10:00");
        assert_eq!(readable_instant("soon"), "soon");
    }

    #[test]
    fn instants_are_read_as_they_are_written() {
        let at_ns = 1_795_309_397_123_456_000;
        assert_eq!(parse_instant(&instant(at_ns)), Ok(at_ns));
        assert_eq!(
            parse_instant("1795309397123456789"),
            Ok(1_795_309_397_123_456_789)
        );
        assert_eq!(parse_instant("1970-01-01T00:00:01Z"), Ok(1_000_000_000));
        assert_eq!(parse_instant("1970-01-01 00:01"), Ok(60_000_000_000));
        assert!(
            parse_instant("yesterday")
                .unwrap_err()
                .contains("yesterday")
        );
    }

    #[test]
    fn durations_have_units() {
        for (text, ns) in [
            ("2.5ms", 2_500_000),
            ("1500", 1500),
            ("18446744073709551615", u64::MAX),
            ("3 us", 3000),
            ("1µs", 1000),
            ("2s", 2_000_000_000),
        ] {
            assert_eq!(parse_duration(text), Ok(ns), "{text}");
        }
        for text in ["", "ms", "-1ms", "1 fortnight", "1e400s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
