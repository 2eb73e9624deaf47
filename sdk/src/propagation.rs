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

/// Reads a `traceparent`; [`SpanContext::NONE`] unless it is wholly valid.
#[must_use]
pub fn parse_traceparent(header: &str) -> SpanContext {
    parse(header.as_bytes()).unwrap_or(SpanContext::NONE)
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
        (Some(one), None) => one.to_str().map_or(SpanContext::NONE, |header| {
            parse_traceparent(header.trim_matches([' ', '\t']))
        }),
        _ => SpanContext::NONE,
    };
    // Vendors' data belongs to a trace: without a valid parent it means nothing.
    let tracestate = if context.is_valid() {
        list(headers, &TRACESTATE_NAME).and_then(|state| clean_tracestate(&state))
    } else {
        None
    };
    let baggage = list(headers, &BAGGAGE_NAME)
        .map_or_else(Baggage::default, |header| Baggage::parse(&header));
    let forced = headers.get(FORCE).is_some_and(|value| value == "1");
    let is_malformed = first.is_some() && !context.is_valid();
    Incoming::new(context, Carried::new(tracestate, baggage), forced).malformed(is_malformed)
}

/// All headers of a name as one list.
fn list(headers: &http::HeaderMap, name: &HeaderName) -> Option<String> {
    let members: Vec<&str> = headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .collect();
    (!members.is_empty()).then(|| members.join(","))
}

/// Drops empty members, and of several with one key all but the first (it is the most recent). A state with a
/// malformed member, or with a 33rd one, is dropped whole, as the specification asks.
pub(crate) fn clean_tracestate(state: &str) -> Option<String> {
    let mut members: Vec<(&str, &str)> = Vec::new();
    for member in state
        .split(',')
        .map(|member| member.trim_matches([' ', '\t']))
        .filter(|m| !m.is_empty())
    {
        let (key, value) = member.split_once('=')?;
        if !is_tracestate_key(key) || !is_tracestate_value(value) {
            return None;
        }
        if members.iter().all(|&(known, _)| known != key) {
            members.push((key, member));
        }
    }
    let cleaned: Vec<&str> = members.iter().map(|&(_, member)| member).collect();
    let cleaned = cleaned.join(",");
    let fits = members.len() <= TRACESTATE_MEMBERS_MAX && cleaned.len() <= TRACESTATE_BYTES_MAX;
    (!members.is_empty() && fits).then_some(cleaned)
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
    let header = match list(headers, &BAGGAGE_NAME) {
        None => Some(own),
        Some(there) => Baggage::parse(&there).and(carried.snapshot()).to_header(),
    };
    if let Some(value) = header.and_then(|header| value(header.as_bytes())) {
        headers.insert(&BAGGAGE_NAME, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderMap;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn check(header: &str, expected: Option<&str>) {
        let context = parse_traceparent(header);
        assert_eq!(
            format_traceparent(context).as_deref(),
            expected,
            "{header:?}"
        );
    }

    #[test]
    fn traceparents() {
        check(GOOD, Some(GOOD));
        check(
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
            Some(&GOOD.replace("-01", "-00")),
        );
        check(
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03",
            Some(&GOOD.replace("-01", "-03")),
        );
        check(
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-fd",
            Some(GOOD),
        );
        check(
            "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what-comes-later",
            Some(GOOD),
        );
        for wrong in [
            "",
            "00",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.more",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-001",
            "0x-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0é",
        ] {
            check(wrong, None);
        }
    }

    fn state(text: &str, expected: Option<&str>) {
        assert_eq!(clean_tracestate(text).as_deref(), expected, "{text:?}");
    }

    #[test]
    fn tracestates() {
        state("foo=1,bar=2", Some("foo=1,bar=2"));
        state("foo=1 , \t bar=2,,", Some("foo=1,bar=2"));
        state("fw529a3039@dt=x", Some("fw529a3039@dt=x"));
        state("foo=1,bar=2,foo=3", Some("foo=1,bar=2"));
        state("foo@=1,2a=2,a@b@c=1", Some("foo@=1,2a=2,a@b@c=1"));
        for wrong in [
            "",
            ",",
            "foo",
            "foo=",
            "=1",
            "Foo=1",
            "foo=a=b",
            "@foo=1,bar=2",
            "foo.bar=1",
        ] {
            state(wrong, None);
        }
        let many: Vec<String> = (0..33).map(|i| format!("k{i}=1")).collect();
        state(&many[..32].join(","), Some(&many[..32].join(",")));
        state(&many.join(","), None);
    }

    #[test]
    fn headers_there_and_back() {
        let mut headers = HeaderMap::new();
        headers.insert(TRACEPARENT, HeaderValue::from_static(GOOD));
        headers.append(TRACESTATE, HeaderValue::from_static("foo=1"));
        headers.append(TRACESTATE, HeaderValue::from_static("bar=2"));
        headers.insert(BAGGAGE, HeaderValue::from_static("user=7"));
        let extracted = extract(&headers);
        let mut out = HeaderMap::new();
        inject_from(extracted.context(), Some(extracted.carried()), &mut out);
        assert_eq!(out[TRACEPARENT], GOOD);
        assert!(out[TRACEPARENT].is_sensitive());
        assert_eq!(out[TRACESTATE], "foo=1,bar=2");
        assert_eq!(out[BAGGAGE], "user=7");
        headers.append(TRACEPARENT, HeaderValue::from_static(GOOD));
        let twice = extract(&headers);
        assert!(!twice.context().is_valid());
        assert_eq!(twice.carried().tracestate, None);
    }
}
