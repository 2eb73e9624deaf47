//! Parsing and formatting of durations in addresses and forms.

use stroboscope_analysis::duration::{UNITS, exact, parse_ns};

/// Formats a duration from an address for a form. A plain number, which is in ns, gets a unit.
pub(super) fn readable_duration(text: &str) -> String {
    text.parse().map_or_else(|_| text.to_owned(), exact)
}

/// Parses a duration of an address or a form, in ns. A whole number without a unit is in ns.
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
    }

    #[test]
    fn durations_are_those_of_the_command_line() {
        assert_eq!(parse_duration("1500"), Ok(1_500));
        assert_eq!(parse_duration("1h30m"), Ok(5_400_000_000_000));
        assert!(parse_duration("1 fortnight").is_err());
    }
}
