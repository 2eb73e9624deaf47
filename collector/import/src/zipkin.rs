//! Zipkin's JSON, versions 1 and 2.
//!
//! In Zipkin, the two sides of a call may share one span id. In version 1, the annotations `cs`,
//! `sr`, `ss`, `cr` of one span or of two describe the sides. In version 2, the sides are two
//! spans, one of them marked `shared`. In this module, the server's side keeps the id, and thus the
//! children. The client's side gets an id of its own (a hash of the shared one) and becomes the
//! parent of the server's side. The sides are matched within [`Zipkin::HELD_MAX`] spans and 128 MiB
//! of records.
//!
//! Times are in µs. Hosts are the endpoints' addresses. Other annotations become events, tags and
//! binary annotations become attributes; remote endpoints become `peer.service`, `peer.ip` and
//! `peer.port`.

use std::borrow::Cow;
use std::collections::HashSet;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;
use stroboscope_proto::v1::SpanFlag;

use super::BadLine;
use super::json_error::reason_of;
use super::take::Take;
use super::time::from_us;
use stroboscope_otlp::BadSpan;
use stroboscope_otlp::typed::{UnstoredValue, parse};
use stroboscope_otlp::{
    Attributes, ForeignEvent, ForeignSpan, hashed, own_span_id, span_number, whole_number,
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Endpoint<'a> {
    #[serde(borrow)]
    service_name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    ipv4: Option<Cow<'a, str>>,
    #[serde(borrow)]
    ipv6: Option<Cow<'a, str>>,
    port: Option<u16>,
}

/// Parses a whole number, with or without an exponent. Rejects null.
fn whole<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    some_whole(from)?.ok_or_else(|| D::Error::custom("null is not a time"))
}

fn some_whole<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let Some(raw) = Option::<&'de RawValue>::deserialize(from)? else {
        return Ok(None);
    };
    let number = whole_number(raw.get()).map_or_else(|| serde_json::from_str(raw.get()), Ok);
    number.map(Some).map_err(D::Error::custom)
}

#[derive(Deserialize)]
struct Annotation<'a> {
    #[serde(deserialize_with = "whole")]
    timestamp: u64,
    #[serde(borrow)]
    value: Cow<'a, str>,
    #[serde(borrow)]
    endpoint: Option<Endpoint<'a>>,
}

#[derive(Deserialize)]
struct BinaryAnnotation<'a> {
    #[serde(borrow)]
    key: Cow<'a, str>,
    #[serde(default)]
    value: Value,
    #[serde(borrow)]
    endpoint: Option<Endpoint<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Span<'a> {
    #[serde(borrow)]
    trace_id: Cow<'a, str>,
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(borrow)]
    parent_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    kind: Option<Cow<'a, str>>,
    #[serde(default, deserialize_with = "some_whole")]
    timestamp: Option<u64>,
    #[serde(default, deserialize_with = "some_whole")]
    duration: Option<u64>,
    #[serde(borrow)]
    local_endpoint: Option<Endpoint<'a>>,
    #[serde(borrow)]
    remote_endpoint: Option<Endpoint<'a>>,
    #[serde(borrow)]
    annotations: Option<Vec<Annotation<'a>>>,
    #[serde(borrow)]
    binary_annotations: Option<Vec<BinaryAnnotation<'a>>>,
    tags: Option<Attributes>,
    /// True for the server's side of a call that shares its id with the client's side.
    #[serde(default)]
    #[expect(dead_code, reason = "known, and seen from the ids")]
    shared: UnstoredValue,
    #[serde(default)]
    debug: UnstoredValue,
}

/// Side of a call that a span describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Client,
    Server,
    /// The span is not a side of a call.
    Local,
}

impl Side {
    fn flag(self) -> u32 {
        match self {
            Self::Client => SpanFlag::Client as u32,
            Self::Server => SpanFlag::Server as u32,
            Self::Local => 0,
        }
    }
}

/// Holds spans so that the two sides of a call can be matched.
#[derive(Debug, Default)]
pub(super) struct Zipkin {
    held: Vec<(u64, ForeignSpan, Side)>,
    /// Total size of the records read since the held spans were last returned, in bytes.
    held_bytes: usize,
}

impl Zipkin {
    /// Number of held spans at which they are returned. Sides that are not held at the same time
    /// are not matched, and then share an id.
    pub(super) const HELD_MAX: usize = 100_000;
    /// Total size of the records read, in bytes, at which the held spans are returned.
    const HELD_BYTES_MAX: usize = 128 << 20;

