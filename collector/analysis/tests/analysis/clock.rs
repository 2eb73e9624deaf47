//! Clocks aligned within their own error bounds.

use crate::fleet::{Fleet, ORIGIN_NS, SkewedClock};
use crate::generator::Random;
use proptest::prelude::*;
use std::collections::BTreeSet;
use stroboscope_analysis::clock::{
    ClockEvidence, HOSTS_MAX, KernelClock, WINDOWS_MAX, round_trips,
};
use stroboscope_analysis::label::SegmentId;
use stroboscope_analysis::model::Model;
use stroboscope_analysis::record::{EventRecord, SpanFlags, SpanRecord, TraceRecords};
use stroboscope_analysis::segment::segment;

fn evidence(traces: &[TraceRecords]) -> ClockEvidence {
    let mut evidence = ClockEvidence::new();
    traces.iter().for_each(|trace| evidence.observe(trace));
    evidence
}

fn times(records: &TraceRecords) -> Vec<(String, i64)> {
    let spans = records.spans.iter().flat_map(|s| {
        [
            (s.host.to_string(), s.start_ns),
            (s.host.to_string(), s.end_ns),
        ]
    });
    spans
        .chain(records.events.iter().map(|e| (e.host.to_string(), e.ts_ns)))
        .collect()
}

type Names = (String, String);

/// Returns the uncontradicted relations of these traces, by the text of their labels.
fn relations(traces: &[TraceRecords]) -> (BTreeSet<Names>, BTreeSet<Names>, BTreeSet<String>) {
    let mut model = Model::new();
    for records in traces {
        let (trace, _) = segment(records, model.labels_mut());
        model.observe(&trace);
    }
    let name = |id: SegmentId| {
        model
            .labels()
            .get(id)
            .expect("segments have labels")
            .to_string()
    };
    let uncontradicted = model
        .pairs()
        .into_iter()
        .filter(|p| p.contradictions == 0 && p.a != p.b);
    let before = uncontradicted.map(|p| (name(p.a), name(p.b)));
    let apart = model
        .pairs()
        .into_iter()
        .filter(|p| p.overlaps == 0)
        .map(|p| (name(p.a), name(p.b)));
    let labels = model.labels().iter().map(|(id, _)| name(id));
    (before.collect(), apart.collect(), labels.collect())
}

