//! Golden segmentations. Spans are lines of an indented tree, `service:name start..end`, with their
//! events `!event@time` or `!event=element@time`, their flags `=client`, `=server`, `=cut`, and
//! their host `^host`. Segments are lines `task [start … end] from..to`, in order of time.

use stroboscope_analysis::label::Labels;
use stroboscope_analysis::record::{
    EventRecord, HostClock, PointEvent, SpanFlags, SpanRecord, TraceRecords,
};
use stroboscope_analysis::segment::segment;

pub(crate) fn parse(tree: &str) -> TraceRecords {
    let mut spans: Vec<SpanRecord> = Vec::new();
    let mut open: Vec<(usize, u64)> = Vec::new();
    for line in tree.lines().filter(|line| !line.trim().is_empty()) {
        let indent = line.len() - line.trim_start().len();
        open.retain(|(outer, _)| *outer < indent);
        let mut words: Vec<&str> = line.split_whitespace().collect();
        let events = words
            .iter()
            .filter_map(|word| word.strip_prefix('!'))
            .map(|event| {
                let (name, time_ns) = event.split_once('@').expect("!event@time");
                let (name, element) = match name.split_once('=') {
                    Some((name, element)) => (name, Some(element.into())),
                    None => (name, None),
                };
                PointEvent {
                    time_ns: time_ns.parse().expect("a time"),
                    name: name.into(),
                    element,
                }
            });
        let events = events.collect();
        let flag = |word: &&str| match *word {
            "=client" => SpanFlags::CLIENT,
            "=server" => SpanFlags::SERVER,
            "=cut" => SpanFlags::CUT_CLOSE,
            _ => SpanFlags(0),
        };
        let flags = words.iter().map(flag).fold(SpanFlags(0), SpanFlags::with);
        let host = words
            .iter()
            .find_map(|word| word.strip_prefix('^'))
            .unwrap_or("h")
            .into();
        words.retain(|word| !word.starts_with(['!', '=', '^']));
        let (start, end) = words
            .pop()
            .and_then(|word| word.split_once(".."))
            .expect("start..end");
        let full = words.join(" ");
        let (service, name) = full.split_once(':').expect("service:name");
        let span_id = spans.len() as u64 + 1;
        spans.push(SpanRecord {
            span_id,
            parent_id: open.last().map_or(0, |(_, id)| *id),
            service: service.into(),
            name: name.into(),
            host,
            process: 1,
            start_ns: start.parse().expect("a time"),
            end_ns: end.parse().expect("a time"),
            flags,
            events,
        });
        open.push((indent, span_id));
    }
    TraceRecords {
        spans,
        ..Default::default()
    }
}

fn show(records: &TraceRecords) -> (String, String) {
    let mut labels = Labels::default();
    let (trace, diagnostics) = segment(records, &mut labels);
    let lines = trace.segments.iter().map(|s| {
        format!(
            "{} {}..{}",
            labels.get(s.id).expect("segments have labels"),
            s.start_ns,
            s.end_ns
        )
    });
    let causes: Vec<&str> = diagnostics.iter().map(|d| d.cause()).collect();
    assert!(diagnostics.iter().all(|d| !d.to_string().is_empty()));
    (lines.collect::<Vec<_>>().join("\n"), causes.join(" "))
}

#[track_caller]
fn check(tree: &str, expected: &str) {
    check_diagnosed(tree, expected, "");
}

#[track_caller]
fn check_diagnosed(tree: &str, expected: &str, diagnostics: &str) {
    let trimmed: Vec<&str> = expected
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    assert_eq!(
        show(&parse(tree)),
        (trimmed.join("\n"), diagnostics.to_string())
    );
}

