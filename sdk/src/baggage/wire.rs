//! Encodes and decodes the W3C form: members `key=value;property;property=value`, separated by
//! commas.
//!
//! ```text
//! sb.user.kind=free              a text, request scope
//! sb.candidates=300;t=u;s=c;i=9  an unsigned integer, component scope, importance 9
//! ```

use std::collections::BTreeMap;

use super::{Baggage, Entry, IMPORTANCE_DEFAULT, IMPORTANCE_MAX, Scope, Value};
use crate::header_list::{Members, ReadLimit};
use crate::loss::{LOSSES, LossCause};

/// Maximum length of a `baggage` header in bytes; W3C requires every implementation to forward this
/// much.
pub const BYTES_MAX: usize = 8_192;
/// Maximum number of members in a `baggage` header. (W3C requires at least 64; its first version
/// allowed 180.)
pub const MEMBERS_MAX: usize = 180;
/// Maximum encoded length of one entry with its key and properties, in bytes. It prevents a single
/// value from taking all the space.
pub const VALUE_BYTES_MAX: usize = 4_096;

/// Counts dropped members as [`LossCause::BaggageDropped`].
pub(super) fn count_dropped(members: usize) {
    LOSSES.add(LossCause::BaggageDropped, members as u64);
}

/// Key prefix of the SDK's members.
const PREFIX: &str = "sb.";

/// Limits of reading, which bound the time that any header takes.
const READ_LIMIT: ReadLimit = ReadLimit {
    bytes: BYTES_MAX,
    members: MEMBERS_MAX,
    fields: MEMBERS_MAX,
};
/// Maximum number of properties of an entry, including empty ones. The limit bounds the time to
/// parse them. An entry with more is forwarded as foreign.
const PROPERTIES_MAX: usize = 6;

/// Returns the set of letters, digits and `others`, as a table by byte.
const fn alphanumeric_and(others: &[u8]) -> [bool; 256] {
    let (mut is_in, mut byte) = ([false; 256], 0);
    while byte < is_in.len() {
        is_in[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let mut place = 0;
    while place < others.len() {
        is_in[others[place] as usize] = true;
        place += 1;
    }
    is_in
}

static IN_TOKEN: [bool; 256] = alphanumeric_and(b"!#$%&'*+-.^_`|~");
/// Bytes of a value that need no percent-encoding: `baggage-octet` of W3C Baggage, except `%`.
static IS_PLAIN: [bool; 256] = alphanumeric_and(b"!#$&'()*+-./:<=>?@[]^_`{|}~");
static IN_MEMBER: [bool; 256] = alphanumeric_and(b" \t!\"#$%&'()*+-./:;<=>?@[\\]^_`{|}~");

/// Reports whether a text is a `token` of RFC 9110 and therefore a valid key.
pub(super) fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| IN_TOKEN[usize::from(byte)])
}

pub(super) fn percent_encode(text: &str, into: &mut String) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for byte in text.bytes() {
        if IS_PLAIN[usize::from(byte)] {
            into.push(char::from(byte));
        } else {
            into.push('%');
            into.push(char::from(HEX[usize::from(byte >> 4)]));
            into.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
}

fn percent_encoded_bytes(text: &str) -> usize {
    let escaped = text.bytes().filter(|&byte| !IS_PLAIN[usize::from(byte)]);
    text.len() + 2 * escaped.count()
}

/// Decodes percent-encoded UTF-8; returns `None` if it is malformed.
pub(super) fn percent_decode(text: &str) -> Option<String> {
    let Some(first) = text.bytes().position(|byte| byte == b'%') else {
        return Some(text.to_owned());
    };
    let mut bytes = Vec::with_capacity(text.len());
    bytes.extend_from_slice(&text.as_bytes()[..first]);
    let mut rest = &text.as_bytes()[first..];
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first == b'%' {
            let byte;
            (byte, rest) = escaped_byte(rest)?;
            bytes.push(byte);
        } else {
            bytes.push(first);
        }
    }
    String::from_utf8(bytes).ok()
}

