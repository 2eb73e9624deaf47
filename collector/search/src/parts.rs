//! Evaluates conditions about the events and links of a span.
//!
//! A condition in braces that names events holds for a span if it holds for at least one of the
//! span's events. Both sides of `&&` are about the same event. `!` negates its operand for the
//! whole span: it holds if the operand holds for no event. A completely recorded span without
//! events counts as having one event without fields. Links are treated in the same way.

use serde_json::Value;
use stroboscope_analysis::record::{RecordOwner, SpanFlags, SpanRecord};

use super::condition::{Condition, FieldReading};
use super::field::{EventField, Field, LINKS, LinkField};
use super::span_facts::is_cut_close;
use super::truth::Truth;
use super::unit::{AttributeRef, Unit, UnitRecord};

/// Lowest event number of log lines. Events of a span have lower numbers, see
/// [`RecordOwner::InSpan`].
const LOG_LINES_FROM: u32 = u32::MAX / 2;

/// Event or log line of a span, or log event, with the values that conditions may name.
struct EventSeen<'a> {
    name: Option<&'a str>,
    since_ns: Option<i64>,
    attributes: &'a [AttributeRef<'a>],
}

struct LinkSeen {
    trace_id: String,
    span_id: String,
    attributes: Vec<(String, String)>,
}

/// One event or link of a span.
enum Part<T> {
    One(T),
    /// The span has no event (or link).
    None,
    /// The span may have an event (or link) that was not recorded.
    Unseen,
}

impl<T> Part<T> {
    fn said<'s>(&'s self, said: impl FnOnce(&'s T) -> FieldReading<'s>) -> FieldReading<'s> {
        match self {
            Self::One(part) => said(part),
            Self::None => FieldReading::Nothing,
            Self::Unseen => FieldReading::Unseen,
        }
    }
}

fn parts<T>(known: Vec<T>, is_cut: bool) -> Vec<Part<T>> {
    let mut parts: Vec<Part<T>> = known.into_iter().map(Part::One).collect();
    if is_cut {
        parts.push(Part::Unseen);
    } else if parts.is_empty() {
        parts.push(Part::None);
    }
    parts
}

impl EventSeen<'_> {
    fn said(&self, field: &EventField) -> FieldReading<'_> {
        match field {
            EventField::Name => self.name.map_or(FieldReading::Nothing, FieldReading::Text),
            EventField::SinceStart => self.since_ns.map_or(FieldReading::Nothing, |ns| {
                let ns = ns as f64;
                FieldReading::Between(ns, ns)
            }),
            EventField::Attribute(key) => {
                let found = self.attributes.iter().find(|(_, name, _)| ***name == **key);
                found.map_or(FieldReading::Nothing, |(.., value)| {
                    FieldReading::Text(value)
                })
            }
        }
    }
}

impl LinkSeen {
    /// Parses links from the JSON list in the attribute `links`. Returns none for other text.
    fn all(json: &str) -> Vec<Self> {
        let Ok(Value::Array(links)) = serde_json::from_str(json) else {
            return Vec::new();
        };
        let text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let link = |link: Value| {
            let id = |key: &str| link.get(key).map(text).unwrap_or_default();
            let attributes = link.get("attributes").and_then(Value::as_object);
            let attributes = attributes.into_iter().flatten();
            Self {
                trace_id: id("trace_id"),
                span_id: id("span_id"),
                attributes: attributes
                    .map(|(key, value)| (key.clone(), text(value)))
                    .collect(),
            }
        };
        links.into_iter().map(link).collect()
    }

    fn said(&self, field: &LinkField) -> FieldReading<'_> {
        match field {
            LinkField::TraceId => FieldReading::Text(&self.trace_id),
            LinkField::SpanId => FieldReading::Text(&self.span_id),
            LinkField::Attribute(key) => {
                let found = self.attributes.iter().find(|(name, _)| **name == **key);
                found.map_or(FieldReading::Nothing, |(_, value)| {
                    FieldReading::Text(value)
                })
            }
        }
    }
}

