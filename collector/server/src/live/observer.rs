//! Turns arriving rows into a model.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use stroboscope_analysis::by_root::ByRoot;
use stroboscope_analysis::clock::{ClockEvidence, Resolution};
use stroboscope_analysis::completeness::{ProcessLoss, completeness};
use stroboscope_analysis::connection::{CHILDREN_MIN, ConnectionLearning, Connections, is_marked};
use stroboscope_analysis::flow::{ERROR, failed_spans};
use stroboscope_analysis::inner_operations::{INNER_ROOT, InnerOperations};
use stroboscope_analysis::label::DEFAULT_MAX_LABELS;
use stroboscope_analysis::model::Model;
use stroboscope_analysis::record::TraceRecords;
use stroboscope_analysis::segment::Segmenter;

use super::assembly::{Assembly, RECORDS_OPEN_MAX};
use super::calls::{Edge, EdgeTotals, SpanOperation, SpanTotals};
use super::outcomes::OutcomeSlices;
use super::paths::{PathOperation, PathTotals, SlackTotals};
use super::recent::{ProcessWindows, Recent, RecentRequests, Windows};
use super::totals::{OperationTotals, RootTotals, ServiceOperation};
use super::window::{ModelWindow, WindowModel};
use stroboscope_store::decode::loses_records;
use stroboscope_store::ledger::{BatchLosses, LossWatch};
use stroboscope_store::limits::INCARNATIONS_MAX;
use stroboscope_store::record::Rows;
use stroboscope_store::tables::{
    AttributeKeys, AttributeValues, LeftOut, add_span, event_read, parse_attributes, span_record,
};

/// Maximum losses remembered. Those noted first are dropped first.
const LOSSES_MAX: usize = 4_096;
/// Number of interned texts above which [`Live::arrived`] first drops them all.
const TEXTS_MAX: usize = 65_536;

/// Counts of arrived traces and records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveCounts {
    /// Number of traces that were observed. A trace that is divided into requests, such as a
    /// connection, counts once for each.
    pub traces: u64,
    /// Number of observed traces that are complete; the model learned from these.
    pub complete_traces: u64,
    /// Incomplete traces by cause; a trace may have several causes.
    pub incomplete: BTreeMap<&'static str, u64>,
    /// Number of traces that are still open.
    pub open_traces: usize,
    /// Number of records of the open traces.
    pub open_records: usize,
    /// Number of records left out because their trace was already observed.
    pub late_records: u64,
    /// Number of traces observed early because the open traces held too many records.
    pub early_traces: u64,
    /// Number of records that the feed skipped; 0 in the counts that [`Live`] returns.
    pub skipped_records: u64,
    /// Records and attributes left out, by reason.
    pub left_out: LeftOut,
}

/// The model at one instant.
#[derive(Debug)]
pub struct Snapshot {
    /// The model; its segments are numbered in the order of their labels, as in `infer`.
    pub model: Model,
    /// Counts of traces and records since the collector started.
    pub counts: LiveCounts,
    /// Numbers of requests of the window, and latencies of the complete ones, by root operation.
    pub roots: ByRoot,
    /// Start of the window, in ns since the Unix epoch; 0 if no trace was observed yet.
    pub from_ns: i64,
    /// Number of times that a segment was left out because a slice of the window had the maximum
    /// number of segments.
    pub refused_labels: u64,
    /// True if round trips prove that the hosts' clocks differ, so that orders across hosts may be
    /// wrong. `infer` corrects clocks; this model uses timestamps as recorded.
    pub clocks_differ: bool,
}

/// Totals since the collector started.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Requests by root operation.
    pub roots: BTreeMap<ServiceOperation, OperationTotals>,
    /// Spans by operation.
    pub spans: BTreeMap<SpanOperation, OperationTotals>,
    /// Calls between services.
    pub calls: BTreeMap<Edge, EdgeTotals>,
    /// Time on critical paths, in ns.
    pub critical_ns: BTreeMap<PathOperation, u128>,
    /// Slack by operation.
    pub slack: BTreeMap<ServiceOperation, SlackTotals>,
}

/// State of the live model: see the [module](super).
#[derive(Debug)]
pub struct Live {
    quiet_ns: i64,
    assembly: Assembly,
    inner: InnerOperations,
    learning: ConnectionLearning,
    /// Operations that are configured as requests.
    requests: Vec<String>,
    connections: Connections,
    watch: LossWatch,
    losses: Vec<ProcessLoss>,
    segmenter: Segmenter,
    window: ModelWindow,
    clocks: ClockEvidence,
    keys: AttributeKeys,
    texts: HashMap<Arc<str>, Arc<str>>,
    counts: LiveCounts,
    recent: Recent,
    outcomes: OutcomeSlices,
    roots: RootTotals,
    spans: SpanTotals,
    paths: PathTotals,
    windows: Windows,
    /// Time that the caller passed last, in ns since the Unix epoch.
    now_ns: i64,
}

impl Live {
    /// Creates an empty model. A trace counts as fully arrived after `quiet_ns` without a record.
    #[must_use]
    pub fn new(quiet_ns: i64) -> Self {
        Self::with_room(quiet_ns, RECORDS_OPEN_MAX)
    }

