//! Time range and root operation of a page, from its address: `since`, `until` and `root`, written
//! as on the command line. Relative times count back from the newest request, so that `since=15min`
//! shows the last minutes of a store that no longer receives data.

use std::ops::Range;

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use stroboscope_query::{Selection, TimeRange};
use stroboscope_render::page::{CarriedParameters, Html, PagedRows};
use stroboscope_reports::arguments::parse_duration;
use stroboscope_reports::time::{parse_moment_before, written};
use tokio::runtime::Handle;
use url::form_urlencoded::{Serializer, parse};

use crate::site::Site;

/// Parameters that each hold a period to compare.
const PERIODS: [&str; 2] = ["before", "after"];

/// Parameter for the number of rows in tables.
const ROWS: &str = PagedRows::PARAMETER;

/// Time range and root operation of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scope {
    pub(crate) since: String,
    pub(crate) until: String,
    pub(crate) root: String,
    /// Maximum number of rows of each table, from the links below longer tables: `usize::MAX` for
    /// as many as a page can have, `None` for the default number.
    pub(crate) rows: Option<usize>,
    /// The other parameters of the address that have a value.
    pub(crate) others: Vec<(String, String)>,
    pub(crate) carried: CarriedParameters,
}

impl<S: Sync> FromRequestParts<S> for Scope {
    type Rejection = (StatusCode, String);

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let scope = Self::of(parts.uri.query().unwrap_or_default());
        scope.map_err(|wrong| (StatusCode::BAD_REQUEST, wrong + "\n"))
    }
}

impl Scope {
    /// Reads the scope from the query of an address. Returns an error that names a parameter whose
    /// value is too long.
    pub(crate) fn of(query: &str) -> Result<Self, String> {
        let carried = CarriedParameters::of(query)?;
        let others = parse(query.as_bytes()).map(|(name, value)| {
            let value = value.trim().to_owned();
            (name.into_owned(), value)
        });
        Ok(Self {
            since: readable(carried.value("since")),
            until: readable(carried.value("until")),
            root: carried.value("root").to_owned(),
            others: others
                .filter(|(name, value)| !value.is_empty() && !is_of_scope(name))
                .collect(),
            rows: PagedRows::of(query, "").rows,
            carried,
        })
    }

    /// Returns the root operation that selects requests; `None` for all requests.
    pub(crate) fn root(&self) -> Option<String> {
        Some(self.root.clone()).filter(|root| !root.is_empty())
    }

    /// Returns time range and root operation as parameters of an address.
    pub(crate) fn parameters(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let all = [
            ("since", &*self.since),
            ("until", &*self.until),
            ("root", &*self.root),
        ];
        all.into_iter().filter(|(_, value)| !value.is_empty())
    }

    /// Writes hidden form fields that send time range and root operation along.
    pub(crate) fn hidden(&self, html: &mut Html) {
        for (name, value) in self.parameters() {
            html.hidden(name, value);
        }
    }

    /// Returns time range and root operation as the query of an address.
    pub(crate) fn query(&self) -> String {
        let mut form = Serializer::new(String::new());
        form.extend_pairs(self.parameters()).finish()
    }

    /// Returns the key of an answer for this scope.
    pub(crate) fn key(&self, of: &str) -> String {
        self.key_of_rows(&format!("{of} {}", self.query()))
    }

    /// Returns the key of an answer that depends on `of` and on the maximum number of table rows,
    /// but on no other part of the scope.
    pub(crate) fn key_of_rows(&self, of: &str) -> String {
        let rows = self.rows.map(|rows| format!(" {ROWS} {rows}"));
        format!("{of}{}", rows.unwrap_or_default())
    }

    /// Returns the address of `path` with this scope's number of table rows.
    pub(crate) fn with_rows(&self, path: &str) -> String {
        match self.rows {
            None => path.to_owned(),
            Some(usize::MAX) => format!("{path}?{ROWS}=all"),
            Some(rows) => format!("{path}?{ROWS}={rows}"),
        }
    }

    /// Returns the range, with relative times counted back from `newest_ns`. Returns an error if
    /// the range is invalid, or has a relative time and `newest_ns` is `None`.
    pub(crate) fn range(&self, newest_ns: Option<i64>) -> Result<TimeRange, String> {
        in_order(self.ends(newest_ns)?)
    }

    fn ends(&self, newest_ns: Option<i64>) -> Result<TimeRange, String> {
        let end = |name: &str, text: &str| match text {
            "" => Ok(None),
            text => {
                let newest_ns = newest_for(text, newest_ns)?;
                let end_ns = parse_moment_before(text, newest_ns);
                let wrong = |forms| format!("{name} {text:?} is not a time: {forms}");
                end_ns.map(Some).map_err(wrong)
            }
        };
        Ok(TimeRange {
            since_ns: end("since", &self.since)?,
            until_ns: end("until", &self.until)?,
        })
    }

    /// Reports whether the address has a period to compare that is written as a range (`..`).
    pub(crate) fn has_period(&self) -> bool {
        let mut others = self.others.iter();
        others.any(|(name, value)| PERIODS.contains(&&**name) && value.contains(".."))
    }

    /// Returns those periods to compare that are ranges of times, with their names.
    pub(crate) fn periods(&self, newest_ns: i64) -> Vec<(&str, Range<i64>)> {
        let end = |text: &str, open_ns: i64| match text {
            "" => Some(open_ns),
            text => parse_moment_before(text, newest_ns).ok(),
        };
        let period = |name: &str, value: &str| {
            let (from, until) = value.split_once("..").filter(|_| PERIODS.contains(&name))?;
            Some(end(from, i64::MIN)?..end(until, i64::MAX)?)
        };
        let others = self.others.iter();
        others
            .filter_map(|(name, value)| Some((&**name, period(name, value)?)))
            .collect()
    }

