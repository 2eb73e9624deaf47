//! Snapshot of a collector or a store at one moment.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use stroboscope_server::http::Adoption;

/// Time for which a process counts as sending after its last message, in nanoseconds.
const SENDING_NS: i64 = 60_000_000_000;

/// Percentiles of durations in ns, in the format of `/api/critical-path`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Spread {
    pub p50_ns: u64,
    pub p99_ns: u64,
}

/// Statistics of one operation in the latest requests. Shares are of the time of all requests, 0 to
/// 1.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct Operation {
    pub operation: String,
    /// Number of occurrences of the operation's segments.
    pub occurrences: u64,
    pub share_of_time: f64,
    pub wait_share_of_time: f64,
    /// Durations of the operation's own work between two of its events.
    pub duration: Spread,
    /// Slack of the operation's own work; `None` if all of it runs after the response, or if no
    /// complete request has the operation.
    pub slack: Option<Spread>,
    /// Number of the operation's spans; `failed` is the number of those that failed. A collector
    /// also counts spans of incomplete requests.
    pub spans: u64,
    pub failed: u64,
}

impl Operation {
    pub(super) fn failed_share(&self) -> f64 {
        self.failed as f64 / self.spans.max(1) as f64
    }
}

/// Critical path of the latest requests.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct LatestPath {
    pub last_seconds: u64,
    pub requests: u64,
    /// Number of requests, and in `failed_requests` the number of those that failed. A collector
    /// also counts incomplete requests.
    pub all_requests: u64,
    pub failed_requests: u64,
    pub tail_share_of_time: f64,
    pub operations_known: usize,
    /// Number of times that the full model left out a segment.
    #[serde(default)]
    pub refused_segments: u64,
    pub operations: Vec<Operation>,
}

/// Processes that have shipped data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Senders {
    pub processes: usize,
    pub sending: usize,
    pub hosts: usize,
    /// Time of the latest message of any process, in ns since the Unix epoch; `None` if there is
    /// none, and for a store.
    pub last_ns: Option<i64>,
}

#[derive(Deserialize)]
struct ProcessesSay {
    known: usize,
    processes: Vec<ProcessSays>,
}

#[derive(Deserialize)]
struct ProcessSays {
    host: String,
    last_seen_ns: i64,
}

impl Senders {
    /// Parses the response of `/api/processes`.
    pub(super) fn of_json(text: &str, now_ns: i64) -> serde_json::Result<Self> {
        let said: ProcessesSay = serde_json::from_str(text)?;
        let is_sending = |of: &&ProcessSays| now_ns.saturating_sub(of.last_seen_ns) < SENDING_NS;
        let sending: Vec<&ProcessSays> = said.processes.iter().filter(is_sending).collect();
        let hosts: BTreeSet<&str> = sending.iter().map(|of| &*of.host).collect();
        Ok(Self {
            processes: said.known,
            sending: sending.len(),
            hosts: hosts.len(),
            last_ns: said.processes.iter().map(|of| of.last_seen_ns).max(),
        })
    }
}

/// Counters of a collector, most of them since its start, or of a store. A store's requests are
/// those of the selected time; its records, lost records and missing batches are those of the whole
/// store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub records: u64,
    /// Number of finished requests, complete or not.
    pub requests: u64,
    /// Counts by cause, such as records, requests, batches, files or bytes that were lost, rejected
    /// or left out, or are not in the store yet. Causes that never occurred are absent.
    pub lost: BTreeMap<String, u64>,
}

/// Metrics that count missing data, and their names in the output, which `:` and the cause follow
/// if the metric has a cause.
const LOSSES: [(&str, &str); 10] = [
    ("lost_records_total", "processes"),
    ("missing_batches", "missing_batches"),
    ("refused_batches_total", "refused"),
    ("otlp_rejected_spans_total", "otlp_rejected_spans"),
    ("otlp_rejected_logs_total", "otlp_rejected_logs"),
    ("otlp_logs_without_trace_total", "otlp_logs_without_trace"),
    ("turned_away_total", "turned_away"),
    ("live_left_out_records_total", "left_out"),
    ("live_early_traces_total", "early_traces"),
    ("wal_damage_total", "log_damage"),
];

