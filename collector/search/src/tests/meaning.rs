//! Examples of formulas and their results on small requests.

use std::sync::Arc;

use stroboscope_analysis::record::{
    AttributeRecord, HostClock, RecordOwner, SpanFlags, SpanRecord, TraceRecords,
};

use crate::{KernelEvent, KernelKind, Truth, Unit, parse};

/// Returns a request on host `h` with these spans, given as (name or `service:name`, start, end) in
/// ms. The first span is the parent of the others.
fn request(spans: &[(&str, i64, i64)]) -> TraceRecords {
    let spans = spans.iter().enumerate().map(|(number, (name, from, to))| {
        let (service, name) = name.split_once(':').unwrap_or(("web", name));
        SpanRecord {
            span_id: number as u64 + 1,
            parent_id: u64::from(number > 0),
            service: service.into(),
            name: name.into(),
            host: "h".into(),
            process: 1,
            start_ns: from * 1_000_000,
            end_ns: to * 1_000_000,
            flags: SpanFlags(0),
            events: Vec::new(),
        }
    });
    TraceRecords {
        spans: spans.collect(),
        ..TraceRecords::default()
    }
}

fn say(records: &mut TraceRecords, span: u64, key: &str, value: &str) {
    records.attributes.push(AttributeRecord {
        owner: RecordOwner::Span(span),
        key: key.into(),
        value: value.into(),
    });
}

#[track_caller]
fn check(records: &TraceRecords, formula: &str, truth: Truth, witness: &[usize]) {
    let parsed = parse(formula).unwrap_or_else(|error| panic!("{formula}: {error}"));
    let found = Unit::of_request(records, false).search(&parsed);
    assert_eq!(
        (found.truth, &*found.witness),
        (truth, witness),
        "{formula}"
    );
}

#[test]
fn the_papers_examples() {
    let mut records = request(&[
        ("page", 0, 20),
        ("store:read", 1, 2),
        ("store:read", 3, 4),
        ("store:read", 15, 16),
    ]);
    for (span, block, bytes) in [(2, "7", "100"), (3, "9", "5000"), (4, "7", "100")] {
        say(&mut records, span, "block", block);
        say(&mut records, span, "bytes", bytes);
    }
    // At least one call to `store` has a response larger than n bytes.
    check(
        &records,
        r#"{ service = "store" && .bytes > 4096 }"#,
        Truth::True,
        &[2],
    );
    check(
        &records,
        r#"{ service = "store" && .bytes > 9999 }"#,
        Truth::False,
        &[],
    );
    // The same block is read again within milliseconds.
    let again = r#"{ name = "read" } then { name = "read" } with the same .block within "#;
    check(&records, &format!("{again}20ms"), Truth::True, &[1, 3]);
    check(&records, &format!("{again}5ms"), Truth::False, &[]);
}

#[test]
fn large_whole_numbers_are_compared_exactly() {
    let mut records = request(&[("page", 0, 10)]);
    say(&mut records, 1, "id", "1234567890123456789");
    say(&mut records, 1, "sum", "1e18");
    for (condition, truth) in [
        (".id = 1234567890123456789", true),
        (".id = 1234567890123456788", false),
        (".id != 1234567890123456788", true),
        (".id > 1_234_567_890_123_456_788", true),
        (".id > 1234567890123456789", false),
        (".sum = 1000000000000000000", true),
        (".id = 1234567890123456789012345678901234567890", false),
    ] {
        let formula = format!("{{ {condition} }}");
        let witness: &[usize] = if truth { &[0] } else { &[] };
        check(&records, &formula, truth.into(), witness);
    }
}

