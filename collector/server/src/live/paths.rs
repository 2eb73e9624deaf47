//! Time on critical paths since the collector started, by root operation and operation, and slack
//! by operation.
//!
//! A path needs the model's relations, which take milliseconds or longer to compute, and costs
//! about a third of all other work on a request. So the paths of a flush's requests are computed
//! together at its end or after a pause, for at most [`RECENT_TRACES_MAX`] requests with at most
//! [`RECENT_SEGMENTS_MAX`] segments in total. If there are more, the ids of the requests choose a
//! part of them, and the times of each root operation are scaled to the latencies of all its
//! requests. Slack is that of the chosen requests.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stroboscope_analysis::by_root::OTHER_ROOTS;
use stroboscope_analysis::critical_path::{analyse, settle};
use stroboscope_analysis::label::Labels;
use stroboscope_analysis::record::TraceId;
use stroboscope_analysis::sampling::{Weight, WeightedCount};
use stroboscope_analysis::segment::SegmentedTrace;

use super::calls::SpanTotals;
use super::recent::{RECENT_SEGMENTS_MAX, RECENT_TRACES_MAX};
use super::totals::{ServiceOperation, bounded};
use super::window::ModelWindow;

/// Maximum pairs of root operation and operation. Time of further pairs counts as
/// [`OTHER_ROOTS`] of its root operation.
const PAIRS_MAX: usize = 2_048;
/// Maximum operations with slack.
const OPERATIONS_MAX: usize = 512;
/// Time that the count of a flush may take without delaying the next one. A longer count is
/// followed by a pause of [`PAUSE_FACTOR`] times the excess. Requests added during the pause are
/// counted together.
const COUNT_TIME: Duration = Duration::from_millis(100);
const PAUSE_FACTOR: u32 = 20;
/// Name of the time between the last segment and the answer, in place of an operation.
const TAIL: &str = "(tail)";

/// Slack of an operation's segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlackTotals {
    /// Number of segments that ended by the answer.
    pub segments: WeightedCount,
    pub sum_ns: u128,
}

/// Root operation, and operation on the critical path.
pub type PathOperation = (ServiceOperation, ServiceOperation);

#[derive(Debug)]
struct PendingRequest {
    root: ServiceOperation,
    /// Slice of the model's window that numbers the segments.
    slice: u64,
    weight: Weight,
    trace: Arc<SegmentedTrace>,
}

/// Time of one root operation's requests on critical paths.
#[derive(Debug)]
struct RootTime {
    /// Time by segment. The last two are the tail, and requests without a path.
    segments_ns: Vec<u128>,
    /// Latencies of the requests with times in `segments_ns`.
    latency_ns: u128,
}

/// Totals of the counted flushes, and the requests added since the latest count.
#[derive(Debug, Default)]
pub(super) struct PathTotals {
    pending: Vec<PendingRequest>,
    pending_segments: usize,
    /// Number of times that `pending` was halved since the latest count.
    halvings: u32,
    /// Latencies of all requests added since the latest count, in ns by weight.
    latencies: BTreeMap<ServiceOperation, u128>,
    /// Time of the latest count, and the earliest time of the next one, in ns since the Unix epoch.
    pause: Range<i64>,
    /// Time on critical paths in ns, by weight. The sum over a root operation equals the sum of its
    /// counted latencies, except for rounding.
    critical: BTreeMap<PathOperation, u128>,
    slack: BTreeMap<ServiceOperation, SlackTotals>,
}

impl PathTotals {
    /// Adds a complete request.
    pub(super) fn add(
        &mut self,
        root: ServiceOperation,
        slice: u64,
        trace: Arc<SegmentedTrace>,
        weight: Weight,
    ) {
        let latency_ns = weight.times(trace.latency_ns());
        *self.latencies.entry(root.clone()).or_default() += latency_ns;
        if !is_chosen(trace.id, self.halvings) {
            return;
        }
        self.pending_segments += trace.segments.len();
        self.pending.push(PendingRequest {
            root,
            slice,
            weight,
            trace,
        });
        while self.pending.len() > RECENT_TRACES_MAX || self.pending_segments > RECENT_SEGMENTS_MAX
        {
            self.halvings += 1;
            let halvings = self.halvings;
            self.pending
                .retain(|request| is_chosen(request.trace.id, halvings));
            let segments = self.pending.iter();
            self.pending_segments = segments.map(|request| request.trace.segments.len()).sum();
        }
    }

