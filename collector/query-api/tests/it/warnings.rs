//! Tests of warnings about a span's times: that the edge of a burst cut it, and that its clock was
//! corrected.

use stroboscope_proto::v1::SpanFlag;
use stroboscope_store::record::{BatchRow, Rows, SpanRow};

use crate::jaeger::T0_S;
use crate::served::Served;
use crate::tempo::escaped;

const T0_NS: i64 = T0_S as i64 * 1_000_000_000;
/// Difference by which the clock of one host is ahead, in milliseconds.
const AHEAD_MS: i64 = 500;

struct Span {
    id: u64,
    parent: u64,
    host: &'static str,
    at_ms: i64,
    took_ms: i64,
    flags: u32,
}

fn add(rows: &mut Rows, trace: u64, span: &Span) {
    let texts = [span.host, "work", span.host].map(|text| rows.strings.intern(text));
    let start_ns = T0_NS + (trace as i64 * 1_000 + span.at_ms) * 1_000_000;
    rows.spans.push(SpanRow {
        trace_id: u128::from(trace),
        trace_name: None,
        span_id: span.id,
        parent_id: span.parent,
        service: texts[0],
        name: texts[1],
        host: texts[2],
        process: 0,
        start_ns,
        end_ns: start_ns + span.took_ms * 1_000_000,
        flags: span.flags,
        attributes: None,
    });
}

/// Creates a store with calls from one host to another, whose clock is ahead by `ahead_ms`. The
/// last call is cut at both ends, and one of its spans has no end.
fn calls(ahead_ms: i64) -> Served {
    let served = Served::new();
    let mut rows = Rows::default();
    for trace in 1..=20 {
        let (client, server) = (SpanFlag::Client as u32, SpanFlag::Server as u32);
        let root_flags = match trace {
            20 => SpanFlag::CutOpen as u32 | SpanFlag::CutClose as u32,
            _ => 0,
        };
        let span = |id, parent, host, at_ms, took_ms, flags| Span {
            id,
            parent,
            host,
            at_ms,
            took_ms,
            flags,
        };
        add(&mut rows, trace, &span(1, 0, "front", 0, 40, root_flags));
        add(&mut rows, trace, &span(2, 1, "front", 5, 30, client));
        let at_ms = 7 + ahead_ms;
        add(&mut rows, trace, &span(3, 2, "back", at_ms, 26, server));
        let unfinished = SpanFlag::Unfinished as u32;
        let flags = if trace == 20 { unfinished } else { 0 };
        add(&mut rows, trace, &span(4, 3, "back", at_ms + 1, 5, flags));
    }
    served.write(rows);
    served.traces.compare_clocks();
    served
}

/// Returns id, start in µs and warnings of each span of a trace, by id.
fn warnings(served: &Served, trace: u64) -> Vec<(String, i64, Vec<String>)> {
    let answer = served.json(&format!("/api/traces/{trace:x}"));
    let spans = answer["data"][0]["spans"].as_array().unwrap();
    let mut all: Vec<(String, i64, Vec<String>)> = spans
        .iter()
        .map(|span| {
            let said = span["warnings"].as_array().cloned().unwrap_or_default();
            let said = said.iter().map(|one| one.as_str().unwrap().to_owned());
            let id = span["spanID"].as_str().unwrap().to_owned();
            (id, span["startTime"].as_i64().unwrap(), said.collect())
        })
        .collect();
    all.sort();
    all
}

#[test]
fn what_a_bursts_edge_cut_says_so() {
    let served = calls(0);
    assert!(warnings(&served, 19).iter().all(|one| one.2.is_empty()));
    let cut = warnings(&served, 20);
    assert_eq!(
        cut[0].2,
        [
            "cut by the burst's edge: it began before the recording did",
            "cut by the burst's edge: it went on after the recording ended",
        ]
    );
    assert!(cut[1].2.is_empty() && cut[2].2.is_empty(), "{cut:?}");
    assert!(
        matches!(&*cut[3].2, [said] if said.contains("its end was never seen")),
        "{cut:?}"
    );
}

#[test]
fn what_was_cut_may_have_lasted_longer_than_a_maximum() {
    let served = calls(0);
    let found = |query: &str| {
        let answer = served.json(&format!("/api/traces?service=back&{query}"));
        answer["data"].as_array().unwrap().len()
    };
    // In the last trace, the span of 5 ms has no end.
    assert_eq!(found("maxDuration=10ms"), 19);
    assert_eq!(found("maxDuration=26ms"), 20);
    assert_eq!(found("minDuration=5ms"), 20);
}