#[test]
fn words_about_time() {
    let records = request(&[
        ("page", 0, 30),
        ("a", 1, 3),
        ("b", 5, 9),
        ("a", 10, 12),
        ("c", 11, 11),
    ]);
    let is = |formula: &str, truth: bool| {
        let parsed = parse(formula).expect("a formula");
        let found = Unit::of_request(&records, false).of_whole(&parsed);
        assert_eq!(found, truth.into(), "{formula}");
    };
    is(r#"{ name = "a" } then { name = "b" } within 2ms"#, true);
    is(r#"{ name = "a" } then { name = "b" } within 1ms"#, false);
    is(r#"{ name = "a" } before { name = "b" } within 4ms"#, true);
    is(r#"{ name = "c" } during { name = "a" }"#, true);
    is(r#"{ name = "b" } during { name = "a" }"#, false);
    is(r#"{ name = "b" } overlaps { name = "page" }"#, true);
    is(r#"never { name = "c" } before { name = "b" }"#, true);
    is(r#"never { name = "b" } before { name = "c" }"#, false);
    is(r#"always { duration <= 30ms }"#, true);
    is(
        r#"always ({ name = "a" } implies eventually within 5ms ({ name = "b" } or { name = "c" }))"#,
        true,
    );
    is(r#"at least 2 of { name = "a" } within 9ms"#, true);
    is(r#"at least 2 of { name = "a" } within 8ms"#, false);
    is(r#"at most 1 of { name = "a" } within 8ms"#, true);
    is(r#"{ name = "a" } | count() = 2"#, true);
    is(r#"{ name = "page" } > { name = "b" }"#, true);
    is(r#"{ name = "a" } >> { name = "b" }"#, false);
    is(r#"{ name = "a" } and { name = "b" }"#, true);
    is(r#"({ name = "a" } and { name = "b" }) then { }"#, false);
    is(r#"not { name = "d" }"#, true);
    is(r#"{ traceDuration = 30ms && rootName = "page" }"#, true);
}

#[test]
fn what_is_cut_off_is_unknown() {
    let mut records = request(&[("page", 0, 10), ("a", 1, 3), ("b", 8, 10)]);
    records.spans[0].flags = SpanFlags::CUT_CLOSE;
    records.spans[2].flags = SpanFlags::CUT_CLOSE;
    // The recorded part of the span is 2 ms long, and the whole span may be longer.
    check(
        &records,
        r#"{ name = "b" && duration > 1ms }"#,
        Truth::True,
        &[2],
    );
    check(
        &records,
        r#"{ name = "b" && duration > 5ms }"#,
        Truth::Unknown,
        &[2],
    );
    check(
        &records,
        r#"{ name = "a" && duration > 5ms }"#,
        Truth::Unknown,
        &[],
    );
    // The whole span may also have attributes that were recorded later.
    say(&mut records, 2, "bytes", "9");
    check(
        &records,
        r#"{ name = "b" && .bytes = nil }"#,
        Truth::Unknown,
        &[2],
    );
    check(
        &records,
        r#"{ name = "a" && .block = nil }"#,
        Truth::True,
        &[1],
    );
    check(
        &records,
        r#"{ name = "a" } then { name = "b" } with the same .bytes"#,
        Truth::Unknown,
        &[1, 2],
    );
    // Both spans may have occurred after the end of the recording. Within the recorded time, the
    // result is certain.
    check(
        &records,
        r#"{ name = "a" } then { name = "c" } within 5ms"#,
        Truth::Unknown,
        &[],
    );
    let of_span = r#"eventually within 5ms ({ name = "a" } then { name = "c" } within 5ms)"#;
    check(&records, of_span, Truth::False, &[]);
    let lost = Unit::of_request(&records, true);
    let absent = parse(r#"never { name = "a" }"#).expect("a formula");
    assert_eq!(lost.of_whole(&absent), Truth::False);
    let present = parse(r#"{ name = "z" }"#).expect("a formula");
    assert_eq!(lost.of_whole(&present), Truth::Unknown);
}

#[test]
fn an_order_within_the_clocks_error_is_unknown() {
    let mut records = request(&[("page", 0, 10), ("a", 1, 3), ("b", 4, 5)]);
    let host: Arc<str> = "far".into();
    records.spans[2].host = host.clone();
    let with_error = |error_ns: u64, island: u32| {
        let mut records = records.clone();
        records.clocks = vec![HostClock {
            host: host.clone(),
            error_ns,
            resolution_ns: 1,
            island,
        }];
        records
    };
    let order = r#"{ name = "a" } then { name = "b" }"#;
    check(&with_error(999_999, 0), order, Truth::True, &[1, 2]);
    check(&with_error(1_000_000, 0), order, Truth::Unknown, &[1, 2]);
    check(&with_error(0, 1), order, Truth::Unknown, &[1, 2]);
    check(
        &with_error(9_000_000, 0),
        r#"{ name = "b" && duration = 1ms }"#,
        Truth::True,
        &[2],
    );
}

#[test]
fn an_order_within_the_clocks_resolution_is_unknown() {
    let mut records = request(&[("page", 0, 10), ("a", 1, 3), ("b", 4, 5)]);
    let order = r#"{ name = "a" } then { name = "b" }"#;
    for host in ["h", "far"] {
        records.spans[2].host = host.into();
        for (resolution_ns, truth) in [(999_999, Truth::True), (1_000_000, Truth::Unknown)] {
            let clock = |host: &str| HostClock {
                resolution_ns,
                ..HostClock::exact(host.into())
            };
            records.clocks = ["far", "h"].map(clock).to_vec();
            check(&records, order, truth, &[1, 2]);
        }
    }
}

/// Returns a system call of 1 ms that this span caused.
fn call(span_id: u64, start_ms: i64) -> KernelEvent {
    KernelEvent {
        kind: KernelKind::SystemCall,
        name: "read".into(),
        host: "h".into(),
        span_id,
        start_ns: start_ms * 1_000_000,
        end_ns: (start_ms + 1) * 1_000_000,
        is_cut_open: false,
        is_cut_close: false,
        attributes: Vec::new(),
    }
}

#[test]
fn operands_that_do_not_name_the_kernel_match_only_spans() {
    let records = request(&[("page", 0, 10)]);
    let calls = [call(1, 1), call(1, 3)];
    let events = calls.iter().map(|call| (0, call));
    let unit = Unit::of_request(&records, false).with_kernel(events, true);
    let check = |formula: &str, expected: Truth| {
        let formula = parse(formula).expect("a formula");
        assert_eq!(unit.of_whole(&formula), expected);
    };
    check(
        r#"not { name = "page" } then { kernel = syscall }"#,
        Truth::False,
    );
    check(
        "{ kernel = syscall } then { kernel = syscall }",
        Truth::True,
    );
    check(
        r#"{ name = "page" } overlaps { kernel = syscall }"#,
        Truth::True,
    );
}

/// Comparing each event with each span would take minutes.
#[test]
fn spans_of_many_kernel_events_are_found() {
    let spans: Vec<_> = (0..100_000).map(|at| ("a", at, at + 1)).collect();
    let records = request(&spans);
    let calls: Vec<KernelEvent> = (0..100_000).map(|at| call(100_000, at)).collect();
    let events = calls.iter().map(|call| (0, call));
    let unit = Unit::of_request(&records, false).with_kernel(events, true);
    let formula = parse("{ kernel = syscall && service = \"web\" }").expect("a formula");
    assert_eq!(unit.of_whole(&formula), Truth::True);
}

#[test]
fn requests_that_meet() {
    let (mut one, mut other) = (
        request(&[("page", 0, 10), ("store:read", 2, 6)]),
        request(&[("page", 1, 9), ("store:read", 5, 8)]),
    );
    one.id.0 = 1;
    other.id.0 = 2;
    let requests = [one, other];
    let unit = Unit::of(&requests, Some((0, 20_000_000)));
    let meet = parse(
        r#"{ name = "read" } overlaps { name = "read" } at the same service in another request"#,
    );
    let found = unit.search(&meet.expect("a formula"));
    assert_eq!(found.truth, Truth::True);
    let names: Vec<u128> = found
        .witness
        .iter()
        .map(|place| unit.names(*place).0.id.0)
        .collect();
    assert_eq!(names, [1, 2]);
    // Another request may have begun before the burst; these two did not.
    let missing = |formula: &str| unit.of_whole(&parse(formula).expect("a formula"));
    let overlaps = r#"{ name = "read" } overlaps { name = "write" }"#;
    assert_eq!(missing(overlaps), Truth::Unknown);
    let in_same_request = format!("{overlaps} in the same request");
    assert_eq!(missing(&in_same_request), Truth::False);
    let nothing = Unit::of(&[], None);
    assert!(nothing.is_empty());
    assert_eq!(
        nothing.search(&parse("{ }").expect("a formula")).truth,
        Truth::False
    );
}

/// Walking as many steps from each span as there are spans would take minutes.
#[test]
fn spans_may_be_their_own_ancestors() {
    let mut records = request(&[("a", 0, 9), ("b", 1, 8), ("c", 2, 7)]);
    for (span, parent_id) in records.spans.iter_mut().zip([2, 3, 1]) {
        span.parent_id = parent_id;
    }
    for [above, below] in [["b", "c"], ["c", "a"], ["a", "a"]] {
        let place = usize::from(below == "c") * 2;
        let formula = format!("{{ name = \"{above}\" }} >> {{ name = \"{below}\" }}");
        check(&records, &formula, Truth::True, &[place]);
    }
    let spans: Vec<_> = (0..100_000).map(|at| ("a", at, at + 1)).collect();
    let mut records = request(&spans);
    for span in &mut records.spans {
        span.parent_id = span.span_id;
    }
    let formula = parse("{ name = \"b\" } >> { name = \"a\" }").unwrap();
    let truth = Unit::of_request(&records, false).of_whole(&formula);
    assert_eq!(truth, Truth::Unknown);
}
