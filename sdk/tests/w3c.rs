//! Tests the cases of W3C's conformance suite for trace-context, rewritten here, so that no
//! download is needed. The test needs a process of its own, because the duration of requests is
//! learned per process.

#![cfg(feature = "tower")]

mod collector;

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use collector::{Collector, wait_for};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use stroboscope::tower::{ClientLayer, ServerLayer};
use stroboscope::{BurstConfig, propagation, span};
use tower::{Layer as _, ServiceExt as _, service_fn};

const TRACE: &str = "12345678901234567890123456789012";
const PARENT: &str = "1234567890123456";

/// The context that outgoing calls must have.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Expected {
    /// The caller's trace id, with a new parent id in each call.
    Kept,
    /// A new trace id, because the caller's `traceparent` is invalid.
    New,
    /// A new trace id, because the caller sent none. Without `propagate_always`, the call may have
    /// none.
    Free,
}
use Expected::{Free, Kept, New};

type Headers = Vec<(&'static str, String)>;

struct Case {
    headers: Headers,
    context: Expected,
    /// The `tracestate` header of each call. `None`: the header is absent.
    state: Option<String>,
}

fn parent(value: impl Into<String>, context: Expected) -> Case {
    Case {
        headers: vec![("traceparent", value.into())],
        context,
        state: None,
    }
}

/// Makes a case with a valid parent and the `tracestate` headers `values`. Calls must have `state`.
fn state(values: &[&str], state: Option<&str>) -> Case {
    let mut case = parent(format!("00-{TRACE}-{PARENT}-00"), Kept);
    case.headers
        .extend(values.iter().map(|&value| ("tracestate", value.to_owned())));
    case.state = state.map(str::to_owned);
    case
}

fn headers(headers: &[(&'static str, &str)], context: Expected) -> Case {
    Case {
        headers: headers
            .iter()
            .map(|&(name, value)| (name, value.to_owned()))
            .collect(),
        context,
        state: None,
    }
}

fn cases() -> Vec<Case> {
    let valid = format!("00-{TRACE}-{PARENT}-01");
    let mut cases = vec![
        headers(&[], Free),
        headers(&[("tracestate", "foo=1")], Free),
        headers(&[("trace-parent", &valid)], Free),
        headers(&[("trace.parent", &valid)], Free),
        headers(&[("traceparent", &valid), ("traceparent", &valid)], New),
        headers(&[("traceparent", ""), ("tracestate", "foo=1")], New),
    ];
    for name in ["traceparent", "TraceParent", "TRACEPARENT"] {
        cases.push(headers(&[(name, &valid)], Kept));
    }
    // Space around the value, later versions with more fields, and the flags of level 2.
    for kept in [
        format!(" {valid}"),
        format!("\t {valid} \t"),
        format!("cc-{TRACE}-{PARENT}-01"),
        format!("cc-{TRACE}-{PARENT}-01-of-a-later-version"),
        format!("00-{TRACE}-{PARENT}-00"),
        format!("00-{TRACE}-{PARENT}-02"),
        format!("00-{TRACE}-{PARENT}-03"),
    ] {
        cases.push(parent(kept, Kept));
    }
    for new in [
        format!("00-{TRACE}-{PARENT}-01."),
        format!("00-{TRACE}-{PARENT}-01-what-version-0-does-not-have"),
        format!("cc-{TRACE}-{PARENT}-01.without-a-dash"),
        format!("ff-{TRACE}-{PARENT}-01"),
        format!(".0-{TRACE}-{PARENT}-01"),
        format!("0.-{TRACE}-{PARENT}-01"),
        format!("000-{TRACE}-{PARENT}-01"),
        format!("0000-{TRACE}-{PARENT}-01"),
        format!("0-{TRACE}-{PARENT}-01"),
        format!("00-{:032}-{PARENT}-01", 0),
        format!("00-.{}-{PARENT}-01", &TRACE[1..]),
        format!("00-{}.-{PARENT}-01", &TRACE[1..]),
        format!("00-{TRACE}3-{PARENT}-01"),
        format!("00-{}-{PARENT}-01", &TRACE[1..]),
        format!("00-{TRACE}-{:016}-01", 0),
        format!("00-{TRACE}-.{}-01", &PARENT[1..]),
        format!("00-{TRACE}-{}.-01", &PARENT[1..]),
        format!("00-{TRACE}-{PARENT}7-01"),
        format!("00-{TRACE}-{}-01", &PARENT[1..]),
        format!("00-{TRACE}-{PARENT}-.0"),
        format!("00-{TRACE}-{PARENT}-0."),
        format!("00-{TRACE}-{PARENT}-001"),
        format!("00-{TRACE}-{PARENT}-1"),
        format!("00-{}A-{PARENT}-01", &TRACE[1..]),
    ] {
        cases.push(parent(new, New));
    }
    cases.extend(states());
    cases
}

fn states() -> Vec<Case> {
    let member = |n: usize| format!("bar{n:02}={n:02}");
    let list = |from: usize, to: usize| (from..=to).map(member).collect::<Vec<_>>().join(",");
    let (thirty, more) = (list(1, 30), list(31, 32));
    let too_many = list(31, 33);
    let (longest, too_long) = ("z".repeat(256), "z".repeat(257));
    let longest = format!("{longest}=1");
    let with_vendor = format!("{}@{}=1", "t".repeat(242), "v".repeat(13));
    let any: String = (' '..='~').filter(|c| !matches!(c, ',' | '=')).collect();
    let key = "abcdefghijklmnopqrstuvwxyz0123456789_-*/@a-z0-9_-*/";
    let full = format!("{key}={any}");
    let mut in_other_case = state(&[], Some("foo=1"));
    in_other_case.headers.push(("TraceState", "foo=1".into()));
    let mut by_other_name = state(&[], None);
    by_other_name.headers.push(("trace-state", "foo=1".into()));
    vec![
        in_other_case,
        by_other_name,
        state(&["foo=1,bar=2"], Some("foo=1,bar=2")),
        state(&[""], None),
        state(&["foo=1", ""], Some("foo=1")),
        state(&["", "foo=1"], Some("foo=1")),
        state(
            &["foo=1,bar=2", "rojo=1,congo=2", "baz=3"],
            Some("foo=1,bar=2,rojo=1,congo=2,baz=3"),
        ),
        state(&["foo=1,foo=1"], Some("foo=1")),
        state(&["foo=1", "foo=2"], Some("foo=1")),
        state(&[&full], Some(&full)),
        state(
            &["foo=1 \t , \t bar=2, \t baz=3"],
            Some("foo=1,bar=2,baz=3"),
        ),
        state(&["foo=1\t ", " \tbar=2"], Some("foo=1,bar=2")),
        state(&["foo =1"], None),
        state(&["FOO=1"], None),
        state(&["foo.bar=1"], None),
        state(&["foo@=1,bar=2"], Some("foo@=1,bar=2")),
        state(&["@foo=1,bar=2"], None),
        state(&["foo@@bar=1,bar=2"], Some("foo@@bar=1,bar=2")),
        state(&["foo@bar@baz=1,bar=2"], Some("foo@bar@baz=1,bar=2")),
        state(&[&thirty, &more], Some(&list(1, 32))),
        state(&[&thirty, &too_many], None),
        state(&["foo=1", &longest], Some(&format!("foo=1,{longest}"))),
        state(&["foo=1", &format!("{too_long}=1")], None),
        state(
            &["foo=1", &with_vendor],
            Some(&format!("foo=1,{with_vendor}")),
        ),
        state(&["foo=bar=baz"], None),
        state(&["foo=,bar=3"], None),
    ]
}

/// Serves a request with `headers` that makes `calls` calls, and returns the headers of each call.
fn calls_of(headers: &Headers, calls: usize) -> Vec<HeaderMap> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&seen);
    let callee = ClientLayer::new().layer(service_fn(move |request: Request<()>| {
        sink.lock().unwrap().push(request.headers().clone());
        async { Ok::<_, std::convert::Infallible>(Response::new(())) }
    }));
    let service = ServerLayer::new().layer(service_fn(move |_: Request<()>| {
        let callee = callee.clone();
        async move {
            for _ in 0..calls {
                callee.clone().oneshot(Request::new(())).await?;
            }
            Ok::<_, std::convert::Infallible>(Response::new(()))
        }
    }));
    let mut request = Request::new(());
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        let value = HeaderValue::from_str(value).unwrap();
        request.headers_mut().append(name, value);
    }
    // No future in the service waits, so one poll is enough.
    let answer = pin!(service.oneshot(request)).poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(answer, Poll::Ready(Ok(_))));
    std::mem::take(&mut seen.lock().unwrap())
}

