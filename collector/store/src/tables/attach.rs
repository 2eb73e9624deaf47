//! Attaches events and attributes to the spans and events of a trace.

use std::cell::LazyCell;
use std::sync::Arc;

use foldhash::HashSet;
use stroboscope_analysis::record::{
    AttributeRecord, ElementRecord, EventRecord, PointEvent, RecordOwner, SpanRecord, TraceRecords,
};

use super::attributes::{AttributeValues, ELEMENT};
use super::left_out::LeftOut;

/// Maximum number of a trace's events whose spans are found by linear search. For more events, a
/// map is built.
const EVENTS_WITHOUT_MAP: usize = 8;

/// Maximum number of spans with equal ids and starts, or of events with equal times and numbers, to
/// which a span or event is compared to find copies.
pub const COPIES_COMPARED_MAX: usize = 64;

/// Row of the events table as it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRead {
    pub trace_name: Option<Arc<str>>,
    /// Id of the event's span; 0 for none.
    pub span_id: u64,
    pub time_ns: i64,
    pub seq: u32,
    pub host: Arc<str>,
    /// Task of an event of an event log, or of a log line from OTLP; `None` for other events.
    pub task: Option<Arc<str>>,
    pub name: Arc<str>,
    pub attributes: AttributeValues,
}

/// Attaches events to traces. Its memory is kept when it is reused for further traces.
#[derive(Debug, Default)]
pub struct EventAttacher {
    /// Index of the first span with each span id; empty if the trace has few events.
    span_of: foldhash::HashMap<u64, usize>,
    /// Number of log lines inside spans that were attached to the trace so far.
    log_lines: u32,
    /// Ids of the trace's spans of which copies were dropped.
    copied: HashSet<u64>,
}

impl EventAttacher {
    /// Attaches the events in their order to a trace, which must already have its spans, in the
    /// order of [`sort_spans`](super::sort_spans). Empties `events`. Drops copies of spans without
    /// a process, and of their events, because clients of OTLP send a request again if its response
    /// was lost.
    pub fn attach(
        &mut self,
        trace: &mut TraceRecords,
        events: &mut Vec<EventRead>,
        left_out: &mut LeftOut,
    ) {
        self.span_of.clear();
        self.log_lines = 0;
        left_out.copies += self.drop_span_copies(trace);
        let without_process = LazyCell::new(|| -> HashSet<u64> {
            let spans = trace.spans.iter().filter(|span| span.process == 0);
            spans.map(|span| span.span_id).collect()
        });
        left_out.copies += drop_event_copies(events, |event| {
            self.copied.contains(&event.span_id)
                || event.task.is_none() && without_process.contains(&event.span_id)
        });
        self.copied.clear();
        if events.len() > EVENTS_WITHOUT_MAP {
            let places = trace.spans.iter().enumerate();
            places.for_each(|(at, span)| _ = self.span_of.entry(span.span_id).or_insert(at));
        }
        for event in events.drain(..) {
            self.attach_one(trace, event, left_out);
        }
        tell_events_apart(trace);
    }

    /// Drops copies of spans without a process, and of their attributes and elements. The spans
    /// must be in the order of [`sort_spans`](super::sort_spans). Returns the number of dropped
    /// spans.
    pub(super) fn drop_span_copies(&mut self, trace: &mut TraceRecords) -> u64 {
        let all = trace.spans.len();
        let copied = &mut self.copied;
        let is_like = |a: &SpanRecord, b: &SpanRecord| {
            (a.start_ns, a.span_id, a.process) == (b.start_ns, b.span_id, 0)
        };
        drop_copies(&mut trace.spans, is_like, |span, kept| {
            let is_copy = span == kept;
            if is_copy {
                copied.insert(span.span_id);
            }
            is_copy
        });
        if trace.spans.len() < all {
            let is_copied =
                |owner: RecordOwner| matches!(owner, RecordOwner::Span(id) if copied.contains(&id));
            let mut seen = HashSet::default();
            let mut is_new = |of: &ElementRecord| seen.insert((of.owner, of.element.clone()));
            let elements = &mut trace.elements;
            elements.retain(|of| !is_copied(of.owner) || is_new(of));
            let mut seen = HashSet::default();
            let mut is_new =
                |of: &AttributeRecord| seen.insert((of.owner, of.key.clone(), of.value.clone()));
            let attributes = &mut trace.attributes;
            attributes.retain(|of| !is_copied(of.owner) || is_new(of));
        }
        (all - trace.spans.len()) as u64
    }

