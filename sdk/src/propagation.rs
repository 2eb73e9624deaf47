//! Propagates the context as W3C headers: `traceparent`, `tracestate`, `baggage`. The provenance of
//! an item has a header of its own, see [`Provenance`](crate::baggage::Provenance).
//!
//! Source: W3C Trace Context (level 2) and W3C Baggage. Other vendors' valid data in `baggage`, and
//! in the `tracestate` of an accepted `traceparent`, is forwarded within limits of size and number.

#[cfg(feature = "opentelemetry")]
pub(crate) mod otel;

use std::borrow::Cow;

use http::{HeaderName, HeaderValue};

use crate::baggage::Baggage;
use crate::baggage::ambient::{RequestContext, carried};
use crate::captured::unseen_request;
use crate::context::{self, SpanContext};
use crate::gate::foresight;
use crate::header_list::{Members, ReadLimit};
pub use crate::ingress::IncomingContext;
use crate::sampling::{self, RatioState};
#[cfg(feature = "opentelemetry")]
pub use otel::{OpenTelemetryScope, Propagator, follow_opentelemetry};

/// Header for the ids and the sampling decision.
pub const TRACEPARENT: &str = "traceparent";
/// Header for vendor-specific data.
pub const TRACESTATE: &str = "tracestate";
/// Header for baggage of the application and of the SDK.
pub const BAGGAGE: &str = "baggage";

// Header names, parsed once.
static TRACEPARENT_NAME: HeaderName = HeaderName::from_static(TRACEPARENT);
static TRACESTATE_NAME: HeaderName = HeaderName::from_static(TRACESTATE);
static BAGGAGE_NAME: HeaderName = HeaderName::from_static(BAGGAGE);

/// Header by which a caller asks for its request to be recorded, if the service
/// [accepts](crate::Builder::accept_force) it: `stroboscope-force: 1`.
pub const FORCE: &str = "stroboscope-force";

/// Maximum length of a forwarded `tracestate` in bytes. W3C recommends forwarding at least 512
/// bytes.
const TRACESTATE_BYTES_MAX: usize = 8_192;
/// Maximum number of members of a forwarded `tracestate`, as in the specification.
const TRACESTATE_MEMBERS_MAX: usize = 32;
/// Limits of a `tracestate` before spaces and duplicate keys are removed. A header beyond them is
/// not forwarded.
const TRACESTATE_READ_LIMIT: ReadLimit = ReadLimit {
    bytes: TRACESTATE_BYTES_MAX + 2_048,
    members: 2 * TRACESTATE_MEMBERS_MAX,
    fields: 2 * TRACESTATE_MEMBERS_MAX,
};
/// Maximum length of a received `traceparent` in bytes. Version 0 has 55 bytes, and later versions
/// may add some.
const TRACEPARENT_BYTES_MAX: usize = 1_024;

/// Parses a `traceparent`; returns [`SpanContext::NONE`] unless it is entirely valid.
#[must_use]
pub fn parse_traceparent(header: &str) -> SpanContext {
    parse(header.as_bytes()).unwrap_or(SpanContext::NONE)
}

/// Parses a `traceparent` as received, possibly surrounded by spaces and tabs. Returns
/// [`SpanContext::NONE`] if it is invalid or longer than [`TRACEPARENT_BYTES_MAX`].
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
    // Version 255 is forbidden; version 0 ends here; a later version may continue after another
    // dash.
    if version == 255 || (version == 0 && !known_end) || (!known_end && header[55] != b'-') {
        return None;
    }
    let trace_id = hex(&header[3..35])?;
    let span_id = hex(&header[36..52])? as u64;
    let flags = hex(&header[53..55])? as u8;
    let context = SpanContext::from_w3c(trace_id, span_id, flags);
    context.is_valid().then_some(context)
}

/// Parses hexadecimal digits. Returns `None` for other characters and for upper case, which the
/// specification forbids.
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

/// Formats a `traceparent`; returns `None` for an invalid context.
#[must_use]
pub fn format_traceparent(context: SpanContext) -> Option<String> {
    context.is_valid().then(|| {
        traceparent(context)
            .iter()
            .map(|&byte| char::from(byte))
            .collect()
    })
}

/// Formats a `traceparent` without the standard library's `u128` formatting, which is slower.
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

/// Two hexadecimal digits of each byte.
const HEX: [[u8; 2]; 256] = {
    let (digits, mut all, mut byte) = (b"0123456789abcdef", [[0; 2]; 256], 0);
    while byte < all.len() {
        all[byte] = [digits[byte >> 4], digits[byte & 15]];
        byte += 1;
    }
    all
};