fn check(case: &Case, propagates_always: bool) {
    let calls = calls_of(&case.headers, 3);
    let mut parents = Vec::new();
    for call in &calls {
        let what = format!("{:?}: {call:?}", case.headers);
        let Some(header) = call.get(propagation::TRACEPARENT) else {
            assert!(case.context == Free && !propagates_always, "{what}");
            assert!(!call.contains_key(propagation::TRACESTATE), "{what}");
            continue;
        };
        let header = header.to_str().unwrap();
        let context = propagation::parse_traceparent(header);
        assert!(context.is_valid(), "{what}");
        let trace = format!("{:032x}", context.trace_id());
        assert_eq!(trace == TRACE, case.context == Kept, "{what}");
        let state = call.get(propagation::TRACESTATE);
        let state = state.map(|state| state.to_str().unwrap());
        assert_eq!(state, case.state.as_deref(), "{what}");
        if case.headers[..]
            .iter()
            .any(|(_, value)| value.trim().ends_with("-02"))
        {
            assert!(header.ends_with("-02"), "{what}: the random flag");
        }
        parents.push(context.span_id());
    }
    assert_eq!(calls.len(), 3);
    let count = parents.len();
    parents.push(u64::from_str_radix(PARENT, 16).unwrap());
    parents.sort_unstable();
    parents.dedup();
    assert_eq!(parents.len(), count + 1, "{:?}: parent ids", case.headers);
}

