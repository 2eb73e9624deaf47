//! Converts spans of the store to OTLP's messages: the inverse of [`spans_of`](super::spans_of),
//! with these exceptions:
//!
//! Elements whose order has no meaning in OTLP (resources, the scopes of a resource, attributes)
//! are in the store's order. An empty field (a scope, a status, a value) may become a missing one,
//! or the reverse. The store keeps only the last of duplicate attributes (the first if the key is
//! `service.name`), and no unknown fields. Trace ids of 64 bits become ids of 128 bits. A span
//! without a name that was named by its statement keeps that name. If the current status is unset,
//! a deprecated status code other than 0 makes it an error; the deprecated code 2 is omitted.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use stroboscope_proto::v1::SpanFlag;

use super::exact::EXACT;
use super::message::{
    AnyKind, AnyValue, ArrayValue, Event, KeyValue, KeyValueList, Link, Resource, ResourceSpans,
    Scope, ScopeSpans, Span, Status,
};
use super::operation_name::SPAN_NAME;
use super::own_names::{OWN_NAMES, SHADOWED, is_made_of_event, is_made_of_span};
use super::{DROPPED_ATTRIBUTES, EVENT_NAME};
use crate::hex_bytes;

/// A span in its stored form.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoredSpan {
    pub trace_id: u128,
    pub span_id: u64,
    /// Id of the parent; 0 for none.
    pub parent_id: u64,
    pub service: String,
    pub name: String,
    pub host: String,
    /// Incarnation of the process; 0 for spans that were imported or came by OTLP.
    pub process: u128,
    /// Start, in ns since the Unix epoch.
    pub start_ns: i64,
    /// End, in ns since the Unix epoch.
    pub end_ns: i64,
    /// Bits of `SpanFlag`.
    pub flags: u32,
    pub attributes: StoredAttributes,
    pub events: Vec<StoredEvent>,
}

/// An event of a span.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoredEvent {
    /// Time, in ns since the Unix epoch.
    pub time_ns: i64,
    pub name: String,
    pub attributes: StoredAttributes,
}

/// Attributes in their stored form, as pairs of key and value, in the store's order.
pub type StoredAttributes = Vec<(String, AnyValue)>;

/// Parses a value stored as JSON; returns `None` for most texts that are not JSON, but accepts most
/// numbers of Rust, such as `inf`. Numbers without a point or an exponent, except `-0`, are
/// integers if they fit into signed 64 bits.
#[must_use]
pub fn any_of_json(json: &str) -> Option<AnyValue> {
    let json = json.trim();
    let kind = match json.as_bytes().first()? {
        b'n' => return (json == "null").then(AnyValue::default),
        b't' | b'f' => AnyKind::Bool(serde_json::from_str(json).ok()?),
        b'"' => AnyKind::Text(serde_json::from_str(json).ok()?),
        b'[' => {
            let items: Vec<&RawValue> = serde_json::from_str(json).ok()?;
            let values = items.into_iter().map(|item| any_of_json(item.get()));
            AnyKind::Array(ArrayValue {
                values: values.collect::<Option<_>>()?,
            })
        }
        b'{' => {
            let members: Members<'_> = serde_json::from_str(json).ok()?;
            let pair = |(key, value): (String, &RawValue)| {
                let value = any_of_json(value.get())?;
                // A null becomes a value without a kind.
                let value = Some(value);
                Some(KeyValue { key, value })
            };
            let values = members.0.into_iter().map(pair).collect::<Option<_>>()?;
            AnyKind::Map(KeyValueList { values })
        }
        // Rust's own parser is exact; that of JSON may err in the last bit.
        _ => match json.parse::<i64>() {
            Ok(int) if json != "-0" => AnyKind::Int(int),
            _ => AnyKind::Double(json.parse().ok()?),
        },
    };
    Some(AnyValue { kind: Some(kind) })
}

/// Members of an object in their order.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Members<'de>;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        from.deserialize_map(Visitor)
    }
}

/// OTLP's span, with the resource and scope that contain it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpanParts {
    pub resource: Resource,
    pub resource_schema_url: String,
    pub scope: Scope,
    pub scope_schema_url: String,
    /// The span itself.
    pub span: Span,
}

