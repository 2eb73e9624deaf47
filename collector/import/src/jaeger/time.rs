//! Times and durations in the notations of Jaeger's forms.

use stroboscope_otlp::whole_number;

use crate::BadLine;
use crate::time::from_us;
use crate::time::{TimeUnit, duration_ns, rfc3339};

/// Parses an instant: µs since the Unix epoch, as a number or a text, or a date and time of RFC
/// 3339.
///
/// # Errors
/// Fails if the text is neither, or out of range.
pub(super) fn instant_ns(field: &'static str, raw: &str) -> Result<i64, BadLine> {
    match number_or_text(raw)? {
        Ok(us) => from_us(field, us),
        Err(text) => {
            let ns = rfc3339(&text).filter(|ns| *ns >= 0);
            ns.ok_or_else(|| no_time(&text, "microseconds, or a date and time of RFC 3339"))
        }
    }
}

/// Parses a duration: µs, or numbers with units as Go and protobuf write them: `22938000ns`,
/// `1m2.5s`. An empty text is 0.
///
/// # Errors
/// Fails if the text is neither, or out of range.
pub(super) fn length_ns(raw: &str) -> Result<i64, BadLine> {
    let text = match number_or_text(raw)? {
        Ok(us) => return from_us("duration", us),
        Err(text) => text,
    };
    let refused = || no_time(&text, "microseconds, or numbers with units as in `1m2.5s`");
    let (mut rest, mut total_ns) = (&*text, 0i64);
    while !rest.is_empty() {
        let is_digit = |c: char| c.is_ascii_digit() || c == '.';
        let digits = rest.find(|c: char| !is_digit(c)).ok_or_else(refused)?;
        let (number, after) = rest.split_at(digits);
        let (unit, after) = after.split_at(after.find(is_digit).unwrap_or(after.len()));
        let (unit, times) = match unit {
            "ns" => (TimeUnit::Ns, 1),
            "us" | "µs" | "μs" => (TimeUnit::Us, 1),
            "ms" => (TimeUnit::Ms, 1),
            "s" => (TimeUnit::S, 1),
            "m" => (TimeUnit::S, 60),
            "h" => (TimeUnit::S, 3_600),
            _ => return Err(refused()),
        };
        let part_ns = duration_ns(number, unit)?.checked_mul(times);
        let sum_ns = part_ns.and_then(|part| total_ns.checked_add(part));
        total_ns = sum_ns.ok_or_else(refused)?;
        rest = after;
    }
    Ok(total_ns)
}

fn no_time(text: &str, expected: &str) -> BadLine {
    BadLine::NoTimeOf {
        text: text.chars().take(60).collect(),
        expected: expected.to_owned(),
    }
}

/// Returns a whole number, even if it is written as a text. Returns any other text as the inner
/// error. Fails for any other JSON value.
fn number_or_text(raw: &str) -> Result<Result<u64, String>, BadLine> {
    let is_text = raw.starts_with('"');
    let wrong =
        |error: serde_json::Error| BadLine::Json(stroboscope_otlp::without_line_number(&error));
    if let Some(number) = whole_number(raw.trim_matches('"')) {
        return Ok(Ok(number));
    }
    if !is_text {
        return serde_json::from_str(raw).map(Ok).map_err(wrong);
    }
    let text: String = serde_json::from_str(raw).map_err(wrong)?;
    Ok(Err(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_all_forms() {
        let instant = |raw: &str| instant_ns("startTime", raw).map_err(|reason| reason.to_string());
        for raw in [
            "1485467191639875",
            "\"1485467191639875\"",
            "1.485467191639875e15",
            "\"2017-01-26T16:46:31.639875-05:00\"",
        ] {
            assert_eq!(instant(raw), Ok(1_485_467_191_639_875_000), "{raw}");
        }
        assert!(
            instant("\"soon\"")
                .unwrap_err()
                .contains("`soon` is not a time")
        );
        assert!(instant("-1").unwrap_err().contains("integer `-1`"));
        let length = |raw: &str| length_ns(raw).map_err(|reason| reason.to_string());
        for (raw, ns) in [
            ("5", 5_000),
            ("\"5\"", 5_000),
            ("\"22938000ns\"", 22_938_000),
            ("\"0.022938s\"", 22_938_000),
            ("\"1m2.5s\"", 62_500_000_000),
            ("\"1.5µs\"", 1_500),
            ("\"2h\"", 7_200_000_000_000),
        ] {
            assert_eq!(length(raw), Ok(ns), "{raw}");
        }
        for raw in [
            "\"5 apples\"",
            "\"s\"",
            "\"1.2.3s\"",
            "\"99999999999h\"",
            "{}",
            "\"-5s\"",
        ] {
            assert!(length(raw).is_err(), "{raw}");
        }
    }
}
