//! Checks whether a request was recorded completely.
//!
//! A missing record can make a trace's latency, critical path and structure wrong. It may also
//! shift the numbers of siblings, so that the trace contradicts true relations of the model.
//! Analyses count incomplete traces by [`Incomplete::cause`], and exclude them by default.

use crate::inner_operations::INNER_ROOT;
use crate::record::{SpanFlags, TraceRecords};
use std::fmt;

/// A loss of records by one process within an interval of wall time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessLoss {
    /// The incarnation of the process.
    pub process: u128,
    /// The loss happened at or after this instant, in nanoseconds since the Unix epoch.
    pub from_ns: i64,
    /// The loss happened before this instant, in nanoseconds since the Unix epoch.
    pub to_ns: i64,
    /// Number of spans and events lost.
    pub records: u64,
}

/// One reason for which a trace is incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Incomplete {
    /// No span is a root, or the trace has neither spans nor events.
    NoRoot,
    /// Several spans have no parent. Holds the number of their distinct ids.
    SeveralRoots(usize),
    /// A span names a parent that is not in the trace.
    MissingParent {
        /// Id of the span.
        span_id: u64,
        /// Id of the missing parent.
        parent_id: u64,
    },
    /// The span, its request, or the request's part in its process began without being recorded.
    CutOpen {
        /// Id of the span.
        span_id: u64,
    },
    /// The window closed before the span ended.
    CutClose {
        /// Id of the span.
        span_id: u64,
    },
    /// The end of the span was not recorded.
    Unfinished {
        /// Id of the span.
        span_id: u64,
    },
    /// A process of the trace lost records in an interval that overlaps the trace's. The lost
    /// records may have belonged to the trace.
    Lossy {
        /// The incarnation of the process.
        process: u128,
        /// Number of records that the process lost in such intervals.
        records: u64,
    },
    /// The root is an inner operation of other traces. [`completeness`] does not find this, because
    /// it reads a single trace.
    InnerRoot,
}

impl Incomplete {
    /// Returns a short stable name of the reason, for counting.
    pub fn cause(&self) -> &'static str {
        match self {
            Incomplete::NoRoot => "no_root",
            Incomplete::SeveralRoots(_) => "several_roots",
            Incomplete::MissingParent { .. } => "missing_parent",
            Incomplete::CutOpen { .. } => "cut_open",
            Incomplete::CutClose { .. } => "cut_close",
            Incomplete::Unfinished { .. } => "unfinished",
            Incomplete::Lossy { .. } => "lossy",
            Incomplete::InnerRoot => INNER_ROOT,
        }
    }
}

/// Explains a cause, as [`Incomplete::cause`] names it. Returns an empty string for unknown causes.
pub fn explanation(cause: &str) -> &'static str {
    match cause {
        "no_root" | "inner_root" => {
            "the rest of requests whose beginning was not recorded: they were under way when their burst opened, which \
             is expected of bursts; or a process in front of these does not record, or a task was spawned without its \
             request (`.in_current_span()`)"
        }
        "cut_open" => {
            "requests that were under way when their burst opened: expected of bursts, which meet some each time; \
             requests that enter in a burst are followed to their end"
        }
        "cut_close" => {
            "their burst closed before they ended: they were recorded by bursts alone, without following"
        }
        "several_roots" => {
            "more than one span has no parent: the context did not travel with the request"
        }
        "missing_parent" => {
            "a span's parent is not there: a process between them does not record, or has not shipped yet"
        }
        "unfinished" => "the end was not seen: their process ended, or was killed, before they did",
        "lossy" => "a process lost records meanwhile, perhaps some of theirs",
        _ => "",
    }
}

impl fmt::Display for Incomplete {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Incomplete::NoRoot => write!(f, "no root span was recorded"),
            Incomplete::SeveralRoots(roots) => write!(f, "{roots} root spans"),
            Incomplete::MissingParent { span_id, parent_id } => write!(
                f,
                "span {span_id:016x} has parent {parent_id:016x}, which was not recorded"
            ),
            Incomplete::CutOpen { span_id } => {
                write!(f, "span {span_id:016x} began before recording did")
            }
            Incomplete::CutClose { span_id } => {
                write!(f, "recording ended before span {span_id:016x} did")
            }
            Incomplete::Unfinished { span_id } => {
                write!(f, "the end of span {span_id:016x} was never seen")
            }
            Incomplete::Lossy { process, records } => {
                write!(f, "process {process:032x} lost {records} records meanwhile")
            }
            Incomplete::InnerRoot => write!(
                f,
                "the operation of its root span runs inside another one in other requests"
            ),
        }
    }
}