#[test]
fn a_span_alone() {
    check("web:home 0..100", "web:home [start … end] 0..100");
    check("web:home 5..5", "");
    check(
        "web:home 0..9 !b@6 !a@4",
        "web:home [start … a] 0..4 \n web:home [a … b] 4..6 \n web:home [b … end] 6..9",
    );
    check("web:home 0..9 !a@0 !b@9", "web:home [a … b] 0..9");
    check(
        "web:GET /users/42 0..9",
        "web:GET /users/* [start … end] 0..9",
    );
    check(
        "web:home 0..9 !row-771234@3",
        "web:home [start … row-*] 0..3 \n web:home [row-* … end] 3..9",
    );
}

#[test]
fn a_span_with_children() {
    check(
        "web:home 0..100
           store:read 20..40",
        "web:home [start … →store:read] 0..20
         web:home > store:read [start … end] 20..40
         web:home [←store:read … end] 40..100",
    );
    // The first of overlapping children opens one stretch, and the last to end closes it.
    check(
        "web:home 0..100
           store:read 20..60
           rank:score 30..50
           ads:pick 50..70",
        "web:home [start … →store:read] 0..20
         web:home > store:read [start … end] 20..60
         web:home > rank:score [start … end] 30..50
         web:home > ads:pick [start … end] 50..70
         web:home [←ads:pick … end] 70..100",
    );
    // Of several that end last, the last to start closes the stretch.
    check(
        "web:home 0..30
           a:x 10..20
           b:y 12..20",
        "web:home [start … →a:x] 0..10
         web:home > a:x [start … end] 10..20
         web:home > b:y [start … end] 12..20
         web:home [←b:y … end] 20..30",
    );
    // The parent's time between stretches is its own.
    check(
        "web:home 0..50
           a:x 10..20
           b:y 30..40",
        "web:home [start … →a:x] 0..10
         web:home > a:x [start … end] 10..20
         web:home [←a:x … →b:y] 20..30
         web:home > b:y [start … end] 30..40
         web:home [←b:y … end] 40..50",
    );
}

#[test]
fn children_at_and_past_the_edges() {
    // All time is the child's.
    check(
        "web:home 0..9\n  a:x 0..9",
        "web:home > a:x [start … end] 0..9",
    );
    // A child that goes on after its parent was not waited for, and neither was a later one.
    check(
        "web:home 0..9\n  a:x 4..20",
        "web:home [start … →a:x] 0..4
         web:home [→a:x … end] 4..9
         web:home > a:x [start … end] 4..20",
    );
    check(
        "web:home 0..9\n  a:x 0..20",
        "web:home [→a:x … end] 0..9 \n web:home > a:x [start … end] 0..20",
    );
    check(
        "web:home 0..9\n  a:x 9..20",
        "web:home [start … end] 0..9 \n web:home > a:x [start … end] 9..20",
    );
    check(
        "web:home 0..9\n  a:x 15..20",
        "web:home [start … end] 0..9 \n web:home > a:x [start … end] 15..20",
    );
    check_diagnosed(
        "web:home 5..9\n  a:x 2..7",
        "web:home > a:x [start … end] 2..7 \n web:home [←a:x … end] 7..9",
        "starts_before_parent",
    );
    check_diagnosed(
        "web:home 5..9\n  a:x 2..5",
        "web:home > a:x [start … end] 2..5 \n web:home [start … end] 5..9",
        "starts_before_parent",
    );
    // A child of length zero still cuts, so that labels do not depend on a clock's grain.
    check(
        "web:home 0..9\n  a:x 4..4",
        "web:home [start … →a:x] 0..4 \n web:home [←a:x … end] 4..9",
    );
    check("web:home 5..5\n  a:x 5..5", "");
    check_diagnosed(
        "web:home 5..5\n  a:x 3..8",
        "web:home > a:x [start … end] 3..8",
        "starts_before_parent",
    );
}

