//! Builds wire batches, column by column.

use std::collections::HashMap;

use rustc_hash::FxHashMap;
use stroboscope_proto::v1;

use crate::clock::ClockStep;
use crate::record::FieldValue;

/// Value of a field, stored until its span ends.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum OwnedValue {
    Int(i64),
    Uint(u64),
    Double(f64),
    Bool(bool),
    Text(Box<str>),
}

impl From<FieldValue<'_>> for OwnedValue {
    fn from(value: FieldValue<'_>) -> Self {
        match value {
            FieldValue::Int(v) => Self::Int(v),
            FieldValue::Uint(v) => Self::Uint(v),
            FieldValue::Double(v) => Self::Double(v),
            FieldValue::Bool(v) => Self::Bool(v),
            FieldValue::Text(v) => Self::Text(v.into()),
        }
    }
}

impl OwnedValue {
    /// Returns the value if it is an integer, or the decimal text of one, that fits into 64 signed
    /// bits.
    #[cfg(feature = "tracing")]
    pub(crate) fn number(&self) -> Option<i64> {
        match self {
            Self::Int(v) => Some(*v),
            Self::Uint(v) => i64::try_from(*v).ok(),
            Self::Text(v) => v.parse().ok(),
            Self::Double(_) | Self::Bool(_) => None,
        }
    }

    fn as_field(&self) -> FieldValue<'_> {
        match self {
            Self::Int(v) => FieldValue::Int(*v),
            Self::Uint(v) => FieldValue::Uint(*v),
            Self::Double(v) => FieldValue::Double(*v),
            Self::Bool(v) => FieldValue::Bool(*v),
            Self::Text(v) => FieldValue::Text(v),
        }
    }
}

