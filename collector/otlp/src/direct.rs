//! Extracts spans from the bytes of a `ResourceSpans` that is [plain](super::plain), without
//! decoding a message.
//!
//! The parts that spans share (service, host, the attributes of resource and scope) are made once,
//! the attributes as JSON; each span's own attributes are appended to them. A single span takes the
//! slow path if it has links, an event without a name, duplicate attributes, too many attributes,
//! attributes named like synthesized ones, values that are maps, bytes, infinity or NaN, or a
//! status or value that is given twice. Both paths write the same texts; a test compares them.

use prost::Message as _;
use serde_json::Value;
use stroboscope_proto::v1::SpanFlag;

use super::OfResource;
use super::message::{Resource, Scope, Span};
use super::operation_name::{NameSources, SPAN_NAME};
use super::own_names::{is_made_of_event, is_made_of_span};
use super::plain::{Wire, each_field};
use crate::{Attributes, TakeSpans};

/// Maximum number of a span's own attributes, or of attributes of one of its events. Spans with
/// more take the slow path.
const KEYS_MAX: usize = 64;

/// A span with borrowed texts.
#[derive(Clone, Copy, Debug)]
pub struct PlainSpan<'a> {
    pub trace_id: u128,
    pub span_id: u64,
    /// Id of the parent; 0 for none.
    pub parent_id: u64,
    pub service: &'a str,
    pub name: &'a str,
    pub host: &'a str,
    /// Start, in ns since the Unix epoch.
    pub start_ns: i64,
    /// End, in ns since the Unix epoch.
    pub end_ns: i64,
    /// Bits of `SpanFlag`.
    pub flags: u32,
    /// Attributes as a JSON object; an empty text if there are none.
    pub attributes: &'a str,
    pub events: &'a [PlainEvent<'a>],
}

/// An event in a span.
#[derive(Clone, Debug)]
pub struct PlainEvent<'a> {
    /// Time, in ns since the Unix epoch.
    pub time_ns: i64,
    pub name: &'a str,
    /// Attributes as a JSON object; an empty text if there are none.
    pub attributes: String,
}

/// Receives spans with borrowed texts, in addition to owned ones.
pub trait TakePlain: TakeSpans {
    fn plain(&mut self, span: &PlainSpan<'_>);
}

/// Passes the spans of a plain `ResourceSpans`, message `number` of a request, to `take`. Passes
/// nothing and returns `None` if the caller must use the slow path.
pub fn plain_spans_of(number: u64, bytes: &[u8], take: &mut dyn TakePlain) -> Option<()> {
    let (mut resource, mut scopes, mut schema_url) = (None, Vec::new(), "");
    each_field(bytes, |field, value| {
        match field {
            // Two resources would have to be merged.
            1 if resource.is_some() => return None,
            1 => resource = Some(Resource::decode(value.bytes()?).ok()?),
            2 => scopes.push(ScopeBytes::read(value.bytes()?)?),
            3 => schema_url = value.text()?,
            _ => {}
        }
        Some(())
    })?;
    // From here on, the slow path is used for single spans only, so that no notice comes twice.
    let of_resource = OfResource::new(resource.as_ref(), schema_url, number, take);
    let mut buffers = Buffers::default();
    for scope in &scopes {
        let scope = OfScope::of(scope, &of_resource, number, take);
        // The bytes were checked when they were found plain; unsupported fields are skipped here as
        // well.
        let _ = each_field(scope.bytes, |field, value| {
            if field == 2 {
                let bytes = value.bytes()?;
                if direct(bytes, &of_resource, &scope, &mut buffers, take).is_none() {
                    let span = Span::decode(bytes).ok()?;
                    of_resource.take(number, &span, &scope.shared, take);
                }
            }
            Some(())
        });
    }
    Some(())
}

/// A `ScopeSpans` whose spans are not read yet.
struct ScopeBytes<'a> {
    bytes: &'a [u8],
    scope: Option<Scope>,
    schema_url: &'a str,
}