    /// Creates an empty model that holds at most `records_open_max` records of open traces.
    #[must_use]
    pub fn with_room(quiet_ns: i64, records_open_max: usize) -> Self {
        Self {
            quiet_ns,
            assembly: Assembly::new(records_open_max),
            inner: InnerOperations::default(),
            learning: ConnectionLearning::default(),
            requests: Vec::new(),
            connections: Connections::default(),
            watch: LossWatch::default(),
            losses: Vec::new(),
            segmenter: Segmenter::default(),
            window: ModelWindow::new(i64::MAX, DEFAULT_MAX_LABELS),
            clocks: ClockEvidence::new(),
            keys: AttributeKeys::of([ERROR]).with_elements().with_weights(),
            texts: HashMap::new(),
            counts: LiveCounts::default(),
            recent: Recent::default(),
            outcomes: OutcomeSlices::default(),
            roots: RootTotals::default(),
            spans: SpanTotals::default(),
            paths: PathTotals::default(),
            windows: Windows::default(),
            now_ns: 0,
        }
    }

    /// Limits the model to the requests of the latest `window_ns`, in ns, and to `max_segments`
    /// segments.
    #[must_use]
    pub fn with_window(self, window_ns: i64, max_segments: usize) -> Self {
        Self {
            window: ModelWindow::new(window_ns, max_segments),
            ..self
        }
    }

    /// Treats spans of these operations as requests.
    pub(super) fn with_requests(self, requests: Vec<String>) -> Self {
        Self {
            connections: Connections::default().with_requests(&requests),
            requests,
            ..self
        }
    }

    /// Adds the rows that have arrived since the last call, up to `now_ns`, in ns since the Unix
    /// epoch by the collector's clock.
    pub fn arrived(&mut self, rows: &Rows, now_ns: i64) {
        if self.texts.len() > TEXTS_MAX {
            self.texts.clear();
        }
        let texts: Vec<Arc<str>> = rows.strings.iter().map(|text| self.text(text)).collect();
        self.now_ns = now_ns;
        self.take_losses(rows);
        rows.batches
            .iter()
            .for_each(|batch| self.windows.take(batch));
        for row in &rows.spans {
            let span = span_record(row, &texts);
            self.inner.observe(&span);
            let values = self.attribute_values(row.attributes.as_deref());
            let keys = &self.keys;
            self.assembly.add(row.trace_id, now_ns, |records, _| {
                if records.name.is_none() {
                    records.name = row
                        .trace_name
                        .and_then(|id| texts.get(id as usize))
                        .cloned();
                }
                add_span(records, span, values, keys);
            });
            self.make_room();
        }
        for row in &rows.events {
            let values = self.attribute_values(row.attributes.as_deref());
            let event = event_read(row, &texts, values);
            self.assembly
                .add(row.trace_id, now_ns, |_, events| events.push(event));
            self.make_room();
        }
        self.all_arrived_until(now_ns);
    }

    /// Moves the watermark to `now_ns`: the caller has passed on all records received before it.
    /// Observes the traces that are quiet by then.
    pub fn all_arrived_until(&mut self, now_ns: i64) {
        self.now_ns = now_ns;
        // Old requests leave the window even if no new ones arrive.
        if self.counts.traces > 0 {
            self.window.advance(now_ns);
        }
        let until_ns = now_ns.saturating_sub(self.quiet_ns);
        while let Some(records) = self.assembly.next_quiet(until_ns) {
            self.observe(records);
        }
        self.paths.end_flush(self.now_ns, &self.window, &self.spans);
    }

    /// Returns the counts of traces and records since the collector started, without those that the
    /// feed skipped.
    #[must_use]
    pub fn counts(&self) -> LiveCounts {
        let (open_traces, open_records) = self.assembly.open();
        let unreadable = self.counts.left_out.unreadable_attributes;
        let left_out = LeftOut {
            unreadable_attributes: unreadable,
            ..self.assembly.left_out
        };
        let late_records = self.assembly.late_records;
        LiveCounts {
            open_traces,
            open_records,
            late_records,
            left_out,
            ..self.counts.clone()
        }
    }

