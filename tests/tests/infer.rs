//! `infer --json` on event logs equals brute force, whatever the order of arrival.

mod random_cause;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use random_cause::Structure;
use serde_json::Value;
use stroboscope_tests::{Line, Program, Random, event_lines, shuffled};

type Label = (String, String, String);

/// Content of a model, in terms of labels.
#[derive(Debug, PartialEq, Eq)]
struct Inferred {
    traces: u64,
    counts: BTreeMap<Label, u64>,
    happens_before: BTreeSet<(Label, Label)>,
    mutual_exclusion: BTreeSet<(Label, Label)>,
}

/// Applies the definition literally: every hypothesis about every pair holds until a trace
/// contradicts it.
fn brute_force(lines: &[Line]) -> Inferred {
    let mut traces: BTreeMap<&str, Vec<&Line>> = BTreeMap::new();
    for line in lines {
        traces.entry(&line.trace).or_default().push(line);
    }
    let mut counts: BTreeMap<Label, u64> = BTreeMap::new();
    // Labels by number, so that the sets are small; the numbers mean nothing.
    let mut numbers: BTreeMap<Label, usize> = BTreeMap::new();
    let (mut together, mut not_before, mut overlapping) =
        (HashSet::new(), HashSet::new(), HashSet::new());
    for events in traces.values() {
        let segments: Vec<(usize, i64, i64)> = segments(events)
            .into_iter()
            .map(|(label, start_ns, end_ns)| {
                *counts.entry(label.clone()).or_insert(0) += 1;
                let next = numbers.len();
                (*numbers.entry(label).or_insert(next), start_ns, end_ns)
            })
            .collect();
        for &(a, a_start, a_end) in &segments {
            for &(b, b_start, b_end) in segments.iter().filter(|(b, ..)| *b != a) {
                together.insert((a, b));
                if b_start < a_end {
                    not_before.insert((a, b));
                }
                if a_start < b_end && b_start < a_end {
                    overlapping.insert((a, b));
                }
            }
        }
    }
    let labels: BTreeMap<usize, Label> = numbers
        .into_iter()
        .map(|(label, number)| (number, label))
        .collect();
    let named = |&(a, b): &(usize, usize)| (labels[&a].clone(), labels[&b].clone());
    let before: HashSet<(usize, usize)> = together.difference(&not_before).copied().collect();
    let exclusive = together
        .difference(&overlapping)
        .filter(|&&(a, b)| !before.contains(&(a, b)) && !before.contains(&(b, a)));
    Inferred {
        traces: traces.len() as u64,
        counts,
        happens_before: before.iter().map(named).collect(),
        mutual_exclusion: exclusive.map(named).filter(|(a, b)| a < b).collect(),
    }
}