impl<'a> ScopeBytes<'a> {
    fn read(bytes: &'a [u8]) -> Option<Self> {
        let (mut scope, mut schema_url) = (None, "");
        each_field(bytes, |field, value| {
            match field {
                1 if scope.is_some() => return None,
                1 => scope = Some(Scope::decode(value.bytes()?).ok()?),
                3 => schema_url = value.text()?,
                _ => {}
            }
            Some(())
        })?;
        Some(Self {
            bytes,
            scope,
            schema_url,
        })
    }
}

struct OfScope<'a> {
    bytes: &'a [u8],
    shared: Attributes,
    /// The shared attributes as JSON, without braces.
    text: String,
}

impl<'a> OfScope<'a> {
    fn of(
        of: &ScopeBytes<'a>,
        of_resource: &OfResource,
        number: u64,
        take: &mut dyn TakePlain,
    ) -> Self {
        let shared = of_resource.shared(of.scope.as_ref(), of.schema_url, number, take);
        let json = Value::Object(shared.clone()).to_string();
        let text = json.strip_prefix('{').and_then(|of| of.strip_suffix('}'));
        Self {
            bytes: of.bytes,
            text: text.unwrap_or_default().to_owned(),
            shared,
        }
    }
}

#[derive(Default)]
struct Buffers {
    json: Vec<u8>,
}

fn direct(
    bytes: &[u8],
    of_resource: &OfResource,
    scope: &OfScope<'_>,
    buffers: &mut Buffers,
    take: &mut dyn TakePlain,
) -> Option<()> {
    let (mut trace_id, mut span_id, mut parent_id): (&[u8], &[u8], &[u8]) = (&[], &[], &[]);
    let (mut name, mut start_ns, mut end_ns, mut kind) = ("", 0, 0, 0);
    let (mut state, mut status, mut flags) = ("", None, 0);
    let (mut attributes_dropped, mut events_dropped, mut links_dropped) = (0, 0, 0);
    let mut events = Vec::new();
    let mut name_sources = NameSources::default();
    let mut json = JsonObject::begin(&mut buffers.json, &scope.text);
    each_field(bytes, |field, value| {
        match field {
            1 => trace_id = value.bytes()?,
            2 => span_id = value.bytes()?,
            3 => state = value.text()?,
            4 => parent_id = value.bytes()?,
            5 => name = value.text()?,
            6 => kind = value.varint()? as i32,
            7 => start_ns = value.fixed64()?,
            8 => end_ns = value.fixed64()?,
            9 => {
                let (key, value) = json.pair(value.bytes()?, is_made_of_span)?;
                if NameSources::may_use(key)
                    && let Some(text) = text_of(value)
                {
                    name_sources.see(key, text);
                }
            }
            10 => attributes_dropped = value.varint()? as u32,
            11 => events.push(event(value.bytes()?)?),
            12 => events_dropped = value.varint()? as u32,
            // Links.
            13 => return None,
            14 => links_dropped = value.varint()? as u32,
            15 if status.is_some() => return None,
            15 => status = Some(super::Status::decode(value.bytes()?).ok()?),
            16 => flags = value.fixed32()?,
            _ => {}
        }
        Some(())
    })?;
    let mut of_span = 0;
    match kind {
        0 => {}
        1 => json.text("span.kind", "internal"),
        2 => of_span = SpanFlag::Server as u32,
        3 => of_span = SpanFlag::Client as u32,
        4 => json.text("span.kind", "producer"),
        5 => json.text("span.kind", "consumer"),
        other => json.raw("span.kind", &other.to_string()),
    }
    if let Some(status) = status.filter(|status| *status != super::Status::default()) {
        let mut made = Attributes::new();
        super::set_status(&mut made, Some(&status));
        made.iter()
            .for_each(|(key, value)| json.raw(key, &value.to_string()));
    }
    if !state.is_empty() {
        json.text("w3c.tracestate", state);
    }
    for (key, count) in [
        ("otel.flags", flags),
        (super::DROPPED_ATTRIBUTES, attributes_dropped),
        ("otel.dropped_events_count", events_dropped),
        ("otel.dropped_links_count", links_dropped),
    ] {
        if count > 0 {
            json.raw(key, &count.to_string());
        }
    }
    let better = name_sources.name(name);
    if better.is_some() && !name.is_empty() {
        json.text(SPAN_NAME, name);
    }
    if end_ns == 0 {
        end_ns = start_ns;
        of_span |= SpanFlag::Unfinished as u32;
    }
    take.plain(&PlainSpan {
        trace_id: u128::from_be_bytes(trace_id.try_into().ok()?),
        span_id: u64::from_be_bytes(span_id.try_into().ok()?),
        parent_id: parent_id.try_into().map_or(0, u64::from_be_bytes),
        service: &of_resource.service,
        name: better.as_deref().unwrap_or(name),
        host: &of_resource.host,
        start_ns: i64::try_from(start_ns).ok()?,
        end_ns: i64::try_from(end_ns).ok()?,
        flags: of_span,
        attributes: json.end()?,
        events: &events,
    });
    Some(())
}

