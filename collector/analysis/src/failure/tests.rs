use proptest::prelude::*;

use super::*;
use crate::record::AttributeRecord;

const SERVER: SpanFlags = SpanFlags::SERVER;
const CLIENT: SpanFlags = SpanFlags::CLIENT;
const INNER: SpanFlags = SpanFlags(0);

/// A span: its id, its parent's id, a flag that is true if it failed, its end, and its kind.
type Given = (u64, u64, bool, i64, SpanFlags);

fn request(spans: &[Given]) -> TraceRecords {
    let span = |(span_id, parent_id, _, end_ns, flags): &Given| SpanRecord {
        span_id: *span_id,
        parent_id: *parent_id,
        service: "s".into(),
        name: format!("op{span_id}").into(),
        host: "h".into(),
        process: 1,
        start_ns: *span_id as i64,
        end_ns: 1_000 + end_ns,
        flags: *flags,
        events: Vec::new(),
    };
    let failed = spans.iter().filter(|(_, _, has_failed, ..)| *has_failed);
    TraceRecords {
        spans: spans.iter().map(span).collect(),
        attributes: failed
            .map(|(span_id, ..)| said(RecordOwner::Span(*span_id), ERROR, "true"))
            .collect(),
        ..TraceRecords::default()
    }
}

fn said(owner: RecordOwner, key: &str, value: &str) -> AttributeRecord {
    AttributeRecord {
        owner,
        key: key.into(),
        value: value.into(),
    }
}

fn ids(trail: &FailureTrail<'_>) -> (bool, Vec<u64>) {
    let spans = trail.spans.iter().map(|span| span.span_id);
    (trail.has_reached_root, spans.collect())
}

#[track_caller]
fn check(spans: &[Given], expected: Option<(bool, &[u64])>) {
    let mut records = request(spans);
    let mut finder = FailureFinder::default();
    for _ in 0..2 {
        let found = finder.trail(&records);
        let expected = expected.map(|(failed, spans)| (failed, spans.to_vec()));
        assert_eq!(found.as_ref().map(ids), expected);
        records.spans.reverse();
    }
}

#[test]
fn a_failure_starts_below_all_that_failed() {
    // A chain, through a function that is not marked.
    let chain = [
        (1, 0, true, 9, SERVER),
        (2, 1, false, 8, INNER),
        (3, 2, true, 7, CLIENT),
        (4, 3, true, 6, SERVER),
        (5, 4, false, 5, INNER),
    ];
    check(&chain, Some((true, &[4, 3, 2, 1])));
    // Of several, the first that ended.
    let several = [
        (1, 0, true, 9, SERVER),
        (2, 1, true, 8, CLIENT),
        (3, 1, true, 4, CLIENT),
        (4, 1, true, 6, CLIENT),
    ];
    check(&several, Some((true, &[3, 1])));
    // A root that fails by itself. Another failure stops at the unmarked span of a server.
    let own = [
        (1, 0, true, 9, SERVER),
        (2, 1, false, 8, CLIENT),
        (3, 2, false, 7, SERVER),
        (4, 3, true, 6, CLIENT),
    ];
    check(&own, Some((true, &[1])));
    check(&[(1, 0, false, 9, SERVER)], None);
    check(&[], None);
}

#[test]
fn a_request_whose_root_did_not_fail_recovered() {
    let retried = [
        (1, 0, false, 9, SERVER),
        (2, 1, false, 8, INNER),
        (3, 2, true, 5, CLIENT),
        (4, 3, true, 4, SERVER),
        (5, 2, false, 8, CLIENT),
    ];
    check(&retried, Some((false, &[4, 3])));
}

#[test]
fn parts_of_requests_fail_as_well() {
    // The root was not recorded.
    let part = [(3, 9, true, 5, SERVER), (4, 3, true, 4, CLIENT)];
    check(&part, Some((true, &[4, 3])));
    // Again without a recorded root. The failure travels on through an unmarked function, but not a
    // server.
    let part = [(3, 9, false, 5, INNER), (4, 3, true, 4, CLIENT)];
    check(&part, Some((true, &[4])));
    let part = [(3, 9, false, 5, SERVER), (4, 3, true, 4, CLIENT)];
    check(&part, Some((false, &[4])));
    // A parent between the two spans is missing: the root did not fail.
    let hole = [(1, 0, false, 9, SERVER), (4, 3, true, 4, SERVER)];
    check(&hole, Some((false, &[4])));
    // The root was recorded, and nothing connects the other span to it.
    let both = [(1, 0, true, 9, SERVER), (4, 3, true, 4, SERVER)];
    check(&both, Some((true, &[1])));
    // Parents in a circle.
    let circle = [(1, 2, true, 9, INNER), (2, 1, true, 8, INNER)];
    check(&circle, Some((true, &[2, 1])));
}

