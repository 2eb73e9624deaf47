//! Redacts OTLP requests in protobuf: copies a request field by field, and replaces or omits the
//! values to redact. Unknown fields are copied unchanged, unless a mask matches their bytes.

use super::{ALL_MASKS, Action, NotWalked, Place, Redaction, Verdict, whole};

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
    /// A text to which no rule by key applies.
    Name,
    /// Bytes that are no text.
    Id,
}

use Inside::{Any, Attribute, Id, Message, Name, Text};

const RESOURCE: Inside = Message(&[(1, Attribute("resource."))]);
const SCOPE: Inside = Message(&[(1, Name), (2, Name), (3, Attribute("scope."))]);
const EVENT: Inside = Message(&[(2, Name), (3, Attribute(""))]);
const LINK: Inside = Message(&[
    (1, Id),
    (2, Id),
    (3, Text("w3c.tracestate")),
    (4, Attribute("")),
]);
const STATUS: Inside = Message(&[(2, Text("otel.status_description"))]);
const SPAN: Inside = Message(&[
    (1, Id),
    (2, Id),
    (3, Text("w3c.tracestate")),
    (4, Id),
    (5, Name),
    (9, Attribute("")),
    (11, EVENT),
    (13, LINK),
    (15, STATUS),
]);
const SCOPE_SPANS: Inside = Message(&[(1, SCOPE), (2, SPAN), (3, Name)]);
/// Field 1000 is the older form of field 2, used until version 0.18.
const RESOURCE_SPANS: Inside = Message(&[
    (1, RESOURCE),
    (2, SCOPE_SPANS),
    (3, Name),
    (1_000, SCOPE_SPANS),
]);

const LOG_RECORD: Inside = Message(&[
    (3, Text("log.severity_text")),
    (5, Any("log.body")),
    (6, Attribute("")),
    (9, Id),
    (10, Id),
    (12, Name),
]);
const SCOPE_LOGS: Inside = Message(&[(1, SCOPE), (2, LOG_RECORD), (3, Name)]);
const RESOURCE_LOGS: Inside = Message(&[(1, RESOURCE), (2, SCOPE_LOGS), (3, Name)]);

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
    while let Some(field) = next(&mut rest)? {
        let inside = fields.iter().find(|known| known.0 == field.number);
        let (Some((number, inside)), Some(bytes)) = (inside, field.value.bytes()) else {
            copy_unknown(redaction, &field, out);
            continue;
        };
        let mut written = Vec::new();
        match inside {
            Message(fields) => message(redaction, bytes, fields, &mut written)?,
            Attribute(of) => {
                if !attribute(redaction, bytes, Place::of(of), 0, &mut written)? {
                    continue;
                }
            }
            Text(key) => {
                let Verdict { action, masks } = redaction.verdict(Place::PLAIN, key);
                match action {
                    Action::Keep => written = text(redaction, bytes, masks),
                    Action::Drop => continue,
                    Action::Hash => written.extend(redaction.hash(bytes).bytes()),
                }
            }
            Name => written = text(redaction, bytes, ALL_MASKS),
            Id => written.extend_from_slice(bytes),
            Any(key) => {
                let Verdict { action, masks } = redaction.verdict(Place::PLAIN, key);
                match action {
                    Action::Keep => {
                        let inside = format!("{key}.");
                        let place = Place {
                            of: "",
                            inside: &inside,
                            masks,
                        };
                        any(redaction, bytes, place, 0, &mut written)?;
                    }
                    Action::Drop => continue,
                    Action::Hash => {
                        let hash = redaction.hash(&text_of_any(bytes)?);
                        put_bytes(STRING, hash.as_bytes(), &mut written);
                    }
                }
            }
        }
        put_bytes(*number, &written, out);
    }
    Ok(())
}

/// Returns a text after masking.
fn text(redaction: &Redaction, text: &[u8], masks: usize) -> Vec<u8> {
    masked_text(redaction, text, masks).map_or_else(|| text.to_vec(), String::into_bytes)
}

/// Returns the replacement of a text in which a mask matches. Readers replace bytes that are not
/// UTF-8, and so does this function before it looks for matches.
fn masked_text(redaction: &Redaction, text: &[u8], masks: usize) -> Option<String> {
    match redaction.masks(masks) {
        [] => None,
        _ => redaction.masked(&String::from_utf8_lossy(text), masks),
    }
}