fn event(bytes: &[u8]) -> Option<PlainEvent<'_>> {
    let (mut time_ns, mut name, mut dropped) = (0, "", 0);
    let mut buffer = Vec::new();
    let mut json = JsonObject::begin(&mut buffer, "");
    each_field(bytes, |field, value| {
        match field {
            1 => time_ns = value.fixed64()?,
            2 => name = value.text()?,
            3 => drop(json.pair(value.bytes()?, is_made_of_event)?),
            4 => dropped = value.varint()? as u32,
            _ => {}
        }
        Some(())
    })?;
    // The slow path notes a missing name.
    if name.is_empty() {
        return None;
    }
    if dropped > 0 {
        json.raw(super::DROPPED_ATTRIBUTES, &dropped.to_string());
    }
    let attributes = json.end()?.to_owned();
    Some(PlainEvent {
        time_ns: i64::try_from(time_ns).ok()?,
        name,
        attributes,
    })
}

/// Writer of one JSON object.
struct JsonObject<'b, 'k> {
    out: &'b mut Vec<u8>,
    keys: Vec<&'k str>,
}

impl<'b, 'k> JsonObject<'b, 'k> {
    /// Begins an object with `members`, which are JSON without the braces.
    fn begin(out: &'b mut Vec<u8>, members: &str) -> Self {
        out.clear();
        out.push(b'{');
        out.extend_from_slice(members.as_bytes());
        Self {
            out,
            keys: Vec::new(),
        }
    }

    fn key(&mut self, key: &str) {
        if self.out.len() > 1 {
            self.out.push(b',');
        }
        string(self.out, key);
        self.out.push(b':');
    }

    fn text(&mut self, key: &str, text: &str) {
        self.key(key);
        string(self.out, text);
    }

    /// Writes a value that is already JSON.
    fn raw(&mut self, key: &str, json: &str) {
        self.key(key);
        self.out.extend_from_slice(json.as_bytes());
    }

    /// Writes a `KeyValue`, and returns its key and value; returns `None` if the span must take the
    /// slow path.
    fn pair(
        &mut self,
        bytes: &'k [u8],
        is_made: impl Fn(&str) -> bool,
    ) -> Option<(&'k str, &'k [u8])> {
        let (mut key, mut of_key) = ("", None);
        each_field(bytes, |field, value| {
            match field {
                1 => key = value.text()?,
                2 if of_key.is_some() => return None,
                2 => of_key = Some(value.bytes()?),
                _ => {}
            }
            Some(())
        })?;
        if is_made(key) || self.keys.contains(&key) || self.keys.len() == KEYS_MAX {
            return None;
        }
        self.keys.push(key);
        self.key(key);
        let of_key = of_key.unwrap_or_default();
        value(self.out, of_key)?;
        Some((key, of_key))
    }