    /// Reads one record, a span, which begins on line `line`.
    pub(super) fn take(&mut self, line: u64, record: &str, take: &mut dyn Take) {
        self.held_bytes += record.len();
        let parsed = parse(record, "span", &mut |name| take.not_taken(line, name, 1));
        let span: Span<'_> = match parsed {
            Ok(span) => span,
            Err(error) => {
                let (offset, reason) = reason_of(&error);
                return take.bad(line + offset, &reason);
            }
        };
        take.not_taken(line, "span.debug", u64::from(span.debug.0));
        let port = span
            .local_endpoint
            .as_ref()
            .and_then(|endpoint| endpoint.port);
        let has_port = u64::from(port.is_some_and(|port| port != 0));
        take.not_taken(line, "span.localEndpoint.port", has_port);
        let endpoints = span.local_endpoint.iter().chain(&span.remote_endpoint);
        let with_both = endpoints.filter(|each| each.ipv4.is_some() && each.ipv6.is_some());
        take.not_taken(
            line,
            "an endpoint's ipv6 beside its ipv4",
            with_both.count() as u64,
        );
        match sides(&span) {
            Ok(sides) => {
                let sides = sides.into_iter().map(|(side, span)| (line, span, side));
                self.held.extend(sides);
            }
            Err(reason) => take.bad(line, &reason),
        }
    }

    /// Reports whether the number or the size of the held spans has reached its maximum. The caller
    /// then calls [`Zipkin::matched`].
    pub(super) fn is_full(&self) -> bool {
        self.held.len() >= Self::HELD_MAX || self.held_bytes >= Self::HELD_BYTES_MAX
    }

    /// Returns the held spans, with the lines on which they began, after separating the two sides
    /// of each call.
    pub(super) fn matched(&mut self) -> impl Iterator<Item = (u64, ForeignSpan)> + use<> {
        let mut held = std::mem::take(&mut self.held);
        self.held_bytes = 0;
        let with = |wanted: Side| -> HashSet<(String, u64)> {
            let of_side = held.iter().filter(|(_, _, side)| *side == wanted);
            let ids = of_side.map(|(_, span, _)| (span.trace.clone(), span.span_id));
            ids.collect()
        };
        let (clients, servers) = (with(Side::Client), with(Side::Server));
        for (_, span, side) in &mut held {
            let key = (span.trace.clone(), span.span_id);
            if !clients.contains(&key) || !servers.contains(&key) {
                continue;
            }
            match side {
                Side::Client => span.span_id = client_id(span.span_id),
                Side::Server => span.parent_id = client_id(span.span_id),
                Side::Local => {}
            }
        }
        held.into_iter().map(|(line, span, _)| (line, span))
    }
}

fn client_id(shared: u64) -> u64 {
    hashed(format!("client side of {shared:016x}").as_bytes())
}

fn sides(span: &Span<'_>) -> Result<Vec<(Side, ForeignSpan)>, BadLine> {
    let mut plain = ForeignSpan {
        trace: span.trace_id.clone().into_owned(),
        span_id: own_span_id(&span.id)?,
        parent_id: span_number(span.parent_id.as_deref().unwrap_or_default()),
        name: span.name.as_deref().unwrap_or_default().to_owned(),
        attributes: span.tags.clone().unwrap_or_default(),
        ..ForeignSpan::default()
    };
    if let Some(remote) = &span.remote_endpoint {
        insert_peer(&mut plain.attributes, remote);
    }
    let annotations = span.annotations.as_deref().unwrap_or_default();
    if span.kind.is_none() && annotations.iter().any(is_call) {
        return version_1_sides(span, annotations, &plain);
    }
    let side = match span.kind.as_deref() {
        Some("CLIENT") => Side::Client,
        Some("SERVER") => Side::Server,
        Some(kind) => {
            let kind = kind.to_ascii_lowercase();
            plain.attributes.insert("span.kind".to_owned(), kind.into());
            Side::Local
        }
        None => Side::Local,
    };
    let binary = span.binary_annotations.as_deref().unwrap_or_default();
    let of_binary = || {
        binary
            .iter()
            .find_map(|annotation| annotation.endpoint.as_ref())
    };
    set_endpoint(&mut plain, span.local_endpoint.as_ref().or_else(of_binary));
    plain.start_ns = match span.timestamp {
        Some(start_us) => from_us("timestamp", start_us)?,
        None => return Err(BadLine::NoTime("`timestamp` nor annotations of a call")),
    };
    set_end(&mut plain, span.duration)?;
    plain.flags |= side.flag();
    plain.events = annotations.iter().map(event).collect::<Result<_, _>>()?;
    for annotation in binary {
        insert_binary(&mut plain.attributes, annotation);
    }
    Ok(vec![(side, plain)])
}

/// Reports whether an annotation is the begin or the end of a side of a call.
fn is_call(annotation: &Annotation<'_>) -> bool {
    ["cs", "cr", "sr", "ss"].contains(&&*annotation.value)
}