/// Returns whether nothing is recorded and a request without a trace id gets none. A case between
/// bursts counts only if this is true before and after it.
fn is_quiet() -> bool {
    let calls = calls_of(&Vec::new(), 1);
    !calls[0].contains_key(propagation::TRACEPARENT) && !span!("probe").is_recorded()
}

/// Runs all cases. With `between`, each runs between bursts, where nothing is recorded. Otherwise
/// they run at any time.
fn run(config: BurstConfig, propagates_always: bool, between: bool) {
    let collector = Collector::default();
    let _guard = stroboscope::builder()
        .collector(collector.clone().start())
        .burst_config(config)
        .propagate_always(propagates_always)
        .init()
        .unwrap();
    if config != BurstConfig::NEVER {
        wait_for("how long requests take", || {
            drop(span!("short"));
            !collector.spans().is_empty()
        });
    }
    for case in cases() {
        wait_for("a case between bursts", || {
            let was_quiet = !between || is_quiet();
            check(&case, propagates_always);
            was_quiet && (!between || is_quiet())
        });
    }
}

#[test]
fn headers_go_on_as_the_specification_says() {
    let sparse: BurstConfig = "16ms/512ms".parse().unwrap();
    for (config, between) in [
        (BurstConfig::DEFAULT, false),
        (sparse, true),
        (BurstConfig::NEVER, true),
        (BurstConfig::ALWAYS_ON, false),
    ] {
        run(config, false, between);
        run(config, true, false);
    }
}
