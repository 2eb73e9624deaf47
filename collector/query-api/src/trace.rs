//! A trace as it is stored, with the types of its attributes.

use std::collections::{BTreeMap, HashMap, HashSet};

use stroboscope_analysis::flow::is_failure;
use stroboscope_analysis::record::TraceId;
use stroboscope_otlp::message::{AnyKind, AnyValue, ArrayValue, KeyValue, ResourceSpans};
use stroboscope_otlp::{
    SpanParts, StoredAttributes, StoredEvent, StoredSpan, any_of_json, resource_spans,
};
use stroboscope_proto::v1::SpanFlag;
use stroboscope_store::tables::{
    AttributeValues, COPIES_COMPARED_MAX, EventRead, SpanRead, TraceRows, drop_event_copies,
};

/// Attribute key in OTLP under which Jaeger expects warnings, for which OTLP has no field.
const WARNINGS: &str = "@jaeger@warnings";

/// A trace. If [`of_rows`](Self::of_rows) built it, it has at least one span.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoredTrace {
    /// Trace id.
    pub id: u128,
    /// Spans, in order of their recorded starts.
    pub spans: Vec<TraceSpan>,
    /// Warnings about the trace.
    pub warnings: Vec<String>,
}

/// A span with its warnings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TraceSpan {
    /// Span as it is stored, except that its times may be corrected.
    pub stored: StoredSpan,
    /// Log lines inside the span. Responses show them as events of the span.
    pub lines: Vec<StoredEvent>,
    /// Warnings about the span's times.
    pub warnings: Vec<String>,
}

impl StoredTrace {
    /// Builds a trace from these rows, without copies of spans without a process and of their
    /// events, as after a retried OTLP request. Returns `None` if there are no spans, because
    /// clients access the first span unchecked.
    #[must_use]
    pub fn of_rows(rows: TraceRows) -> Option<Self> {
        let mut spans: Vec<TraceSpan> = Vec::with_capacity(rows.spans.len());
        let mut places: HashMap<u64, Vec<usize>> = HashMap::new();
        let mut copied = HashSet::new();
        for row in rows.spans {
            let span = span_of(rows.id, row);
            let alike = places.entry(span.stored.span_id).or_default();
            let mut compared = alike.iter().rev().take(COPIES_COMPARED_MAX);
            if span.stored.process == 0 && compared.any(|place| spans[*place] == span) {
                copied.insert(span.stored.span_id);
            } else {
                alike.push(spans.len());
                spans.push(span);
            }
        }
        if spans.is_empty() {
            return None;
        }
        let mut events = rows.events;
        drop_event_copies(&mut events, |event| {
            let first = places.get(&event.span_id).and_then(|places| places.first());
            let is_without_process = || first.is_some_and(|at| spans[*at].stored.process == 0);
            copied.contains(&event.span_id) || event.task.is_none() && is_without_process()
        });
        for event in events {
            let Some(places) = places.get(&event.span_id) else {
                continue;
            };
            // If several spans have this id, as in Zipkin's shared spans, the event belongs to the
            // first one with its host and time, or else to the first one.
            let is_inside = |place: &&usize| {
                let span = &spans[**place].stored;
                *span.host == *event.host
                    && span.start_ns <= event.time_ns
                    && event.time_ns <= span.end_ns
            };
            let place = places.iter().find(is_inside).or(places.first());
            let Some(span) = place.and_then(|place| spans.get_mut(*place)) else {
                continue;
            };
            let is_line = event.task.is_some();
            let event = event_of(event);
            if is_line {
                span.lines.push(event);
            } else {
                span.stored.events.push(event);
            }
        }
        Some(Self {
            id: rows.id,
            spans,
            warnings: Vec::new(),
        })
    }

    /// Returns the first span without a parent, or else the first span whose parent is missing.
    #[must_use]
    pub fn root(&self) -> Option<&TraceSpan> {
        let is_root = |span: &&TraceSpan| span.stored.parent_id == 0;
        let root = self.spans.iter().find(is_root);
        root.or_else(|| self.orphans().next())
    }

    /// Returns the spans that name a parent which is not in the trace.
    pub fn orphans(&self) -> impl Iterator<Item = &TraceSpan> {
        let ids: HashSet<u64> = self.spans.iter().map(|span| span.stored.span_id).collect();
        self.spans
            .iter()
            .filter(move |span| span.stored.parent_id != 0 && !ids.contains(&span.stored.parent_id))
    }

    /// Returns the first start and the last end of the spans, in ns since the Unix epoch.
    #[must_use]
    pub fn times_ns(&self) -> (i64, i64) {
        let starts = self.spans.iter().map(|span| span.stored.start_ns);
        let ends = self.spans.iter().map(|span| span.stored.end_ns);
        (starts.min().unwrap_or(0), ends.max().unwrap_or(0))
    }

    /// Counts the spans, and the failed ones among them, by service.
    pub(crate) fn services(&self) -> BTreeMap<&str, (u32, u32)> {
        let mut services: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
        for span in &self.spans {
            let of_service = services.entry(&span.stored.service).or_default();
            of_service.0 += 1;
            of_service.1 += u32::from(span.is_error());
        }
        services
    }

