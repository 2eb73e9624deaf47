//! Instants and durations in addresses and forms, and for people.

use chrono::DateTime;
use stroboscope_analysis::duration::{UNITS, exact, parse_ns};
use stroboscope_present::humanise::instant;
use stroboscope_reports::arguments::parse_moment;

/// Parses an instant of an address or a form.
pub(super) fn parse_instant(text: &str) -> Result<i64, String> {
    parse_moment(text).map_err(|forms| format!("{text:?} is not a time: {forms}"))
}

/// An instant of an address as a form shows it: one that is written in ns as people write it.
pub(super) fn readable_instant(text: &str) -> String {
    match text.parse::<i64>() {
        Ok(ns) if ns % 1_000 == 0 => instant(ns),
        Ok(ns) => DateTime::from_timestamp_nanos(ns)
            .format("%Y-%m-%d %H:%M:%S%.9f")
            .to_string(),
        Err(_) => text.to_owned(),
    }
}

/// A duration of an address as a form shows it: one that is written in ns with a unit.
pub(super) fn readable_duration(text: &str) -> String {
    text.parse().map_or_else(|_| text.to_owned(), exact)
}

/// Parses a duration of an address or a form, ns. A number without a unit is ns.
pub(super) fn parse_duration(text: &str) -> Result<u64, String> {
    let ns = text.trim().parse().ok().or_else(|| parse_ns(text));
    ns.ok_or_else(|| {
        format!("{text:?} is not a duration: write a number and a unit ({UNITS}), such as 2.5ms")
    })
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
    fn durations_and_instants_are_those_of_the_command_line() {
        assert_eq!(parse_duration("1500"), Ok(1_500));
        assert_eq!(parse_duration("1h30m"), Ok(5_400_000_000_000));
        assert!(parse_duration("1 fortnight").is_err());
        let ago = parse_instant("2h").unwrap() - parse_instant("1h").unwrap();
        assert!((ago + 3_600_000_000_000).abs() < 60_000_000_000, "{ago}");
    }
}
