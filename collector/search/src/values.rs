//! Reads the values of the fields of a span.

use stroboscope_analysis::record::{RecordOwner, SpanFlags, SpanRecord};

use super::condition::FieldReading;
use super::field::{ERROR, Field, HOST_NAMES, KIND, OWN_NAMES, STATUS_CODE, of_resource};
use super::span_facts::{is_cut_close, is_own_name, kind_of, status_of};
use super::unit::{AttributeRef, NEVER_NS, RequestSeen, Unit, UnitRecord, UnitSpan};

impl<'a> Unit<'a> {
    pub(super) fn attribute(&self, place: usize, key: &str) -> Option<&'a str> {
        self.attribute_of(&self.spans[place], key)
    }

    fn attribute_of(&self, span: &UnitSpan<'a>, wanted: &str) -> Option<&'a str> {
        if let UnitRecord::Kernel { event, .. } = span.record {
            let found = event.attributes.iter().find(|(key, _)| *key == wanted);
            return found.map(|(_, value)| &**value);
        }
        self.own(span)
            .iter()
            .find(|(_, key, _)| ***key == *wanted)
            .map(|(.., value)| &***value)
    }

    fn own(&self, span: &UnitSpan<'a>) -> &[AttributeRef<'a>] {
        let attributes = &self.requests[span.request as usize].attributes;
        let own = span.attributes.0 as usize..span.attributes.1 as usize;
        attributes.get(own).unwrap_or_default()
    }

    pub(super) fn own_attributes(&self, place: usize) -> &[AttributeRef<'a>] {
        self.own(&self.spans[place])
    }

    /// Returns the attributes of the owners from `first` to `last`, in the request of the span at
    /// `place`.
    pub(super) fn attributes_between(
        &self,
        place: usize,
        first: RecordOwner,
        last: RecordOwner,
    ) -> &[AttributeRef<'a>] {
        let attributes = &self.requests[self.spans[place].request as usize].attributes;
        let from = attributes.partition_point(|(owner, ..)| *owner < first);
        let to = attributes.partition_point(|(owner, ..)| *owner <= last);
        attributes.get(from..to).unwrap_or_default()
    }

    /// Returns the value of a field of the span, log event or kernel event at `place`.
    pub(super) fn said(&self, place: usize, field: &Field) -> FieldReading<'a> {
        let span = &self.spans[place];
        let request = &self.requests[span.request as usize];
        let of_root = |said: fn(&'a SpanRecord) -> FieldReading<'a>| match request.root {
            Some(root) => said(root),
            None if request.records.spans.is_empty() => FieldReading::Nothing,
            None => FieldReading::Unseen,
        };
        match field {
            Field::Name => FieldReading::Text(self.describe(place).1),
            Field::Service => self
                .service(place)
                .map_or(FieldReading::Unseen, FieldReading::Text),
            Field::Host => FieldReading::Text(self.host(place)),
            Field::Duration => {
                let own = (span.clock, span.end);
                let (low, high) = self.gap_ns((span.clock, span.start), own);
                duration(low, high)
            }
            Field::Kind => self.kind(span, request),
            Field::Kernel => match span.record {
                UnitRecord::Kernel { event, .. } => FieldReading::Text(event.kind.name()),
                _ => FieldReading::Nothing,
            },
            Field::RootName => of_root(|root| FieldReading::Text(&root.name)),
            Field::RootService => of_root(|root| FieldReading::Text(&root.service)),
            Field::RootDuration => of_root(|root| {
                let ns = root.end_ns.saturating_sub(root.start_ns);
                let is_open = is_cut_close(root) || root.flags.contains(SpanFlags::CUT_OPEN);
                duration(ns, if is_open { NEVER_NS } else { ns })
            }),
            Field::Status => self.status(span),
            Field::ResourceHost => {
                let said = HOST_NAMES.map(|name| self.attribute_of(span, name));
                match said {
                    [Some(name), ..] => FieldReading::Text(name),
                    [None, None, None] => FieldReading::Text(self.host(place)),
                    // Another attribute of the resource supplied the host's name, so `host.name`
                    // itself is absent.
                    _ => FieldReading::Nothing,
                }
            }
            Field::AnyScope(key) => {
                let own = self.attribute_of(span, key);
                let said = own.or_else(|| self.attribute_of(span, &of_resource(key)));
                said_or_unseen(said, span)
            }
            Field::Attribute(key) => said_or_unseen(self.attribute_of(span, key), span),
            // `Unit::is` evaluates conditions about events and links one by one.
            Field::Event(_) | Field::Link(_) => FieldReading::Unseen,
        }
    }

    fn kind(&self, span: &UnitSpan<'a>, request: &RequestSeen<'a>) -> FieldReading<'a> {
        let UnitRecord::Span(record) = span.record else {
            return FieldReading::Nothing;
        };
        let kind = request.kinds.then(|| self.made(span, KIND)).flatten();
        FieldReading::Text(kind.unwrap_or_else(|| kind_of(record)))
    }

    fn status(&self, span: &UnitSpan<'a>) -> FieldReading<'a> {
        let UnitRecord::Span(record) = span.record else {
            return FieldReading::Nothing;
        };
        let (error, code) = (self.made(span, ERROR), self.attribute_of(span, STATUS_CODE));
        match status_of(record, error, code) {
            "unset" if is_cut_close(record) => FieldReading::Unseen,
            status => FieldReading::Text(status),
        }
    }

    /// Returns the value of an attribute. Returns `None` if there is no such attribute, or if
    /// `otel.own_names` lists its name, see [`is_own_name`].
    fn made(&self, span: &UnitSpan<'a>, name: &str) -> Option<&'a str> {
        let said = self.attribute_of(span, name)?;
        (!is_own_name(name, self.attribute_of(span, OWN_NAMES))).then_some(said)
    }
}

fn duration(low: i64, high: i64) -> FieldReading<'static> {
    let high = if high >= NEVER_NS / 2 {
        f64::INFINITY
    } else {
        high as f64
    };
    FieldReading::Between(low.max(0) as f64, high)
}

fn said_or_unseen<'a>(said: Option<&'a str>, span: &UnitSpan<'_>) -> FieldReading<'a> {
    match said {
        Some(text) => FieldReading::Text(text),
        // A span or kernel event may have had the value before the recording, or got it afterwards.
        None if span.is_cut() => FieldReading::Unseen,
        None => FieldReading::Nothing,
    }
}
