//! Paths of files: `spans/date=YYYY-MM-DD/hour=HH/NAME.parquet` (UTC).
//!
//! Rows of a log segment are partitioned by the hour in which they begin, and batches by the hour
//! of receipt, into files named `seg-NNNNNNNNNN`. The names depend only on the segment and the
//! hour, so replaying a segment after a crash overwrites its files and never duplicates rows. Rows
//! that begin long before or after their receipt (see [`PartitionRule`]) go to the hour of the
//! first receipt, so that no sender can spread a segment over a million directories.

use object_store::path::Path;

const HOUR_NS: i64 = 3_600_000_000_000;

/// Table of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StoreTable {
    /// Table of spans.
    Spans,
    /// Table of events of spans and of event logs, and of log lines.
    Events,
    /// Table of batches, with one row for each.
    Batches,
    /// Table of kernel events, recorded or imported.
    Kernel,
    /// Table of provenance logs of requests, in pieces.
    Provenance,
}

impl StoreTable {
    pub const ALL: [Self; 5] = [
        Self::Spans,
        Self::Events,
        Self::Batches,
        Self::Kernel,
        Self::Provenance,
    ];

    /// List of the tables from which models of traces are inferred.
    pub const OF_TRACES: [Self; 3] = [Self::Spans, Self::Events, Self::Batches];

    /// List of the tables that segments of the log are converted to.
    pub const OF_SEGMENTS: [Self; 4] = [Self::Spans, Self::Events, Self::Batches, Self::Provenance];

    /// List of the tables whose rows belong to requests by their trace ids.
    pub const OF_REQUESTS: [Self; 3] = [Self::Spans, Self::Events, Self::Provenance];

    /// Returns the column with the times at which rows begin; `None` for tables that are not
    /// selected by time.
    pub(super) fn time_column(self) -> Option<&'static str> {
        match self {
            Self::Spans => Some("start_ns"),
            Self::Events => Some("time_ns"),
            Self::Batches | Self::Kernel | Self::Provenance => None,
        }
    }

    /// Returns the name of the table, which is also the name of its directory.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Spans => "spans",
            Self::Events => "events",
            Self::Batches => "batches",
            Self::Kernel => "kernel",
            Self::Provenance => "provenance",
        }
    }
}

/// Hour of UTC, counted from the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hour(i64);

impl Hour {
    /// Returns the hour that contains `time_ns` (ns since the Unix epoch).
    #[must_use]
    pub fn of(time_ns: i64) -> Self {
        Self(time_ns.div_euclid(HOUR_NS))
    }

    /// Formats the hour's directory: `date=YYYY-MM-DD/hour=HH`.
    #[must_use]
    pub fn directory(self) -> String {
        let (year, month, day) = civil_date(self.0.div_euclid(24));
        let hour = self.0.rem_euclid(24);
        format!("date={year:04}-{month:02}-{day:02}/hour={hour:02}")
    }

    /// Parses the hour from a directory of the form that [`Hour::directory`] returns; `None` for
    /// others.
    #[must_use]
    pub fn of_directory(directory: &str) -> Option<Self> {
        let (date, hour) = directory.strip_prefix("date=")?.split_once("/hour=")?;
        // With more bits, the number of the hour could overflow.
        let number = |digits: &str| digits.parse::<i32>().ok().map(i64::from);
        let mut parts = date.rsplitn(3, '-').map(number);
        let (day, month, year) = (parts.next()?, parts.next()?, parts.next()?);
        let found = Self(day_number(year?, month?, day?) * 24 + number(hour)?);
        (found.directory() == directory).then_some(found)
    }

    /// Parses the hour from the path of an object, `TABLE/date=…/hour=…/NAME`; `None` for other
    /// paths.
    #[must_use]
    pub fn of_object(path: &str) -> Option<Self> {
        let (_table, below) = path.split_once('/')?;
        Self::of_directory(below.rsplit_once('/')?.0)
    }

    /// Returns the start of the hour, in ns since the Unix epoch.
    #[must_use]
    pub fn begin_ns(self) -> i64 {
        self.0.saturating_mul(HOUR_NS)
    }