impl StoredSpan {
    /// Converts the span to the parts of OTLP's messages.
    #[must_use]
    pub fn parts(&self) -> SpanParts {
        let mut parts = SpanParts::default();
        if !self.service.is_empty() {
            let name = text_pair("service.name", &self.service);
            parts.resource.attributes.push(name);
        }
        let known = AttributeFacts::of(&self.attributes);
        for (key, value) in &self.attributes {
            let exactly = known.exactly(key, value);
            if !is_made_of_span(key) || known.is_own(key) {
                parts.span.attributes.push(pair(key, exactly));
            } else {
                self.put_made(key, exactly, &mut parts);
            }
        }
        parts.span.attributes.extend(known.shadowed());
        self.put_fields(&mut parts);
        parts
    }

    fn put_fields(&self, parts: &mut SpanParts) {
        let has = |flag: SpanFlag| self.flags & flag as u32 != 0;
        let attributes = &mut parts.resource.attributes;
        let is_of_host =
            |pair: &KeyValue| ["host.name", "host.id", "k8s.pod.name"].contains(&&*pair.key);
        if !self.host.is_empty() && !attributes.iter().any(is_of_host) {
            attributes.push(text_pair("host.name", &self.host));
        }
        if self.process != 0 {
            let id = format!("{:032x}", self.process);
            attributes.push(text_pair("service.instance.id", &id));
        }
        let span = &mut parts.span;
        if has(SpanFlag::Server) {
            span.kind = 2;
        } else if has(SpanFlag::Client) {
            span.kind = 3;
        } else if self.process != 0 && span.kind == 0 {
            // A span from this project's SDK without any further kind is internal.
            span.kind = 1;
        }
        span.trace_id = self.trace_id.to_be_bytes().into();
        span.span_id = self.span_id.to_be_bytes().into();
        if self.parent_id != 0 {
            span.parent_span_id = self.parent_id.to_be_bytes().into();
        }
        if span.name.is_empty() {
            span.name.clone_from(&self.name);
        }
        span.start_time_unix_nano = self.start_ns.max(0).cast_unsigned();
        let never_ended =
            has(SpanFlag::Unfinished) && self.process == 0 && self.start_ns == self.end_ns;
        if !never_ended {
            span.end_time_unix_nano = self.end_ns.max(0).cast_unsigned();
        }
        span.events = self.events.iter().map(StoredEvent::message).collect();
    }

    /// Restores the field from which an attribute was synthesized.
    fn put_made(&self, key: &str, value: AnyValue, parts: &mut SpanParts) {
        let SpanParts {
            resource,
            resource_schema_url,
            scope,
            scope_schema_url,
            span,
        } = parts;
        match key {
            EXACT | OWN_NAMES | SHADOWED => {}
            SPAN_NAME => span.name = text(value),
            "otel.resource.schema_url" => *resource_schema_url = text(value),
            "otel.resource.dropped_attributes_count" => {
                resource.dropped_attributes_count = count(&value);
            }
            "otel.scope.name" => scope.name = text(value),
            "otel.scope.version" => scope.version = text(value),
            "otel.scope.schema_url" => *scope_schema_url = text(value),
            "otel.scope.dropped_attributes_count" => scope.dropped_attributes_count = count(&value),
            "error" => match value.kind {
                Some(AnyKind::Bool(true)) => status(span).code = super::STATUS_ERROR,
                // Another system's use of the key, which is not a status.
                _ => span.attributes.push(pair(key, value)),
            },
            "otel.status_code" => {
                status(span).code = match value.kind {
                    Some(AnyKind::Int(code)) => i32::try_from(code).unwrap_or(0),
                    Some(AnyKind::Text(name)) if name == "ERROR" => super::STATUS_ERROR,
                    _ => super::STATUS_OK,
                };
            }
            "otel.deprecated_status_code" => {
                status(span).deprecated_code = i32::try_from(count(&value)).unwrap_or(0);
            }
            "otel.status_description" => status(span).message = text(value),
            "span.kind" => span.kind = kind_of(&value),
            "w3c.tracestate" => span.trace_state = text(value),
            "otel.flags" => span.flags = count(&value),
            DROPPED_ATTRIBUTES => span.dropped_attributes_count = count(&value),
            "otel.dropped_events_count" => span.dropped_events_count = count(&value),
            "otel.dropped_links_count" => span.dropped_links_count = count(&value),
            "links" => span.links = links(&value, &self.trace_id.to_be_bytes()),
            _ => match (key.strip_prefix("resource."), key.strip_prefix("scope.")) {
                (Some(of_resource), _) => resource.attributes.push(pair(of_resource, value)),
                (None, Some(of_scope)) => scope.attributes.push(pair(of_scope, value)),
                // An attribute of another system with such a key.
                (None, None) => span.attributes.push(pair(key, value)),
            },
        }
    }
}

