//! What was wrong with a trace's records, and what was done about it.

use std::fmt;

/// One flaw found while a trace was cut into segments. The rest of the trace is used all the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Diagnostic {
    /// A span ends before it starts; it was given length zero.
    NegativeSpan {
        /// The span.
        span_id: u64,
    },
    /// Several spans carry the same id; the first to start (of those, the longest) is kept, the others are not used.
    DuplicateSpan {
        /// The id they share.
        span_id: u64,
    },
    /// A span names a parent that is not in the trace; it became a root.
    MissingParent {
        /// The orphan.
        span_id: u64,
        /// The parent it names.
        parent_id: u64,
    },
    /// Spans are each other's ancestors; the first of them to start became a root.
    ParentCycle {
        /// The span that became a root.
        span_id: u64,
    },
    /// A span is nested deeper than task paths go; its path was shortened.
    TooDeep {
        /// The first span past the bound.
        span_id: u64,
    },
    /// Events of a span lie outside its interval; they were not used.
    EventsOutsideSpan {
        /// The span.
        span_id: u64,
        /// How many events.
        events: u32,
    },
    /// There was no room for new labels; the segments are missing from the result.
    LabelsFull {
        /// How many segments.
        segments: u32,
    },
}

impl Diagnostic {
    /// A short stable name of the kind of flaw, to count by.
    pub fn cause(&self) -> &'static str {
        match self {
            Diagnostic::NegativeSpan { .. } => "negative_span",
            Diagnostic::DuplicateSpan { .. } => "duplicate_span",
            Diagnostic::MissingParent { .. } => "missing_parent",
            Diagnostic::ParentCycle { .. } => "parent_cycle",
            Diagnostic::TooDeep { .. } => "too_deep",
            Diagnostic::EventsOutsideSpan { .. } => "events_outside_span",
            Diagnostic::LabelsFull { .. } => "labels_full",
        }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Diagnostic::NegativeSpan { span_id } => {
                write!(f, "span {span_id:016x} ends before it starts; taken as of length zero")
            }
            Diagnostic::DuplicateSpan { span_id } => {
                write!(f, "several spans have the id {span_id:016x}; only the first to start is used")
            }
            Diagnostic::MissingParent { span_id, parent_id } => {
                write!(
                    f,
                    "span {span_id:016x} has parent {parent_id:016x}, which is not in the trace; taken as a root"
                )
            }
            Diagnostic::ParentCycle { span_id } => {
                write!(f, "span {span_id:016x} is its own ancestor; taken as a root")
            }
            Diagnostic::TooDeep { span_id } => {
                write!(f, "span {span_id:016x} is nested too deep; its task path is shortened")
            }
            Diagnostic::EventsOutsideSpan { span_id, events } => {
                write!(f, "{events} events of span {span_id:016x} lie outside its interval; not used")
            }
            Diagnostic::LabelsFull { segments } => {
                write!(
                    f,
                    "{segments} segments have labels for which there is no room; raise the bound on labels"
                )
            }
        }
    }
}
