//! Requests whose headers cost the most to read. On an EPYC of 2024, 600,000 instructions of such a
//! reading take 50 µs, which is the maximum time for the headers of any request.

use std::hint::black_box;
use std::sync::LazyLock;

use http::{HeaderMap, HeaderValue};
use stroboscope::propagation::{self, BAGGAGE, TRACEPARENT, TRACESTATE};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const BYTES: usize = 400_000;

fn headers(name: &'static str, values: impl IntoIterator<Item = String>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(TRACEPARENT, HeaderValue::from_static(PARENT));
    for value in values {
        let value = HeaderValue::try_from(value).expect("visible ASCII");
        headers.append(name, value);
    }
    headers
}

fn numbered(member: impl Fn(usize) -> String) -> String {
    (0..BYTES / 8).map(member).collect::<Vec<_>>().join(",")
}

/// Headers with long members, whose total length is almost the maximum that is read.
static STATES: LazyLock<HeaderMap> = LazyLock::new(|| {
    let member = |n| format!("{:a>240}{n}={:b>256}", "", "");
    let long = (10..30).map(member).collect::<Vec<_>>().join(",");
    headers(TRACESTATE, [format!("{long:10000}")])
});
static OTHER_STATES: LazyLock<HeaderMap> =
    LazyLock::new(|| headers(TRACESTATE, [numbered(|n| format!("k{n}=1"))]));
static EMPTY_STATES: LazyLock<HeaderMap> =
    LazyLock::new(|| headers(TRACESTATE, [",".repeat(BYTES)]));
static FIELDS: LazyLock<HeaderMap> =
    LazyLock::new(|| headers(BAGGAGE, (0..20_000).map(|n| format!("sb.k{n}=1"))));
static OURS: LazyLock<HeaderMap> =
    LazyLock::new(|| headers(BAGGAGE, [numbered(|n| format!("sb.k{n}=1;t=u;s=c;i=3"))]));
static PROPERTIES: LazyLock<HeaderMap> = LazyLock::new(|| {
    headers(
        BAGGAGE,
        [numbered(|n| format!("sb.k{n}=1;a;b;c;d;e;f;g;h"))],
    )
});
static ESCAPES: LazyLock<HeaderMap> = LazyLock::new(|| {
    headers(
        BAGGAGE,
        [numbered(|n| format!("sb.k{n}={}", "%20".repeat(10)))],
    )
});
static KEYS: LazyLock<HeaderMap> = LazyLock::new(|| {
    headers(
        BAGGAGE,
        [numbered(|n| format!("sb.{}{n}=", "~".repeat(30)))],
    )
});
static THEIRS: LazyLock<HeaderMap> =
    LazyLock::new(|| headers(BAGGAGE, [numbered(|n| format!("k{n}=1;;;;;;;;"))]));
static SLACK: LazyLock<HeaderMap> = LazyLock::new(|| {
    let components = "a:1|".repeat(64);
    let edge = |n: usize| format!("{}>{}|", n % 63, n % 63 + 1);
    let edges: String = (0..256).map(edge).collect();
    headers(
        BAGGAGE,
        [format!(
            "sb.slack={components}/{edges}{}",
            ",k=1".repeat(BYTES / 4)
        )],
    )
});

fn extract(calls: u64, headers: &LazyLock<HeaderMap>) {
    for _ in 0..calls {
        black_box(propagation::extract(black_box(headers)));
    }
}

macro_rules! extracting {
    ($($name:ident $headers:ident)*) => {
        $(pub(super) const $name: fn(u64) = |calls| extract(calls, &$headers);)*
    };
}

extracting! {
    LONG_STATES STATES
    MANY_STATES OTHER_STATES
    NO_STATES EMPTY_STATES
    MANY_FIELDS FIELDS
    MANY_OURS OURS
    MANY_PROPERTIES PROPERTIES
    MANY_ESCAPES ESCAPES
    LONG_KEYS KEYS
    MANY_THEIRS THEIRS
}

pub(super) const A_SLACK: fn(u64) = |calls| {
    for _ in 0..calls {
        black_box(propagation::extract(black_box(&SLACK)).baggage().slack());
    }
};