impl Unit<'_> {
    /// Evaluates a condition on the span, log event or kernel event at `place`.
    pub(super) fn is(&self, place: usize, condition: &Condition) -> Truth {
        let (names_events, names_links) = condition.names_parts();
        if !names_events && !names_links {
            return condition.of(&|field| self.said(place, field));
        }
        let is_cut = matches!(self.spans[place].record, UnitRecord::Span(span) if is_cut(span));
        let events = match names_events {
            true => parts(self.events(place), is_cut),
            false => vec![Part::None],
        };
        let links = match names_links {
            true => {
                let json = self.attribute(place, LINKS);
                parts(json.map_or_else(Vec::new, LinkSeen::all), is_cut)
            }
            false => vec![Part::None],
        };
        let said = |field: &Field, event: usize, link: usize| match field {
            Field::Event(field) => events[event].said(|event| event.said(field)),
            Field::Link(field) => links[link].said(|link| link.said(field)),
            field => self.said(place, field),
        };
        let counts = (events.len(), links.len());
        PartialCondition::of(condition, counts, &said).any(counts, &said)
    }

    fn events(&self, place: usize) -> Vec<EventSeen<'_>> {
        match self.spans[place].record {
            UnitRecord::Kernel { .. } => Vec::new(),
            UnitRecord::Event { name, .. } => vec![EventSeen {
                name: Some(name),
                since_ns: None,
                attributes: self.own_attributes(place),
            }],
            UnitRecord::Span(span) => {
                let own = |number| RecordOwner::InSpan(span.span_id, number);
                let recorded = span.events.iter().enumerate().map(|(number, event)| {
                    let owner = own(number as u32);
                    EventSeen {
                        name: Some(&event.name),
                        since_ns: Some(event.time_ns.saturating_sub(span.start_ns)),
                        attributes: self.attributes_between(place, owner, owner),
                    }
                });
                let lines = self.attributes_between(place, own(LOG_LINES_FROM), own(u32::MAX));
                let lines = lines
                    .chunk_by(|a, b| a.0 == b.0)
                    .map(|attributes| EventSeen {
                        name: None,
                        since_ns: None,
                        attributes,
                    });
                recorded.chain(lines).collect()
            }
        }
    }
}

fn is_cut(span: &SpanRecord) -> bool {
    span.flags.contains(SpanFlags::CUT_OPEN) || is_cut_close(span)
}

/// Condition in which each `!` has already been replaced by its truth for all events and links.
enum PartialCondition<'c> {
    Leaf(&'c Condition),
    Known(Truth),
    And(Box<PartialCondition<'c>>, Box<PartialCondition<'c>>),
    Or(Box<PartialCondition<'c>>, Box<PartialCondition<'c>>),
}

impl<'c> PartialCondition<'c> {
    fn of<'s>(
        condition: &'c Condition,
        (events, links): (usize, usize),
        said: &impl Fn(&Field, usize, usize) -> FieldReading<'s>,
    ) -> Self {
        let of = |condition| Self::of(condition, (events, links), said);
        match condition {
            Condition::Not(inner) => Self::Known(!of(inner).any((events, links), said)),
            Condition::And(a, b) => Self::And(Box::new(of(a)), Box::new(of(b))),
            Condition::Or(a, b) => Self::Or(Box::new(of(a)), Box::new(of(b))),
            leaf => Self::Leaf(leaf),
        }
    }

    /// Evaluates the condition on every pair of an event and a link. The result is the disjunction
    /// of all.
    fn any<'s>(
        &self,
        (events, links): (usize, usize),
        said: &impl Fn(&Field, usize, usize) -> FieldReading<'s>,
    ) -> Truth {
        let pairs = (0..events).flat_map(|event| (0..links).map(move |link| (event, link)));
        let mut truth = Truth::False;
        for (event, link) in pairs {
            truth = truth.or(self.one(&|field| said(field, event, link)));
            if truth.is_sure() {
                break;
            }
        }
        truth
    }

    fn one<'s>(&self, said: &impl Fn(&Field) -> FieldReading<'s>) -> Truth {
        match self {
            Self::Leaf(condition) => condition.of(said),
            Self::Known(truth) => *truth,
            Self::And(a, b) => a.one(said).and(b.one(said)),
            Self::Or(a, b) => a.one(said).or(b.one(said)),
        }
    }
}