/// Parses the headers of a request.
///
/// A `traceparent` counts only if it is the only one; several `tracestate` or `baggage` headers
/// form one list. From [public callers](crate::Builder::public_callers), it takes no ids, and only
/// baggage of other vendors.
#[must_use]
pub fn extract(headers: &http::HeaderMap) -> IncomingContext {
    let is_public = sampling::are_callers_public();
    let mut parents = headers.get_all(&TRACEPARENT_NAME).iter();
    let first = parents.next().filter(|_| !is_public);
    let context = match (first, parents.next()) {
        (Some(one), None) => parse_sent(one.as_bytes()),
        _ => SpanContext::NONE,
    };
    // Vendors' data belongs to a trace; without a valid parent it has no meaning.
    let tracestate = if context.is_valid() {
        clean_tracestate(fields(headers, &TRACESTATE_NAME))
    } else {
        None
    };
    let baggage = callers_baggage(headers);
    let forced = headers.get(FORCE).is_some_and(|value| value == "1");
    let is_malformed = first.is_some() && !context.is_valid();
    IncomingContext::new(context, RequestContext::new(tracestate, baggage), forced)
        .malformed(is_malformed)
}

/// Returns the values of all headers with this name, which together form one list.
fn fields<'a>(
    headers: &'a http::HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    headers.get_all(name).into_iter().map(HeaderValue::as_bytes)
}

/// Parses the baggage in the headers of a request that arrived.
pub(crate) fn callers_baggage(headers: &http::HeaderMap) -> Baggage {
    baggage_of(headers).of_caller()
}

/// Parses the baggage in these headers.
pub(crate) fn baggage_of(headers: &http::HeaderMap) -> Baggage {
    Baggage::parse_fields(fields(headers, &BAGGAGE_NAME))
}

/// Drops empty members, and all but the first (most recent) of several members with one key.
/// Returns `None` if no member is left or the text exceeds the limits. As the specification
/// requires, also returns `None` if a member is malformed or if more than 32 are left.
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

/// Reports whether a key satisfies the grammar of Trace Context level 2, which accepts all keys
/// that level 1 accepts.
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

/// Writes the current context and baggage into the headers of an outgoing request. `traceparent`
/// and, if the context has one, `tracestate` replace existing headers; an existing `tracestate`
/// that does not belong to the context's trace is removed. `baggage` is merged into the existing
/// header.
///
/// If a request arrived without a `traceparent` and nothing of it is recorded, it needs no ids. Its
/// calls then carry no `traceparent` either, unless a window may open before the response, or this
/// process samples by a ratio. [`propagate_always`](crate::Builder::propagate_always) adds ids to
/// such calls, and to calls outside of requests.
///
/// The value of `traceparent` is marked as [sensitive](http::HeaderValue::set_sensitive), so that
/// HTTP/2 does not store it: calls rarely have the same value. The headers' `Debug` form hides it.
pub fn inject(headers: &mut http::HeaderMap) {
    let mut context = context::current();
    if context.is_unseen() && !foresight::opens_soon() {
        context = SpanContext::NONE;
    } else if !context.is_valid() && foresight::names_all() {
        context = unseen_request();
    }
    inject_from(context, carried().as_deref(), headers);
}

/// Returns the `tracestate` of calls in this context: the received one or, in a request that this
/// process sampled by its ratio, one that states the ratio. Such a request began here, so no
/// received one belongs to its trace.
pub(crate) fn tracestate_of(
    context: SpanContext,
    carried: Option<&RequestContext>,
) -> Option<Cow<'_, str>> {
    if context.is_by_ratio() {
        return RatioState::current().map(|state| state.text().to_owned().into());
    }
    carried?.tracestate.as_deref().map(Cow::Borrowed)
}

pub(crate) fn inject_from(
    context: SpanContext,
    carried: Option<&RequestContext>,
    headers: &mut http::HeaderMap,
) {
    // Values received in a header are valid header values; an invalid one would be left out.
    let value = |bytes: &[u8]| HeaderValue::from_bytes(bytes).ok();
    if context.is_valid()
        && let Some(mut parent) = value(&traceparent(context))
    {
        // HTTP/2 then writes the value literally. It differs in nearly every call, so storing it in
        // the connection's header table would be useless and would add a search through the values
        // of all earlier calls.
        parent.set_sensitive(true);
        let former = headers.insert(&TRACEPARENT_NAME, parent);
        let state = tracestate_of(context, carried).and_then(|state| value(state.as_bytes()));
        let is_other =
            |former: &HeaderValue| parse_sent(former.as_bytes()).trace_id() != context.trace_id();
        if let Some(state) = state {
            headers.insert(&TRACESTATE_NAME, state);
        } else if former.as_ref().is_none_or(is_other) {
            headers.remove(&TRACESTATE_NAME);
        }
    }
    let Some(carried) = carried else { return };
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
