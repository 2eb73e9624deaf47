//! Redacts OTLP requests in protobuf: copies a request field by field, and replaces or omits the
//! values to redact. Unknown fields are copied unchanged.

use super::{Action, NotWalked, Place, Redaction};

/// Kind of a field's content, which decides how the field is redacted.
#[derive(Clone, Copy)]
pub(super) enum Inside {
    Message(&'static [(u64, Inside)]),
    /// A `KeyValue`, with the prefix of its key.
    Attribute(&'static str),
    /// A text that is stored as this attribute.
    Text(&'static str),
    /// An `AnyValue` that is stored as this attribute.
    Any(&'static str),
}

use Inside::{Any, Attribute, Message, Text};

const RESOURCE: Inside = Message(&[(1, Attribute("resource."))]);
const SCOPE: Inside = Message(&[(3, Attribute("scope."))]);
const EVENT: Inside = Message(&[(3, Attribute(""))]);
const LINK: Inside = Message(&[(4, Attribute("")), (3, Text("w3c.tracestate"))]);
const STATUS: Inside = Message(&[(2, Text("otel.status_description"))]);
const SPAN: Inside = Message(&[
    (3, Text("w3c.tracestate")),
    (9, Attribute("")),
    (11, EVENT),
    (13, LINK),
    (15, STATUS),
]);
const SCOPE_SPANS: Inside = Message(&[(1, SCOPE), (2, SPAN)]);
/// Field 1000 is the older form of field 2, used until version 0.18.
const RESOURCE_SPANS: Inside = Message(&[(1, RESOURCE), (2, SCOPE_SPANS), (1_000, SCOPE_SPANS)]);

const LOG_RECORD: Inside = Message(&[
    (3, Text("log.severity_text")),
    (5, Any("log.body")),
    (6, Attribute("")),
]);
const SCOPE_LOGS: Inside = Message(&[(1, SCOPE), (2, LOG_RECORD)]);
const RESOURCE_LOGS: Inside = Message(&[(1, RESOURCE), (2, SCOPE_LOGS)]);

/// Fields of an `ExportTraceServiceRequest` that contain values to redact.
pub(super) const TRACES: &[(u64, Inside)] = &[(1, RESOURCE_SPANS)];
/// Fields of an `ExportLogsServiceRequest` that contain values to redact.
pub(super) const LOGS: &[(u64, Inside)] = &[(1, RESOURCE_LOGS)];

/// Field numbers of `KeyValue`.
const KEY: u64 = 1;
const VALUE: u64 = 2;
/// Field numbers of `AnyValue`.
const STRING: u64 = 1;
const BOOL: u64 = 2;
const INT: u64 = 3;
const DOUBLE: u64 = 4;
const ARRAY: u64 = 5;
const KVLIST: u64 = 6;
const BYTES: u64 = 7;
/// Maximum nesting depth; prost rejects messages that are nested deeper.
const DEPTH_MAX: usize = 100;

pub(super) fn redacted(
    redaction: &Redaction,
    request: &[u8],
    fields: &[(u64, Inside)],
) -> Result<Vec<u8>, NotWalked> {
    let mut out = Vec::with_capacity(request.len());
    message(redaction, request, fields, &mut out)?;
    Ok(out)
}

/// A field, as it was encoded.
struct Field<'a> {
    number: u64,
    raw: &'a [u8],
    /// The field's value, without its tag and length.
    value: Value<'a>,
}

#[derive(Clone, Copy)]
enum Value<'a> {
    Varint(u64),
    Fixed(&'a [u8]),
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Value::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }
}

fn varint(rest: &mut &[u8]) -> Result<u64, NotWalked> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *rest.split_off_first().ok_or(NotWalked)?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(NotWalked)
}

fn next<'a>(rest: &mut &'a [u8]) -> Result<Option<Field<'a>>, NotWalked> {
    if rest.is_empty() {
        return Ok(None);
    }
    let whole = *rest;
    let tag = varint(rest)?;
    let value = match tag & 7 {
        0 => Value::Varint(varint(rest)?),
        1 => Value::Fixed(rest.split_off(..8).ok_or(NotWalked)?),
        5 => Value::Fixed(rest.split_off(..4).ok_or(NotWalked)?),
        2 => {
            let length = usize::try_from(varint(rest)?).map_err(|_| NotWalked)?;
            Value::Bytes(rest.split_off(..length).ok_or(NotWalked)?)
        }
        _ => return Err(NotWalked),
    };
    let raw = &whole[..whole.len() - rest.len()];
    let number = tag >> 3;
    Ok(Some(Field { number, raw, value }))
}

fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put_bytes(number: u64, bytes: &[u8], out: &mut Vec<u8>) {
    put_varint(number << 3 | 2, out);
    put_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn message(
    redaction: &Redaction,
    mut rest: &[u8],
    fields: &[(u64, Inside)],
    out: &mut Vec<u8>,
) -> Result<(), NotWalked> {
    while let Some(Field { number, raw, value }) = next(&mut rest)? {
        let inside = fields.iter().find(|field| field.0 == number);
        let (Some((_, inside)), Some(bytes)) = (inside, value.bytes()) else {
            out.extend_from_slice(raw);
            continue;
        };
        let mut written = Vec::new();
        match inside {
            Message(fields) => message(redaction, bytes, fields, &mut written)?,
            Attribute(of) => {
                if !attribute(redaction, bytes, Place { of, inside: "" }, 0, &mut written)? {
                    continue;
                }
            }
            Text(key) => match redaction.action(Place::PLAIN, key) {
                Action::Keep => written.extend_from_slice(bytes),
                Action::Drop => continue,
                Action::Hash => written.extend(redaction.hash(bytes).bytes()),
            },
            Any(key) => match redaction.action(Place::PLAIN, key) {
                Action::Keep => {
                    let inside = format!("{key}.");
                    let place = Place {
                        of: "",
                        inside: &inside,
                    };
                    any(redaction, bytes, place, 0, &mut written)?;
                }
                Action::Drop => continue,
                Action::Hash => {
                    let hash = redaction.hash(&text_of_any(bytes)?);
                    put_bytes(STRING, hash.as_bytes(), &mut written);
                }
            },
        }
        put_bytes(number, &written, out);
    }
    Ok(())
}

/// Redacts a `KeyValue` into `out`. Returns false if the attribute is dropped.
fn attribute(
    redaction: &Redaction,
    pair: &[u8],
    place: Place<'_>,
    depth: usize,
    out: &mut Vec<u8>,
) -> Result<bool, NotWalked> {
    // If a field is repeated, readers use the last one. Here, the attribute is redacted if any of
    // its keys is, unless the last key is empty.
    let mut action = Action::Keep;
    let (mut rest, mut key) = (pair, String::new());
    while let Some(field) = next(&mut rest)? {
        if let (KEY, Some(bytes)) = (field.number, field.value.bytes()) {
            key = String::from_utf8_lossy(bytes).into_owned();
            if action == Action::Keep {
                action = redaction.action(place, &key);
            }
        }
    }
    if key.is_empty() {
        action = redaction.action(place, "");
    }
    match action {
        Action::Drop => return Ok(false),
        Action::Hash => {
            let mut hashed = Vec::new();
            put_bytes(
                STRING,
                redaction.hash(&text_of(pair)?).as_bytes(),
                &mut hashed,
            );
            put_bytes(KEY, key.as_bytes(), out);
            put_bytes(VALUE, &hashed, out);
            return Ok(true);
        }
        Action::Keep => {}
    }
    let (mut rest, inside) = (pair, format!("{}{key}.", place.inside));
    let inside = Place {
        inside: &inside,
        ..place
    };
    while let Some(Field { number, raw, value }) = next(&mut rest)? {
        match value.bytes() {
            Some(bytes) if number == VALUE => {
                let mut written = Vec::new();
                any(redaction, bytes, inside, depth + 1, &mut written)?;
                put_bytes(number, &written, out);
            }
            _ => out.extend_from_slice(raw),
        }
    }
    Ok(true)
}

/// Redacts the lists and maps inside an `AnyValue` that is itself kept.
fn any(
    redaction: &Redaction,
    mut rest: &[u8],
    place: Place<'_>,
    depth: usize,
    out: &mut Vec<u8>,
) -> Result<(), NotWalked> {
    if depth > DEPTH_MAX {
        return Err(NotWalked);
    }
    while let Some(Field { number, raw, value }) = next(&mut rest)? {
        let (ARRAY | KVLIST, Some(mut elements)) = (number, value.bytes()) else {
            out.extend_from_slice(raw);
            continue;
        };
        let mut list = Vec::new();
        while let Some(element) = next(&mut elements)? {
            let (1, Some(bytes)) = (element.number, element.value.bytes()) else {
                list.extend_from_slice(element.raw);
                continue;
            };
            let mut written = Vec::new();
            if number == ARRAY {
                any(redaction, bytes, place, depth + 1, &mut written)?;
            } else if !attribute(redaction, bytes, place, depth + 1, &mut written)? {
                continue;
            }
            put_bytes(1, &written, &mut list);
        }
        put_bytes(number, &list, out);
    }
    Ok(())
}

/// Returns the value of a `KeyValue` as text; for lists and maps, returns their encoded bytes. For
/// strings, numbers and booleans, the text is identical to that in other encodings.
fn text_of(pair: &[u8]) -> Result<Vec<u8>, NotWalked> {
    let (mut rest, mut text) = (pair, Vec::new());
    while let Some(field) = next(&mut rest)? {
        if let (VALUE, Some(any)) = (field.number, field.value.bytes()) {
            text = text_of_any(any)?;
        }
    }
    Ok(text)
}

fn text_of_any(mut any: &[u8]) -> Result<Vec<u8>, NotWalked> {
    let mut text = Vec::new();
    while let Some(Field { number, value, .. }) = next(&mut any)? {
        text = match (number, value) {
            (STRING | BYTES | ARRAY | KVLIST, Value::Bytes(bytes)) => bytes.to_vec(),
            (BOOL, Value::Varint(bool)) => (bool != 0).to_string().into_bytes(),
            (INT, Value::Varint(int)) => int.cast_signed().to_string().into_bytes(),
            (DOUBLE, Value::Fixed(bytes)) => {
                let bytes = bytes.try_into().map_err(|_| NotWalked)?;
                f64::from_le_bytes(bytes).to_string().into_bytes()
            }
            _ => continue,
        };
    }
    Ok(text)
}
