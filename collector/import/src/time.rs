//! Converts times in other systems' notations to ns since the Unix epoch.
//!
//! | text | interpretation |
//! |---|---|
//! | digits, perhaps with a fraction or an exponent (`1.79e9`): 100 million up to 10¹¹ | s |
//! | 10¹¹ up to 10¹⁴ | ms |
//! | 10¹⁴ up to 10¹⁷ | µs |
//! | 10¹⁷ and more | ns |
//! | a date and a time of RFC 3339, with `T` or a space between, `.` or `,` before the fraction | that time; in UTC if it has no offset |
//!
//! The size of a number thus determines its unit: as a time between March 1973 and the year 5138,
//! it fits exactly one of the four. A number below 100 million fits none and is rejected. The first
//! number of a source determines the unit of the source: a number of another unit is rejected,
//! because the writer can have meant only one. A given unit overrides these rules. Without one,
//! each number in `ts_ns` is in ns. After a `ts_ns` of 10¹⁷ or more (3 March 1973), a `ts_ns` below
//! 10¹⁷ is rejected, because it is probably in another unit.

use std::fmt::{self, Write as _};

use chrono::format::{Item, Parsed, StrftimeItems, parse};
use chrono::{DateTime, FixedOffset, NaiveDateTime, TimeZone as _};

use stroboscope_otlp::{BadSpan, decimal};

use super::BadLine;

/// Smallest number whose size determines its unit.
const RECOGNISED_MIN: u64 = 100_000_000;
/// 3 March 1973 in ns since the Unix epoch: a number of at least this size is certainly in ns.
const MODERN_NS: i64 = 100_000_000_000_000_000;

/// Unit of a number that is a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum TimeUnit {
    /// Seconds
    S,
    /// Milliseconds
    Ms,
    /// Microseconds
    Us,
    /// Nanoseconds
    Ns,
}

impl TimeUnit {
    const ALL: [Self; 4] = [Self::S, Self::Ms, Self::Us, Self::Ns];

    /// Returns the name in mapping files and on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::S => "s",
            Self::Ms => "ms",
            Self::Us => "us",
            Self::Ns => "ns",
        }
    }

    /// Returns the unit of this name; `None` if there is none.
    pub(super) fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| unit.name() == name)
    }

    fn digits_after_ns(self) -> u32 {
        match self {
            Self::S => 9,
            Self::Ms => 6,
            Self::Us => 3,
            Self::Ns => 0,
        }
    }

    /// Returns the unit that a time of this size must have; `None` if the number is too small.
    pub(super) fn of_size(whole: u64) -> Option<Self> {
        match whole {
            0..RECOGNISED_MIN => None,
            RECOGNISED_MIN..100_000_000_000 => Some(Self::S),
            100_000_000_000..100_000_000_000_000 => Some(Self::Ms),
            100_000_000_000_000..100_000_000_000_000_000 => Some(Self::Us),
            _ => Some(Self::Ns),
        }
    }
}

impl fmt::Display for TimeUnit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// Rule for parsing times.
#[derive(Clone, Debug, Default)]
pub(super) enum TimeRule {
    /// The module's table determines units and notations.
    #[default]
    Recognised,
    /// Times are numbers in this unit.
    Unit(TimeUnit),
    /// Times have the form of a pattern of strftime.
    Pattern(TimePattern),
}

/// A pattern of strftime that determines a whole instant.
#[derive(Clone, Debug)]
pub(super) struct TimePattern {
    text: String,
    items: Vec<Item<'static>>,
}

impl TimePattern {
    /// Parses a pattern; the error describes the defect.
    pub(super) fn new(text: &str) -> Result<Self, String> {
        let items = StrftimeItems::new(text).parse_to_owned();
        let items = items.map_err(|_| format!("`{text}` is not a pattern of strftime"))?;
        let pattern = Self {
            text: text.to_owned(),
            items,
        };
        let example = FixedOffset::east_opt(0)
            .and_then(|utc| utc.with_ymd_and_hms(2026, 1, 2, 13, 4, 5).single());
        let written = example.and_then(|example| {
            let mut written = String::new();
            let items = pattern.items.iter().map(writable);
            write!(written, "{}", example.format_with_items(items)).ok()?;
            Some(written)
        });
        match (written.and_then(|written| pattern.read(&written)), example) {
            (Some(ns), Some(example)) if Some(ns) == example.timestamp_nanos_opt() => Ok(pattern),
            _ => Err(format!(
                "`{text}` does not specify a whole instant; year, month, day, hour, minute and second are needed, as \
                 in `%Y-%m-%d %H:%M:%S%.f %z`"
            )),
        }
    }