pub(crate) type Fields = Vec<(&'static str, OwnedValue)>;

/// Sets a field; replaces an existing value.
pub(crate) fn set_field(fields: &mut Fields, name: &'static str, value: OwnedValue) {
    match fields.iter_mut().find(|(known, _)| *known == name) {
        Some((_, known)) => *known = value,
        None => fields.push((name, value)),
    }
}

/// Span that has ended or was closed without its end, for a batch.
#[derive(Clone, Debug)]
pub(crate) struct FinishedSpan {
    pub(crate) trace_id: u128,
    pub(crate) span_id: u64,
    pub(crate) parent_id: u64,
    pub(crate) name: &'static str,
    pub(crate) start_ns: i64,
    pub(crate) duration_ns: u64,
    pub(crate) flags: u32,
    pub(crate) fields: Fields,
}

/// Event with its wall time, for a batch.
#[derive(Clone, Debug)]
pub(crate) struct TimedEvent {
    pub(crate) trace_id: u128,
    pub(crate) span_id: u64,
    pub(crate) name: &'static str,
    pub(crate) time_ns: i64,
}

/// Builder of a batch from spans, events and provenance logs.
#[derive(Debug, Default)]
pub(crate) struct BatchBuilder {
    strings: Interner,
    spans: v1::Spans,
    events: v1::Events,
    provenance: Vec<v1::ProvenanceLog>,
    last_start_ns: i64,
    last_time_ns: i64,
    /// Approximate encoded size so far, in bytes.
    bytes: usize,
}

#[derive(Debug)]
struct Interner {
    /// Index by the address and length of a static name, which identify it and are cheap to hash.
    by_address: FxHashMap<(usize, usize), u32>,
    by_text: HashMap<Box<str>, u32>,
    texts: Vec<String>,
}

impl Default for Interner {
    fn default() -> Self {
        Self {
            by_address: FxHashMap::default(),
            by_text: HashMap::new(),
            texts: vec![String::new()],
        }
    }
}

impl Interner {
    fn name(&mut self, name: &'static str) -> u32 {
        let address = (name.as_ptr() as usize, name.len());
        if let Some(&index) = self.by_address.get(&address) {
            return index;
        }
        let index = self.text(name);
        self.by_address.insert(address, index);
        index
    }

    fn text(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        if let Some(&index) = self.by_text.get(text) {
            return index;
        }
        let index = u32::try_from(self.texts.len()).unwrap_or(0);
        self.texts.push(text.to_owned());
        self.by_text.insert(text.into(), index);
        index
    }
}

impl BatchBuilder {
    pub(crate) fn span(&mut self, span: &FinishedSpan) {
        let spans = &mut self.spans;
        if spans.span_ids.is_empty() {
            spans.base_ns = span.start_ns.max(0).cast_unsigned();
            self.last_start_ns = spans.base_ns.cast_signed();
        }
        spans
            .trace_ids
            .extend_from_slice(&span.trace_id.to_be_bytes());
        spans.span_ids.push(span.span_id);
        spans.parent_ids.push(span.parent_id);
        spans.name_string.push(self.strings.name(span.name));
        spans.start_ns.push(span.start_ns - self.last_start_ns);
        self.last_start_ns = span.start_ns;
        spans.duration_ns.push(span.duration_ns);
        spans.flags.push(span.flags);
        spans.attribute_count.push(span.fields.len() as u32);
        let attributes = spans.attributes.get_or_insert_default();
        self.bytes += 48;
        for (key, value) in &span.fields {
            self.bytes += attach(&mut self.strings, attributes, key, value.as_field());
        }
    }

    pub(crate) fn event<'a>(
        &mut self,
        event: &TimedEvent,
        fields: impl Iterator<Item = (&'static str, FieldValue<'a>)>,
    ) {
        let events = &mut self.events;
        if events.span_ids.is_empty() {
            events.base_ns = event.time_ns.max(0).cast_unsigned();
            self.last_time_ns = events.base_ns.cast_signed();
        }
        events
            .trace_ids
            .extend_from_slice(&event.trace_id.to_be_bytes());
        events.span_ids.push(event.span_id);
        events.name_string.push(self.strings.name(event.name));
        events.time_ns.push(event.time_ns - self.last_time_ns);
        self.last_time_ns = event.time_ns;
        let attributes = events.attributes.get_or_insert_default();
        self.bytes += 32;
        let mut count = 0;
        for (key, value) in fields {
            self.bytes += attach(&mut self.strings, attributes, key, value);
            count += 1;
        }
        events.attribute_count.push(count);
    }

    #[cfg(feature = "provenance")]
    pub(crate) fn provenance(&mut self, log: v1::ProvenanceLog) {
        self.bytes += 48 + log.log.len();
        self.provenance.push(log);
    }

    pub(crate) fn records(&self) -> usize {
        self.spans.span_ids.len() + self.events.span_ids.len() + self.provenance.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the batch and resets the builder. The shipping thread adds the other fields, such as
    /// process, sequence and losses.
    pub(crate) fn finish(&mut self, steps: &[ClockStep]) -> v1::Batch {
        let built = std::mem::take(self);
        let ns = |time_ns: i64| time_ns.max(0).cast_unsigned();
        v1::Batch {
            strings: built.strings.texts,
            spans: (!built.spans.span_ids.is_empty()).then_some(built.spans),
            events: (!built.events.span_ids.is_empty()).then_some(built.events),
            provenance: built.provenance,
            clock_steps: steps
                .iter()
                .map(|step| v1::ClockStep {
                    at_ns: ns(step.at_ns),
                    step_ns: step.step_ns,
                })
                .collect(),
            ..v1::Batch::default()
        }
    }
}

/// Adds an attribute; returns its approximate size in bytes.
fn attach(
    strings: &mut Interner,
    attributes: &mut v1::Attributes,
    key: &'static str,
    value: FieldValue<'_>,
) -> usize {
    attributes.key_string.push(strings.name(key));
    let mut bytes = 8;
    let kind = match value {
        FieldValue::Int(v) => {
            attributes.int_values.push(v);
            v1::AttributeKind::Int
        }
        FieldValue::Uint(v) => {
            attributes.uint_values.push(v);
            v1::AttributeKind::Uint
        }
        FieldValue::Double(v) => {
            attributes.double_values.push(v);
            v1::AttributeKind::Double
        }
        FieldValue::Bool(v) => {
            attributes.int_values.push(i64::from(v));
            v1::AttributeKind::Bool
        }
        FieldValue::Text(v) => {
            attributes.string_values.push(strings.text(v));
            bytes += v.len();
            v1::AttributeKind::String
        }
    };
    attributes.kind.push(kind.into());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut builder = BatchBuilder::default();
        for (i, start_ns) in [1_000, 900, 1_500].into_iter().enumerate() {
            builder.span(&FinishedSpan {
                trace_id: i as u128 + 1,
                span_id: i as u64 + 10,
                parent_id: 0,
                name: if i == 1 { "read" } else { "page" },
                start_ns,
                duration_ns: 5,
                flags: 8,
                fields: vec![
                    ("key", OwnedValue::Text("k".into())),
                    ("n", OwnedValue::Int(-1)),
                ],
            });
        }
        let event = TimedEvent {
            trace_id: 1,
            span_id: 10,
            name: "miss",
            time_ns: 1_100,
        };
        builder.event(&event, std::iter::empty());
        assert_eq!(builder.records(), 4);
        let batch = builder.finish(&[]);
        assert_eq!(builder.records(), 0);
        assert_eq!(batch.strings, ["", "page", "key", "k", "n", "read", "miss"]);
        let spans = batch.spans.unwrap();
        assert_eq!((spans.base_ns, spans.start_ns), (1_000, vec![0, -100, 600]));
        assert_eq!(spans.name_string, [1, 5, 1]);
        assert_eq!(spans.trace_ids.len(), 48);
        assert_eq!(spans.attribute_count, [2, 2, 2]);
        let attributes = spans.attributes.unwrap();
        assert_eq!(attributes.string_values, [3, 3, 3]);
        assert_eq!(attributes.int_values, [-1, -1, -1]);
        assert_eq!(batch.events.unwrap().base_ns, 1_100);
    }
}