/// Decodes the two hexadecimal digits after a `%`. Returns the byte and the rest, or `None` if the
/// digits are malformed.
pub(crate) fn escaped_byte(digits: &[u8]) -> Option<(u8, &[u8])> {
    let (digits, rest) = digits.split_at_checked(2)?;
    let high = char::from(digits[0]).to_digit(16)?;
    let low = char::from(digits[1]).to_digit(16)?;
    Some(((high << 4 | low) as u8, rest))
}

/// Writes `=value` and the type's property; a text has none.
pub(super) fn format_value(value: &Value, into: &mut String) {
    into.push('=');
    match value {
        // Writes a text that parses back to the same number.
        Value::Double(v) => percent_encode(&format!("{v:?}"), into),
        other => percent_encode(&other.to_string(), into),
    }
    into.push_str(match value {
        Value::Text(_) => "",
        Value::Int(_) => ";t=i",
        Value::Uint(_) => ";t=u",
        Value::Double(_) => ";t=d",
        Value::Bool(_) => ";t=b",
    });
}

/// Returns the number of bytes that [`format_value`] writes. Rejecting an oversized value must cost
/// less than writing it.
fn value_bytes(value: &Value) -> usize {
    const TYPE_BYTES: usize = 4;
    let digits = |number: u64| number.checked_ilog10().unwrap_or(0) as usize + 1;
    1 + match value {
        Value::Text(text) => percent_encoded_bytes(text),
        Value::Int(number) => usize::from(*number < 0) + digits(number.unsigned_abs()) + TYPE_BYTES,
        Value::Uint(number) => digits(*number) + TYPE_BYTES,
        Value::Double(number) => format!("{number:?}").len() + TYPE_BYTES,
        Value::Bool(value) => (if *value { 4 } else { 5 }) + TYPE_BYTES,
    }
}

/// Parses a value from its percent-encoded text and the letter of its type. Returns `None` if
/// either is invalid.
pub(super) fn parse_value(text: &str, letter: &str) -> Option<Value> {
    if letter.is_empty() {
        return percent_decode(text).map(Value::Text);
    }
    // Numbers need no percent-encoding, but it is allowed.
    let decoded;
    let text = if text.contains('%') {
        decoded = percent_decode(text)?;
        &decoded
    } else {
        text
    };
    Some(match letter {
        "i" => Value::Int(text.parse().ok()?),
        "u" => Value::Uint(text.parse().ok()?),
        "d" => Value::Double(text.parse().ok()?),
        "b" => Value::Bool(text.parse().ok()?),
        _ => return None,
    })
}

fn format_entry(entry: &Entry, into: &mut String) {
    into.push_str(PREFIX);
    into.push_str(&entry.key);
    format_value(&entry.value, into);
    if entry.scope == Scope::Component {
        into.push_str(";s=c");
    }
    if entry.importance != IMPORTANCE_DEFAULT {
        into.push_str(";i=");
        into.push(char::from(b'0' + entry.importance));
    }
    into.push_str(&entry.properties);
}

/// Returns the number of bytes that [`format_entry`] writes.
pub(super) fn encoded_bytes(entry: &Entry) -> usize {
    let scope_bytes = 4 * usize::from(entry.scope == Scope::Component);
    let importance_bytes = 4 * usize::from(entry.importance != IMPORTANCE_DEFAULT);
    PREFIX.len()
        + entry.key.len()
        + value_bytes(&entry.value)
        + scope_bytes
        + importance_bytes
        + entry.properties.len()
}

pub(super) fn format(baggage: &Baggage) -> Option<String> {
    if baggage.is_empty() {
        return None;
    }
    let mut header = baggage.foreign.join(",");
    for entry in &baggage.entries {
        if !header.is_empty() {
            header.push(',');
        }
        format_entry(entry, &mut header);
    }
    Some(header)
}

/// Reports whether the key of a member begins as the SDK's own do.
pub(super) fn has_prefix(member: &str) -> bool {
    trim(member).starts_with(PREFIX)
}