/// Copies an unknown field, unless its bytes contain a match of a mask.
fn copy_unknown(redaction: &Redaction, field: &Field<'_>, out: &mut Vec<u8>) {
    let bytes = field.value.bytes();
    if bytes.is_none_or(|bytes| masked_text(redaction, bytes, ALL_MASKS).is_none()) {
        out.extend_from_slice(field.raw);
    }
}

/// Redacts a `KeyValue` into `out`. Returns false if the attribute is dropped.
fn attribute(
    redaction: &Redaction,
    pair: &[u8],
    place: Place<'_>,
    depth: usize,
    out: &mut Vec<u8>,
) -> Result<bool, NotWalked> {
    // If a field is repeated, readers use the last one. Here, the first key that a rule drops or
    // hashes decides, unless the last key is empty.
    let mut verdict = Verdict {
        action: Action::Keep,
        masks: place.masks,
    };
    let (mut rest, mut key) = (pair, String::new());
    while let Some(field) = next(&mut rest)? {
        if let (KEY, Some(bytes)) = (field.number, field.value.bytes()) {
            key = String::from_utf8_lossy(bytes).into_owned();
            if verdict.action == Action::Keep {
                verdict = redaction.verdict(place, &key);
            }
        }
    }
    if key.is_empty() {
        verdict = redaction.verdict(place, "");
    }
    match verdict.action {
        Action::Drop => return Ok(false),
        Action::Hash => {
            let mut hashed = Vec::new();
            put_bytes(
                STRING,
                redaction.hash(&text_of(pair)?).as_bytes(),
                &mut hashed,
            );
            put_bytes(KEY, &text(redaction, key.as_bytes(), verdict.masks), out);
            put_bytes(VALUE, &hashed, out);
            return Ok(true);
        }
        Action::Keep => {}
    }
    let (mut rest, inside) = (pair, format!("{}{key}.", place.inside));
    let inside = Place {
        inside: &inside,
        masks: verdict.masks,
        ..place
    };
    while let Some(field) = next(&mut rest)? {
        match (field.number, field.value.bytes()) {
            (KEY, Some(bytes)) => put_bytes(KEY, &text(redaction, bytes, verdict.masks), out),
            (VALUE, Some(bytes)) => {
                let mut written = Vec::new();
                any(redaction, bytes, inside, depth + 1, &mut written)?;
                put_bytes(VALUE, &written, out);
            }
            _ => copy_unknown(redaction, &field, out),
        }
    }
    Ok(true)
}

/// Masks an `AnyValue` that is kept, and redacts the lists and maps inside it.
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
    while let Some(field) = next(&mut rest)? {
        let number = field.number;
        let (ARRAY | KVLIST, Some(mut elements)) = (number, field.value.bytes()) else {
            scalar(redaction, &field, place.masks, out)?;
            continue;
        };
        let mut list = Vec::new();
        while let Some(element) = next(&mut elements)? {
            let (1, Some(bytes)) = (element.number, element.value.bytes()) else {
                copy_unknown(redaction, &element, &mut list);
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

/// Copies a field of an `AnyValue` that is no list and no map. A value in which a mask matches
/// becomes a text; an unknown field in which one matches is left out.
fn scalar(
    redaction: &Redaction,
    field: &Field<'_>,
    masks: usize,
    out: &mut Vec<u8>,
) -> Result<(), NotWalked> {
    let masked = match (field.number, field.value) {
        (STRING, Value::Bytes(bytes)) => masked_text(redaction, bytes, masks),
        (BYTES, Value::Bytes(bytes)) => redaction.masked_bytes(bytes, masks),
        (_, Value::Bytes(_)) => {
            copy_unknown(redaction, field, out);
            return Ok(());
        }
        _ if redaction.masks(masks).is_empty() => None,
        (INT, Value::Varint(int)) => redaction.masked(&int.cast_signed().to_string(), masks),
        (DOUBLE, Value::Fixed(bytes)) => {
            let bytes = bytes.try_into().map_err(|_| NotWalked)?;
            whole(f64::from_le_bytes(bytes)).and_then(|text| redaction.masked(&text, masks))
        }
        _ => None,
    };
    match masked {
        Some(masked) => put_bytes(STRING, masked.as_bytes(), out),
        None => out.extend_from_slice(field.raw),
    }
    Ok(())
}

/// Returns the value of a `KeyValue` as text; for lists and maps, returns their encoded bytes. For
/// strings, numbers and booleans, the text is that of our protocol, and of canonical JSON.
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