/// Returns one span for each side that a span of version 1 describes.
fn version_1_sides(
    span: &Span<'_>,
    annotations: &[Annotation<'_>],
    plain: &ForeignSpan,
) -> Result<Vec<(Side, ForeignSpan)>, BadLine> {
    let find = |value: &str| annotations.iter().find(|found| found.value == value);
    let mut told = vec![
        (Side::Client, find("cs"), find("cr")),
        (Side::Server, find("sr"), find("ss")),
    ];
    told.retain(|(_, begin, end)| begin.is_some() || end.is_some());
    let mut sides = Vec::with_capacity(told.len());
    for &(side, begin, end) in &told {
        let mut of_side = plain.clone();
        let endpoint = begin.or(end).and_then(|known| known.endpoint.as_ref());
        set_endpoint(&mut of_side, endpoint);
        set_interval(&mut of_side, begin, end, (told.len() == 1).then_some(span))?;
        of_side.flags |= side.flag();
        // An annotation of the other side's service goes to that side; one of neither service, or
        // of both, goes to the first side; an address goes to both sides.
        let is_first = sides.is_empty();
        let mut others = told.iter().filter(|other| other.0 != side);
        let other_service =
            others.find_map(|other| service(other.1.or(other.2)?.endpoint.as_ref()));
        let is_own = |endpoint: Option<&Endpoint<'_>>| match service(endpoint) {
            Some(service) if service == of_side.service => {
                is_first || other_service != Some(service)
            }
            Some(service) => is_first && other_service != Some(service),
            None => is_first,
        };
        let events = annotations.iter().filter(|event| !is_call(event));
        let own_events = events.filter(|event| is_own(event.endpoint.as_ref()));
        let events = own_events.map(event).collect::<Result<_, _>>()?;
        let binary = span.binary_annotations.iter().flatten();
        let own = binary.filter(|one| is_own(one.endpoint.as_ref()) || is_address(one));
        let own_binary: Vec<_> = own.collect();
        of_side.events = events;
        for annotation in own_binary {
            insert_binary(&mut of_side.attributes, annotation);
        }
        sides.push((side, of_side));
    }
    Ok(sides)
}

/// Sets the times of one side. `alone` is the whole span if it describes no other side; only then
/// its own times count.
fn set_interval(
    side: &mut ForeignSpan,
    begin: Option<&Annotation<'_>>,
    end: Option<&Annotation<'_>>,
    alone: Option<&Span<'_>>,
) -> Result<(), BadLine> {
    let start_us = begin.map(|begin| begin.timestamp);
    let start_us = start_us.or_else(|| alone.and_then(|span| span.timestamp));
    let end_us = end.map(|end| end.timestamp);
    let known_us = start_us.or(end_us).unwrap_or_default();
    side.start_ns = from_us("a timestamp", known_us)?;
    match (end_us, alone.and_then(|span| span.duration)) {
        (Some(end_us), _) => side.end_ns = from_us("a timestamp", end_us)?,
        (None, duration) => set_end(side, duration)?,
    }
    if start_us.is_none() {
        side.flags |= SpanFlag::CutOpen as u32;
    }
    Ok(())
}

fn set_end(span: &mut ForeignSpan, duration_us: Option<u64>) -> Result<(), BadLine> {
    let value = duration_us.unwrap_or_default();
    let end_ns = span.start_ns.checked_add(from_us("duration", value)?);
    span.end_ns = end_ns.ok_or(BadSpan::TimeOutOfRange {
        field: "duration",
        value,
        unit: "us",
    })?;
    if duration_us.is_none() {
        span.flags |= SpanFlag::Unfinished as u32;
    }
    Ok(())
}

fn service<'a>(endpoint: Option<&'a Endpoint<'_>>) -> Option<&'a str> {
    let name = endpoint?.service_name.as_deref();
    name.filter(|name| !name.is_empty())
}

fn set_endpoint(span: &mut ForeignSpan, endpoint: Option<&Endpoint<'_>>) {
    span.service = service(endpoint).unwrap_or_default().to_owned();
    span.host = endpoint.and_then(address).unwrap_or_default().to_owned();
}

fn address<'a>(endpoint: &'a Endpoint<'_>) -> Option<&'a str> {
    endpoint.ipv4.as_deref().or(endpoint.ipv6.as_deref())
}

fn event(annotation: &Annotation<'_>) -> Result<ForeignEvent, BadLine> {
    let name = match &*annotation.value {
        "" => "event",
        name => name,
    };
    Ok(ForeignEvent {
        time_ns: from_us("an annotation's timestamp", annotation.timestamp)?,
        name: name.to_owned(),
        attributes: Attributes::new(),
    })
}

/// Reports whether the annotation is `sa` or `ca` with a value that is not a text. It then gives
/// the address of the other end, not an observation.
fn is_address(annotation: &BinaryAnnotation<'_>) -> bool {
    (annotation.key == "sa" || annotation.key == "ca") && !annotation.value.is_string()
}

fn insert_binary(attributes: &mut Attributes, annotation: &BinaryAnnotation<'_>) {
    match &annotation.endpoint {
        Some(endpoint) if is_address(annotation) => insert_peer(attributes, endpoint),
        _ => {
            let key = annotation.key.clone().into_owned();
            attributes.insert(key, annotation.value.clone());
        }
    }
}

fn insert_peer(attributes: &mut Attributes, endpoint: &Endpoint<'_>) {
    let texts = [
        ("peer.service", service(Some(endpoint))),
        ("peer.ip", address(endpoint)),
    ];
    for (key, text) in texts {
        if let Some(text) = text {
            attributes.insert(key.to_owned(), text.into());
        }
    }
    if let Some(port) = endpoint.port {
        attributes.insert("peer.port".to_owned(), port.into());
    }
}
