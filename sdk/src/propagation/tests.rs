use super::*;
use http::HeaderMap;
use proptest::prelude::*;

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
    let cleaned = clean_tracestate([text.as_bytes()]);
    assert_eq!(cleaned.as_deref(), expected, "{text:?}");
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

/// A proxy may copy the headers of a request into its call.
#[test]
fn the_state_of_another_trace_is_removed() {
    let own = parse_traceparent(GOOD);
    let check = |parent: Option<&'static str>, expected: Option<&str>| {
        let mut headers = HeaderMap::new();
        headers.append(TRACESTATE, HeaderValue::from_static("foo=1"));
        headers.append(TRACESTATE, HeaderValue::from_static("bar=2"));
        if let Some(parent) = parent {
            headers.insert(TRACEPARENT, HeaderValue::from_static(parent));
        }
        inject_from(own, None, &mut headers);
        assert_eq!(headers[TRACEPARENT], GOOD);
        let states = headers.get_all(TRACESTATE).iter();
        let states: Vec<&str> = states.map(|state| state.to_str().unwrap()).collect();
        let expected: Vec<&str> = expected
            .into_iter()
            .flat_map(|all| all.split(' '))
            .collect();
        assert_eq!(states, expected, "{parent:?}");
    };
    let of_trace = "00-0af7651916cd43dd8448eb211c80319c-00000000000000aa-00";
    check(Some(of_trace), Some("foo=1 bar=2"));
    check(
        Some("00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        None,
    );
    check(Some("malformed"), None);
    check(None, None);

    let mut headers = HeaderMap::new();
    headers.insert(TRACESTATE, HeaderValue::from_static("foo=1"));
    inject_from(SpanContext::NONE, None, &mut headers);
    assert_eq!(headers[TRACESTATE], "foo=1", "nothing is injected");
}

/// Cleans a `tracestate` like [`clean_tracestate`], without limits on reading.
fn cleaned_plainly(state: &str) -> Option<String> {
    let mut members: Vec<(&str, &str)> = Vec::new();
    for member in state
        .split(',')
        .map(|member| member.trim_matches([' ', '\t']))
        .filter(|member| !member.is_empty())
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

proptest! {
    /// Checks short and long members, too many members, too long a total, and malformed members.
    #[test]
    fn states_are_cleaned_as_before(
        fields in prop::collection::vec(
            prop::collection::vec(
                prop_oneof![
                    20 => "[ \t]{0,2}[ab][a-z0-9*/@_-]{0,3}=[!-+.-<>-~]{1,9}[ \t]{0,2}",
                    3 => "[a-z]{100,256}=[a-z]{100,256}",
                    3 => "[ \t]{0,3}",
                    1 => "[aB@.=]{0,4}",
                ],
                0..18,
            ),
            0..3,
        ),
    ) {
        let fields: Vec<String> = fields.iter().map(|members| members.join(",")).collect();
        let read = clean_tracestate(fields.iter().map(String::as_bytes));
        prop_assert_eq!(read, cleaned_plainly(&fields.join(",")));
    }
}

/// Checks the exact limits: one byte or one member more is too many.
#[test]
fn long_states_are_dropped() {
    let padded = |spaces: usize| format!("a=1{},b=2", " ".repeat(spaces));
    let spaces = TRACESTATE_READ_LIMIT.bytes - padded(0).len();
    state(&padded(spaces), Some("a=1,b=2"));
    state(&padded(spaces + 1), None);
    let repeated = |members: usize| vec!["a=1"; members].join(",");
    state(&repeated(TRACESTATE_READ_LIMIT.members), Some("a=1"));
    state(&repeated(TRACESTATE_READ_LIMIT.members + 1), None);
}

#[test]
fn long_parents_are_not_read() {
    let later = |more: usize| format!("cc{}-{}", &GOOD[2..], "x".repeat(more));
    let longest = later(TRACEPARENT_BYTES_MAX - GOOD.len() - 1);
    assert!(parse_sent(longest.as_bytes()).is_valid());
    assert!(!parse_sent(format!("{longest}x").as_bytes()).is_valid());
}
