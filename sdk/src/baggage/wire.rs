//! The W3C form: `key=value;property;key=value,…`.
//!
//! ```text
//! sb.user.kind=free              a text, request scope
//! sb.candidates=300;t=u;s=c;i=9  an unsigned integer, component scope, importance 9
//! ```

use super::limits::count_dropped;
use super::{Baggage, Entry, IMPORTANCE_DEFAULT, IMPORTANCE_MAX, Scope, Value};

/// Marks members of ours.
const PREFIX: &str = "sb.";

/// A `token` of RFC 9110: what keys may be made of.
pub(super) fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// A `baggage-octet` that stands for itself.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_graphic() && !b"\",;\\%".contains(&byte)
}

pub(super) fn percent_encode(text: &str, into: &mut String) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for byte in text.bytes() {
        if is_plain(byte) {
            into.push(char::from(byte));
        } else {
            into.push('%');
            into.push(char::from(HEX[usize::from(byte >> 4)]));
            into.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
}

/// `None`: not percent-encoded UTF-8.
pub(super) fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first == b'%' {
            let (digits, after) = rest.split_at_checked(2)?;
            let high = char::from(digits[0]).to_digit(16)?;
            let low = char::from(digits[1]).to_digit(16)?;
            bytes.push((high << 4 | low) as u8);
            rest = after;
        } else {
            bytes.push(first);
        }
    }
    String::from_utf8(bytes).ok()
}

/// Writes `=value` and the type's property.
pub(super) fn format_value(value: &Value, into: &mut String) {
    into.push('=');
    match value {
        // The shortest text that reads back as the same number.
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

/// A value from its percent-encoded text and the letter of its type.
pub(super) fn parse_value(text: &str, letter: &str) -> Option<Value> {
    let text = percent_decode(text)?;
    Some(match letter {
        "" => Value::Text(text),
        "i" => Value::Int(text.parse().ok()?),
        "u" => Value::Uint(text.parse().ok()?),
        "d" => Value::Double(text.parse().ok()?),
        "b" => Value::Bool(text.parse().ok()?),
        _ => return None,
    })
}

pub(super) fn format_entry(entry: &Entry, into: &mut String) {
    into.push_str(PREFIX);
    into.push_str(&entry.key);
    format_value(&entry.value, into);
    if entry.scope == Scope::Component {
        into.push_str(";s=c");
    }
    if entry.importance != IMPORTANCE_DEFAULT {
        into.push_str(";i=");
        into.push(char::from(b'0' + entry.importance.min(IMPORTANCE_MAX)));
    }
    for property in &entry.properties {
        into.push(';');
        into.push_str(property);
    }
}

pub(super) fn encoded_bytes(entry: &Entry) -> usize {
    let mut text = String::new();
    format_entry(entry, &mut text);
    text.len()
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

pub(super) fn parse(header: &str) -> Baggage {
    let mut baggage = Baggage::default();
    for member in header.split(',') {
        let member = trim(member);
        if member.is_empty() {
            continue;
        }
        match parse_member(member) {
            Member::Ours(entry) => {
                super::exploring::seen(&entry.key);
                baggage.set(*entry);
            }
            Member::Foreign => baggage.foreign.push(member.to_owned()),
            Member::Malformed => count_dropped(1),
        }
    }
    baggage
}

enum Member {
    Ours(Box<Entry>),
    /// Somebody else's, or of a kind that a later version of ours makes.
    Foreign,
    Malformed,
}

fn trim(text: &str) -> &str {
    text.trim_matches([' ', '\t'])
}

fn parse_member(member: &str) -> Member {
    let mut parts = member.split(';').map(trim);
    let Some((key, value)) = parts.next().and_then(|first| first.split_once('=')) else {
        return Member::Malformed;
    };
    let key = trim(key);
    if !is_token(key)
        || !member
            .bytes()
            .all(|byte| byte.is_ascii_graphic() || byte == b' ' || byte == b'\t')
    {
        return Member::Malformed;
    }
    let ours = key
        .strip_prefix(PREFIX)
        .and_then(|key| parse_entry(key, trim(value), parts));
    ours.map_or(Member::Foreign, |entry| Member::Ours(Box::new(entry)))
}

fn parse_entry<'a>(
    key: &str,
    value: &str,
    properties: impl Iterator<Item = &'a str>,
) -> Option<Entry> {
    let (mut letter, mut scope, mut importance) = ("", Scope::Request, IMPORTANCE_DEFAULT);
    let mut others = Vec::new();
    for property in properties.filter(|property| !property.is_empty()) {
        match property
            .split_once('=')
            .map(|(name, value)| (trim(name), trim(value)))
        {
            Some(("t", value)) => letter = value,
            Some(("s", "c")) => scope = Scope::Component,
            Some(("i", value)) => {
                importance = value.parse().ok().filter(|&i| i <= IMPORTANCE_MAX)?;
            }
            _ => others.push(property.to_owned()),
        }
    }
    let value = parse_value(value, letter)?;
    is_token(key).then(|| Entry {
        key: key.to_owned(),
        value,
        scope,
        importance,
        properties: others,
    })
}
