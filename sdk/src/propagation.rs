//! The context as W3C headers: `traceparent`, `tracestate`, `baggage`.
//!
//! Source: W3C Trace Context (level 1, with level 2's forward compatibility rules) and W3C Baggage. What another
//! vendor put into `tracestate` and `baggage` is passed on as it came.

#[cfg(feature = "opentelemetry")]
pub(crate) mod otel;

use http::{HeaderName, HeaderValue};

use crate::baggage::Baggage;
use crate::baggage::ambient::{Carried, carried};
use crate::captured::unseen_request;
use crate::context::{self, SpanContext};
use crate::gate::foresight;
use crate::header_list::{Members, ReadLimit};
pub use crate::ingress::Incoming;
#[cfg(feature = "opentelemetry")]
pub use otel::{OpenTelemetryScope, Propagator, follow_opentelemetry};

/// The header of the ids and the sampling decision.
pub const TRACEPARENT: &str = "traceparent";
/// The header of vendors' own data.
pub const TRACESTATE: &str = "tracestate";
/// The header of what the application lets travel.
pub const BAGGAGE: &str = "baggage";

// Parsed once.
static TRACEPARENT_NAME: HeaderName = HeaderName::from_static(TRACEPARENT);
static TRACESTATE_NAME: HeaderName = HeaderName::from_static(TRACESTATE);
static BAGGAGE_NAME: HeaderName = HeaderName::from_static(BAGGAGE);

/// The header by which a caller asks for its request to be recorded, where that is
/// [accepted](crate::Builder::accept_force): `stroboscope-force: 1`.
pub const FORCE: &str = "stroboscope-force";

/// A longer `tracestate` is not passed on; W3C asks implementations for at least 512 bytes, and 32 members at most.
const TRACESTATE_BYTES_MAX: usize = 8_192;
const TRACESTATE_MEMBERS_MAX: usize = 32;
/// A `tracestate` that is longer than this before it is cleaned of spaces and of repeated keys is not passed on either.
const TRACESTATE_READ_LIMIT: ReadLimit = ReadLimit {
    bytes: TRACESTATE_BYTES_MAX + 2_048,
    members: 2 * TRACESTATE_MEMBERS_MAX,
    fields: 2 * TRACESTATE_MEMBERS_MAX,
};
/// A longer `traceparent` is not read: one of version 0 has 55 bytes, and later versions add some.
const TRACEPARENT_BYTES_MAX: usize = 1_024;

/// Reads a `traceparent`; [`SpanContext::NONE`] unless it is wholly valid.
#[must_use]
pub fn parse_traceparent(header: &str) -> SpanContext {
    parse(header.as_bytes()).unwrap_or(SpanContext::NONE)
}

/// Reads a `traceparent` as it came, perhaps between spaces.
pub(crate) fn parse_sent(header: &[u8]) -> SpanContext {
    if header.len() > TRACEPARENT_BYTES_MAX {
        return SpanContext::NONE;
    }
    std::str::from_utf8(header).map_or(SpanContext::NONE, |header| {
        parse_traceparent(header.trim_matches([' ', '\t']))
    })
}

fn parse(header: &[u8]) -> Option<SpanContext> {
    // version - trace id - parent id - flags: 2 + 1 + 32 + 1 + 16 + 1 + 2 bytes.
    if header.len() < 55 || header[2] != b'-' || header[35] != b'-' || header[52] != b'-' {
        return None;
    }
    let version = hex(&header[..2])?;
    let known_end = header.len() == 55;
    // Version 255 is forbidden; version 0 ends here; a later one may go on after another dash.
    if version == 255 || (version == 0 && !known_end) || (!known_end && header[55] != b'-') {
        return None;
    }
    let trace_id = hex(&header[3..35])?;
    let span_id = hex(&header[36..52])? as u64;
    let flags = hex(&header[53..55])? as u8;
    let context = SpanContext::from_w3c(trace_id, span_id, flags);
    context.is_valid().then_some(context)
}

/// Lower case only, as the specification says.
fn hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0u128, |value, &digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(value << 4 | u128::from(digit))
    })
}

/// Writes a `traceparent`; `None` for a context that is not valid.
#[must_use]
pub fn format_traceparent(context: SpanContext) -> Option<String> {
    context.is_valid().then(|| {
        traceparent(context)
            .iter()
            .map(|&byte| char::from(byte))
            .collect()
    })
}

/// Every call of a service writes one: formatting a `u128` by the standard library takes ten times as long.
fn traceparent(context: SpanContext) -> [u8; 55] {
    fn put(digits: &mut [u8], bytes: &[u8]) {
        for (two, &byte) in digits.chunks_exact_mut(2).zip(bytes) {
            two.copy_from_slice(&HEX[usize::from(byte)]);
        }
    }
    let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
    put(&mut text[3..35], &context.trace_id().to_be_bytes());
    put(&mut text[36..52], &context.span_id().to_be_bytes());
    put(&mut text[53..], &[context.w3c_flags()]);
    text
}

/// The two digits of each byte.
const HEX: [[u8; 2]; 256] = {
    let (digits, mut all, mut byte) = (b"0123456789abcdef", [[0; 2]; 256], 0);
    while byte < all.len() {
        all[byte] = [digits[byte >> 4], digits[byte & 15]];
        byte += 1;
    }
    all
};