    /// Ends the object and returns its text, which is empty if there are no members. Returns `None`
    /// only if the text is not UTF-8, which does not happen.
    fn end(self) -> Option<&'b str> {
        if self.out.len() == 1 {
            return Some("");
        }
        self.out.push(b'}');
        std::str::from_utf8(self.out).ok()
    }
}

/// Returns the text of an `AnyValue`; `None` if the value is not a text.
fn text_of(bytes: &[u8]) -> Option<&str> {
    let mut text = None;
    each_field(bytes, |field, value| {
        if field == 1 {
            text = Some(value.text()?);
        }
        Some(())
    })?;
    text
}

/// Writes an `AnyValue` as JSON; returns `None` if the span must take the slow path.
fn value(out: &mut Vec<u8>, bytes: &[u8]) -> Option<()> {
    let mut found = None;
    each_field(bytes, |field, value| {
        if (1..=7).contains(&field) {
            // Only the slow path decides between several values, or merges them.
            if found.is_some() {
                return None;
            }
            found = Some((field, value));
        }
        Some(())
    })?;
    match found {
        None => out.extend_from_slice(b"null"),
        Some((1, text)) => string(out, text.text()?),
        Some((2, Wire::Varint(value))) => {
            let text: &[u8] = if value == 0 { b"false" } else { b"true" };
            out.extend_from_slice(text);
        }
        Some((3, Wire::Varint(value))) => {
            out.extend_from_slice((value as i64).to_string().as_bytes());
        }
        Some((4, Wire::Fixed64(bits))) => {
            let value = f64::from_bits(bits);
            // JSON cannot express infinity and NaN.
            if !value.is_finite() {
                return None;
            }
            serde_json::to_writer(&mut *out, &value).ok()?;
        }
        Some((5, Wire::Bytes(array))) => {
            out.push(b'[');
            let mut is_first = true;
            each_field(array, |field, item| {
                if field == 1 {
                    if !std::mem::take(&mut is_first) {
                        out.push(b',');
                    }
                    value(out, item.bytes()?)?;
                }
                Some(())
            })?;
            out.push(b']');
        }
        // Maps take the slow path, and so do bytes, which are stored twice.
        _ => return None,
    }
    Some(())
}

fn string(out: &mut Vec<u8>, text: &str) {
    let is_plain = |byte: u8| byte >= 0x20 && byte != b'"' && byte != b'\\';
    if text.bytes().all(is_plain) {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
    } else {
        // Writing to memory does not fail.
        let _ = serde_json::to_writer(out, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{AnyKind, AnyValue, KeyValue, ResourceSpans};
    use crate::{BadSpan, ForeignSpan, spans_of};

    #[derive(Default)]
    struct Notices(Vec<String>);

    impl TakeSpans for Notices {
        fn span(&mut self, _: u64, _: Result<ForeignSpan, BadSpan>) {}

        fn not_taken(&mut self, _: u64, name: &str, _: u64) {
            self.0.push(name.to_owned());
        }
    }

    impl TakePlain for Notices {
        fn plain(&mut self, _: &PlainSpan<'_>) {}
    }

    #[test]
    fn a_notice_comes_once_if_the_slow_path_follows() {
        let version = |text: &str| KeyValue {
            key: "version".to_owned(),
            value: Some(AnyValue {
                kind: Some(AnyKind::Text(text.to_owned())),
            }),
        };
        let message = ResourceSpans {
            resource: Some(Resource {
                attributes: vec![version("1"), version("2")],
                ..Resource::default()
            }),
            ..ResourceSpans::default()
        };
        let mut bytes = message.encode_to_vec();
        // A `ScopeSpans` with two scopes, which would have to be merged.
        bytes.extend([2 << 3 | 2, 4, 1 << 3 | 2, 0, 1 << 3 | 2, 0]);
        let mut notices = Notices::default();
        assert_eq!(plain_spans_of(1, &bytes, &mut notices), None);
        spans_of(1, &ResourceSpans::decode(&bytes[..]).unwrap(), &mut notices);
        assert_eq!(notices.0, ["attribute resource.version, given twice"]);
    }
}