/// The reasons for which a trace is incomplete.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Completeness {
    /// Reasons, sorted and without repeats. Empty if the trace is complete.
    pub reasons: Vec<Incomplete>,
}

impl Completeness {
    /// Reports whether the trace is complete.
    pub fn is_complete(&self) -> bool {
        self.reasons.is_empty()
    }
}

/// Finds the reasons for which one trace is incomplete. `losses` may contain losses of any process
/// at any time: only those of the trace's processes that overlap the trace's interval count. A
/// trace of event-log records alone is complete if it has at least one record.
pub fn completeness(records: &TraceRecords, losses: &[ProcessLoss]) -> Completeness {
    let mut reasons = Vec::new();
    if records.spans.is_empty() {
        if records.events.is_empty() {
            reasons.push(Incomplete::NoRoot);
        }
        return Completeness { reasons };
    }
    structure(records, &mut reasons);
    flags(records, &mut reasons);
    lossy(records, losses, &mut reasons);
    reasons.sort_unstable();
    reasons.dedup();
    Completeness { reasons }
}

fn structure(records: &TraceRecords, reasons: &mut Vec<Incomplete>) {
    let ids: foldhash::HashSet<u64> = records.spans.iter().map(|span| span.span_id).collect();
    let roots = records.spans.iter().filter(|span| span.parent_id == 0);
    let roots: foldhash::HashSet<u64> = roots.map(|span| span.span_id).collect();
    match roots.len() {
        0 => reasons.push(Incomplete::NoRoot),
        1 => {}
        several => reasons.push(Incomplete::SeveralRoots(several)),
    }
    for span in &records.spans {
        let (span_id, parent_id) = (span.span_id, span.parent_id);
        if parent_id != 0 && !ids.contains(&parent_id) {
            reasons.push(Incomplete::MissingParent { span_id, parent_id });
        }
    }
}

fn flags(records: &TraceRecords, reasons: &mut Vec<Incomplete>) {
    for span in &records.spans {
        let span_id = span.span_id;
        if span.flags.contains(SpanFlags::CUT_OPEN) {
            reasons.push(Incomplete::CutOpen { span_id });
        }
        if span.flags.contains(SpanFlags::CUT_CLOSE) {
            reasons.push(Incomplete::CutClose { span_id });
        }
        if span.flags.contains(SpanFlags::UNFINISHED) {
            reasons.push(Incomplete::Unfinished { span_id });
        }
    }
}

fn lossy(records: &TraceRecords, losses: &[ProcessLoss], reasons: &mut Vec<Incomplete>) {
    if losses.is_empty() {
        return;
    }
    let spans = records.spans.iter();
    let starts_ns = spans.clone().map(|span| span.start_ns);
    let from_ns = starts_ns.min().unwrap_or(0);
    let ends_ns = spans.clone().map(|span| span.end_ns.max(span.start_ns));
    let to_ns = ends_ns.max().unwrap_or(0);
    let of_spans = spans.map(|span| span.process);
    let processes: foldhash::HashSet<u128> = of_spans.filter(|process| *process != 0).collect();
    // The trace's interval is closed, a loss's is open at its end.
    let meanwhile = losses.iter().filter(|loss| {
        loss.records > 0
            && loss.from_ns <= to_ns
            && from_ns < loss.to_ns
            && processes.contains(&loss.process)
    });
    let mut per_process = std::collections::BTreeMap::<u128, u64>::new();
    for loss in meanwhile {
        let records = per_process.entry(loss.process).or_default();
        *records = records.saturating_add(loss.records);
    }
    for (process, records) in per_process {
        reasons.push(Incomplete::Lossy { process, records });
    }
}
