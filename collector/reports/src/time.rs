//! Instants, ranges of time, and durations as text, for flags, addresses and forms.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime, Utc};

use stroboscope_analysis::duration::parse_ns;
use stroboscope_query::TimeRange;

const DURATIONS: &str =
    "a number and a unit (ns, us, ms, s, min, h, d, w), such as 500us, 3ms, 10s, 1d, 1h30m";
const INSTANTS: &str = "a time such as 2026-11-21, 2026-11-21T10:00 (UTC), 2026-11-21T10:00:00+01:00, 10:00 (today, \
                        UTC), or how long ago, such as 10min, 1d, 2w";
/// Formats without an offset, which mean UTC, as in all output: hosts may be in several time zones.
const WITHOUT_OFFSET: [&str; 4] = [
    "%Y-%m-%dT%H:%M",
    "%Y-%m-%dT%H:%M:%S%.f",
    "%Y-%m-%d %H:%M",
    "%Y-%m-%d %H:%M:%S%.f",
];

/// Formats of a time today, in UTC.
const WITHOUT_DAY: [&str; 2] = ["%H:%M", "%H:%M:%S%.f"];

/// Parses a duration such as `500us`, `3ms`, `10s` or `1h30m`; rejects 0.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    match parse_ns(text) {
        Some(0) => Err("must be longer than nothing".to_owned()),
        Some(ns) => Ok(Duration::from_nanos(ns)),
        None => Err(DURATIONS.to_owned()),
    }
}

/// Formats an instant, in ns since the Unix epoch, for [`parse_instant`].
pub fn written(at_ns: i64) -> String {
    DateTime::from_timestamp_nanos(at_ns)
        .format("%Y-%m-%dT%H:%M:%S%.fZ")
        .to_string()
}

/// Formats the beginning, change and end of two periods to the millisecond. Rounds the end up, so
/// that no request at the end is left out.
pub fn written_periods([from_ns, at_ns, until_ns]: [i64; 3]) -> [String; 3] {
    const MS: i64 = 1_000_000;
    let until_ns = until_ns.saturating_add(MS - 1);
    [from_ns, at_ns, until_ns].map(|ns| written(ns.div_euclid(MS).saturating_mul(MS)))
}

/// Formats the time of a change in UTC. Includes the day, unless `until_ns` is on the same day.
pub fn since(at_ns: i64, until_ns: i64) -> String {
    let [at, last] = [at_ns, until_ns].map(DateTime::from_timestamp_nanos);
    let format = match at.date_naive() == last.date_naive() {
        true => "%H:%M:%S",
        false => "%Y-%m-%d %H:%M:%S",
    };
    at.format(format).to_string()
}

/// Parses an instant in the format of [`parse_instant`], or in ns since the Unix epoch.
pub fn parse_moment(text: &str) -> Result<i64, String> {
    parse_moment_before(text, now_ns()?)
}

/// Parses an instant like [`parse_moment`], but counts ages from `now_ns`.
pub fn parse_moment_before(text: &str, now_ns: i64) -> Result<i64, String> {
    text.trim().parse().or_else(|_| {
        parse_instant_before(text.trim(), now_ns).map_err(|instants| {
            format!(
                "a moment is a number of nanoseconds since the Unix epoch, such as 1795309397000000000 (`date +%s%N` \
                 prints it), or {instants}"
            )
        })
    })
}

/// Parses an instant to ns since the Unix epoch: a day, a time of a day or of today, in UTC unless
/// an offset is given, or an age.
pub fn parse_instant(text: &str) -> Result<i64, String> {
    parse_instant_before(text, now_ns()?)
}

fn now_ns() -> Result<i64, String> {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(since_epoch.unwrap_or_default().as_nanos()).map_err(|_| INSTANTS.to_owned())
}