    /// Parses a time, in UTC if the pattern has no offset. Returns ns since the Unix epoch, or
    /// `None` if the text does not match the pattern or the time is out of range.
    fn read(&self, text: &str) -> Option<i64> {
        let mut parsed = Parsed::new();
        parse(&mut parsed, text, self.items.iter()).ok()?;
        if let Ok(time) = parsed.to_datetime() {
            return time.timestamp_nanos_opt();
        }
        let time = parsed.to_naive_datetime_with_offset(0).ok()?;
        time.and_utc().timestamp_nanos_opt()
    }
}

/// Replaces `%#z` (an offset with or without minutes), which chrono can parse but not format, by
/// `%z`.
fn writable(item: &Item<'static>) -> Item<'static> {
    let read_only = StrftimeItems::new("%#z").next();
    let written = StrftimeItems::new("%z").next();
    match written {
        Some(written) if read_only.as_ref() == Some(item) => written,
        _ => item.clone(),
    }
}

/// Parser of the times of one source, which remembers the unit of the first number.
#[derive(Clone, Debug, Default)]
pub(super) struct Times {
    rule: TimeRule,
    /// Unit of the first number, and its line.
    recognised: Option<(TimeUnit, u64)>,
    /// Line of the first `ts_ns` of at least [`MODERN_NS`].
    modern: Option<u64>,
}

impl Times {
    pub(super) fn new(rule: TimeRule) -> Self {
        Self {
            rule,
            ..Self::default()
        }
    }

    /// Interprets the field `ts_ns` of line `line`: as ns, unless a unit was given. Fails if the
    /// time is out of range or, without a given unit, below [`MODERN_NS`] after one that was not.
    pub(super) fn ns(&mut self, value: u64, line: u64) -> Result<i64, BadLine> {
        if let TimeRule::Unit(unit) = self.rule {
            return scaled(value, "", unit).ok_or_else(|| out_of_range(value, unit));
        }
        let ns = i64::try_from(value).map_err(|_| BadLine::Time(value))?;
        if ns >= MODERN_NS {
            self.modern.get_or_insert(line);
        } else if let Some(first) = self.modern {
            return Err(BadLine::MixedTime {
                time: value.to_string(),
                unit: TimeUnit::of_size(value).map_or("no time", TimeUnit::name),
                first,
                first_unit: TimeUnit::Ns.name(),
            });
        }
        Ok(ns)
    }

    /// Parses a time in line `line`, by `self.rule`. Fails if the time has another form, another
    /// unit or no recognisable unit, or is out of range.
    pub(super) fn text(&mut self, text: &str, line: u64) -> Result<i64, BadLine> {
        let text = text.trim_ascii();
        let refused = |expected: String| BadLine::NoTimeOf {
            text: shortened(text),
            expected,
        };
        let (unit, whole, fraction) = match (&self.rule, decimal(text)) {
            (TimeRule::Pattern(pattern), _) => {
                let ns = pattern.read(text).filter(|ns| *ns >= 0);
                return ns.ok_or_else(|| refused(format!("`{}`", pattern.text)));
            }
            (TimeRule::Unit(unit), Some((whole, fraction))) => (*unit, whole, fraction),
            (TimeRule::Unit(unit), None) => return Err(refused(format!("a number in {unit}"))),
            (TimeRule::Recognised, Some((whole, fraction))) => {
                (self.recognise(whole, line)?, whole, fraction)
            }
            (TimeRule::Recognised, None) => {
                let ns = rfc3339(text).filter(|ns| *ns >= 0);
                let expected = "a number, or a date and time of RFC 3339";
                return ns.ok_or_else(|| refused(expected.to_owned()));
            }
        };
        scaled(whole, &fraction, unit).ok_or_else(|| out_of_range(whole, unit))
    }

    fn recognise(&mut self, whole: u64, line: u64) -> Result<TimeUnit, BadLine> {
        let Some(unit) = TimeUnit::of_size(whole) else {
            return Err(BadLine::NoUnit(whole));
        };
        match *self.recognised.get_or_insert((unit, line)) {
            (first_unit, first) if first_unit != unit => Err(BadLine::MixedTime {
                time: whole.to_string(),
                unit: unit.name(),
                first,
                first_unit: first_unit.name(),
            }),
            _ => Ok(unit),
        }
    }
}

/// Parses a duration, a number in `unit`, and returns ns.
pub(super) fn duration_ns(text: &str, unit: TimeUnit) -> Result<i64, BadLine> {
    let text = text.trim_ascii();
    let (whole, fraction) = decimal(text).ok_or_else(|| BadLine::NoTimeOf {
        text: shortened(text),
        expected: format!("a duration in {unit}"),
    })?;
    scaled(whole, &fraction, unit).ok_or_else(|| out_of_range(whole, unit))
}

fn out_of_range(value: u64, unit: TimeUnit) -> BadLine {
    BadLine::Span(BadSpan::TimeOutOfRange {
        field: "the time",
        value,
        unit: unit.name(),
    })
}

/// Converts to ns, and cuts off fractions of a nanosecond. Returns `None` if the result exceeds 63
/// bits.
fn scaled(whole: u64, fraction: &str, unit: TimeUnit) -> Option<i64> {
    let digits = unit.digits_after_ns() as usize;
    let kept = &fraction.as_bytes()[..fraction.len().min(digits)];
    let digits_of = |part: u64, digit: &u8| part * 10 + u64::from(digit - b'0');
    let part = kept.iter().fold(0, digits_of) * 10u64.pow((digits - kept.len()) as u32);
    let whole_ns = whole.checked_mul(10u64.pow(digits as u32))?;
    i64::try_from(whole_ns.checked_add(part)?).ok()
}

pub(super) fn rfc3339(text: &str) -> Option<i64> {
    let text = &text.replacen(',', ".", 1);
    if let Ok(time) = DateTime::parse_from_rfc3339(text) {
        return time.timestamp_nanos_opt();
    }
    let form = match text.as_bytes().get(10) {
        Some(b' ') => "%Y-%m-%d %H:%M:%S%.f",
        _ => "%Y-%m-%dT%H:%M:%S%.f",
    };
    let time = NaiveDateTime::parse_from_str(text, form).ok()?;
    time.and_utc().timestamp_nanos_opt()
}

/// Returns a text for an error message; a long one is cut after 60 characters and ends with `…`.
pub(super) fn shortened(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Converts microseconds to ns.
///
/// # Errors
/// Returns an error if the result does not fit into 63 bits.
pub(super) fn from_us(field: &'static str, time_us: u64) -> Result<i64, BadLine> {
    let us = i64::try_from(time_us).ok();
    let ns = us.and_then(|us| us.checked_mul(1_000));
    ns.ok_or(BadLine::Span(BadSpan::TimeOutOfRange {
        field,
        value: time_us,
        unit: "us",
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rule: &TimeRule, text: &str, expected: Result<i64, &str>) {
        let read = Times::new(rule.clone()).text(text, 1);
        match (read, expected) {
            (Ok(ns), Ok(expected)) => assert_eq!(ns, expected, "{text}"),
            (Err(reason), Err(part)) => {
                assert!(reason.to_string().contains(part), "{text}: {reason}");
            }
            (read, _) => panic!("{text}: {read:?}"),
        }
    }

    const NS: i64 = 1_767_322_800_123_456_789;

    #[test]
    fn units_are_recognised_by_size() {
        let rule = TimeRule::Recognised;
        check(&rule, "1767322800", Ok(1_767_322_800_000_000_000));
        check(&rule, "1767322800.123456789", Ok(NS));
        check(&rule, "1767322800.1234567899", Ok(NS));
        check(&rule, "1767322800123", Ok(1_767_322_800_123_000_000));
        check(&rule, "1767322800123.456789", Ok(NS));
        check(&rule, "1767322800123456", Ok(1_767_322_800_123_456_000));
        check(&rule, " 1767322800123456789 ", Ok(NS));
        // The bounds of each unit.
        check(&rule, "99999999", Err("does not determine its unit"));
        check(&rule, "100000000", Ok(100_000_000_000_000_000));
        check(&rule, "99999999999", Err("must be below 2^63")); // s in the year 5138
        check(&rule, "100000000000", Ok(100_000_000_000_000_000));
        check(&rule, "100000000000000", Ok(100_000_000_000_000_000));
        check(&rule, "100000000000000000", Ok(100_000_000_000_000_000));
        check(&rule, "9223372036854775807", Ok(i64::MAX));
        check(&rule, "9223372036854775808", Err("must be below 2^63"));
        check(&rule, "99999999999999999999999", Err("must be below 2^63"));
        for bad in ["", "-5", "1.7e", "1.2.3", "soon", ".5", "0x10", "１"] {
            check(
                &rule,
                bad,
                Err("expected a number, or a date and time of RFC 3339"),
            );
        }
    }

    #[test]
    fn dates_are_those_of_rfc_3339() {
        let rule = TimeRule::Recognised;
        for text in [
            "2026-01-02T03:00:00.123456789Z",
            "2026-01-02t03:00:00.123456789z",
            "2026-01-02 04:30:00.123456789+01:30",
            "2026-01-01T22:00:00,123456789-05:00",
            "2026-01-02T03:00:00.123456789",
            "2026-01-02 03:00:00,123456789",
        ] {
            check(&rule, text, Ok(NS));
        }
        for bad in [
            "2026-13-02T03:00:00Z",
            "2026-01-02",
            "2026-01-02T03:00:00+99:00",
            "1969-12-31T23:59:59Z",
            "9999-01-01T00:00:00Z",
        ] {
            check(&rule, bad, Err("is not a time"));
        }
    }

    #[test]
    fn a_given_unit_or_pattern_wins() {
        check(&TimeRule::Unit(TimeUnit::Ms), "5", Ok(5_000_000));
        check(&TimeRule::Unit(TimeUnit::Us), "1.5", Ok(1_500));
        check(
            &TimeRule::Unit(TimeUnit::S),
            "1767322800123",
            Err("1767322800123 s: times must be below"),
        );
        check(
            &TimeRule::Unit(TimeUnit::S),
            "2026-01-02T03:00:00Z",
            Err("expected a number in s"),
        );
        let pattern = |text: &str| TimeRule::Pattern(TimePattern::new(text).unwrap());
        check(
            &pattern("%d/%b/%Y:%H:%M:%S %z"),
            "02/Jan/2026:05:00:00 +0200",
            Ok(1_767_322_800_000_000_000),
        );
        check(
            &pattern("%Y-%m-%d %H:%M:%S%.f"),
            "2026-01-02 03:00:00.123456789",
            Ok(NS),
        );
        check(
            &pattern("%d/%b/%Y:%H:%M:%S %z"),
            "2026",
            Err("`2026` is not a time: expected `%d/%b/%Y:%H:%M:%S %z`"),
        );
        // An offset that may lack its minutes; chrono reads such a pattern, but cannot write it.
        check(
            &pattern("%Y-%m-%d %H:%M:%S %#z"),
            "2026-01-02 05:00:00 +02",
            Ok(1_767_322_800_000_000_000),
        );
        assert!(
            TimePattern::new("%H:%M:%S")
                .unwrap_err()
                .contains("does not specify a whole instant")
        );
        assert!(
            TimePattern::new("%Y-%Q")
                .unwrap_err()
                .contains("not a pattern of strftime")
        );
    }

    #[test]
    fn one_source_has_one_unit() {
        let mut times = Times::default();
        assert_eq!(
            times.text("1767322800123", 7),
            Ok(1_767_322_800_123_000_000)
        );
        assert_eq!(
            times.text("2026-01-02T03:00:00Z", 8),
            Ok(1_767_322_800_000_000_000)
        );
        let reason = times.text("1767322800", 9).unwrap_err().to_string();
        assert_eq!(
            reason,
            "the time 1767322800 looks like s, but the times since line 7 are ms"
        );
        let mut times = Times::default();
        assert_eq!(times.ns(5, 1), Ok(5));
        assert_eq!(times.ns(NS as u64, 2), Ok(NS));
        let reason = times.ns(1_767_322_800_123, 3).unwrap_err().to_string();
        assert_eq!(
            reason,
            "the time 1767322800123 looks like ms, but the times since line 2 are ns"
        );
        let mut times = Times::new(TimeRule::Unit(TimeUnit::Ms));
        assert_eq!(
            (times.ns(5, 1), times.ns(1_767_322_800_123, 2)),
            (Ok(5_000_000), Ok(1_767_322_800_123_000_000))
        );
        assert_eq!(duration_ns("0.012", TimeUnit::S), Ok(12_000_000));
        assert!(duration_ns("-1", TimeUnit::S).is_err());
    }
}