    /// Returns a lower bound on the number of segments in the window: the number in its merged
    /// closed slices or in its open slice, whichever is larger.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.window.segments()
    }

    /// Returns a snapshot of the canonical model, its counts, and the requests by root operation.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let WindowModel {
            model,
            roots,
            from_ns,
        } = self.window.merged();
        Snapshot {
            model: model.canonical(),
            counts: self.counts(),
            roots,
            from_ns,
            refused_labels: self.window.refused_labels(),
            clocks_differ: self.clocks.align(None).is_needed(),
        }
    }

    /// Returns the latest complete requests of the last five minutes before `now_ns`, if the window
    /// has all their labels, and the outcomes of all requests of about that time.
    #[must_use]
    pub fn recent(&self, now_ns: i64) -> RecentRequests {
        RecentRequests::of(&self.recent, &self.outcomes, &self.window, now_ns)
    }

    /// Returns a process's recording windows (`None` if none has reached the model, or if they have
    /// been evicted) and the resolution of its host's clock.
    #[must_use]
    pub fn of_process(&self, process: u128, host: &str) -> (Option<ProcessWindows>, Resolution) {
        (self.windows.get(process), self.clocks.resolution(host))
    }

    /// Returns the statistics of the window's requests, by root operation.
    #[must_use]
    pub fn roots(&self) -> ByRoot {
        self.window.roots()
    }

    /// Returns the totals since the collector started.
    #[must_use]
    pub fn totals(&self) -> Totals {
        Totals {
            roots: self.roots.all(),
            spans: self.spans.spans(),
            calls: self.spans.calls(),
            critical_ns: self.paths.critical(),
            slack: self.paths.slack(),
        }
    }

    fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return known.clone();
        }
        let known: Arc<str> = text.into();
        self.texts.insert(known.clone(), known.clone());
        known
    }

    fn attribute_values(&mut self, attributes: Option<&str>) -> AttributeValues {
        let Some(attributes) = attributes else {
            return AttributeValues::new();
        };
        parse_attributes(attributes, &self.keys, |text| text.into()).unwrap_or_else(|| {
            self.counts.left_out.unreadable_attributes += 1;
            AttributeValues::new()
        })
    }

    fn take_losses(&mut self, rows: &Rows) {
        if self.watch.len() > INCARNATIONS_MAX {
            self.watch.clear();
        }
        let mut batches: Vec<BatchLosses> = rows
            .batches
            .iter()
            .map(|row| {
                let lost = row
                    .losses
                    .iter()
                    .filter(|(cause, _)| loses_records(rows.strings.text(*cause)));
                let records = lost.fold(0u64, |sum, (_, records)| sum.saturating_add(*records));
                let (process, sequence, from_ns, to_ns) =
                    (row.process, row.sequence, row.from_ns, row.to_ns);
                BatchLosses {
                    process,
                    sequence,
                    from_ns,
                    to_ns,
                    records,
                }
            })
            .collect();
        batches.sort_unstable_by_key(|batch| (batch.process, batch.sequence));
        let watch = &mut self.watch;
        self.losses
            .extend(batches.into_iter().filter_map(|batch| watch.take(batch)));
        if self.losses.len() > LOSSES_MAX {
            self.losses.drain(..self.losses.len() - LOSSES_MAX);
        }
    }

    fn make_room(&mut self) {
        while let Some(records) = self.assembly.next_too_many() {
            self.counts.early_traces += 1;
            self.observe(records);
        }
    }

    fn observe(&mut self, mut trace: TraceRecords) {
        if let Some(root) = trace
            .root()
            .filter(|root| root.process != 0 && !trace.has_caller())
        {
            self.learning.note_root(&root.service, &root.name);
        }
        let may_be = trace.spans.len() >= CHILDREN_MIN || trace.spans.iter().any(is_marked);
        if may_be && self.learning.observe(&trace) {
            self.connections = self.learning.learned().with_requests(&self.requests);
        }
        match self.connections.divide(&mut trace) {
            Some(division) => division
                .requests
                .into_iter()
                .for_each(|request| self.observe_request(request)),
            None => self.observe_request(trace),
        }
    }

    fn observe_request(&mut self, mut records: TraceRecords) {
        self.counts.traces += 1;
        self.window.advance(self.now_ns);
        let failed: BTreeSet<u64> = failed_spans(&records).collect();
        let has_failed = self.outcomes.observe(self.now_ns, &records, &failed);
        self.spans.count(&records, &failed, records.weight());
        let completeness = completeness(&records, &self.losses);
        let mut causes: Vec<_> = completeness
            .reasons
            .iter()
            .map(|reason| reason.cause())
            .collect();
        let root = records.root();
        let is_request = root.is_some_and(|root| self.connections.is_request(root));
        if !is_request && self.inner.is_fragment(&records) {
            causes.push(INNER_ROOT);
        }
        causes.sort_unstable();
        causes.dedup();
        let (root, weight) = (records.root_name(), records.weight());
        let (slice, model, roots) = self.window.open();
        roots.count(&root, records.has_caller(), causes.is_empty(), weight);
        let mut complete = None;
        if causes.is_empty() {
            self.counts.complete_traces += 1;
            self.clocks.observe(&records);
            records.clocks = self.clocks.resolved(&records);
            let (trace, _) = self.segmenter.segment(&records, model.labels_mut());
            model.observe(&trace);
            roots.observe(&root, trace.latency_ns(), trace.after_answer_ns(), weight);
            let trace = Arc::new(trace);
            self.recent.add(self.now_ns, slice, trace.clone(), weight);
            complete = Some((slice, trace));
        }
        let latency_ns = complete.as_ref().map(|(_, trace)| trace.latency_ns());
        let root = self.roots.count(&records, has_failed, latency_ns, weight);
        if let (Some(root), Some((slice, trace))) = (root, complete) {
            self.paths.add(root, slice, trace, weight);
        }
        causes
            .into_iter()
            .for_each(|cause| *self.counts.incomplete.entry(cause).or_default() += 1);
    }
}