fn parse_instant_before(text: &str, now_ns: i64) -> Result<i64, String> {
    if let Ok(ago) = parse_duration(text) {
        let ago_ns = i64::try_from(ago.as_nanos()).unwrap_or(i64::MAX);
        return Ok(now_ns.saturating_sub(ago_ns).max(0));
    }
    let naive = || {
        WITHOUT_OFFSET
            .iter()
            .find_map(|form| NaiveDateTime::parse_from_str(text, form).ok())
    };
    let day = || {
        NaiveDate::parse_from_str(text, "%Y-%m-%d")
            .ok()
            .and_then(|day| day.and_hms_opt(0, 0, 0))
    };
    let today = || {
        let time = WITHOUT_DAY
            .iter()
            .find_map(|form| NaiveTime::parse_from_str(text, form).ok())?;
        Some(Utc::now().date_naive().and_time(time))
    };
    let at = DateTime::parse_from_rfc3339(text)
        .map(|at| at.naive_utc())
        .ok()
        .or_else(naive)
        .or_else(day)
        .or_else(today)
        .ok_or(INSTANTS)?;
    at.and_utc()
        .timestamp_nanos_opt()
        .ok_or_else(|| "a time from 1677 to 2262".to_owned())
}

/// Parses a range `FROM..UNTIL` of two times; either may be omitted.
pub fn parse_range(text: &str) -> Result<TimeRange, String> {
    let (since, until) = text.split_once("..").ok_or("a range such as 2h..1h")?;
    let side = |text: &str| (!text.is_empty()).then(|| parse_instant(text)).transpose();
    in_order(TimeRange {
        since_ns: side(since)?,
        until_ns: side(until)?,
    })
    .map_err(|reversed| format!("FROM before UNTIL: {reversed}"))
}

/// Returns the range; an error if it has both ends and does not begin before it ends.
pub(crate) fn in_order(range: TimeRange) -> Result<TimeRange, String> {
    match (range.since_ns, range.until_ns) {
        (Some(since_ns), Some(until_ns)) if since_ns >= until_ns => {
            let [since, until] = [since_ns, until_ns].map(written);
            Err(format!("{since} is not before {until}"))
        }
        _ => Ok(range),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_days_times_or_how_long_ago() {
        let check = |text: &str, expected_ns: i64| {
            assert_eq!(parse_instant(text), Ok(expected_ns), "{text}");
        };
        check("1970-01-01T00:00:01.5Z", 1_500_000_000);
        check("1970-01-01T01:00:00+01:00", 0);
        check("1970-01-02", 86_400_000_000_000);
        check("1970-01-01T00:02", 120_000_000_000);
        check("1970-01-01 00:02", 120_000_000_000);
        check("1970-01-01 00:00:01Z", 1_000_000_000);
        check("1970-01-01T00:02:03.25", 123_250_000_000);
        let day_ns = 86_400_000_000_000;
        let today_ns = Utc::now().timestamp_nanos_opt().unwrap() / day_ns * day_ns;
        let of_today = parse_instant("10:30").unwrap() - today_ns;
        // `rem_euclid` covers a midnight that passes meanwhile.
        assert_eq!(of_today.rem_euclid(day_ns), 37_800_000_000_000);
        let now_ns = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_nanos() as i64;
        for (text, hours) in [("1h", 1), ("1d", 24), ("2w", 336)] {
            let ago_ns = now_ns - parse_instant(text).unwrap();
            let expected_ns = hours * 3_600_000_000_000;
            assert!(
                (ago_ns - expected_ns).abs() < 60_000_000_000,
                "{text}: {ago_ns}"
            );
        }
        for wrong in [
            "",
            "yesterday",
            "25:00",
            "17",
            "3000-01-01T00:00:00Z",
            "2026-13-01",
            "2026-11-22T25:00",
            "1y",
        ] {
            assert!(parse_instant(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn ranges_end_after_they_begin() {
        let range = TimeRange {
            since_ns: Some(0),
            until_ns: None,
        };
        assert_eq!(parse_range("1970-01-01T00:00:00Z.."), Ok(range));
        assert!(parse_range("2h").is_err() && parse_range("2h..1h").is_ok());
        for reversed in ["1h..2h", "1970-01-02..1970-01-02", "1970-01-03..1970-01-02"] {
            assert!(
                parse_range(reversed).is_err_and(|said| said.contains("is not before")),
                "{reversed}"
            );
        }
    }
}