fn segments(events: &[&Line]) -> Vec<(Label, i64, i64)> {
    let mut tasks: BTreeMap<&str, Vec<&Line>> = BTreeMap::new();
    for event in events {
        tasks.entry(&event.task).or_default().push(event);
    }
    tasks
        .into_iter()
        .flat_map(|(task, mut events)| {
            events.sort_by_key(|event| event.ts_ns);
            events
                .windows(2)
                .map(|pair| {
                    let label = (
                        task.to_owned(),
                        pair[0].event.clone(),
                        pair[1].event.clone(),
                    );
                    (label, pair[0].ts_ns, pair[1].ts_ns)
                })
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Parses the output of `infer --json`.
fn inferred(json: &Value) -> Inferred {
    let text = |segment: &Value, key: &str| segment[key].as_str().expect(key).to_owned();
    let mut labels = BTreeMap::new();
    let mut counts = BTreeMap::new();
    for segment in json["segments"].as_array().expect("segments") {
        let label = (
            text(segment, "task"),
            text(segment, "start"),
            text(segment, "end"),
        );
        counts.insert(label.clone(), segment["count"].as_u64().expect("count"));
        assert!(
            labels
                .insert(segment["id"].as_u64().expect("id"), label)
                .is_none(),
            "ids are unique"
        );
    }
    let pairs = |key: &str| -> Vec<(Label, Label)> {
        let pairs = json[key].as_array().expect("pairs");
        pairs
            .iter()
            .map(|pair| {
                let side = |i: usize| labels[&pair[i].as_u64().expect("an id")].clone();
                (side(0), side(1))
            })
            .collect()
    };
    let happens_before = pairs("happens_before");
    let unordered = pairs("mutual_exclusion");
    for pair in json["mutual_exclusion"].as_array().expect("pairs") {
        assert!(
            pair[0].as_u64() < pair[1].as_u64(),
            "the lower id first: {pair}"
        );
    }
    let mutual_exclusion = unordered.iter().map(|(a, b)| {
        if a < b {
            (a.clone(), b.clone())
        } else {
            (b.clone(), a.clone())
        }
    });
    let result = Inferred {
        traces: json["traces"].as_u64().expect("traces"),
        counts,
        happens_before: happens_before.iter().cloned().collect(),
        mutual_exclusion: mutual_exclusion.collect(),
    };
    assert_eq!(
        result.happens_before.len(),
        happens_before.len(),
        "no pair twice"
    );
    assert_eq!(json["complete_traces"], json["traces"]);
    result
}

fn infer(lines: &[Line]) -> Inferred {
    let program = Program::new();
    let log = program.file("events.jsonl", event_lines(lines));
    let _ = program.run(&["import", &log]).succeeds();
    // No task moves from one host to another and back, so hosts can be ordered only if their clocks
    // are trusted.
    inferred(
        &program
            .run(&["infer", "--json", "--trust-clocks"])
            .succeeds()
            .json(),
    )
}

/// Infers from 2,000 requests of 40 segments: parallel branches, sequences, and a lock that any
/// segment may need.
#[test]
fn equals_brute_force_on_random_structures_in_any_order() {
    let seeds = std::env::var("STROBOSCOPE_SEEDS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(3);
    let mut exclusions = 0;
    for seed in 1..=seeds {
        let structure = Structure::random(seed, 40);
        let lines = structure.run(2_000);
        let expected = brute_force(&lines);
        assert_eq!(expected.counts.len(), 40, "seed {seed}");
        assert!(!expected.happens_before.is_empty(), "seed {seed}");
        exclusions += expected.mutual_exclusion.len();
        let got = infer(&lines);
        assert_eq!(got, expected, "seed {seed}");
        assert_eq!(
            infer(&shuffled(&lines, seed)),
            expected,
            "seed {seed}, in another order"
        );
        for (before, after) in structure.true_orders() {
            let pair = got
                .happens_before
                .iter()
                .any(|(a, b)| a.0 == before && b.0 == after);
            assert!(
                pair,
                "seed {seed}: {before} is before {after} by construction"
            );
        }
    }
    assert!(
        exclusions > 10,
        "locks in parallel branches exclude each other: {exclusions}"
    );
}

/// Calls from one host to another whose clock is far ahead, with jitter. The calls themselves serve
/// to compare the clocks.
#[test]
fn clocks_that_differ_are_found_out_and_corrected() {
    const AHEAD_NS: i64 = 80_000_000;
    let mut random = Random::new(7);
    let mut lines = Vec::new();
    for request in 0..300 {
        let begin_ns = 1_700_000_000_000_000_000 + request * 1_000_000_000;
        let mut at_ns = begin_ns;
        for (event, host) in [
            ("called", "a"),
            ("received", "b"),
            ("answered", "b"),
            ("returned", "a"),
        ] {
            let ts_ns = if host == "b" { at_ns + AHEAD_NS } else { at_ns };
            let (trace, host, task) = (
                format!("request {request}"),
                host.to_owned(),
                "call".to_owned(),
            );
            lines.push(Line {
                trace,
                host,
                ts_ns,
                event: event.to_owned(),
                task,
            });
            at_ns += 100_000 + random.below(2_000_000) as i64;
        }
    }
    let program = Program::new();
    let log = program.file("events.jsonl", event_lines(&lines));
    let _ = program.run(&["import", &log]).succeeds();
    let inferred = program.run(&["infer", "--json"]).succeeds().json();
    let pair = &inferred["clocks"]["pairs"][0];
    assert_eq!(
        (&pair["client"], &pair["server"]),
        (&"a".into(), &"b".into()),
        "{inferred:#}"
    );
    let (offset_ns, error_ns) = (
        pair["offset_ns"].as_i64().unwrap(),
        pair["error_ns"].as_i64().unwrap(),
    );
    assert!((offset_ns - AHEAD_NS).abs() <= error_ns, "{pair}");
    assert!(
        error_ns < 500_000,
        "the call of least delay decides: {pair}"
    );
    // The three segments are in their order. As recorded, the server's would seem to run after the
    // call.
    assert_eq!(
        inferred["segments"].as_array().map(Vec::len),
        Some(3),
        "{inferred:#}"
    );
    assert_eq!(
        inferred["happens_before"].as_array().map(Vec::len),
        Some(3),
        "{inferred:#}"
    );
    let paths = program.run(&["critical-path", "--json"]).succeeds().json();
    let latency_ns = paths["latency"]["p99_ns"].as_i64().unwrap();
    assert!(
        latency_ns < 10_000_000,
        "{latency_ns} ns, and not eighty milliseconds"
    );
    let as_recorded = program
        .run(&["infer", "--json", "--trust-clocks"])
        .succeeds()
        .json();
    assert!(as_recorded["clocks"].is_null());
}