/// Finds the trail by walking up from each span, as the reference implementation.
fn obvious(spans: &[Given]) -> Option<(bool, Vec<u64>)> {
    let of = |id: u64| spans.iter().find(|span| span.0 == id).unwrap();
    let up = |id: u64| {
        let mut way = vec![id];
        while of(way[way.len() - 1]).1 != 0 {
            way.push(of(way[way.len() - 1]).1);
        }
        way
    };
    let has_failed = |id: u64| of(id).2;
    let passes = |id: u64| has_failed(id) || of(id).4 == INNER;
    // Reports whether the failure of `from` travels to `to`.
    let travels = |from: u64, to: u64| {
        let way = up(from);
        let at = way.iter().position(|id| *id == to);
        at.is_some_and(|at| at > 0 && way[1..at].iter().all(|id| passes(*id)))
    };
    let failed: Vec<u64> = spans
        .iter()
        .map(|span| span.0)
        .filter(|id| has_failed(*id))
        .collect();
    let reaches = has_failed(1);
    let is_origin = |id: &u64| {
        let is_lowest = !failed.iter().any(|other| travels(*other, *id));
        is_lowest && (!reaches || *id == 1 || travels(*id, 1))
    };
    let origins = failed.iter().copied().filter(is_origin);
    let origin = origins.min_by_key(|id| (of(*id).3, *id))?;
    let way = up(origin);
    let until = way.iter().take_while(|id| passes(**id)).count();
    let last = way[..until].iter().rposition(|id| has_failed(*id));
    Some((reaches, way[..=last?].to_vec()))
}

proptest! {
    #[test]
    fn origins_are_those_that_walking_up_finds(
        given in proptest::collection::vec((0u64..64, any::<bool>(), 0i64..6, 0usize..3), 1..12),
    ) {
        let spans: Vec<Given> = given
            .iter()
            .enumerate()
            .map(|(at, (parent, has_failed, end_ns, kind))| {
                let parent = if at == 0 { 0 } else { parent % at as u64 + 1 };
                (at as u64 + 1, parent, *has_failed, *end_ns, [INNER, SERVER, CLIENT][*kind])
            })
            .collect();
        let records = request(&spans);
        let found = FailureFinder::default().trail(&records);
        prop_assert_eq!(found.as_ref().map(ids), obvious(&spans));
    }
}

/// Returns a request whose root, or an event in the root (prefix `event:`), has these attributes.
fn stating(attributes: &[(&str, &str)], flags: SpanFlags) -> TraceRecords {
    let mut records = request(&[(1, 0, false, 9, flags), (2, 1, false, 8, INNER)]);
    records.attributes = attributes
        .iter()
        .map(|(key, value)| match key.strip_prefix("event:") {
            Some(key) => said(RecordOwner::InSpan(1, 0), key, value),
            None => said(RecordOwner::Span(1), key, value),
        })
        .collect();
    records
        .attributes
        .push(said(RecordOwner::Span(2), ERROR_TYPE, "of another span"));
    records
}

#[track_caller]
fn check_stated(attributes: &[(&str, &str)], flags: SpanFlags, kind: &str, message: &str) {
    let mut records = stating(attributes, flags);
    for _ in 0..2 {
        let stated = StatedFailure::of(&records, &records.spans[0]);
        assert_eq!((&*stated.kind, &*stated.message), (kind, message));
        records.attributes.reverse();
    }
}

#[test]
fn spans_state_their_failures_in_many_ways() {
    check_stated(&[(ERROR, "true")], INNER, "error", "");
    check_stated(&[(ERROR, "no room")], INNER, "error", "no room");
    let http = [(ERROR_TYPE, "503"), ("http.response.status_code", "503")];
    check_stated(&http, SERVER, "HTTP 503", "");
    check_stated(&[("http.status_code", "200")], SERVER, "error", "");
    let grpc = [(ERROR_TYPE, "14"), (GRPC_CODE, "14")];
    check_stated(&grpc, CLIENT, "gRPC UNAVAILABLE", "");
    check_stated(&[(GRPC_CODE, "99")], CLIENT, "gRPC 99", "");
    check_stated(&[(GRPC_CODE, "no such\ncode")], CLIENT, "gRPC no such", "");
    check_stated(&[(ERROR, "true")], SpanFlags::PANICKED, "panic", "");
    let exception = [
        ("event:exception.type", "KeyError"),
        ("event:exception.message", "no order 4711\nat line 3"),
        ("http.response.status_code", "500"),
    ];
    check_stated(&exception, SERVER, "KeyError", "no order *");
    let both = [
        (ERROR_TYPE, "Timeout"),
        ("exception.type", "Other"),
        ("otel.status_description", "after 3 tries"),
        ("exception.message", "other"),
    ];
    check_stated(&both, SERVER, "Timeout", "after * tries");
    for (kind, status) in [
        ("ValueError", "ValueError: no room"),
        ("django.db.Error", "Error: no room"),
        ("django.db.Error", "django.db.Error: no room"),
        ("Value", "no room"),
    ] {
        let python = [
            ("exception.type", kind),
            ("otel.status_description", status),
        ];
        check_stated(&python, INNER, kind, "no room");
    }
    let records = stating(&exception, SERVER);
    let in_full = StatedFailure::in_full(&records, &records.spans[0]);
    assert_eq!(in_full.message, "no order 4711\nat line 3");
    let long = "x".repeat(500);
    let cut = "x".repeat(TEXT_CHARS_MAX);
    check_stated(&[(MESSAGES[2], &long)], INNER, "error", &cut);
}

#[test]
fn what_is_part_of_a_failure_explains_none() {
    for key in FAILURE_KEYS {
        assert!(is_of_failure(key), "{key}");
    }
    for key in [
        "exception.stacktrace",
        "error_code",
        "otel.status_code",
        "http.response.body.size",
    ] {
        assert!(is_of_failure(key), "{key}");
    }
    for key in ["tenant", "errand", "http.request.method", "order.id"] {
        assert!(!is_of_failure(key), "{key}");
    }
}