impl Totals {
    /// Parses the response of `/metrics`.
    pub(super) fn of_metrics(text: &str) -> Self {
        let mut totals = Self::default();
        let samples = text
            .lines()
            .filter_map(|line| line.strip_prefix("stroboscope_"));
        for sample in samples {
            let Some((series, value)) = sample.rsplit_once(' ') else {
                continue;
            };
            let Some(value) = value.parse::<f64>().ok().filter(|value| *value >= 0.0) else {
                continue;
            };
            let value = value as u64;
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            match name {
                "records_total" => totals.records = value,
                "live_traces_total" => {
                    totals.requests += value;
                    if value > 0 && labels.contains("complete=\"no\"") {
                        totals.lost.insert("incomplete_requests".to_owned(), value);
                    }
                }
                _ => {
                    let of = LOSSES.iter().find(|(metric, _)| *metric == name);
                    if let Some((_, called)) = of.filter(|_| value > 0) {
                        let cause = cause_of(labels);
                        let called = cause.map_or_else(
                            || (*called).to_owned(),
                            |cause| format!("{called}:{cause}"),
                        );
                        *totals.lost.entry(called).or_default() += value;
                    }
                }
            }
        }
        totals
    }
}

/// Returns the value of the label `cause`, up to the next quotation mark; `None` without that
/// label.
fn cause_of(labels: &str) -> Option<&str> {
    let (_, rest) = labels.rsplit_once("cause=\"")?;
    rest.split_once('"').map(|(cause, _)| cause)
}

/// State of a collector or a store at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Snapshot {
    /// Critical path; `None` if the collector has no live model.
    pub path: Option<LatestPath>,
    pub senders: Senders,
    pub totals: Totals,
    /// True if the source is a running collector, false if it is a store.
    pub is_live: bool,
    /// Burst-config that the collector set, and the processes that apply it; `None` for a store.
    pub adoption: Option<Adoption>,
    /// Time of the snapshot, ns since the Unix epoch.
    pub at_ns: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_loss_of_the_metrics_is_seen() {
        let text = "# HELP stroboscope_records_total x\nstroboscope_records_total 12\n\
            stroboscope_live_traces_total{complete=\"yes\"} 3\nstroboscope_live_traces_total{complete=\"no\"} 2\n\
            stroboscope_lost_records_total{service=\"a \\\"b\",cause=\"ring_full\"} 4\n\
            stroboscope_lost_records_total{service=\"c\",cause=\"ring_full\"} 5\n\
            stroboscope_missing_batches 0\nstroboscope_wal_damage_total 1\n\
            stroboscope_turned_away_total{door=\"pages\",cause=\"host\"} 6\nbad line\n";
        let totals = Totals::of_metrics(text);
        assert_eq!((totals.records, totals.requests), (12, 5));
        let lost: Vec<(&str, u64)> = totals.lost.iter().map(|(c, n)| (&**c, *n)).collect();
        let expected = [
            ("incomplete_requests", 2),
            ("log_damage", 1),
            ("processes:ring_full", 9),
            ("turned_away:host", 6),
        ];
        assert_eq!(lost, expected);
    }

    #[test]
    fn who_was_silent_for_a_minute_is_not_sending() {
        let text = r#"{"known":3,"processes":[
            {"host":"a","last_seen_ns":100000000000},
            {"host":"a","last_seen_ns":99000000000},
            {"host":"b","last_seen_ns":1}]}"#;
        let senders = Senders::of_json(text, 101_000_000_000).unwrap();
        let expected = Senders {
            processes: 3,
            sending: 2,
            hosts: 1,
            last_ns: Some(100_000_000_000),
        };
        assert_eq!(senders, expected);
    }
}
