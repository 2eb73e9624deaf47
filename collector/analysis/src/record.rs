//! Records of one request: spans and log events, as plain data.

use crate::sampling::{TraceSampling, Weight};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The 128-bit id of a trace. Shown as 32 lowercase hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TraceId(pub u128);

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TraceId({self})")
    }
}

/// Error for a text that is not a trace id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a trace id: write 1 to 32 hexadecimal digits, such as 4bf92f3577b34da6a3ce929d0e0e4736"
)]
pub struct ParseTraceIdError {
    /// The rejected text, cut to its first 64 characters.
    pub text: String,
}

impl FromStr for TraceId {
    type Err = ParseTraceIdError;

    /// Accepts 1 to 32 hex digits of either case; short ids (Jaeger, Zipkin) are padded with zeros
    /// on the left.
    fn from_str(text: &str) -> Result<TraceId, ParseTraceIdError> {
        let wrong = || ParseTraceIdError {
            text: text.chars().take(64).collect(),
        };
        // `from_str_radix` alone would accept a leading `+`.
        if text.len() > 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        u128::from_str_radix(text, 16)
            .map(TraceId)
            .map_err(|_| wrong())
    }
}

/// Properties of a span in addition to its times. The bits are those of the protocol's `SpanFlag`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct SpanFlags(pub u32);

impl SpanFlags {
    /// The span, its request, or the request's part in this process began without being recorded.
    pub const CUT_OPEN: SpanFlags = SpanFlags(1);
    /// The window closed before the span ended; its end is the window's close.
    pub const CUT_CLOSE: SpanFlags = SpanFlags(2);
    /// The span's end was not recorded; its end here is an instant at which it was open.
    pub const UNFINISHED: SpanFlags = SpanFlags(4);
    /// The first span of its request in this process.
    pub const LOCAL_ROOT: SpanFlags = SpanFlags(8);
    /// The request was sampled at its ingress. Without this flag, the SDK records a span only while
    /// a window is open.
    pub const SAMPLED: SpanFlags = SpanFlags(16);
    /// The span ended while its thread was panicking.
    pub const PANICKED: SpanFlags = SpanFlags(32);
    /// The span waits for another process.
    pub const CLIENT: SpanFlags = SpanFlags(64);
    /// The span serves a request of another process.
    pub const SERVER: SpanFlags = SpanFlags(128);

    /// Other requests began inside the span, as in a connection; they are not part of its request.
    pub const CONNECTION: SpanFlags = SpanFlags(256);
    /// The service declares the span to be a request of its own, even inside another span.
    pub const REQUEST: SpanFlags = SpanFlags(512);
    /// The span's request was sampled, and no window held the whole span.
    pub const OUTSIDE: SpanFlags = SpanFlags(1024);

    /// Reports whether every bit of `other` is set.
    pub const fn contains(self, other: SpanFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the flags that are set in `self` or `other`.
    #[must_use]
    pub const fn with(self, other: SpanFlags) -> SpanFlags {
        SpanFlags(self.0 | other.0)
    }
}

/// An event at one instant inside a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PointEvent {
    /// Time of the event, nanoseconds since the Unix epoch.
    pub time_ns: i64,
    /// Name of the event.
    pub name: Arc<str>,
    /// Data element that the event concerns, from its attribute `element`.
    pub element: Option<Arc<str>>,
}

/// One span of a request, as recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanRecord {
    /// Id of the span inside its trace.
    pub span_id: u64,
    /// Id of the span that caused this one; 0 if there is none.
    pub parent_id: u64,
    /// The service that recorded the span.
    pub service: Arc<str>,
    /// The name of the operation.
    pub name: Arc<str>,
    /// The host on which the span was recorded.
    pub host: Arc<str>,
    /// Incarnation of the process that recorded the span; 0 if unknown, as for imported spans.
    pub process: u128,
    /// Start, nanoseconds since the Unix epoch.
    pub start_ns: i64,
    /// End, nanoseconds since the Unix epoch.
    pub end_ns: i64,
    /// Properties of the span, see [`SpanFlags`].
    pub flags: SpanFlags,
    /// Events inside the span, in any order.
    pub events: Vec<PointEvent>,
}

impl SpanRecord {
    /// Returns the duration; 0 if the span ends before it starts.
    pub fn duration_ns(&self) -> u64 {
        u64::try_from(self.end_ns.saturating_sub(self.start_ns)).unwrap_or(0)
    }

    /// Reports whether the span is neither cut nor unfinished, and does not end before it starts.
    pub const fn is_whole(&self) -> bool {
        let cut = SpanFlags::CUT_OPEN
            .with(SpanFlags::CUT_CLOSE)
            .with(SpanFlags::UNFINISHED);
        self.flags.0 & cut.0 == 0 && self.start_ns <= self.end_ns
    }

    /// Reports whether the span's request was sampled and a window of the span's process held the
    /// whole span. The span would have been recorded without sampling, too.
    pub const fn was_held(&self) -> bool {
        self.flags.contains(SpanFlags::SAMPLED) && !self.flags.contains(SpanFlags::OUTSIDE)
    }
}

