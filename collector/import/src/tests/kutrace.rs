//! KUtrace's JSON as `eventtospan` writes it: times in seconds, with eight decimals.

use super::Heard;
use crate::kutrace::Kutrace;
use stroboscope_otlp::ForeignSpan;

/// A row, its times in units of 10 ns.
fn row(start: u64, length: u64, rest: &str) -> String {
    let seconds = |units: u64| format!("{}.{:08}", units / 100_000_000, units % 100_000_000);
    format!("[ {}, {}, {rest}]", seconds(start), seconds(length))
}

/// Records a server whose receiver thread puts each RPC into a queue, and whose worker thread takes
/// it out after `wait`.
fn recording(receiver: u64, worker: u64, wait: u64) -> Vec<String> {
    let mut rows = Vec::new();
    for rpc in 0..6_u64 {
        // The numbers of RPCs repeat.
        let (at, id) = (1_000_000 * (rpc + 1), 40 + rpc % 2);
        let taken = at + 2_000 + wait;
        let mut say = |start, length, rest: String| rows.push(row(start, length, &rest));
        say(
            at - 500,
            400,
            format!("-1, {receiver}, {id}, 516, 0, 0, 0, \"sleep.{id}\""),
        );
        say(
            at,
            1,
            format!("0, {receiver}, {id}, 513, {id}, 0, 0, \"sleep.{id}\""),
        );
        say(
            at + 1,
            1_000,
            format!(
                "0, {receiver}, {id}, {}, 0, 0, 2, \"mystery25.{receiver}\"",
                65_536 + receiver
            ),
        );
        say(
            at + 1_001,
            1,
            format!("0, {receiver}, {id}, 538, 0, 0, 0, \"queue~0\""),
        );
        say(
            at + 2_000,
            wait,
            format!("-1, -1, {id}, 538, 0, 0, 0, \"queue~0\""),
        );
        say(
            taken,
            1,
            format!("1, {worker}, {id}, 539, 0, 0, 0, \"queue~0\""),
        );
        say(
            taken + 1,
            1,
            format!("1, {worker}, {id}, 513, {id}, 0, 0, \"sleep.{id}\""),
        );
        say(
            taken + 2,
            3_000,
            format!(
                "1, {worker}, {id}, {}, 0, 0, 3, \"mystery25.{worker}\"",
                65_536 + worker
            ),
        );
        say(
            taken + 1_000,
            10,
            format!("1, {worker}, {id}, -3, 1, 99, 0, \"-wakeup-\""),
        );
        say(
            taken + 3_002,
            500,
            format!("1, {worker}, {id}, 2049, 5, 44, 1, \"write\""),
        );
        say(
            taken + 3_502,
            1,
            format!("1, {worker}, {id}, 514, {id}, 0, 0, \"sleep.{id}\""),
        );
        say(
            taken + 3_503,
            100,
            format!("-1, {worker}, -1, 642, 7, 0, 0, \"lock.7\""),
        );
        say(
            taken + 3_600,
            50,
            format!(
                "1, {worker}, 0, {}, 0, 0, 3, \"mystery25.{worker}\"",
                65_536 + worker
            ),
        );
    }
    rows
}

fn heard(rows: &[String]) -> Heard {
    let (mut kutrace, mut heard) = (Kutrace::new("c0ffee00"), Heard::default());
    for (line, row) in rows.iter().enumerate() {
        kutrace.take(line as u64 + 1, row, &mut heard);
    }
    kutrace.finish(&mut heard);
    heard
}

fn spans(heard: &Heard) -> Vec<&ForeignSpan> {
    heard
        .told
        .iter()
        .map(|told| told.as_ref().unwrap())
        .collect()
}

#[test]
fn an_rpc_is_a_request_with_one_root_and_its_wait_in_the_queue() {
    let heard = heard(&recording(8_287, 8_292, 69_690));
    let spans = spans(&heard);
    let roots: Vec<_> = spans.iter().filter(|span| span.parent_id == 0).collect();
    let mut named: Vec<_> = roots
        .iter()
        .map(|root| (&*root.trace, &*root.service, &*root.name))
        .collect();
    named.sort_unstable();
    let expected = [
        ("kutrace-c0ffee00", "machine", "recording"),
        ("kutrace-c0ffee00 rpc 40", "mystery25", "sleep"),
        ("kutrace-c0ffee00 rpc 40 (2)", "mystery25", "sleep"),
        ("kutrace-c0ffee00 rpc 40 (3)", "mystery25", "sleep"),
        ("kutrace-c0ffee00 rpc 41", "mystery25", "sleep"),
        ("kutrace-c0ffee00 rpc 41 (2)", "mystery25", "sleep"),
        ("kutrace-c0ffee00 rpc 41 (3)", "mystery25", "sleep"),
    ];
    assert_eq!(named, expected, "{:?}", heard.not_taken);
    let queued: Vec<_> = spans.iter().filter(|span| span.name == "queue~0").collect();
    assert_eq!(queued.len(), 6);
    for span in queued {
        let root = roots
            .iter()
            .find(|root| root.span_id == span.parent_id)
            .unwrap();
        assert_eq!((&*span.service, &root.trace), ("mystery25", &span.trace));
        assert_eq!(span.end_ns - span.start_ns, 696_900);
        assert!(root.start_ns <= span.start_ns && span.end_ns <= root.end_ns);
    }
    // The root lasts until the response, and not until the next request of that number.
    for root in roots.iter().filter(|root| root.name == "sleep") {
        let latency_us = (root.end_ns - root.start_ns) / 1_000;
        assert!((750..760).contains(&latency_us), "{latency_us}");
    }
}

#[test]
fn nothing_is_named_by_the_numbers_of_a_recording() {
    let names = |receiver, worker| {
        let heard = heard(&recording(receiver, worker, 260));
        let mut names: Vec<_> = spans(&heard)
            .iter()
            .map(|span| format!("{} {}:{}", span.trace, span.service, span.name))
            .collect();
        let task = |event: &String| event.split(' ').nth(3).unwrap_or_default().to_owned();
        names.extend(heard.events.iter().map(task));
        names.sort_unstable();
        names
    };
    let first = names(8_287, 8_292);
    assert_eq!(first, names(17, 9));
    assert!(!first.iter().any(|name| name.contains("82")), "{first:?}");
}