    /// Counts the requests that were added, if any, unless `now_ns` is in the pause after the last
    /// count. A clock that was set back ends the pause.
    pub(super) fn end_flush(&mut self, now_ns: i64, window: &ModelWindow, spans: &SpanTotals) {
        if self.latencies.is_empty() || self.pause.contains(&now_ns) {
            return;
        }
        let start = Instant::now();
        self.count(window, spans);
        let pause = start.elapsed().saturating_sub(COUNT_TIME) * PAUSE_FACTOR;
        let pause_ns = i64::try_from(pause.as_nanos()).unwrap_or(i64::MAX);
        self.pause = now_ns..now_ns.saturating_add(pause_ns);
    }

    fn count(&mut self, window: &ModelWindow, spans: &SpanTotals) {
        let model = window.merged_model();
        let relations = model.relations(0.0);
        let labels = model.labels();
        let mut numbering = window.numbering(labels);
        let mut times: BTreeMap<ServiceOperation, RootTime> = BTreeMap::new();
        let mut slack = vec![SlackTotals::default(); labels.len()];
        let [tail, others] = [labels.len(), labels.len() + 1];
        for request in self.pending.drain(..) {
            let weight = request.weight;
            let latency_ns = weight.times(request.trace.latency_ns());
            let of_root = times.entry(request.root).or_insert_with(|| RootTime {
                segments_ns: vec![0; labels.len() + 2],
                latency_ns: 0,
            });
            of_root.latency_ns += latency_ns;
            // The model may be full and lack a label, or the slice may have left the window.
            let Some(mut trace) = numbering.renumbered(request.slice, &request.trace) else {
                of_root.segments_ns[others] += latency_ns;
                continue;
            };
            settle(&mut trace, &relations);
            let path = analyse(&trace, &relations);
            of_root.segments_ns[tail] += weight.times(path.tail_wait_ns);
            for timing in &path.segments {
                let at = timing.segment.index();
                if timing.critical {
                    of_root.segments_ns[at] += weight.times(timing.weight_ns());
                }
                if !timing.after_answer {
                    slack[at].segments.count(weight);
                    slack[at].sum_ns += weight.times(timing.slack_ns);
                }
            }
        }
        let mut operations = operations(labels, spans);
        operations.extend([TAIL, OTHER_ROOTS].map(without_service));
        self.count_times(times, &operations);
        self.count_slack(slack, &operations);
        (self.pending_segments, self.halvings) = (0, 0);
    }

    /// Adds times by segment. `operations` contains the operation of each segment, and two more for
    /// the tail and for requests without a path.
    fn count_times(
        &mut self,
        mut times: BTreeMap<ServiceOperation, RootTime>,
        operations: &[ServiceOperation],
    ) {
        for (root, all_ns) in std::mem::take(&mut self.latencies) {
            let mut add = |operation: &ServiceOperation, time_ns: u128| {
                if time_ns > 0 {
                    let other = || (root.clone(), without_service(OTHER_ROOTS));
                    let pair = (root.clone(), operation.clone());
                    let pair = bounded(&self.critical, pair, PAIRS_MAX, other);
                    *self.critical.entry(pair).or_default() += time_ns;
                }
            };
            match times.remove(&root).filter(|of| of.latency_ns > 0) {
                Some(of) => {
                    let scale = all_ns as f64 / of.latency_ns as f64;
                    for (operation, time_ns) in operations.iter().zip(of.segments_ns) {
                        let is_all = all_ns == of.latency_ns;
                        let scaled_ns = || (time_ns as f64 * scale).round() as u128;
                        add(operation, if is_all { time_ns } else { scaled_ns() });
                    }
                }
                None => add(&without_service(OTHER_ROOTS), all_ns),
            }
        }
    }

    /// Adds slack by segment. `operations` contains the operation of each segment.
    fn count_slack(&mut self, slack: Vec<SlackTotals>, operations: &[ServiceOperation]) {
        for (operation, of) in operations.iter().zip(slack) {
            if !of.segments.is_zero() {
                let other = || without_service(OTHER_ROOTS);
                let operation = operation.clone();
                let operation = bounded(&self.slack, operation, OPERATIONS_MAX, other);
                let totals = self.slack.entry(operation).or_default();
                totals.segments += of.segments;
                totals.sum_ns += of.sum_ns;
            }
        }
    }