impl StoredEvent {
    /// Converts the event to OTLP's message.
    #[must_use]
    pub fn message(&self) -> Event {
        let mut event = Event {
            time_unix_nano: self.time_ns.max(0).cast_unsigned(),
            name: self.name.clone(),
            ..Event::default()
        };
        let known = AttributeFacts::of(&self.attributes);
        for (key, value) in &self.attributes {
            let exactly = known.exactly(key, value);
            if !is_made_of_event(key) || known.is_own(key) {
                event.attributes.push(pair(key, exactly));
                continue;
            }
            match &**key {
                EXACT | OWN_NAMES | SHADOWED => {}
                DROPPED_ATTRIBUTES => event.dropped_attributes_count = count(value),
                EVENT_NAME => event.name = text(value.clone()),
                _ => event.attributes.push(pair(key, exactly)),
            }
        }
        event.attributes.extend(known.shadowed());
        event
    }
}

/// Attributes that describe other attributes: `otel.exact`, `otel.own_names` and `otel.shadowed`.
struct AttributeFacts<'a> {
    exact: Option<&'a KeyValueList>,
    own: Vec<&'a str>,
    shadowed: Option<&'a KeyValueList>,
}

impl<'a> AttributeFacts<'a> {
    fn of(attributes: &'a StoredAttributes) -> Self {
        let kind = |name: &str| {
            let found = attributes.iter().find(|(key, _)| key == name)?;
            found.1.kind.as_ref()
        };
        let map = |name: &str| match kind(name) {
            Some(AnyKind::Map(map)) => Some(map),
            _ => None,
        };
        let own = match kind(OWN_NAMES) {
            Some(AnyKind::Array(names)) => {
                let name = |name: &'a AnyValue| match &name.kind {
                    Some(AnyKind::Text(name)) => Some(&**name),
                    _ => None,
                };
                names.values.iter().filter_map(name).collect()
            }
            _ => Vec::new(),
        };
        Self {
            exact: map(EXACT),
            own,
            shadowed: map(SHADOWED),
        }
    }

    fn is_own(&self, key: &str) -> bool {
        self.own.contains(&key)
    }

    fn exactly(&self, key: &str, value: &AnyValue) -> AnyValue {
        let exact = self.exact.map(|map| &map.values[..]).unwrap_or_default();
        let found = exact.iter().find(|pair| pair.key == key);
        found
            .and_then(|pair| otlp_value(pair.value.as_ref()?))
            .unwrap_or_else(|| value.clone())
    }

    fn shadowed(&self) -> impl Iterator<Item = KeyValue> {
        let shadowed = self.shadowed.map(|map| &map.values[..]).unwrap_or_default();
        shadowed.iter().filter_map(|found| {
            let value = otlp_value(found.value.as_ref()?)?;
            Some(pair(&found.key, value))
        })
    }
}

/// Parses a value that is stored in the notation of OTLP's JSON; `None` for most other forms.
fn otlp_value(kept: &AnyValue) -> Option<AnyValue> {
    serde_json::from_value(super::value(Some(kept))).ok()
}

fn pair(key: &str, value: AnyValue) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(value),
    }
}

fn text_pair(key: &str, value: &str) -> KeyValue {
    let kind = Some(AnyKind::Text(value.to_owned()));
    pair(key, AnyValue { kind })
}

fn text(value: AnyValue) -> String {
    match value.kind {
        Some(AnyKind::Text(text)) => text,
        None => String::new(),
        Some(_) => super::value(Some(&value)).to_string(),
    }
}