/// Reads the headers of a request.
///
/// `traceparent` must come exactly once; several `tracestate` or `baggage` headers are one list.
#[must_use]
pub fn extract(headers: &http::HeaderMap) -> Incoming {
    let mut parents = headers.get_all(&TRACEPARENT_NAME).iter();
    let first = parents.next();
    let context = match (first, parents.next()) {
        (Some(one), None) => parse_sent(one.as_bytes()),
        _ => SpanContext::NONE,
    };
    // Vendors' data belongs to a trace: without a valid parent it means nothing.
    let tracestate = if context.is_valid() {
        clean_tracestate(fields(headers, &TRACESTATE_NAME))
    } else {
        None
    };
    let baggage = baggage_of(headers);
    let forced = headers.get(FORCE).is_some_and(|value| value == "1");
    let is_malformed = first.is_some() && !context.is_valid();
    Incoming::new(context, Carried::new(tracestate, baggage), forced).malformed(is_malformed)
}

/// The fields of a name, which are one list.
fn fields<'a>(
    headers: &'a http::HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    headers.get_all(name).into_iter().map(HeaderValue::as_bytes)
}

/// What a message of these headers carries.
pub(crate) fn baggage_of(headers: &http::HeaderMap) -> Baggage {
    Baggage::parse_fields(fields(headers, &BAGGAGE_NAME))
}

/// Drops empty members, and of several with one key all but the first (it is the most recent). A state with a
/// malformed member, or with a 33rd one, is dropped whole, as the specification asks; so is one beyond the limits.
pub(crate) fn clean_tracestate<'a>(fields: impl IntoIterator<Item = &'a [u8]>) -> Option<String> {
    let mut keys: Vec<&str> = Vec::new();
    let mut cleaned = String::new();
    let mut members = Members::new(fields, TRACESTATE_READ_LIMIT);
    for member in members.by_ref() {
        let member = std::str::from_utf8(member).ok()?;
        let (key, value) = member.split_once('=')?;
        if !is_tracestate_key(key) || !is_tracestate_value(value) {
            return None;
        }
        if keys.contains(&key) {
            continue;
        }
        let separator = if keys.is_empty() { "" } else { "," };
        keys.push(key);
        if keys.len() > TRACESTATE_MEMBERS_MAX
            || cleaned.len() + separator.len() + member.len() > TRACESTATE_BYTES_MAX
        {
            return None;
        }
        cleaned.push_str(separator);
        cleaned.push_str(member);
    }
    (!keys.is_empty() && !members.is_cut()).then_some(cleaned)
}

/// Level 2's grammar, which takes all keys that level 1 takes.
fn is_tracestate_key(key: &str) -> bool {
    let is_key_char =
        |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/' | b'@');
    (1..=256).contains(&key.len())
        && matches!(key.as_bytes()[0], b'a'..=b'z' | b'0'..=b'9')
        && key.bytes().all(is_key_char)
}

fn is_tracestate_value(value: &str) -> bool {
    (1..=256).contains(&value.len())
        && value
            .bytes()
            .all(|b| (0x20..=0x7e).contains(&b) && b != b',' && b != b'=')
        && !value.ends_with(' ')
}

/// Writes the current context and baggage into the headers of an outgoing request. `traceparent` and `tracestate`
/// replace what was there; `baggage` is added to it.
///
/// A request that came without a `traceparent`, and of which nothing is recorded, has none for others either, unless a
/// window may open before it is answered: what nobody records needs no name.
/// [`propagate_always`](crate::Builder::propagate_always) names it, and calls outside of requests, all the same.
///
/// The value of `traceparent` is marked as [sensitive](http::HeaderValue::set_sensitive), so that HTTP/2 does not keep it:
/// no two calls have the same. By that, `{:?}` does not show it, neither here nor where the call goes.
pub fn inject(headers: &mut http::HeaderMap) {
    let mut context = context::current();
    if context.is_unseen() && !foresight::opens_soon() {
        context = SpanContext::NONE;
    } else if !context.is_valid() && foresight::names_all() {
        context = unseen_request();
    }
    inject_from(context, carried().as_deref(), headers);
}

pub(crate) fn inject_from(
    context: SpanContext,
    carried: Option<&Carried>,
    headers: &mut http::HeaderMap,
) {
    // What came from a header is a valid header value; should it not be, it is left out.
    let value = |bytes: &[u8]| HeaderValue::from_bytes(bytes).ok();
    if context.is_valid()
        && let Some(mut value) = value(&traceparent(context))
    {
        // HTTP/2 then writes it as it is. It is different in each call, so to keep it in the connection's table of headers
        // would be in vain, and a search through those of all the calls before.
        value.set_sensitive(true);
        headers.insert(&TRACEPARENT_NAME, value);
    }
    let Some(carried) = carried else { return };
    if context.is_valid()
        && let Some(value) = carried
            .tracestate
            .as_deref()
            .and_then(|state| value(state.as_bytes()))
    {
        headers.insert(&TRACESTATE_NAME, value);
    }
    let Some(own) = carried.header() else { return };
    let header = if headers.contains_key(&BAGGAGE_NAME) {
        baggage_of(headers).and(carried.snapshot()).to_header()
    } else {
        Some(own)
    };
    if let Some(value) = header.and_then(|header| value(header.as_bytes())) {
        headers.insert(&BAGGAGE_NAME, value);
    }
}

#[cfg(test)]
mod tests;