fn check_alignment(seed: u64, hosts: usize, event_log: bool) {
    let mut random = Random(seed);
    let mut fleet = Fleet::random(&mut random, hosts);
    let mut truth: Vec<TraceRecords> = (0..60)
        .map(|i| fleet.request(&mut random, i * 10))
        .collect();
    if event_log {
        truth = truth.iter().map(Fleet::as_event_log).collect();
    }
    let skewed: Vec<TraceRecords> = truth.iter().map(|records| fleet.skew(records)).collect();
    let alignment = evidence(&skewed).align(Some("h0"));
    assert!(alignment.unaligned().is_empty() && alignment.reference() == Some("h0"));
    let reference = fleet.clocks[0];
    let mut aligned = skewed.clone();
    for ((records, as_recorded), truth) in aligned.iter_mut().zip(&skewed).zip(&truth) {
        alignment.apply(records);
        assert_eq!(alignment.contradictions(as_recorded), 0);
        for ((host, found_ns), (_, true_ns)) in times(records).into_iter().zip(times(truth)) {
            let error_ns = records
                .clocks
                .iter()
                .find(|c| *c.host == *host)
                .expect("an aligned host")
                .error_ns;
            let off_ns = found_ns.abs_diff(reference.read(true_ns));
            assert!(
                off_ns <= error_ns,
                "{host} is {off_ns} ns off, by its bound {error_ns}"
            );
            assert!(
                error_ns < 1_000_000 || host == "h0",
                "a bound of {error_ns} ns says nothing"
            );
            assert!(host != "h0" || error_ns == 0);
        }
    }
    // Relations of the true records, of the aligned ones, and of the true ones under more than
    // twice the error bounds.
    let cautious: Vec<TraceRecords> = truth
        .iter()
        .zip(&aligned)
        .map(|(truth, aligned)| {
            let mut clocks = aligned.clocks.clone();
            clocks
                .iter_mut()
                .for_each(|clock| clock.error_ns = 2 * clock.error_ns + 1000);
            TraceRecords {
                clocks,
                ..truth.clone()
            }
        })
        .collect();
    let (exact, found, cautious) = (relations(&truth), relations(&aligned), relations(&cautious));
    assert_eq!(
        (&exact.2, &exact.2),
        (&found.2, &cautious.2),
        "the same segments"
    );
    assert!(
        exact.0.is_subset(&found.0) && found.0.is_subset(&cautious.0),
        "happens-before"
    );
    assert!(
        exact.1.is_subset(&found.1) && found.1.is_subset(&cautious.1),
        "mutual exclusion"
    );
    assert!(
        exact.0.len() * 10 > found.0.len() * 8,
        "{} relations of {} are true",
        exact.0.len(),
        found.0.len()
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn skew_is_corrected_within_its_bound(seed in any::<u64>(), hosts in 2usize..6, event_log in any::<bool>()) {
        check_alignment(seed, hosts, event_log);
    }

    #[test]
    fn estimates_merge_in_any_order(seed in any::<u64>(), cut in 0usize..30) {
        let mut random = Random(seed);
        let mut fleet = Fleet::random(&mut random, 4);
        let mut traces: Vec<_> = (0..30).map(|i| { let r = fleet.request(&mut random, i * 10); fleet.skew(&r) }).collect();
        let whole = evidence(&traces);
        random.shuffle(&mut traces);
        let mut merged = evidence(&traces[cut..]);
        merged.merge(&evidence(&traces[..cut]));
        prop_assert_eq!(merged.align(None), whole.align(None));
        prop_assert_eq!(merged, whole);
    }
}

/// A call from host `a` to host `b`, by their own clocks.
fn call(a: (&str, i64, i64), b: (&str, i64, i64)) -> TraceRecords {
    let span = |span_id: u64, flags, (host, start_ns, end_ns): (&str, i64, i64)| SpanRecord {
        span_id,
        parent_id: span_id - 1,
        service: "s".into(),
        name: "n".into(),
        host: host.into(),
        process: 1,
        start_ns,
        end_ns,
        flags,
        events: Vec::new(),
    };
    TraceRecords {
        spans: vec![span(1, SpanFlags::CLIENT, a), span(2, SpanFlags::SERVER, b)],
        ..Default::default()
    }
}

#[test]
fn the_lowest_round_trip_counts() {
    let traces = [
        call(("a", 0, 1000), ("b", 5300, 5700)), // RTT 600, offset 5000
        call(("a", 2000, 2500), ("b", 7210, 7690)), // RTT 20, offset 5200
        call(("a", 3000, 3100), ("b", 0, 101)),  // impossible
        call(("a", 0, 9), ("a", 3, 4)),          // no two hosts
    ];
    let evidence = evidence(&traces);
    assert_eq!((evidence.impossible(), evidence.refused()), (1, 0));
    let alignment = evidence.align(None);
    let pair = &alignment.pairs()[0];
    assert_eq!(
        (alignment.reference(), alignment.pairs().len()),
        (Some("a"), 1)
    );
    assert_eq!(
        (&*pair.client, &*pair.server, pair.round_trips),
        ("a", "b", 2)
    );
    assert_eq!(
        (pair.offset_ns, pair.rtt_ns, pair.error_ns, pair.estimates),
        (5200, 20, 11, 1)
    );
    assert!(alignment.is_needed());
    assert_eq!(alignment.convert("b", 7450), Some((2250, 11)));
    assert_eq!(alignment.convert("a", 7), Some((7, 0)));
    assert_eq!(alignment.convert("c", 7), None);
    // The first call's offset differs by 200 ns, within its own error of 301 ns.
    assert_eq!(
        traces
            .iter()
            .map(|trace| alignment.contradictions(trace))
            .sum::<u64>(),
        0
    );
    assert_eq!(
        alignment.contradictions(&call(("a", 0, 1000), ("b", 6300, 6700))),
        1
    );
}

#[test]
fn hosts_without_a_way_are_named_and_left_alone() {
    let traces = [
        call(("a", 0, 100), ("b", 1010, 1090)), // a - b: RTT 20, b is 1000 ahead
        call(("b", 2000, 2100), ("c", 9010, 9090)), // b - c: RTT 20, c is 7000 ahead of b
        call(("a", 0, 1000), ("c", 7800, 8000)), // a - c: RTT 800, so the way by b is better
        call(("x", 0, 100), ("y", 10, 90)),
    ];
    let alignment = evidence(&traces).align(Some("a"));
    assert_eq!(
        alignment
            .unaligned()
            .iter()
            .map(|host| &**host)
            .collect::<Vec<_>>(),
        ["x", "y"]
    );
    assert_eq!(alignment.convert("c", 9050), Some((1050, 22)));
    let mut records = call(("c", 9000, 9100), ("x", 5, 6));
    alignment.apply(&mut records);
    assert_eq!(
        times(&records)
            .iter()
            .map(|(_, at_ns)| *at_ns)
            .collect::<Vec<_>>(),
        [1000, 1100, 5, 6]
    );
    let islands: Vec<_> = records
        .clocks
        .iter()
        .map(|clock| (&*clock.host, clock.island))
        .collect();
    assert_eq!(islands, [("c", 0), ("x", 1)]);
    // Nothing ties hosts to a reference host without evidence.
    let apart = evidence(&traces[3..]).align(Some("absent"));
    let converted = ["c", "x", "absent"].map(|host| apart.convert(host, 7));
    assert_eq!(converted, [None, None, Some((7, 0))]);
    assert_eq!((apart.unaligned().len(), apart.islands().len()), (2, 2));
    assert_eq!(evidence(&[]).align(None).reference(), None);
    assert!(!evidence(&traces[3..]).align(None).is_needed());
}

#[test]
fn a_host_beyond_the_limit_ties_no_hosts_together() {
    let alone = |host: &str| call((host, 0, 9), (host, 3, 4));
    let mut traces = vec![alone("a"), alone("b")];
    traces.extend((2..HOSTS_MAX).map(|number| alone(&format!("host-{number}"))));
    traces.push(call(("a", 0, 100), ("more", 1010, 1090)));
    traces.push(call(("more", 2000, 2100), ("b", 9010, 9090)));
    let evidence = evidence(&traces);
    assert!(evidence.refused() >= 4, "{}", evidence.refused());
    let alignment = evidence.align(Some("a"));
    assert!(alignment.pairs().is_empty());
    assert_eq!(alignment.convert("a", 7), Some((7, 0)));
    assert_eq!(alignment.convert("b", 7), None);
    // Times of a host beyond the limit stay as recorded. Unless clocks are trusted, its order with
    // other hosts is unknown.
    let listed = alignment.islands().len() as u32;
    let check = |hosts: [&str; 2], expected: [u32; 2]| {
        let recorded = call((hosts[0], 0, 100), (hosts[1], 1010, 1090));
        for (alignment, expected) in [
            (&alignment, expected),
            (&alignment.clone().trusting(), [0, 0]),
        ] {
            let mut records = recorded.clone();
            alignment.apply(&mut records);
            assert_eq!(records.spans, recorded.spans);
            let island = |host: &str| {
                let clock = records.clocks.iter().find(|clock| &*clock.host == host);
                clock.map_or(0, |clock| clock.island)
            };
            assert_eq!(hosts.map(island), expected);
        }
    };
    check(["a", "more"], [0, listed + 1]);
    check(["more", "another"], [listed + 1, listed]);
    check(["more", "more"], [listed, listed]);
}

#[test]
fn drift_is_measured_and_steps_are_counted() {
    let clock = SkewedClock {
        ahead_ns: 70_000_000,
        gain_ppb: 40_000,
    };
    let at = |second: i64, ahead_ns: i64| {
        let (from_ns, to_ns) = (
            ORIGIN_NS + second * 1_000_000_000,
            ORIGIN_NS + second * 1_000_000_000 + 5_000_000,
        );
        let server = (
            clock.read(from_ns + 100_000) + ahead_ns,
            clock.read(to_ns - 100_000) + ahead_ns,
        );
        call(("a", from_ns, to_ns), ("b", server.0, server.1))
    };
    let steady: Vec<_> = (0..100).map(|i| at(i * 10, 0)).collect();
    let alignment = evidence(&steady).align(Some("a"));
    let pair = &alignment.pairs()[0];
    assert!((pair.drift_ppm - 40.0).abs() < 0.1, "{}", pair.drift_ppm);
    assert!((pair.steps, pair.estimates) == (0, 100), "{pair:?}");
    let set: Vec<_> = (0..100)
        .map(|i| at(i * 10, if i < 50 { 0 } else { -3_000_000_000 }))
        .collect();
    let alignment = evidence(&set).align(Some("a"));
    assert_eq!(alignment.pairs()[0].steps, 1);
    let mut last = i64::MIN;
    for second in 0..1000 {
        let (now, _) = alignment
            .convert("b", ORIGIN_NS + second * 1_000_000_000)
            .expect("b is aligned");
        assert!(last <= now, "time was turned back");
        last = now;
    }
}

#[test]
fn years_of_round_trips_fit() {
    let day_ns = 86_400_000_000_000;
    let traces: Vec<_> = (0..3 * WINDOWS_MAX as i64)
        .map(|day| {
            call(
                ("a", day * day_ns, day * day_ns + 100),
                ("b", day * day_ns + 10, day * day_ns + 90 - day % 7),
            )
        })
        .collect();
    let evidence = evidence(&traces);
    let alignment = evidence.align(None);
    let pair = &alignment.pairs()[0];
    assert_eq!(pair.round_trips, traces.len() as u64);
    assert!(
        pair.estimates > WINDOWS_MAX / 4 && pair.estimates <= WINDOWS_MAX,
        "{}",
        pair.estimates
    );
    let extreme = [
        call(("a", i64::MIN, i64::MAX), ("b", i64::MIN, i64::MIN)),
        call(("a", 0, 9), ("b", 1, 2)),
    ];
    let alignment = self::evidence(&extreme).align(Some("a"));
    for at_ns in [i64::MIN, 0, i64::MAX] {
        assert!(alignment.convert("b", at_ns).is_some());
    }
}

/// Checks the round trips in the lines `host task time`, given in order of arrival. The expected
/// text lists `client server rtt offset` for each.
#[track_caller]
fn check_events(lines: &str, expected: &str, impossible: u64) {
    let event = |(seq, line): (usize, &str)| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ts_ns = words[2].parse().expect("a time");
        EventRecord {
            host: words[0].into(),
            ts_ns,
            seq: seq as u32,
            event: "e".into(),
            task: words[1].into(),
        }
    };
    let events = lines.split(',').enumerate().map(event).collect();
    let (mut found, not_possible) = round_trips(&TraceRecords {
        events,
        ..Default::default()
    });
    found.sort_by(|a, b| (&a.client, &a.server, a.rtt_ns).cmp(&(&b.client, &b.server, b.rtt_ns)));
    let shown: Vec<String> = found
        .iter()
        .map(|r| format!("{} {} {} {}", r.client, r.server, r.rtt_ns, r.offset_ns()))
        .collect();
    assert_eq!(
        (shown.join(", "), not_possible),
        (expected.to_string(), impossible)
    );
}