/// One line of an event log in ÜberTrace's minimal schema (The Mystery Machine, §3).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EventRecord {
    /// The host on which the event happened.
    pub host: Arc<str>,
    /// Time of the event, nanoseconds since the Unix epoch.
    pub ts_ns: i64,
    /// Number in order of arrival, within the trace or one upload. Events may share a number.
    pub seq: u32,
    /// Name of the event.
    pub event: Arc<str>,
    /// The task (thread of control) in which the event happened.
    pub task: Arc<str>,
}

/// The record that an attribute or an element belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordOwner {
    /// The event with this [`EventRecord::seq`].
    Event(u32),
    /// The span with this [`SpanRecord::span_id`].
    Span(u64),
    /// A [`PointEvent`]: the [`SpanRecord::span_id`] of its span, and its index in
    /// [`SpanRecord::events`]. Log lines that belong to the span, but are not among its events,
    /// have indices that count down from [`u32::MAX`].
    InSpan(u64, u32),
}

/// The data element (a pagelet, a row, a message) that a span or an event of an event log concerns,
/// from its attribute `element`. The element of an event inside a span is in [`PointEvent`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElementRecord {
    /// The span or event that concerns the element.
    pub owner: RecordOwner,
    /// Name of the element inside its trace.
    pub element: Arc<str>,
}

/// One attribute of a span or an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttributeRecord {
    /// The span or event that has the attribute.
    pub owner: RecordOwner,
    /// The attribute's name.
    pub key: Arc<str>,
    /// Value as text: the contents of a string, or the JSON of another value. If the reader
    /// requested JSON, strings are JSON, too.
    pub value: Arc<str>,
}

/// Error bounds of a host's timestamps, see [`clock`](crate::clock).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostClock {
    /// Name of the host.
    pub host: Arc<str>,
    /// Maximum distance, in nanoseconds, of a timestamp from the instant at which it was taken, in
    /// the common time of the island.
    pub error_ns: u64,
    /// Maximum distance, in nanoseconds, at which two timestamps of this host do not show the order
    /// of their instants. The value 1 stands for exact timestamps: different ones always show the
    /// order.
    pub resolution_ns: u64,
    /// Number of the island, i.e. of the hosts with a common time. The order of timestamps from
    /// different islands is unknown.
    pub island: u32,
}

impl HostClock {
    /// Creates a clock without errors, on island 0.
    pub fn exact(host: Arc<str>) -> HostClock {
        HostClock {
            host,
            error_ns: 0,
            resolution_ns: 1,
            island: 0,
        }
    }

    /// Reports whether the clock is without errors, on island 0.
    pub fn is_exact(&self) -> bool {
        (self.error_ns, self.resolution_ns, self.island) == (0, 1, 0)
    }
}

/// Records of one trace, in any order.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct TraceRecords {
    /// Id of the trace.
    pub id: TraceId,
    /// Id as the source wrote it; `None` if that is `id` in 32 lower-case hexadecimal digits.
    pub name: Option<Arc<str>>,
    /// Id of the trace that this request was [divided](crate::connection) from; `None` if it was
    /// not divided.
    pub divided_from: Option<TraceId>,
    /// Spans of the SDK, of OpenTelemetry and of imported files.
    pub spans: Vec<SpanRecord>,
    /// Events of event logs, and log lines without a span.
    pub events: Vec<EventRecord>,
    /// Error bounds of the hosts' timestamps, in order of host name. Hosts that are not listed have
    /// exact timestamps.
    pub clocks: Vec<HostClock>,
    /// Data elements that spans and events concern.
    pub elements: Vec<ElementRecord>,
    /// Attributes that the analysis requested, in any order.
    pub attributes: Vec<AttributeRecord>,
    /// Sampling thresholds that the trace's spans state.
    pub sampling: TraceSampling,
}

/// Maximum number of hosts for which [`TraceRecords::hosts`] looks for duplicates while it collects
/// them.
const HOSTS_COMPARED_MAX: usize = 32;

/// Text that stands for several different values of an attribute or property in one trace.
pub const SEVERAL_VALUES: &str = "(several)";

impl TraceRecords {
    /// Returns the id that the trace has in the store and in kernel recordings.
    #[must_use]
    pub fn stored_id(&self) -> TraceId {
        self.divided_from.unwrap_or(self.id)
    }

    /// Returns the number of requests that this trace represents, by the rules of
    /// [`sampling`](crate::sampling).
    pub fn weight(&self) -> Weight {
        let by_threshold = self.sampling.weight();
        if by_threshold == Weight::ONE || (self.sampling.thinned().is_none() && self.is_held()) {
            Weight::ONE
        } else {
            by_threshold
        }
    }

    /// Reports whether there are spans, and all were sampled and held by windows. Windows alone
    /// would then have recorded the request.
    pub(crate) fn is_held(&self) -> bool {
        !self.spans.is_empty() && self.spans.iter().all(SpanRecord::was_held)
    }

