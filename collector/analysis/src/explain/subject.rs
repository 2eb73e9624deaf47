//! Kinds of change, and the attributes that are their consequences. A consequence separates
//! requests, but explains nothing.

use super::identity::{end_with, words};
use super::parameters::Why;
use crate::failure::is_of_failure;

/// Kind of change that an explanation explains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Subject {
    /// Requests became slower or faster.
    Times,
    /// Requests have another structure.
    #[default]
    Structure,
    /// Requests fail, or no longer fail.
    Failures,
}

/// Last words of names of measured times. A unit may follow.
const DURATIONS: [&[&str]; 6] = [
    &["duration"],
    &["latency"],
    &["elapsed"],
    &["took"],
    &["response", "time"],
    &["total", "time"],
];
/// Names of times that tracing libraries add to spans.
const SPAN_TIMES: [&str; 2] = ["busy_ns", "idle_ns"];
const UNITS: [&str; 12] = [
    "ns",
    "us",
    "ms",
    "s",
    "sec",
    "secs",
    "seconds",
    "millis",
    "micros",
    "nanos",
    "milliseconds",
    "microseconds",
];

/// Reports whether a name is that of a measured time, such as `http.duration_ms`, which grows with
/// the time of the request.
fn is_duration(key: &str) -> bool {
    let mut words = words(key);
    if words.len() > 1 && words.last().is_some_and(|last| UNITS.contains(&&**last)) {
        words.pop();
    }
    SPAN_TIMES.contains(&key) || DURATIONS.iter().any(|last| end_with(&words, last))
}

impl Subject {
    /// Returns the reason for ignoring an attribute that is a consequence of this kind of change,
    /// or `None` if the attribute may be a reason for the change.
    pub(super) fn consequence(self, key: &str) -> Option<Why> {
        match self {
            Subject::Times => is_duration(key).then_some(Why::Duration),
            Subject::Structure => None,
            Subject::Failures => is_of_failure(key).then_some(Why::OfFailure),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consequences_are_those_of_the_change() {
        let check = |subject: Subject, key: &str, expected: Option<Why>| {
            assert_eq!(subject.consequence(key), expected, "{subject:?} {key}");
        };
        for key in [
            "duration",
            "http.durationMs",
            "db.latency_us",
            "response_time",
            "took.s",
            "busy_ns",
        ] {
            check(Subject::Times, key, Some(Why::Duration));
            check(Subject::Failures, key, None);
        }
        for key in [
            "exception.escaped",
            "error.type",
            "http.response.status_code",
            "error",
        ] {
            check(Subject::Failures, key, Some(Why::OfFailure));
            check(Subject::Times, key, None);
            check(Subject::Structure, key, None);
        }
        for key in [
            "timeout_ms",
            "ttl.s",
            "durations",
            "time",
            "ms",
            "tenant",
            "duration.class",
        ] {
            check(Subject::Times, key, None);
        }
        check(Subject::Failures, "errand", None);
    }
}