#[test]
fn threads_of_control_that_come_back() {
    check_events("a t 0, b t 510, b t 530, a t 40", "a b 20 500", 0);
    check_events("a t 0, b t 510, b t 530", "", 0); // it does not come back
    check_events("a t 0, b u 510, a t 40", "", 0); // another task
    check_events(
        "a t 0, b t 510, c t 20, c t 30, b t 550, a t 60",
        "a b 20 500, b c 30 -505",
        0,
    );
    check_events("a t 0, b t 10, c t 20, a t 30", "a b 30 -5, a c 30 5", 0); // it goes on, and comes back another way
    check_events(
        "a t 0, b t 510, b t 520, c t 25, c t 28, a t 40",
        "a b 27 497, a c 27 1",
        0,
    );
    check_events(
        "a t 0, b t 10, a t 30, b t 40, a t 50",
        "a b 20 0, a b 30 -5, b a 30 5",
        0,
    );
    check_events("a t 0, b t 530, b t 510, a t 40", "", 1); // against b's own clock
    check_events("a t 0, b t 10, b t 80, a t 40", "", 1);
    check_events("a t 0, a t 40", "", 0);
}

#[test]
fn unsynchronised_hosts_are_named() {
    let said = |synchronised, max_error_ns| KernelClock {
        synchronised,
        max_error_ns,
        estimated_error_ns: 5,
    };
    let (mut one, mut other) = (ClockEvidence::new(), ClockEvidence::new());
    one.note_kernel(&"a".into(), said(true, 700));
    one.note_kernel(&"b".into(), said(true, 9));
    other.note_kernel(&"b".into(), said(false, 16_000_000_000));
    other.note_kernel(&"a".into(), said(true, 400));
    one.merge(&other);
    let alignment = one.align(None);
    assert_eq!(
        alignment
            .unsynchronised()
            .map(|host| &**host)
            .collect::<Vec<_>>(),
        ["b"]
    );
    assert_eq!(alignment.kernel_clock("a"), Some(said(true, 700)));
    assert_eq!(
        alignment.kernel_clock("b"),
        Some(said(false, 16_000_000_000))
    );
    assert_eq!(alignment.kernel_clock("c"), None);
}