    fn attach_one(&mut self, trace: &mut TraceRecords, read: EventRead, left_out: &mut LeftOut) {
        let EventRead {
            trace_name,
            span_id,
            time_ns,
            seq,
            host,
            task,
            name,
            mut attributes,
        } = read;
        if trace.name.is_none() {
            trace.name = trace_name;
        }
        match (span_id, task) {
            (0, Some(task)) => {
                // The owner refers to the event by index for now; see `tell_events_apart`.
                let owner = RecordOwner::Event(trace.events.len() as u32);
                attach_attributes(trace, owner, attributes);
                trace.events.push(EventRecord {
                    host,
                    ts_ns: time_ns,
                    seq,
                    event: name,
                    task,
                });
            }
            (0, None) => left_out.no_span_no_task += 1,
            (span_id, task) => {
                let found = if self.span_of.is_empty() {
                    trace.spans.iter().position(|span| span.span_id == span_id)
                } else {
                    self.span_of.get(&span_id).copied()
                };
                match found {
                    Some(at) => {
                        // A log line inside a span describes the span, but does not cut it into
                        // segments.
                        let number = if task.is_none() {
                            let element = take_element(&mut attributes);
                            trace.spans[at].events.push(PointEvent {
                                time_ns,
                                name,
                                element,
                            });
                            trace.spans[at].events.len() as u32 - 1
                        } else {
                            self.log_lines += 1;
                            u32::MAX - (self.log_lines - 1)
                        };
                        attach_attributes(trace, RecordOwner::InSpan(span_id, number), attributes);
                    }
                    None => left_out.span_missing += 1,
                }
            }
        }
    }
}

/// Drops events inside spans that equal an earlier one, if `may_be_copy` agrees. `may_be_copy`
/// should accept a log line only if the line's span was copied, because no number tells copies of a
/// line from repetitions. The events must be in order of time and number. Returns the number of
/// dropped ones.
pub fn drop_event_copies(
    events: &mut Vec<EventRead>,
    may_be_copy: impl Fn(&EventRead) -> bool,
) -> u64 {
    let all = events.len();
    let is_like = |a: &EventRead, b: &EventRead| (a.time_ns, a.seq) == (b.time_ns, b.seq);
    drop_copies(events, is_like, |event, kept| {
        event == kept && event.span_id != 0 && may_be_copy(event)
    });
    (all - events.len()) as u64
}

/// Drops records that are copies of earlier ones. Records that are alike must be neighbours. Each
/// is compared with at most [`COPIES_COMPARED_MAX`] kept ones.
fn drop_copies<T>(
    records: &mut Vec<T>,
    is_like: impl Fn(&T, &T) -> bool,
    mut is_copy: impl FnMut(&T, &T) -> bool,
) {
    if records.windows(2).any(|pair| is_like(&pair[0], &pair[1])) {
        for record in std::mem::take(records) {
            let alike = records.iter().rev();
            let alike = alike.take_while(|kept| is_like(kept, &record));
            let mut alike = alike.take(COPIES_COMPARED_MAX);
            if !alike.any(|kept| is_copy(&record, kept)) {
                records.push(record);
            }
        }
    }
}

/// Removes the attribute [`ELEMENT`] of an event inside a span, and returns its value; `None` if
/// the event lacks it. If it occurs several times, returns the first value in byte order.
fn take_element(attributes: &mut AttributeValues) -> Option<Arc<str>> {
    let mut element: Option<Arc<str>> = None;
    attributes.retain(|(key, value)| {
        let is_element = &**key == ELEMENT;
        if is_element && element.as_ref().is_none_or(|kept| value < kept) {
            element = Some(value.clone());
        }
        !is_element
    });
    element
}

/// Adds the attributes of one record to its trace. The attribute [`ELEMENT`] of a span or of an
/// event without a span becomes a separate record.
pub(super) fn attach_attributes(
    trace: &mut TraceRecords,
    owner: RecordOwner,
    values: AttributeValues,
) {
    for (key, value) in values {
        // A log line inside a span does not process an element.
        if &*key == ELEMENT && !matches!(owner, RecordOwner::InSpan(..)) {
            trace.elements.push(ElementRecord {
                owner,
                element: value,
            });
        } else {
            trace.attributes.push(AttributeRecord { owner, key, value });
        }
    }
}

/// Makes the elements and attributes of events, if any, refer to their event by number instead of
/// by index. Numbers are unique only within one import, and all log lines from OTLP without a span
/// have number 0. If numbers collide in a trace with elements or attributes, renumbers its events
/// in the order of their numbers.
fn tell_events_apart(trace: &mut TraceRecords) {
    let TraceRecords {
        events,
        elements,
        attributes,
        ..
    } = trace;
    let of_elements = elements.iter_mut().map(|element| &mut element.owner);
    let of_attributes = attributes.iter_mut().map(|attribute| &mut attribute.owner);
    let mut owners: Vec<&mut RecordOwner> = of_elements.chain(of_attributes).collect();
    if owners.is_empty() || events.is_empty() {
        return;
    }
    let mut order: Vec<usize> = (0..events.len()).collect();
    // The sort is stable: among events with equal numbers, the one that was read first stays first.
    order.sort_by_key(|at| events[*at].seq);
    let is_same = |pair: &[usize]| events[pair[0]].seq == events[pair[1]].seq;
    if order.windows(2).any(is_same) {
        // Events that are equal in all fields keep equal numbers, because they count as one event
        // that was sent twice.
        let mut alike: foldhash::HashMap<EventRecord, u32> = foldhash::HashMap::default();
        for (seq, at) in order.iter().enumerate() {
            let event = &mut events[*at];
            event.seq = *alike.entry(event.clone()).or_insert(seq as u32);
        }
    }
    for owner in &mut owners {
        if let RecordOwner::Event(at) = owner {
            **owner = RecordOwner::Event(events[*at as usize].seq);
        }
    }
}