fn count(value: &AnyValue) -> u32 {
    match value.kind {
        Some(AnyKind::Int(count)) => u32::try_from(count).unwrap_or(0),
        _ => 0,
    }
}

fn status(span: &mut Span) -> &mut Status {
    span.status.get_or_insert_default()
}

fn kind_of(value: &AnyValue) -> i32 {
    match &value.kind {
        Some(AnyKind::Text(name)) => match &*name.to_ascii_lowercase() {
            "internal" => 1,
            "server" => 2,
            "client" => 3,
            "producer" => 4,
            "consumer" => 5,
            _ => 0,
        },
        Some(AnyKind::Int(kind)) => i32::try_from(*kind).unwrap_or(0),
        _ => 0,
    }
}

/// Parses links in their stored form: a list of objects.
fn links(value: &AnyValue, own_trace: &[u8]) -> Vec<Link> {
    let Some(AnyKind::Array(list)) = &value.kind else {
        return Vec::new();
    };
    let link = |item: &AnyValue| {
        let Some(AnyKind::Map(map)) = &item.kind else {
            return None;
        };
        let mut link = Link::default();
        let mut exact = None;
        for pair in &map.values {
            let value = pair.value.clone().unwrap_or_default();
            match &*pair.key {
                "trace_id" => link.trace_id = hex_bytes(&text(value)).unwrap_or_default(),
                "span_id" => link.span_id = hex_bytes(&text(value)).unwrap_or_default(),
                "trace_state" => link.trace_state = text(value),
                "flags" => link.flags = count(&value),
                "dropped_attributes_count" => link.dropped_attributes_count = count(&value),
                "attributes" => link.attributes = members(value),
                EXACT => exact = Some(members(value)),
                // Jaeger's name for the kind of a link.
                "type" => {
                    let name = text(value).to_ascii_lowercase();
                    link.attributes
                        .push(text_pair("opentracing.ref_type", &name));
                }
                _ => {}
            }
        }
        if link.trace_id.is_empty() && !link.span_id.is_empty() && exact.is_none() {
            // Jaeger may omit the trace of a link within the same trace.
            link.trace_id = own_trace.to_vec();
        }
        for exact in exact.into_iter().flatten() {
            let found = link
                .attributes
                .iter_mut()
                .find(|pair| pair.key == exact.key);
            if let Some(found) = found {
                found.value = exact
                    .value
                    .as_ref()
                    .and_then(otlp_value)
                    .or(found.value.take());
            }
        }
        Some(link)
    };
    list.values.iter().filter_map(link).collect()
}

fn members(value: AnyValue) -> Vec<KeyValue> {
    match value.kind {
        Some(AnyKind::Map(map)) => map.values,
        _ => Vec::new(),
    }
}

/// Groups spans as OTLP does: by resource, and within it by scope, in the order of the spans.
pub fn resource_spans(spans: impl IntoIterator<Item = SpanParts>) -> Vec<ResourceSpans> {
    let mut grouped: Vec<ResourceSpans> = Vec::new();
    let mut places: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    for parts in spans {
        let SpanParts {
            resource,
            resource_schema_url,
            scope,
            scope_schema_url,
            span,
        } = parts;
        let key = prost::Message::encode_to_vec(&ResourceSpans {
            resource: Some(resource.clone()),
            schema_url: resource_schema_url.clone(),
            ..ResourceSpans::default()
        });
        let at = *places.entry(key).or_insert(grouped.len());
        if at == grouped.len() {
            grouped.push(ResourceSpans {
                resource: Some(resource),
                schema_url: resource_schema_url,
                ..ResourceSpans::default()
            });
        }
        let scopes = &mut grouped[at].scope_spans;
        let is_it = |known: &&mut ScopeSpans| {
            known.scope.as_ref() == Some(&scope) && known.schema_url == scope_schema_url
        };
        match scopes.iter_mut().find(is_it) {
            Some(known) => known.spans.push(span),
            None => scopes.push(ScopeSpans {
                scope: Some(scope),
                spans: vec![span],
                schema_url: scope_schema_url,
            }),
        }
    }
    grouped
}
