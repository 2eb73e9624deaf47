//! Current state: processes, ports, and the critical path of recent requests. The collector serves
//! it as JSON under `/api/` and on the page `/fleet`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use stroboscope_analysis::aggregate::{OperationStatistics, PathAggregate};
use stroboscope_analysis::clock::Resolution;
use stroboscope_analysis::distribution::Percentiles;
use stroboscope_render::show::{Names, SegmentName};
use stroboscope_store::ledger::ReportedConfig;

use super::pages::Pages;
use crate::live::{LiveModel, Outcomes, ProcessWindows, RECENT};

/// Maximum segments listed; `others_share_of_time` is the sum of the rest.
const SEGMENTS_SHOWN: usize = 30;
/// Maximum operations listed, those with the largest shares first; the total is given as well.
const OPERATIONS_SHOWN: usize = 500;
/// Maximum processes listed, the most recently seen first; the total is given as well.
const PROCESSES_SHOWN: usize = 1_000;

/// A segment's share of the critical paths of recent requests.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PathShare {
    pub(super) segment: SegmentName,
    /// Time on critical paths as a share of the time of the recent requests, 0 to 1.
    pub(super) share_of_time: f64,
    /// Part of `share_of_time` that is waiting before the segment, which no segment explains.
    pub(super) wait_share_of_time: f64,
    mean_share: f64,
    mean_wait_share: f64,
    pub(super) mean_ns: f64,
}

/// An operation's share of the critical paths of recent requests, and the durations of its
/// segments.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OperationNow {
    operation: String,
    /// Estimated number of instances of the operation's segments in complete requests.
    occurrences: u64,
    /// Shares as in [`PathShare`].
    share_of_time: f64,
    wait_share_of_time: f64,
    mean_share: f64,
    mean_wait_share: f64,
    /// Durations of the operation's segment instances, in ns.
    duration: Percentiles,
    /// Slack of the segment instances, in ns, except for those after the answer; `None` if there
    /// are no others.
    slack: Option<Percentiles>,
    /// Outcomes of the operation's spans in all requests, including incomplete ones.
    spans: Outcomes,
}

impl OperationNow {
    fn of(operation: OperationStatistics, paths: &PathAggregate, spans: Outcomes) -> Self {
        let (slack, requests) = (&operation.slack, paths.traces());
        let wait_ns = operation.critical_wait_ns;
        Self {
            occurrences: operation.occurrences.rounded(),
            share_of_time: paths.share_of_time(operation.critical_duration_ns + wait_ns),
            wait_share_of_time: paths.share_of_time(wait_ns),
            mean_share: (operation.duration_shares + operation.wait_shares).mean(requests),
            mean_wait_share: operation.wait_shares.mean(requests),
            duration: operation.duration.percentiles(),
            slack: (slack.count() > 0).then(|| slack.percentiles()),
            operation: operation.operation,
            spans,
        }
    }

    /// Returns the entry of an operation that no request of the critical paths contains.
    fn of_incomplete(operation: String, spans: Outcomes) -> Self {
        Self {
            operation,
            occurrences: 0,
            share_of_time: 0.0,
            wait_share_of_time: 0.0,
            mean_share: 0.0,
            mean_wait_share: 0.0,
            duration: Percentiles::default(),
            slack: None,
            spans,
        }
    }

    fn json(&self) -> Value {
        let percentiles = |of: Percentiles| json!({"p50_ns": of.p50_ns, "p95_ns": of.p95_ns, "p99_ns": of.p99_ns});
        json!({
            "operation": self.operation,
            "occurrences": self.occurrences,
            "share_of_time": self.share_of_time,
            "wait_share_of_time": self.wait_share_of_time,
            "mean_share": self.mean_share,
            "mean_wait_share": self.mean_wait_share,
            "duration": percentiles(self.duration),
            "slack": self.slack.map(percentiles),
            "spans": self.spans.all.rounded(),
            "failed": self.spans.failed.rounded(),
        })
    }
}

/// Critical path of recent requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RecentPath {
    pub(super) requests: u64,
    /// Segments, the largest share first.
    pub(super) segments: Vec<PathShare>,
    pub(super) others_share_of_time: f64,
    /// Share of the time between the last segment and the answer.
    pub(super) tail_share_of_time: f64,
    others_mean_share: f64,
    mean_tail_share: f64,
    /// Shares of the path by operation, the largest first.
    operations: Vec<OperationNow>,
    operations_known: usize,
    /// Outcomes of all requests, including incomplete ones.
    outcomes: Outcomes,
    /// Number of times that the model left out a segment because the model was full.
    pub(super) refused_segments: u64,
}