/// Parses header fields that together form one list. It omits malformed members and entries that
/// are too long, and counts them as dropped. The part beyond the limits counts as one dropped
/// member.
pub(super) fn parse<'a>(fields: impl IntoIterator<Item = &'a [u8]>) -> Baggage {
    let mut baggage = Baggage::default();
    let mut places = BTreeMap::new();
    let mut members = Members::new(fields, READ_LIMIT);
    for member in members.by_ref() {
        match parse_member(member) {
            Member::Ours(key, entry) => {
                super::exploring::seen(key);
                if encoded_bytes(&entry) > VALUE_BYTES_MAX {
                    count_dropped(1);
                    continue;
                }
                // Replaces duplicates like `Baggage::set`, but without comparing with each entry.
                let next = baggage.entries.len();
                match *places.entry((key, entry.scope as u8)).or_insert(next) {
                    place if place == next => baggage.entries.push(entry),
                    place => baggage.entries[place] = entry,
                }
            }
            Member::Foreign(member) => baggage.foreign.push(member.to_owned()),
            Member::Malformed => count_dropped(1),
        }
    }
    count_dropped(usize::from(members.is_cut()));
    baggage
}

enum Member<'a> {
    /// Entry of the SDK, with its key.
    Ours(&'a str, Entry),
    /// Member of another vendor, or one with the SDK's prefix that this version cannot parse. A
    /// later version may have written it.
    Foreign(&'a str),
    Malformed,
}

fn trim(text: &str) -> &str {
    let is_text = |byte: u8| byte != b' ' && byte != b'\t';
    if let [first, .., last] = *text.as_bytes()
        && is_text(first)
        && is_text(last)
    {
        return text;
    }
    let Some(start) = text.bytes().position(is_text) else {
        return "";
    };
    let end = text.bytes().rposition(is_text).unwrap_or(start);
    &text[start..=end]
}

/// Splits a text at the first occurrence of an ASCII character. The standard library's search is
/// optimized for longer texts, and takes longer for members of baggage.
fn split(text: &str, at: u8) -> (&str, Option<&str>) {
    match text.bytes().position(|byte| byte == at) {
        Some(end) => (&text[..end], Some(&text[end + 1..])),
        None => (text, None),
    }
}

fn parse_member(member: &[u8]) -> Member<'_> {
    if !member.iter().all(|&byte| IN_MEMBER[usize::from(byte)]) {
        return Member::Malformed;
    }
    let Ok(member) = std::str::from_utf8(member) else {
        return Member::Malformed;
    };
    let (first, properties) = split(member, b';');
    let (key, Some(value)) = split(first, b'=') else {
        return Member::Malformed;
    };
    let key = trim(key);
    if !is_token(key) {
        return Member::Malformed;
    }
    let ours = key.strip_prefix(PREFIX).filter(|key| !key.is_empty());
    ours.and_then(|key| {
        Some(Member::Ours(
            key,
            parse_entry(key, trim(value), properties)?,
        ))
    })
    .unwrap_or(Member::Foreign(member))
}

fn parse_entry(key: &str, value: &str, mut properties: Option<&str>) -> Option<Entry> {
    let (mut letter, mut scope, mut importance) = ("", Scope::Request, IMPORTANCE_DEFAULT);
    let (mut others, mut count) = (String::new(), 0);
    while let Some(rest) = properties {
        let property;
        (property, properties) = split(rest, b';');
        count += 1;
        if count > PROPERTIES_MAX {
            return None;
        }
        let property = trim(property);
        // Only properties with a known one-letter name are split.
        let named = match property.as_bytes() {
            [b't' | b's' | b'i', b' ' | b'\t' | b'=', ..] => split(property, b'='),
            _ => (property, None),
        };
        match (trim(named.0), named.1.map(trim)) {
            ("t", Some(value)) => letter = value,
            ("s", Some("c")) => scope = Scope::Component,
            ("i", Some(value)) => {
                importance = value.parse().ok().filter(|&i| i <= IMPORTANCE_MAX)?;
            }
            _ if property.is_empty() => {}
            _ => {
                others.push(';');
                others.push_str(property);
            }
        }
    }
    Some(Entry {
        key: key.to_owned(),
        value: parse_value(value, letter)?,
        scope,
        importance,
        properties: others,
    })
}

#[cfg(test)]
mod tests;