#[test]
fn who_goes_on_after_whom() {
    // Work left behind takes no time from its parent, unless the parent waits for something else.
    check(
        "web:checkout 0..30
           shop:handler 2..28
             worker:mail 5..50
               db:read 35..40
             db:write 10..20
             worker:log 15..60",
        "web:checkout [start … →shop:handler] 0..2
         web:checkout > shop:handler [start … →worker:mail] 2..5
         web:checkout > shop:handler [→worker:mail … →db:write] 5..10
         web:checkout > shop:handler > worker:mail [start … →db:read] 5..35
         web:checkout > shop:handler > db:write [start … end] 10..20
         web:checkout > shop:handler > worker:log [start … end] 15..60
         web:checkout > shop:handler [←db:write … end] 20..28
         web:checkout [←shop:handler … end] 28..30
         web:checkout > shop:handler > worker:mail > db:read [start … end] 35..40
         web:checkout > shop:handler > worker:mail [←db:read … end] 40..50",
    );
    // A call is waited for until its caller ends. The server's later work has labels of its own.
    check(
        "web:get 0..10 =client
           api:get 2..20 =server
             db:read 3..5
             db:log 12..15",
        "web:get [start … →api:get] 0..2
         web:get > api:get [start … →db:read] 2..3
         web:get > api:get > db:read [start … end] 3..5
         web:get > api:get [←db:read … →db:log] 5..10
         web:get > api:get [answered … →db:log] 10..12
         web:get > api:get > db:log [start … end] 12..15
         web:get > api:get [←db:log … end] 15..20",
    );
    // A server's span below one that is not a client's also counts as a call.
    check(
        "web:page 0..10\n  api:get 2..12 =server",
        "web:page [start … →api:get] 0..2
         web:page > api:get [start … end] 2..10
         web:page > api:get [answered … end] 10..12",
    );
    // If recording ended before the parent did, it is unknown for what the parent waited.
    check(
        "web:page 0..10 =cut\n  a:x 4..20",
        "web:page [start … →a:x] 0..4 \n web:page > a:x [start … end] 4..20",
    );
}

/// Checks segments, answer and end of spans on hosts `h` and `b`, whose clocks have this error.
#[track_caller]
fn check_answer(tree: &str, error_ns: u64, expected: (i64, i64), segments: &str) {
    let mut records = parse(tree);
    let clock = |host: &str| HostClock {
        error_ns,
        ..HostClock::exact(host.into())
    };
    records.clocks = if error_ns == 0 {
        Vec::new()
    } else {
        vec![clock("b"), clock("h")]
    };
    let mut labels = Labels::default();
    let (trace, _) = segment(&records, &mut labels);
    assert_eq!((trace.answer_ns, trace.end_ns), expected);
    assert_eq!(
        trace.latency_ns(),
        (trace.answer_ns - trace.start_ns) as u64
    );
    let lines: Vec<String> = trace
        .segments
        .iter()
        .map(|s| {
            format!(
                "{} {}..{}",
                labels.get(s.id).expect("segments have labels"),
                s.start_ns,
                s.end_ns
            )
        })
        .collect();
    let trimmed: Vec<&str> = segments.lines().map(str::trim).collect();
    assert_eq!(lines, trimmed);
}

#[test]
fn a_request_ends_when_its_caller_has_the_answer() {
    let later =
        "web:a [start … →b:x] 0..4\nweb:a [→b:x … end] 4..10\nweb:a > b:x [start … end] 4..13";
    check_answer("web:a 0..10\n  b:x ^b 4..13", 0, (10, 13), later);
    check_answer("web:a 0..10\n  b:x ^b 4..13", 1, (10, 13), later);
    // Within the clocks' errors, `b:x` ended by the answer, and its caller was active after it.
    let by_then =
        "web:a [start … →b:x] 0..4\nweb:a > b:x [start … end] 4..10\nweb:a [←b:x … end] 10..10";
    check_answer("web:a 0..10\n  b:x ^b 4..13", 2, (10, 10), by_then);
    check_answer(
        "web:a 0..10\n  b:x ^b 4..13\n    b:y ^b 12..13",
        2,
        (10, 10),
        {
            "web:a [start … →b:x] 0..4
         web:a > b:x [start … →b:y] 4..10
         web:a [←b:x … end] 10..10
         web:a > b:x > b:y [start … end] 10..10"
        },
    );
    check_answer("web:a 0..10\n  b:x 4..13", 9, (10, 13), later); // one clock: a certain order
    // Of several roots, the last counts. Without a root, or if it was cut, the whole trace counts.
    check_answer("a:x 0..4\na:y 2..9\n  a:z 9..12", 0, (9, 12), {
        "a:x [start … end] 0..4\na:y [start … end] 2..9\na:y > a:z [start … end] 9..12"
    });
    check_answer("a:x 0..4 =cut\n  a:z 9..12", 0, (12, 12), {
        "a:x [start … end] 0..4\na:x > a:z [start … end] 9..12"
    });
}