impl RecentPath {
    /// Computes the critical path of recent requests. May take some milliseconds, so async code
    /// must not call it.
    pub(super) fn of(live: &LiveModel) -> Self {
        let recent = live.recent(now_ns());
        let (aggregate, labels) = recent.paths();
        let requests = aggregate.traces();
        let names = Names::of(labels);
        let mut segments: Vec<PathShare> = aggregate
            .segments()
            .filter(|(_, statistics)| !statistics.critical_traces.is_zero())
            .map(|(id, statistics)| {
                let critical_ns = statistics.critical_duration_ns + statistics.critical_wait_ns;
                PathShare {
                    segment: names.get(id),
                    share_of_time: aggregate.share_of_time(critical_ns),
                    wait_share_of_time: aggregate.share_of_time(statistics.critical_wait_ns),
                    mean_share: statistics.shares().mean(requests),
                    mean_wait_share: statistics.wait_shares.mean(requests),
                    mean_ns: requests.mean(critical_ns as f64),
                }
            })
            .collect();
        segments.sort_by(|a, b| {
            b.share_of_time
                .total_cmp(&a.share_of_time)
                .then_with(|| a.segment.full().cmp(&b.segment.full()))
        });
        let mut outcomes = recent.outcomes().operations.clone();
        let mut operations: Vec<OperationNow> = aggregate
            .by_operation(labels)
            .into_iter()
            .map(|operation| {
                let spans = outcomes.remove(&operation.operation);
                OperationNow::of(operation, &aggregate, spans.unwrap_or_default())
            })
            .collect();
        let failed_only = outcomes.into_iter().filter(|(_, of)| !of.failed.is_zero());
        operations.extend(failed_only.map(|(name, of)| OperationNow::of_incomplete(name, of)));
        let operations_known = operations.len();
        operations.sort_by(|a, b| b.share_of_time.total_cmp(&a.share_of_time));
        operations.truncate(OPERATIONS_SHOWN);
        let others = segments.split_off(segments.len().min(SEGMENTS_SHOWN));
        let (tail_ns, tail_shares) = aggregate.tail_wait();
        Self {
            requests: requests.rounded(),
            segments,
            others_share_of_time: others
                .iter()
                .fold(0.0, |sum, share| sum + share.share_of_time),
            tail_share_of_time: aggregate.share_of_time(tail_ns),
            others_mean_share: others.iter().fold(0.0, |sum, share| sum + share.mean_share),
            mean_tail_share: tail_shares.mean(requests),
            operations,
            operations_known,
            outcomes: recent.outcomes().requests,
            refused_segments: recent.refused_segments(),
        }
    }

    pub(super) fn json(&self) -> Value {
        let segments = self.segments.iter().map(|share| {
            json!({
                "segment": share.segment.full(),
                "share_of_time": share.share_of_time,
                "wait_share_of_time": share.wait_share_of_time,
                "mean_share": share.mean_share,
                "mean_wait_share": share.mean_wait_share,
                "mean_ns": share.mean_ns,
            })
        });
        json!({
            "last_seconds": RECENT.as_secs(),
            "requests": self.requests,
            "all_requests": self.outcomes.all.rounded(),
            "failed_requests": self.outcomes.failed.rounded(),
            "segments": segments.collect::<Vec<_>>(),
            "others_share_of_time": self.others_share_of_time,
            "tail_share_of_time": self.tail_share_of_time,
            "others_mean_share": self.others_mean_share,
            "mean_tail_share": self.mean_tail_share,
            "operations_known": self.operations_known,
            "refused_segments": self.refused_segments,
            "operations": self.operations.iter().map(OperationNow::json).collect::<Vec<_>>(),
        })
    }
}

/// A process that ships to this collector, or did.
#[derive(Clone, Debug)]
pub(super) struct Process {
    incarnation: u128,
    pub(super) service: String,
    pub(super) host: String,
    /// Process id; 0 if unknown.
    pub(super) pid: u32,
    pub(super) last_seen_ns: i64,
    /// Burst-config that the process reported last; `None` if unknown.
    pub(super) config: Option<ReportedConfig>,
    pub(super) has_ended: bool,
    pub(super) records: u64,
    pub(super) missing_batches: u64,
    pub(super) lost: BTreeMap<String, u64>,
    /// Recording windows that reached the live model; `None` if none reached it since the collector
    /// started, if they were evicted, or if there is no live model.
    pub(super) windows: Option<ProcessWindows>,
    /// Resolution of the clock of the process's host; `None` if there is no live model.
    pub(super) clock: Option<Resolution>,
}

