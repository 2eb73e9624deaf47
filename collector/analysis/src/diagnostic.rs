//! Flaws in a trace's records, and the remedies applied to them.

use std::fmt;

/// One flaw found while a trace was cut into segments. The rest of the trace is still used.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Diagnostic {
    /// A span ends before it starts. It was given length zero.
    NegativeSpan {
        /// Id of the span.
        span_id: u64,
    },
    /// Several spans have the same id. Only the first to start was used, or the longest of several
    /// that start first.
    DuplicateSpan {
        /// The id of these spans.
        span_id: u64,
    },
    /// A span names a parent that is not in the trace. The span became a root.
    MissingParent {
        /// Id of the span.
        span_id: u64,
        /// Id of the missing parent.
        parent_id: u64,
    },
    /// A span starts before its parent on the same host, probably because the clock was set.
    StartsBeforeParent {
        /// Id of the child span.
        span_id: u64,
    },
    /// The parents of spans form a cycle. The first span of the cycle to start became a root.
    ParentCycle {
        /// Id of the span that became a root.
        span_id: u64,
    },
    /// Spans are nested deeper than the limit on task paths. Their paths were shortened.
    TooDeep {
        /// Id of one of these spans.
        span_id: u64,
    },
    /// Events of a span lie outside its interval. They were not used.
    EventsOutsideSpan {
        /// Id of the span.
        span_id: u64,
        /// Number of these events.
        events: u32,
    },
    /// The events of a task on one host did not arrive in the order of their times. A clock was set
    /// back, or the lines of the log are not in order. The events were sorted by time.
    EventsOutOfOrder {
        /// Number of pairs of neighbouring events in time that arrived in the other order.
        events: u32,
    },
    /// Tasks with a single event yield no segment. Other events of these tasks may be missing, or
    /// each task's name may contain an id.
    LoneEvents {
        /// Number of these events.
        events: u32,
    },
    /// The model had no room for new labels. The segments with these labels are missing from the
    /// result.
    LabelsFull {
        /// Number of missing segments.
        segments: u32,
    },
}

impl Diagnostic {
    /// Returns a short stable name of the kind of flaw, for counting.
    pub fn cause(&self) -> &'static str {
        match self {
            Diagnostic::NegativeSpan { .. } => "negative_span",
            Diagnostic::DuplicateSpan { .. } => "duplicate_span",
            Diagnostic::MissingParent { .. } => "missing_parent",
            Diagnostic::StartsBeforeParent { .. } => "starts_before_parent",
            Diagnostic::ParentCycle { .. } => "parent_cycle",
            Diagnostic::TooDeep { .. } => "too_deep",
            Diagnostic::EventsOutsideSpan { .. } => "events_outside_span",
            Diagnostic::EventsOutOfOrder { .. } => "events_out_of_order",
            Diagnostic::LoneEvents { .. } => "lone_events",
            Diagnostic::LabelsFull { .. } => "labels_full",
        }
    }

    /// Explains a [cause](Diagnostic::cause), or `impossible_round_trip`, to a user. Returns an
    /// empty string for unknown causes.
    pub fn explanation(cause: &str) -> &'static str {
        match cause {
            "negative_span" => "a span ends before it starts; taken as of length zero",
            "duplicate_span" => "several spans have one id; only the first to start is used",
            "missing_parent" => "a span's parent is not in the trace; taken as a root",
            "starts_before_parent" => {
                "a span starts before its parent on the same host: was a clock set?"
            }
            "parent_cycle" => "a span is its own ancestor; taken as a root",
            "too_deep" => "a span is nested too deep; its task path is shortened",
            "events_outside_span" => "events lie outside their span; not used",
            "events_out_of_order" => {
                "times of one task on one host go back from line to line: a clock was set, or the log is not in order"
            }
            "impossible_round_trip" => {
                "one host waited for another for less time than the other took: a clock was set; `clocks` says more"
            }
            "lone_events" => {
                "tasks with a single event make no segment: are events missing, or ids in tasks' names?"
            }
            "labels_full" => {
                "segments for which the model has no room are left out: are there ids in names? Otherwise, see --max-segments"
            }
            _ => "",
        }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&match self {
            Diagnostic::NegativeSpan { span_id } => {
                format!("span {span_id:016x} ends before it starts; taken as of length zero")
            }
            Diagnostic::DuplicateSpan { span_id } => {
                format!("several spans have the id {span_id:016x}; only the first to start is used")
            }
            Diagnostic::MissingParent { span_id, parent_id } => format!(
                "span {span_id:016x} has parent {parent_id:016x}, which is not in the trace; taken as a root"
            ),
            Diagnostic::StartsBeforeParent { span_id } => {
                format!("span {span_id:016x} starts before its parent, on the same host")
            }
            Diagnostic::ParentCycle { span_id } => {
                format!("span {span_id:016x} is its own ancestor; taken as a root")
            }
            Diagnostic::TooDeep { span_id } => {
                format!("span {span_id:016x} is nested too deep; its task path is shortened")
            }
            Diagnostic::EventsOutsideSpan { span_id, events } => {
                format!("{events} events of span {span_id:016x} lie outside its interval; not used")
            }
            Diagnostic::EventsOutOfOrder { events } => format!(
                "{events} events come after a later one of their task and host; taken by their times"
            ),
            Diagnostic::LoneEvents { events } => {
                format!("{events} events are the only ones of their tasks; they make no segment")
            }
            Diagnostic::LabelsFull { segments } => format!(
                "{segments} segments have labels for which there is no room; raise the bound on labels"
            ),
        })
    }
}