#[test]
fn events_while_waiting_do_not_cut() {
    check(
        "web:home 0..30 !before@5 !at-open@10 !inside@15 !at-close@20 !after@25\n  a:x 10..20",
        "web:home [start … before] 0..5
         web:home [before … at-open] 5..10
         web:home > a:x [start … end] 10..20
         web:home [at-close … after] 20..25
         web:home [after … end] 25..30",
    );
}

#[test]
fn siblings_of_one_name_are_numbered() {
    check(
        "web:home 0..50
           a:x 30..40
             c:z 32..34
           a:x 10..20
           b:y 20..22",
        "web:home [start … →a:x#1] 0..10
         web:home > a:x#1 [start … end] 10..20
         web:home > b:y [start … end] 20..22
         web:home [←b:y … →a:x#2] 22..30
         web:home > a:x#2 [start … →c:z] 30..32
         web:home > a:x#2 > c:z [start … end] 32..34
         web:home > a:x#2 [←c:z … end] 34..40
         web:home [←a:x#2 … end] 40..50",
    );
    // Names that differ only by an id are one name.
    check(
        "web:home 0..20\n  a:row 7 0..10\n  a:row 8 10..20",
        "web:home > a:row *#1 [start … end] 0..10 \n web:home > a:row *#2 [start … end] 10..20",
    );
}

#[test]
fn siblings_past_the_bound_are_one_task() {
    let mut tree = String::from("web:home 0..1000\n");
    (0..40).for_each(|i| tree += &format!("  a:x {}..{}\n", i * 10, i * 10 + 10));
    let (shown, diagnostics) = show(&parse(&tree));
    assert_eq!(shown.matches("web:home > a:x#32 [").count(), 1);
    assert_eq!(shown.matches("web:home > a:x#* [").count(), 8);
    assert!(
        shown.ends_with("web:home [←a:x#* … end] 400..1000"),
        "{shown}"
    );
    assert!(!shown.contains("#33") && diagnostics.is_empty());
}

#[test]
fn flaws_are_said_and_the_rest_is_used() {
    check_diagnosed("web:home 9..4", "", "negative_span");
    check_diagnosed(
        "web:home 0..9 !early@-1 !late@10 !ok@5",
        "web:home [start … ok] 0..5 \n web:home [ok … end] 5..9",
        "events_outside_span",
    );
    let mut tree = String::new();
    (0..70).for_each(|depth| tree += &format!("{}a:d{depth} {depth}..1000\n", " ".repeat(depth)));
    let (shown, diagnostics) = show(&parse(&tree));
    assert_eq!(diagnostics, "too_deep");
    let kept: Vec<String> = (0..64).map(|depth| format!("a:d{depth}")).collect();
    let deepest = format!("{} > … > a:d69 [start … end] 69..1000", kept.join(" > "));
    assert!(shown.ends_with(&deepest), "{shown}");
}

#[track_caller]
fn check_ids(spans: &[(u64, u64, i64, i64)], expected: &str, diagnostics: &str) {
    let mut records = parse(&"a:x 0..0\n".repeat(spans.len()));
    for (span, &(span_id, parent_id, start_ns, end_ns)) in records.spans.iter_mut().zip(spans) {
        (span.span_id, span.parent_id, span.start_ns, span.end_ns) =
            (span_id, parent_id, start_ns, end_ns);
        span.name = format!("{span_id}x").into();
    }
    assert_eq!(
        show(&records),
        (expected.to_string(), diagnostics.to_string())
    );
    records.spans.reverse();
    assert_eq!(
        show(&records),
        (expected.to_string(), diagnostics.to_string())
    );
}

#[test]
fn parents_that_make_no_tree() {
    check_ids(&[(2, 1, 0, 9)], "a:2x [start … end] 0..9", "missing_parent");
    check_ids(&[(1, 1, 0, 9)], "a:1x [start … end] 0..9", "parent_cycle");
    check_ids(
        &[(1, 2, 0, 9), (2, 1, 3, 6)],
        "a:1x [start … →a:2x] 0..3\na:1x > a:2x [start … end] 3..6\na:1x [←a:2x … end] 6..9",
        "parent_cycle",
    );
    check_ids(
        &[(1, 0, 0, 9), (1, 0, 3, 6)],
        "a:1x [start … end] 0..9",
        "duplicate_span",
    );
    check_ids(
        &[(1, 0, 0, 4), (2, 0, 4, 9)],
        "a:1x [start … end] 0..4\na:2x [start … end] 4..9",
        "",
    );
    // A chain of parents leads into a cycle: only the cycle is cut.
    check_ids(
        &[(3, 1, 0, 1), (1, 2, 4, 9), (2, 1, 5, 9)],
        "a:1x > a:3x [start … end] 0..1\na:1x [start … →a:2x] 4..5\na:1x > a:2x [start … end] 5..9",
        "parent_cycle starts_before_parent",
    );
    // Wherever the chain enters the cycle, the cycle is cut at its first span.
    check_ids(
        &[(3, 2, 0, 1), (1, 2, 4, 9), (2, 1, 5, 9)],
        "a:1x > a:2x > a:3x [start … end] 0..1\na:1x [start … →a:2x] 4..5\na:1x > a:2x [start … end] 5..9",
        "parent_cycle starts_before_parent",
    );
}

#[test]
fn event_logs_are_cut_between_events_of_a_task() {
    let log = |lines: &[(&str, i64, &str)]| {
        let event = |(seq, (task, ts_ns, event)): (usize, &(&str, i64, &str))| EventRecord {
            host: "h".into(),
            ts_ns: *ts_ns,
            seq: seq as u32,
            event: (*event).into(),
            task: (*task).into(),
        };
        let events = lines.iter().enumerate().map(event).collect();
        show(&TraceRecords {
            events,
            ..Default::default()
        })
        .0
    };
    assert_eq!(log(&[]), "");
    assert_eq!(log(&[("a", 3, "only")]), "");
    assert_eq!(
        log(&[
            ("b", 5, "y"),
            ("a", 9, "z"),
            ("a", 1, "x"),
            ("b", 7, "w"),
            ("a", 4, "item 7")
        ]),
        "a [x … item 7] 1..4\na [item 7 … z] 4..9\nb [y … w] 5..7"
    );
    // At equal times, the order of arrival counts, and the segment of length zero remains.
    assert_eq!(
        log(&[("a", 1, "z"), ("a", 1, "b"), ("a", 2, "c")]),
        "a [z … b] 1..1\na [b … c] 1..2"
    );
}

#[test]
fn labels_without_room_are_said() {
    let mut labels = Labels::with_max(1);
    let (trace, diagnostics) = segment(&parse("web:home 0..9 !a@3 !b@6"), &mut labels);
    assert_eq!(
        (trace.segments.len(), trace.latency_ns(), labels.refused()),
        (1, 9, 2)
    );
    assert_eq!(
        diagnostics[0].to_string(),
        "2 segments have labels for which there is no room; raise the bound on labels"
    );
}