impl Process {
    /// Returns the time since the process was last heard from, by the collector's clock.
    pub(super) fn quiet(&self) -> Duration {
        Duration::from_nanos(u64::try_from(now_ns().saturating_sub(self.last_seen_ns)).unwrap_or(0))
    }

    fn json(&self) -> Value {
        let windows = self.windows.map(|windows| {
            json!({
                "count": windows.count,
                "burst_config": windows.burst_config,
                "last_close_ns": windows.last_close_ns,
            })
        });
        let clock = self.clock.map(|clock| {
            json!({"unit_ns": clock.unit_ns, "tick_ns": clock.tick_ns, "timestamps": clock.timestamps})
        });
        json!({
            "process": format!("{:032x}", self.incarnation),
            "service": self.service,
            "host": self.host,
            "pid": (self.pid > 0).then_some(self.pid),
            "last_seen_ns": self.last_seen_ns,
            "has_ended": self.has_ended,
            "burst_config": self.config.map(|of| of.burst_config),
            "burst_config_since_ns": self.config.map(|of| of.since_ns).filter(|since_ns| *since_ns > 0),
            "records": self.records,
            "missing_batches": self.missing_batches,
            "lost": self.lost,
            "windows": windows,
            "clock": clock,
        })
    }
}

/// The most recently seen processes, the latest first.
#[derive(Clone, Debug)]
pub(super) struct Processes {
    pub(super) known: usize,
    pub(super) shown: Vec<Process>,
}

impl Processes {
    pub(super) fn of(pages: &Pages) -> Self {
        let (known, mut shown) = pages.intake.with_ledger(|ledger| {
            let mut seen: Vec<(i64, u128)> = ledger
                .entries()
                .map(|(incarnation, entry)| (entry.last_seen_ns, incarnation))
                .collect();
            let known = seen.len();
            if known > PROCESSES_SHOWN {
                seen.select_nth_unstable_by(PROCESSES_SHOWN, |a, b| b.cmp(a));
                seen.truncate(PROCESSES_SHOWN);
            }
            seen.sort_unstable_by(|a, b| b.cmp(a));
            let of = |&(_, incarnation): &(i64, u128)| {
                let entry = ledger.entry(incarnation)?;
                Some(Process {
                    incarnation,
                    service: entry.service.clone(),
                    host: entry.host.clone(),
                    pid: entry.pid,
                    last_seen_ns: entry.last_seen_ns,
                    config: entry.config,
                    has_ended: entry.has_ended,
                    records: entry.records,
                    missing_batches: entry.stored.holes(),
                    lost: entry
                        .losses
                        .iter()
                        .filter(|(_, n)| **n > 0)
                        .map(|(cause, n)| (cause.clone(), *n))
                        .collect(),
                    windows: None,
                    clock: None,
                })
            };
            (known, seen.iter().filter_map(of).collect::<Vec<_>>())
        });
        if let Some(live) = pages.intake.live() {
            let asked = shown
                .iter()
                .map(|process| (process.incarnation, &*process.host));
            let told = live.of_processes(asked);
            for (process, (windows, clock)) in shown.iter_mut().zip(told) {
                process.windows = windows;
                process.clock = Some(clock);
            }
        }
        Self { known, shown }
    }

    pub(super) fn json(&self) -> Value {
        let shown: Vec<Value> = self.shown.iter().map(Process::json).collect();
        json!({"known": self.known, "processes": shown})
    }
}

/// Returns the rejections at each port, by cause, without causes that never occurred.
pub(super) fn turned_away(pages: &Pages) -> BTreeMap<&'static str, BTreeMap<&'static str, u64>> {
    let mut doors: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
    for (door, cause, count) in pages.doors.refused().counts() {
        let of_door = doors.entry(door).or_default();
        if count > 0 {
            of_door.insert(cause, count);
        }
    }
    doors
}

/// Returns the rejections at each port, and the bytes of requests in arrival, as JSON.
pub(super) fn doors_json(pages: &Pages) -> Value {
    let turned_away = turned_away(pages);
    let doors: Vec<Value> = turned_away
        .iter()
        .map(|(door, causes)| json!({"door": door, "turned_away": causes}))
        .collect();
    json!({"doors": doors, "reading_bytes": pages.doors.reading_bytes()})
}

fn now_ns() -> i64 {
    stroboscope_store::flush::now_ns()
}