    /// Returns the exclusive end of the hour, in ns since the Unix epoch.
    #[must_use]
    pub fn end_ns(self) -> i64 {
        (self.0 + 1).saturating_mul(HOUR_NS)
    }

    /// Returns the path of the object `name` of `table` in this hour.
    #[must_use]
    pub fn path(self, table: StoreTable, name: &str) -> Path {
        let (table, directory) = (table.name(), self.directory());
        Path::from(format!("{table}/{directory}/{name}.parquet"))
    }
}

/// Converts a number of days since 1970-01-01 to year, month and day of the Gregorian calendar
/// (Howard Hinnant's `civil_from_days`).
fn civil_date(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_shifted + 2) / 5 + 1;
    let month = (month_shifted + 2) % 12 + 1;
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Converts year, month and day to the number of days since 1970-01-01, the inverse of
/// [`civil_date`] (`days_from_civil`).
fn day_number(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Rule that assigns rows to hourly partitions.
#[derive(Clone, Copy, Debug)]
pub struct PartitionRule {
    from_ns: i64,
    to_ns: i64,
    otherwise: Hour,
}

impl PartitionRule {
    /// Returns the rule for rows received from `first_ns` to `last_ns` (ns since the Unix epoch).
    /// Rows that begin at most a day before or less than an hour after that time go to their own
    /// hour. Other rows go to the hour of `first_ns`.
    #[must_use]
    pub fn received(first_ns: i64, last_ns: i64) -> Self {
        let from_ns = first_ns.saturating_sub(24 * HOUR_NS);
        Self {
            from_ns,
            to_ns: last_ns.saturating_add(HOUR_NS),
            otherwise: Hour::of(first_ns),
        }
    }

    /// Returns the rule for imported rows. Rows that begin at `first_ns` or later go to their own
    /// hour. Earlier rows go to the hour of `first_ns`.
    #[must_use]
    pub fn imported(first_ns: i64) -> Self {
        Self {
            from_ns: first_ns,
            to_ns: i64::MAX,
            otherwise: Hour::of(first_ns),
        }
    }

    /// Returns the hour for a row that begins at `time_ns`.
    #[must_use]
    pub fn hour(&self, time_ns: i64) -> Hour {
        if (self.from_ns..self.to_ns).contains(&time_ns) {
            Hour::of(time_ns)
        } else {
            self.otherwise
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_are_named_in_utc() {
        let check = |seconds: i64, directory: &str| {
            let hour = Hour::of(seconds * 1_000_000_000);
            assert_eq!(hour.directory(), directory);
            assert_eq!(Hour::of_directory(directory), Some(hour));
            assert_eq!(Hour::of(hour.end_ns() - 1), hour);
        };
        check(0, "date=1970-01-01/hour=00");
        check(-1, "date=1969-12-31/hour=23");
        check(951_782_399, "date=2000-02-28/hour=23");
        check(951_782_400, "date=2000-02-29/hour=00");
        check(1_767_225_599, "date=2025-12-31/hour=23");
        check(1_767_322_800, "date=2026-01-02/hour=03");
        check(4_107_542_400, "date=2100-03-01/hour=00");
        assert_eq!(Hour::of(i64::MAX).directory(), "date=2262-04-11/hour=23");
        for other in [
            "date=2026-01-32/hour=00",
            "date=2026-01-02/hour=24",
            "date=2026-1-2/hour=0",
            "date=9223372036854775807-01-02/hour=03",
            "date=2026-9223372036854775807-02/hour=03",
            "date=2026-01-9223372036854775807/hour=03",
            "date=2026-01-02/hour=9223372036854775807",
            "hour=00",
            "",
        ] {
            assert_eq!(Hour::of_directory(other), None, "{other}");
        }
    }

    #[test]
    fn odd_clocks_are_partitioned_by_receipt() {
        let received = 1_767_322_800_000_000_000;
        let rule = PartitionRule::received(received, received + 10);
        for odd in [0, i64::MAX, received - 25 * HOUR_NS, received + 2 * HOUR_NS] {
            assert_eq!(rule.hour(odd), Hour::of(received));
        }
        assert_eq!(
            rule.hour(received - 2 * HOUR_NS),
            Hour::of(received - 2 * HOUR_NS)
        );
    }
}