#[test]
fn a_corrected_clock_says_by_how_much_and_how_sure_that_is() {
    let served = calls(AHEAD_MS);
    let spans = warnings(&served, 3);
    let start_us = (T0_NS + 3_000_000_000) / 1_000;
    // One of the clocks is the reference. The spans of the other host are moved, so that calls
    // contain the spans that they cause.
    let moved: Vec<usize> = (0..4).filter(|at| !spans[*at].2.is_empty()).collect();
    assert!(moved == [2, 3] || moved == [0, 1], "{spans:?}");
    for at in &moved {
        let [said] = &*spans[*at].2 else {
            panic!("{spans:?}");
        };
        assert!(
            said.starts_with("clock corrected by ") && said.contains(" ± ") && said.contains("ms"),
            "{said}"
        );
        let reference = if *at >= 2 { "front" } else { "back" };
        assert!(said.ends_with(&format!("that of {reference}")), "{said}");
    }
    let call_us = spans[1].1..=spans[1].1 + 30_000;
    let served_us = [spans[2].1, spans[2].1 + 26_000];
    assert!(
        served_us.iter().all(|at| call_us.contains(at)),
        "{spans:?} are not one in the other"
    );
    assert!(spans[0].1 == start_us || moved == [0, 1], "{spans:?}");
    // OTLP has the warning of a corrected clock in the attribute that Jaeger reads, unless the
    // client requests raw traces.
    let is_corrected = |path: &str| {
        let said = served.ask(path).text();
        let warns = said.contains("@jaeger@warnings");
        assert_eq!(warns, said.contains("clock corrected by"), "{said}");
        warns
    };
    let newer = format!("/api/v3/traces/{:032x}", 3);
    assert!(is_corrected(&newer));
    assert!(!is_corrected(&format!("{newer}?raw_traces=true")));
    assert!(is_corrected(
        "/api/v3/traces?query.serviceName=back&query.startTimeMin=2023-11-14T22:00:00Z&query.startTimeMax=2023-11-15T00:00:00Z"
    ));
    assert!(is_corrected("/tempo/api/traces/3"));
    let raw = served.ask("/api/traces/3?raw=true").text();
    assert!(!raw.contains("clock corrected by"), "{raw}");
}

#[test]
fn clocks_that_agree_are_left_alone() {
    let served = calls(0);
    for trace in 1..20 {
        let spans = warnings(&served, trace);
        assert!(spans.iter().all(|one| one.2.is_empty()), "{spans:?}");
    }
}

#[test]
fn what_may_have_been_lost_does_not_count_as_absent() {
    let served = Served::new();
    let mut rows = Rows::default();
    for trace in [1, 2] {
        add(
            &mut rows,
            trace,
            &Span {
                id: 1,
                parent: 0,
                host: "h",
                at_ms: 0,
                took_ms: 5,
                flags: 0,
            },
        );
        let process = u128::from(trace);
        let span = rows.spans.last_mut().unwrap();
        span.process = process;
        let (from_ns, to_ns) = (span.start_ns, span.end_ns + 1);
        let [service, cause] = ["h", "ring_full"].map(|text| rows.strings.intern(text));
        rows.batches.push(BatchRow {
            process,
            sequence: 0,
            service,
            host: service,
            pid: 1,
            started_ns: from_ns,
            sdk_version: service,
            from_ns,
            to_ns,
            received_ns: to_ns,
            burst_config: 0,
            spans: 1,
            events: 0,
            windows: Vec::new(),
            // The second process lost a record.
            losses: vec![(cause, trace - 1)],
            clock_steps: Vec::new(),
            kernel_clock: None,
            loads: Vec::new(),
        });
    }
    served.write(rows);
    let found = |query: &str| {
        let answer = served.json(&format!("/tempo/api/search?q={}", escaped(query)));
        let traces = answer["traces"].as_array().unwrap().clone();
        let id = |trace: &serde_json::Value| trace["traceID"].as_str().unwrap().to_owned();
        traces.iter().map(id).collect::<Vec<_>>()
    };
    let [first, second] = [1, 2].map(|trace| format!("{trace:032x}"));
    assert_eq!(found("{ name = \"work\" }"), [second, first.clone()]);
    assert_eq!(found("{ name = \"work\" } | count() < 2"), [first]);
}