    /// Returns the trace's value of an attribute; `None` if no record has the attribute. If spans
    /// without a parent have the attribute, the result is the least of their values. Otherwise, it
    /// is the value that all records with the attribute share, or [`SEVERAL_VALUES`] if they
    /// disagree.
    pub fn attribute(&self, key: &str) -> Option<Arc<str>> {
        let said = || {
            self.attributes
                .iter()
                .filter(|attribute| &*attribute.key == key)
        };
        let first = said().next()?;
        let roots: Vec<u64> = self
            .spans
            .iter()
            .filter(|span| span.parent_id == 0)
            .map(|span| span.span_id)
            .collect();
        let of_root = |attribute: &&AttributeRecord| matches!(attribute.owner, RecordOwner::Span(id) if roots.contains(&id));
        if let Some(least) = said()
            .filter(of_root)
            .map(|attribute| &attribute.value)
            .min()
        {
            return Some(least.clone());
        }
        let agree = said().all(|attribute| attribute.value == first.value);
        Some(if agree {
            first.value.clone()
        } else {
            SEVERAL_VALUES.into()
        })
    }

    /// Returns the hosts of all spans and events, in order of name.
    pub fn hosts(&self) -> Vec<&Arc<str>> {
        let mut hosts: Vec<&Arc<str>> = Vec::new();
        let mut last: Option<&Arc<str>> = None;
        for host in self
            .spans
            .iter()
            .map(|span| &span.host)
            .chain(self.events.iter().map(|event| &event.host))
        {
            // Usually, neighbouring records share a host, and hosts are few, with one allocation
            // each.
            let is = |known: &&Arc<str>| Arc::ptr_eq(known, host);
            let few = hosts.len() <= HOSTS_COMPARED_MAX;
            let known = last.as_ref().is_some_and(is) || (few && hosts.iter().any(is));
            if !known {
                hosts.push(host);
            }
            last = Some(host);
        }
        hosts.sort_unstable();
        hosts.dedup();
        hosts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request that windows held counts once, whatever its threshold, unless it was thinned. All
    /// of its spans must have been held, and other programs have no windows.
    #[test]
    fn a_request_held_by_windows_counts_once() {
        let check = |flags: &[SpanFlags], state: &str, expected: f64| {
            let span = |(at, flags): (usize, &SpanFlags)| SpanRecord {
                span_id: at as u64 + 1,
                parent_id: at as u64,
                service: "s".into(),
                name: "n".into(),
                host: "h".into(),
                process: 1,
                start_ns: 0,
                end_ns: 1,
                flags: *flags,
                events: Vec::new(),
            };
            let mut trace = TraceRecords {
                spans: flags.iter().enumerate().map(span).collect(),
                ..TraceRecords::default()
            };
            trace.sampling.observe(true, state);
            assert_eq!(trace.weight().value(), expected, "{flags:?} {state}");
        };
        let held = SpanFlags::SAMPLED;
        let outside = held.with(SpanFlags::OUTSIDE);
        let foreign = SpanFlags(0);
        check(&[held, held], "ot=th:c", 1.0);
        // Thinning has taken the windows into account.
        check(&[held, held], "stroboscope=thin:8,ot=th:8", 2.0);
        check(&[held, outside], "ot=th:c", 4.0);
        check(&[outside, held], "ot=th:c", 4.0);
        check(&[foreign, held], "ot=th:c", 4.0);
        check(&[foreign], "ot=th:c", 4.0);
        check(&[], "ot=th:c", 4.0);
        check(&[outside], "", 1.0);
    }

    #[test]
    fn a_trace_says_what_its_root_says() {
        let span = |span_id, parent_id, start_ns| SpanRecord {
            span_id,
            parent_id,
            service: "s".into(),
            name: "n".into(),
            host: "h".into(),
            process: 1,
            start_ns,
            end_ns: start_ns + 1,
            flags: SpanFlags(0),
            events: Vec::new(),
        };
        let event = EventRecord {
            host: "h".into(),
            ts_ns: 3,
            seq: 7,
            event: "e".into(),
            task: "t".into(),
        };
        let mut trace = TraceRecords {
            spans: vec![span(1, 0, 9), span(2, 1, 5), span(3, 1, 2)],
            events: vec![event],
            ..TraceRecords::default()
        };
        assert_eq!(trace.attribute("user"), None);
        let mut say = |owner, value: &str, expected: &str| {
            trace.attributes.push(AttributeRecord {
                owner,
                key: "user".into(),
                value: value.into(),
            });
            trace.attributes.push(AttributeRecord {
                owner,
                key: "other".into(),
                value: "0".into(),
            });
            assert_eq!(trace.attribute("user").as_deref(), Some(expected));
            assert_eq!(trace.attribute("other").as_deref(), Some("0"));
        };
        say(RecordOwner::Span(2), "a", "a");
        say(RecordOwner::InSpan(1, 0), "a", "a");
        say(RecordOwner::Event(7), "event", SEVERAL_VALUES);
        say(RecordOwner::Span(3), "first", SEVERAL_VALUES);
        say(RecordOwner::Span(1), "root", "root");
        say(RecordOwner::Span(1), "another", "another");
    }
}