    pub(super) fn critical(&self) -> BTreeMap<PathOperation, u128> {
        self.critical.clone()
    }

    pub(super) fn slack(&self) -> BTreeMap<ServiceOperation, SlackTotals> {
        self.slack.clone()
    }
}

/// Chooses one request in 2^`halvings` by its id. Multiplication spreads ids that count upwards.
fn is_chosen(id: TraceId, halvings: u32) -> bool {
    let folded = id.0 as u64 ^ (id.0 >> 64) as u64;
    folded.wrapping_mul(0x9e37_79b9_7f4a_7c15).leading_zeros() >= halvings
}

fn without_service(name: &str) -> ServiceOperation {
    (Arc::from(""), Arc::from(name))
}

/// Returns the operation of each label.
fn operations(labels: &Labels, spans: &SpanTotals) -> Vec<ServiceOperation> {
    let with_colon = spans.services().filter(|service| service.contains(':'));
    let with_colon: BTreeSet<&str> = with_colon.map(|service| &**service).collect();
    let mut known: BTreeMap<String, ServiceOperation> = BTreeMap::new();
    let labels = labels.iter().map(|(_, label)| {
        let text = label.operation();
        if let Some(operation) = known.get(&text) {
            return operation.clone();
        }
        let operation = split(&text, &with_colon);
        known.insert(text, operation.clone());
        operation
    });
    labels.collect()
}

/// Splits `service:name`. Both may contain colons; `with_colon` has the known services that do. A
/// task of an event log has no service.
fn split(operation: &str, with_colon: &BTreeSet<&str>) -> ServiceOperation {
    let mut ends = operation.rmatch_indices(':').map(|(end, _)| end);
    let end = ends.find(|end| with_colon.contains(&operation[..*end]));
    let (service, name) = match end.or_else(|| operation.find(':')) {
        Some(end) => (&operation[..end], &operation[end + 1..]),
        None => ("", operation),
    };
    (Arc::from(service), Arc::from(name))
}

#[cfg(test)]
mod tests {
    use stroboscope_analysis::segment::Segment;

    use super::*;

    #[test]
    fn ids_choose_one_request_in_a_power_of_two() {
        for ids in [
            (1..=4_096).map(TraceId).collect::<Vec<_>>(),
            (1..=4_096).map(|id| TraceId(id << 64)).collect(),
        ] {
            for halvings in 0..=6 {
                let chosen = ids.iter().filter(|id| is_chosen(**id, halvings)).count();
                let expected = 4_096 >> halvings;
                assert!(chosen.abs_diff(expected) <= 8, "{halvings}: {chosen}");
            }
        }
    }

    #[test]
    fn requests_wait_during_a_pause() {
        let mut window = ModelWindow::new(i64::MAX, 10);
        let (slice, model, _) = window.open();
        let texts = ["web:home", "start", "end"].map(Arc::from);
        let id = model.labels_mut().intern(&texts[0], &texts[1], &texts[2]);
        let segments = vec![Segment::new(id.unwrap(), 0, 60)];
        let trace = Arc::new(SegmentedTrace::new(TraceId(1), None, 0, 60, segments));
        model.observe(&trace);
        let spans = SpanTotals::default();
        let root: ServiceOperation = ("web".into(), "home".into());
        let mut totals = PathTotals::default();
        for (now_ns, expected_ns) in [(7, 0), (10, 120), (4, 180), (4, 240)] {
            totals.pause = 5..10;
            totals.add(root.clone(), slice, trace.clone(), Weight::ONE);
            totals.end_flush(now_ns, &window, &spans);
            let critical_ns = totals
                .critical()
                .get(&(root.clone(), root.clone()))
                .copied();
            assert_eq!(critical_ns.unwrap_or_default(), expected_ns, "{now_ns}");
        }
    }

    #[test]
    fn services_with_colons_are_split_from_names() {
        let with_colon = BTreeSet::from(["unknown_service:node"]);
        for (operation, service, name) in [
            ("web:GET /a:b", "web", "GET /a:b"),
            ("unknown_service:node:call", "unknown_service:node", "call"),
            ("unknown_service:java:call", "unknown_service", "java:call"),
            (":call", "", "call"),
            ("task", "", "task"),
        ] {
            let found = split(operation, &with_colon);
            assert_eq!((&*found.0, &*found.1), (service, name));
        }
    }
}
