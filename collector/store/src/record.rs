//! What the collector keeps, as plain rows: between the wire and the Parquet columns.

use std::collections::HashMap;
use std::sync::Arc;

/// Index into [`Strings`].
pub type StringId = u32;

/// Interned strings of one set of rows. The map is the standard library's seeded one: names come from the network.
#[derive(Clone, Debug, Default)]
pub struct Strings {
    list: Vec<Arc<str>>,
    ids: HashMap<Arc<str>, StringId>,
    bytes: usize,
}

impl Strings {
    /// The id of `text`, the same for the same text.
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

    /// The text of `id`; empty when there is no such id.
    #[must_use]
    pub fn text(&self, id: StringId) -> &str {
        self.list.get(id as usize).map_or("", |text| text)
    }

    /// All strings, in order of their ids.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        self.list.iter().map(|text| &**text)
    }

    /// Bytes of all strings.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// A finished span. Times are ns since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanRow {
    /// Which request.
    pub trace_id: u128,
    /// The trace's id as its source wrote it, if that is not 32 lower-case hex digits.
    pub trace_name: Option<StringId>,
    /// Unique within its trace.
    pub span_id: u64,
    /// 0: none.
    pub parent_id: u64,
    pub service: StringId,
    /// Of the span.
    pub name: StringId,
    pub host: StringId,
    /// Incarnation of the process; 0 for imports.
    pub process: u128,
    /// Begin.
    pub start_ns: i64,
    /// End, not before `start_ns`.
    pub end_ns: i64,
    /// Bits of `SpanFlag`.
    pub flags: u32,
    /// One JSON object; none when empty.
    pub attributes: Option<Box<str>>,
}

/// Something that happened at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRow {
    /// Which request; 0: none.
    pub trace_id: u128,
    /// As in [`SpanRow`].
    pub trace_name: Option<StringId>,
    /// The span it belongs to; 0: none (always so in event logs, but for lines of OTLP's).
    pub span_id: u64,
    /// When, ns since the Unix epoch by the host's clock.
    pub time_ns: i64,
    /// Order among events of the same time.
    pub seq: u32,
    pub host: StringId,
    /// Of the process; empty for event logs.
    pub service: StringId,
    /// The task, in event logs. With a span: a line of a log inside it, which is no event of it.
    pub task: Option<StringId>,
    /// Of the event.
    pub name: StringId,
    /// One JSON object; none when empty.
    pub attributes: Option<Box<str>>,
}

/// A window `[open_ns, close_ns)` as really recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowRow {
    /// Begin.
    pub open_ns: i64,
    /// End.
    pub close_ns: i64,
    /// The mask in force.
    pub burst_config: u64,
}

/// What a kernel said of its host's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelClockRow {
    /// Something keeps it right.
    pub synchronised: bool,
    /// How far it is off at most.
    pub max_error_ns: i64,
    /// How far it is off presumably.
    pub estimated_error_ns: i64,
}

/// What a process used in `[from_ns, to_ns)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadRow {
    /// Begin.
    pub from_ns: i64,
    /// End.
    pub to_ns: i64,
    /// CPU time of all its threads; none where its system does not say.
    pub cpu_ns: Option<i64>,
    /// Memory that is resident at its end; none where its system does not say.
    pub memory_bytes: Option<u64>,
    /// Requests that entered it.
    pub requests: u64,
}

/// What one batch said about its process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchRow {
    /// Incarnation of the process.
    pub process: u128,
    /// Of the batch within its incarnation.
    pub sequence: u64,
    pub service: StringId,
    pub host: StringId,
    pub pid: u32,
    /// When the process started.
    pub started_ns: i64,
    pub sdk_version: StringId,
    /// Begin of the time covered.
    pub from_ns: i64,
    /// End of the time covered, exclusive.
    pub to_ns: i64,
    /// When the collector got it, by its own clock.
    pub received_ns: i64,
    /// In force at `to_ns`.
    pub burst_config: u64,
    /// Spans in the batch.
    pub spans: u32,
    /// Events in the batch.
    pub events: u32,
    /// Windows closed since the batch before.
    pub windows: Vec<WindowRow>,
    /// (cause, records lost since the process started).
    pub losses: Vec<(StringId, u64)>,
    /// (at, step), both ns.
    pub clock_steps: Vec<(i64, i64)>,
    /// What the kernel said of the clock at `to_ns`, in some of the batches.
    pub kernel_clock: Option<KernelClockRow>,
    /// What the process used since the batch before.
    pub loads: Vec<LoadRow>,
}

/// A set of rows that share their strings.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    /// The strings.
    pub strings: Strings,
    /// Finished spans.
    pub spans: Vec<SpanRow>,
    /// Events.
    pub events: Vec<EventRow>,
    /// Batches they came in; none for imports.
    pub batches: Vec<BatchRow>,
}

impl Rows {
    /// Whether there is nothing at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty() && self.events.is_empty() && self.batches.is_empty()
    }
}