    /// Checks the ends of the range, and their order unless it depends on the newest request.
    /// Returns an error if they are invalid.
    pub(crate) fn check(&self) -> Result<(), String> {
        // This time is so late that relative times of up to 146 years lie after the Unix epoch.
        let range = self.ends(Some(i64::MAX / 2))?;
        match is_ago(&self.since) == is_ago(&self.until) {
            true => in_order(range).map(drop),
            // If one end is relative and one is not, their order depends on the newest request.
            false => Ok(()),
        }
    }

    /// Reports whether either end of the range is a relative time.
    pub(crate) fn is_relative(&self) -> bool {
        is_ago(&self.since) || is_ago(&self.until)
    }

    /// Returns the selection of the range's requests. Blocks; not for async code.
    pub(crate) fn selection(&self, site: &Site, runtime: &Handle) -> Result<Selection, String> {
        let newest_ns = match self.is_relative() {
            true => newest_ns(site, runtime),
            false => None,
        };
        Ok(Selection {
            range: self.range(newest_ns)?,
            ..Selection::default()
        })
    }

    /// Returns the arguments of a report with relative times and nanoseconds replaced by dates, or
    /// an error if a relative time has no newest request to count back from. Keeps other texts,
    /// even invalid ones. Blocks; not for async code.
    pub(crate) fn fixed(
        asked: &[(String, String)],
        site: &Site,
        runtime: &Handle,
    ) -> Result<Vec<(String, String)>, String> {
        let fixed = |text: &str| match is_ago(text) {
            true => {
                let newest_ns = newest_for(text, newest_ns(site, runtime))?;
                parse_moment_before(text, newest_ns).map(written)
            }
            false => Ok(readable(text)),
        };
        let value = |name: &str, value: &str| match (name, value.split_once("..")) {
            ("since" | "until", _) => fixed(value),
            ("burst", _) if is_ago(value) => fixed(value),
            (name, Some((from, until))) if name == "equal" || PERIODS.contains(&name) => {
                Ok(format!("{}..{}", fixed(from)?, fixed(until)?))
            }
            _ => Ok(value.to_owned()),
        };
        let pairs = asked.iter();
        pairs
            .map(|(name, text)| Ok((name.clone(), value(name, text)?)))
            .collect()
    }
}

/// Reports whether a parameter belongs to the scope: time range, root operation or table rows.
pub(crate) fn is_of_scope(name: &str) -> bool {
    ["since", "until", "from", "to", "root", ROWS].contains(&name)
}

/// Returns the start of the newest request that [`Site::rate`] counts, in ns since the Unix epoch;
/// `None` if there is none, or if the store cannot be read.
fn newest_ns(site: &Site, runtime: &Handle) -> Option<i64> {
    site.rate(runtime)?.newest_ns
}

/// Returns the instant from which a relative time counts back, in ns since the Unix epoch. Returns
/// an error if `text` is a relative time and `newest_ns` is `None`.
fn newest_for(text: &str, newest_ns: Option<i64>) -> Result<i64, String> {
    match newest_ns {
        None if is_ago(text) => Err(format!(
            "{text} cannot be counted back from the newest request: the store has no span yet that begins one. Give times, such as \
             2026-11-21T10:00, or no range."
        )),
        newest_ns => Ok(newest_ns.unwrap_or_default()),
    }
}

fn is_ago(text: &str) -> bool {
    parse_duration(text).is_ok()
}

fn in_order(range: TimeRange) -> Result<TimeRange, String> {
    match (range.since_ns, range.until_ns) {
        (Some(since_ns), Some(until_ns)) if since_ns >= until_ns => Err(format!(
            "The range ends before it begins: {} is not before {}.",
            written(since_ns),
            written(until_ns)
        )),
        _ => Ok(range),
    }
}

/// Formats an end of a range for people. Converts ns since the Unix epoch to a date and time.
fn readable(text: &str) -> String {
    text.parse().map_or_else(|_| text.to_owned(), written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_ago_are_counted_from_the_newest_request() {
        let check = |query: &str, newest_ns: i64, expected: (Option<i64>, Option<i64>)| {
            let range = Scope::of(query).unwrap().range(Some(newest_ns)).unwrap();
            assert_eq!((range.since_ns, range.until_ns), expected, "{query}");
        };
        let newest_ns = 7_200_000_000_000;
        check("since=1h&x=y", newest_ns, (Some(3_600_000_000_000), None));
        check("from=5&to=9", newest_ns, (Some(5), Some(9)));
        check("", newest_ns, (None, None));
        check(
            "until=1970-01-01T00:01",
            newest_ns,
            (None, Some(60_000_000_000)),
        );
        for wrong in ["since=soon", "since=9&until=5", "since=1min&until=1h"] {
            assert!(Scope::of(wrong).unwrap().check().is_err(), "{wrong}");
        }
        // The newest request determines which end of the range is earlier.
        for mixed in [
            "since=3h&until=2026-11-21T11:00",
            "since=2026-11-21T11:00&until=3h",
        ] {
            assert_eq!(Scope::of(mixed).unwrap().check(), Ok(()), "{mixed}");
        }
        let mixed = Scope::of("since=1h&until=1970-01-01T00:30").unwrap();
        assert!(mixed.range(Some(newest_ns)).is_err() && mixed.range(Some(0)).is_ok());
        let scope = Scope::of("since=1h&q=a+b&root=web:a&until=").unwrap();
        assert!(scope.range(None).is_err());
        assert!(scope.check().is_ok() && scope.is_relative());
        assert_eq!(scope.others, [("q".to_owned(), "a b".to_owned())]);
        assert_eq!(scope.key("/x"), "/x since=1h&root=web%3Aa");
    }
}