    /// Converts the spans to messages of OTLP, with log lines as events, and with the warnings of a
    /// span as its attribute.
    pub fn otlp_parts(&self) -> impl Iterator<Item = SpanParts> {
        let of = |span: &TraceSpan| {
            let mut parts = span.stored.parts();
            let lines = span.lines.iter().map(StoredEvent::message);
            parts.span.events.extend(lines);
            if !span.warnings.is_empty() {
                let text = |text: &String| AnyValue {
                    kind: Some(AnyKind::Text(text.clone())),
                };
                let values = span.warnings.iter().map(text).collect();
                parts.span.attributes.push(KeyValue {
                    key: WARNINGS.to_owned(),
                    value: Some(AnyValue {
                        kind: Some(AnyKind::Array(ArrayValue { values })),
                    }),
                });
            }
            parts
        };
        self.spans.iter().map(of)
    }

    /// Converts the trace to messages of OTLP, each with spans of one resource. Yields them in
    /// batches, to bound the memory.
    pub(crate) fn resource_spans(&self) -> impl Iterator<Item = ResourceSpans> {
        /// Maximum number of spans in a batch; further spans of the same resource go into another
        /// message.
        const SPANS_MAX: usize = 1_024;
        let mut parts = self.otlp_parts().peekable();
        std::iter::from_fn(move || {
            let is_more = parts.peek().is_some();
            is_more.then(|| resource_spans(parts.by_ref().take(SPANS_MAX)))
        })
        .flatten()
    }
}

impl TraceSpan {
    /// Reports whether the span failed: it panicked, or its attribute `error` indicates a failure.
    /// OTLP's error status is stored as this attribute.
    #[must_use]
    pub fn is_error(&self) -> bool {
        let has_flag = self.has(SpanFlag::Panicked);
        let says_so = |(key, value): &(String, AnyValue)| {
            key == "error"
                && match &value.kind {
                    None => false,
                    Some(AnyKind::Bool(is_so)) => *is_so,
                    Some(AnyKind::Int(number)) => is_failure(&number.to_string()),
                    Some(AnyKind::Text(text)) => is_failure(text),
                    // Analyses read other values as JSON, which never denies a failure.
                    Some(_) => true,
                }
        };
        has_flag || self.stored.attributes.iter().any(says_so)
    }

    /// Reports whether a flag is set.
    #[must_use]
    pub fn has(&self, flag: SpanFlag) -> bool {
        self.stored.flags & flag as u32 != 0
    }

    /// Adds a warning for each flag that makes the span's times inexact.
    fn warn_of_flags(&mut self) {
        let said = [
            (
                SpanFlag::CutOpen,
                "cut by the burst's edge: it began before the recording did",
            ),
            (
                SpanFlag::CutClose,
                "cut by the burst's edge: it went on after the recording ended",
            ),
            (
                SpanFlag::Unfinished,
                "its end was never seen: it is shown up to the last time known to be open",
            ),
        ];
        for (flag, text) in said {
            if self.has(flag) {
                self.warnings.push(text.to_owned());
            }
        }
    }
}

/// Reports whether an attribute is `error` and contains the message of a failure.
pub(crate) fn is_error_message(pair: &KeyValue) -> bool {
    let kind = pair.value.as_ref().and_then(|value| value.kind.as_ref());
    let is_message = |text: &str| is_failure(text) && text != "true";
    pair.key == "error" && matches!(kind, Some(AnyKind::Text(text)) if is_message(text))
}

fn span_of(trace_id: u128, row: SpanRead) -> TraceSpan {
    let SpanRead { record, attributes } = row;
    let stored = StoredSpan {
        trace_id,
        span_id: record.span_id,
        parent_id: record.parent_id,
        service: record.service.to_string(),
        name: record.name.to_string(),
        host: record.host.to_string(),
        process: record.process,
        start_ns: record.start_ns,
        end_ns: record.end_ns,
        flags: record.flags.0,
        attributes: typed(attributes),
        events: Vec::new(),
    };
    let mut span = TraceSpan {
        stored,
        ..TraceSpan::default()
    };
    span.warn_of_flags();
    span
}

fn event_of(event: EventRead) -> StoredEvent {
    StoredEvent {
        time_ns: event.time_ns,
        name: event.name.to_string(),
        attributes: typed(event.attributes),
    }
}

/// Converts attributes that were read as JSON.
fn typed(attributes: AttributeValues) -> StoredAttributes {
    let typed = |(key, json): (std::sync::Arc<str>, std::sync::Arc<str>)| {
        // Invalid JSON is shown as text.
        let value = any_of_json(&json).unwrap_or_else(|| AnyValue {
            kind: Some(AnyKind::Text(json.to_string())),
        });
        (key.to_string(), value)
    };
    attributes.into_iter().map(typed).collect()
}

/// Parses a trace id: hex, or base64 as in protobuf's JSON. Returns a description of the problem if
/// it is neither, or if it is 0 in hex.
pub(crate) fn trace_id(text: &str) -> Result<u128, String> {
    if let Some(bytes) = stroboscope_otlp::base64_of(text, true) {
        let mut padded = [0; 16];
        padded[16 - bytes.len()..].copy_from_slice(&bytes);
        return Ok(u128::from_be_bytes(padded));
    }
    let parsed = text.parse::<TraceId>().map_err(|error| error.to_string())?;
    if text.is_empty() || parsed.0 == 0 {
        return Err(format!("`{text}` is not a trace id"));
    }
    Ok(parsed.0)
}

/// Returns the name of a span kind in Jaeger and Tempo; empty if unknown.
pub(crate) fn kind_name(kind: i32) -> &'static str {
    match kind {
        1 => "internal",
        2 => "server",
        3 => "client",
        4 => "producer",
        5 => "consumer",
        _ => "",
    }
}
