//! Rows of the stored tables except `kernel`, as plain structs that become Parquet columns.

use std::collections::HashMap;
use std::sync::Arc;

/// Index into [`Strings`].
pub type StringId = u32;

/// Interned strings of one set of rows. The map uses the standard library's seeded hasher, so that
/// a client cannot choose names with colliding hashes.
#[derive(Clone, Debug, Default)]
pub struct Strings {
    list: Vec<Arc<str>>,
    ids: HashMap<Arc<str>, StringId>,
    bytes: usize,
}

impl Strings {
    /// Returns the id of `text`. Equal texts have the same id.
    pub fn intern(&mut self, text: &str) -> StringId {
        if let Some(&id) = self.ids.get(text) {
            return id;
        }
        let text: Arc<str> = text.into();
        let id = StringId::try_from(self.list.len()).unwrap_or(StringId::MAX);
        self.bytes += text.len();
        self.list.push(text.clone());
        self.ids.insert(text, id);
        id
    }

    /// Returns the text of `id`; empty for an unknown id.
    #[must_use]
    pub fn text(&self, id: StringId) -> &str {
        self.list.get(id as usize).map_or("", |text| text)
    }

    /// Returns all strings, in the order of their ids.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        self.list.iter().map(|text| &**text)
    }

    /// Returns the total size of all strings, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Row of a span. Times are in ns since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanRow {
    /// Id of the request; 0 for none.
    pub trace_id: u128,
    /// Id of the trace as its source wrote it; `None` if that is the id in 32 lower-case
    /// hexadecimal digits.
    pub trace_name: Option<StringId>,
    /// Id of the span within its trace.
    pub span_id: u64,
    /// Id of the parent span; 0 for none.
    pub parent_id: u64,
    pub service: StringId,
    /// Name of the span.
    pub name: StringId,
    pub host: StringId,
    /// Incarnation of the process; 0 for spans from imports and from OTLP.
    pub process: u128,
    /// Start of the span.
    pub start_ns: i64,
    /// End of the span, not before `start_ns`.
    pub end_ns: i64,
    /// Bits of `SpanFlag`.
    pub flags: u32,
    /// Attributes as one JSON object; `None` if there are none.
    pub attributes: Option<Box<str>>,
}

/// Row of an event, such as one of a span or of an event log, or of a log line from OTLP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRow {
    /// Id of the request; 0 for none.
    pub trace_id: u128,
    /// Id of the trace as its source wrote it, as in [`SpanRow`].
    pub trace_name: Option<StringId>,
    /// Id of the event's span; 0 for none. Events of event logs have no span; log lines from OTLP
    /// may have one.
    pub span_id: u64,
    /// Time of the event, in ns since the Unix epoch by the host's clock.
    pub time_ns: i64,
    /// Number that orders events of the same time; 0 for log lines from OTLP without a span.
    pub seq: u32,
    pub host: StringId,
    /// Service of the process; empty for imported event logs.
    pub service: StringId,
    /// Task of an event of an event log, or of a log line from OTLP; `None` for other events. A row
    /// with a task and a span is a log line inside the span, not one of the span's events.
    pub task: Option<StringId>,
    /// Name of the event.
    pub name: StringId,
    /// Attributes as one JSON object; `None` if there are none.
    pub attributes: Option<Box<str>>,
}

/// Window `[open_ns, close_ns)` that a process actually recorded, or a piece of a long one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowRow {
    /// Start of the window, in ns since the Unix epoch.
    pub open_ns: i64,
    /// End of the window, in ns since the Unix epoch.
    pub close_ns: i64,
    /// Burst-config in force, as bits.
    pub burst_config: u64,
}

/// State of a host's clock as its kernel reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelClockRow {
    /// True if the clock is synchronised.
    pub synchronised: bool,
    /// Maximum error of the clock, in ns.
    pub max_error_ns: i64,
    /// Estimated error of the clock, in ns.
    pub estimated_error_ns: i64,
}

/// Resources that a process used in `[from_ns, to_ns)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadRow {
    /// Start of the interval, in ns since the Unix epoch.
    pub from_ns: i64,
    /// End of the interval, in ns since the Unix epoch.
    pub to_ns: i64,
    /// CPU time of all its threads, in ns; `None` if the system does not report it.
    pub cpu_ns: Option<i64>,
    /// Resident memory at `to_ns`, in bytes; `None` if the system does not report it.
    pub memory_bytes: Option<u64>,
    /// Number of requests that entered the process.
    pub requests: u64,
}

/// Row of a batch, with its report about the process that sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchRow {
    /// Incarnation of the process.
    pub process: u128,
    /// Sequence number of the batch within its incarnation.
    pub sequence: u64,
    pub service: StringId,
    pub host: StringId,
    pub pid: u32,
    /// Start of recording in the process, in ns since the Unix epoch.
    pub started_ns: i64,
    pub sdk_version: StringId,
    /// Start of the covered time, in ns since the Unix epoch.
    pub from_ns: i64,
    /// End of the covered time, exclusive, in ns since the Unix epoch.
    pub to_ns: i64,
    /// Arrival at the collector by its own clock, in ns since the Unix epoch.
    pub received_ns: i64,
    /// Burst-config in force at `to_ns`, as bits.
    pub burst_config: u64,
    /// Number of spans in the batch.
    pub spans: u32,
    /// Number of events in the batch.
    pub events: u32,
    /// Windows recorded since the previous batch. A long window comes in pieces while it is open.
    pub windows: Vec<WindowRow>,
    /// Causes of losses, each with its count since the process started.
    pub losses: Vec<(StringId, u64)>,
    /// Clock steps, each with its time in ns since the Unix epoch and the size of the step in ns.
    pub clock_steps: Vec<(i64, i64)>,
    /// State of the host's clock at `to_ns`; `None` if the batch does not report it.
    pub kernel_clock: Option<KernelClockRow>,
    /// Resources that the process used since the previous batch.
    pub loads: Vec<LoadRow>,
}

/// Piece of a provenance log, of at most 32 KiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvenanceRow {
    pub trace_id: u128,
    /// Time at which the request began to be tracked, in ns since the Unix epoch.
    pub time_ns: i64,
    /// Index of the piece within the log.
    pub piece: u32,
    /// Number of pieces of the log.
    pub pieces: u32,
    /// Span in which the request began to be tracked.
    pub span_id: u64,
    /// Incarnation of the process.
    pub process: u128,
    /// Sequence number of the batch within the incarnation.
    pub sequence: u64,
    /// Index of the log within the batch.
    pub number: u32,
    pub service: StringId,
    pub host: StringId,
    pub bytes: Vec<u8>,
}

/// Set of rows that share their strings.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    /// Interned strings of the rows.
    pub strings: Strings,
    /// Rows of spans.
    pub spans: Vec<SpanRow>,
    /// Rows of events and of log lines from OTLP.
    pub events: Vec<EventRow>,
    /// Rows of the batches that carried the spans and events. Imports and OTLP requests have none.
    pub batches: Vec<BatchRow>,
    /// Rows of provenance logs.
    pub provenance: Vec<ProvenanceRow>,
}

impl Rows {
    /// Reports whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
            && self.events.is_empty()
            && self.batches.is_empty()
            && self.provenance.is_empty()
    }
}
