//! Timestamps in whole microseconds and milliseconds: the analysis detects, reports and respects
//! their resolution.

use crate::generator::Random;
use stroboscope_analysis::clock::ClockEvidence;
use stroboscope_analysis::critical_path::{analyse, drop_unsure_slack, settle};
use stroboscope_analysis::model::Model;
use stroboscope_analysis::record::{
    EventRecord, HostClock, SpanFlags, SpanRecord, TraceId, TraceRecords,
};
use stroboscope_analysis::segment::{ClockBounds, SegmentedTrace, segment};

const ORIGIN_NS: i64 = 1_700_000_000_000_000_000;

fn span(
    span_id: u64,
    parent_id: u64,
    host: &str,
    name: &str,
    from_ns: i64,
    to_ns: i64,
) -> SpanRecord {
    let flags = if parent_id == 0 {
        SpanFlags::SERVER
    } else {
        SpanFlags::CLIENT
    };
    SpanRecord {
        span_id,
        parent_id,
        service: host.into(),
        name: name.into(),
        host: host.into(),
        process: 0,
        start_ns: from_ns,
        end_ns: to_ns,
        flags,
        events: Vec::new(),
    }
}

/// Returns a request that calls `db` twice in sequence, with a little work in between, by exact
/// clocks.
fn request(random: &mut Random, number: i64) -> TraceRecords {
    let mut now_ns = ORIGIN_NS + number * 1_000_000_000 + random.below(900_000_000) as i64;
    let mut later = |random: &mut Random, least_ns: i64, most_ns: usize| {
        now_ns += least_ns + random.below(most_ns) as i64;
        now_ns
    };
    let begin_ns = later(random, 0, 1000);
    let mut spans = Vec::new();
    for (id, name) in [(2, "first"), (4, "second")] {
        let from_ns = later(random, 5_000, 30_000);
        let arrives_ns = later(random, 90_000, 60_000);
        let answers_ns = later(random, 200_000, 101_000_000);
        let to_ns = later(random, 90_000, 60_000);
        spans.push(span(id, 1, "web", name, from_ns, to_ns));
        let served = SpanRecord {
            flags: SpanFlags::SERVER,
            ..span(id + 1, id, "db", "serve", arrives_ns, answers_ns)
        };
        spans.push(served);
    }
    let end_ns = later(random, 5_000, 30_000);
    spans.push(span(1, 0, "web", "page", begin_ns, end_ns));
    TraceRecords {
        id: TraceId(number as u128 + 1),
        spans,
        ..TraceRecords::default()
    }
}

/// Returns the records with starts and durations truncated to whole multiples of these.
fn coarse(records: &TraceRecords, starts_ns: i64, durations_ns: i64) -> TraceRecords {
    let mut coarse = records.clone();
    for span in &mut coarse.spans {
        let length_ns = span.end_ns - span.start_ns;
        span.start_ns -= span.start_ns % starts_ns;
        span.end_ns = span.start_ns + length_ns - length_ns % durations_ns;
    }
    coarse
}

fn evidence(traces: &[TraceRecords]) -> ClockEvidence {
    let mut evidence = ClockEvidence::new();
    traces.iter().for_each(|trace| evidence.observe(trace));
    evidence
}

#[track_caller]
fn check_resolution(starts_ns: i64, durations_ns: i64, unit_ns: u64, tick_ns: u64) {
    let mut random = Random(1);
    let traces: Vec<_> = (0..60)
        .map(|n| coarse(&request(&mut random, n), starts_ns, durations_ns))
        .collect();
    let whole = evidence(&traces);
    let found = whole.resolution("db");
    assert_eq!(
        (found.unit_ns, found.tick_ns, found.timestamps),
        (unit_ns, tick_ns, 240)
    );
    // Parts merge to the whole in any order.
    let mut merged = evidence(&traces[41..]);
    merged.merge(&evidence(&traces[..7]));
    merged.merge(&evidence(&traces[7..41]));
    assert_eq!(merged, whole);
    assert_eq!(merged.align(None), whole.align(None));
    // Truncated times prove no skew.
    assert!(
        !whole.align(None).is_needed(),
        "{:?}",
        whole.align(None).pairs()
    );
    assert_eq!(whole.align(None).islands().len(), 1);
    assert_eq!(whole.impossible(), 0);
}

#[test]
fn resolutions_are_found() {
    check_resolution(1, 1, 1, 0);
    check_resolution(100, 100, 100, 100);
    check_resolution(1000, 1000, 1000, 1000);
    check_resolution(1_000_000, 1_000_000, 1_000_000, 1_000_000);
    check_resolution(1_000_000, 1000, 1_000_000, 1_001_000);
    check_resolution(10_000_000, 1000, 10_000_000, 10_001_000);
}

#[test]
fn few_timestamps_are_not_taken_for_coarse_by_chance() {
    let resolution = |times: &[i64]| {
        let event = |(seq, ts_ns): (usize, &i64)| EventRecord {
            host: "a".into(),
            ts_ns: *ts_ns,
            seq: seq as u32,
            event: "e".into(),
            task: "t".into(),
        };
        let events = times.iter().enumerate().map(event).collect();
        evidence(&[TraceRecords {
            events,
            ..TraceRecords::default()
        }])
        .resolution("a")
        .unit_ns
    };
    assert_eq!(resolution(&[120, 700]), 1);
    assert_eq!(resolution(&[12_000, 70_000]), 1000);
    assert_eq!(resolution(&[12_000_000, 70_000_000, 70_000_000]), 1_000_000);
    assert_eq!(resolution(&[12_000, 70_001]), 1);
    assert_eq!(
        resolution(&(0..40).map(|i| i * 700).collect::<Vec<_>>()),
        100
    );
    assert_eq!(resolution(&[]), 1);
}

#[test]
fn a_distance_of_a_whole_tick_shows_no_order() {
    let bounds = |error_ns, resolution_ns, island| {
        ClockBounds::of(&HostClock {
            host: "a".into(),
            error_ns,
            resolution_ns,
            island,
        })
    };
    let check = |a: ClockBounds, b: ClockBounds, on_one: u64, on_two: u64| {
        assert_eq!(a.tolerance_ns(b, true), on_one);
        assert_eq!(a.tolerance_ns(b, false), on_two);
        assert_eq!(b.tolerance_ns(a, false), on_two);
    };
    let (exact, coarse) = (bounds(0, 1, 0), bounds(20, 1000, 0));
    check(exact, exact, 0, 0);
    check(coarse, coarse, 1000, 1040);
    check(coarse, exact, 1000, 1020);
    check(coarse, bounds(20, 1000, 1), 1000, u64::MAX);
}

fn model_and_traces(traces: &[TraceRecords]) -> (Model, Vec<SegmentedTrace>) {
    let alignment = evidence(traces).align(None);
    let mut model = Model::new();
    let mut cut = Vec::new();
    for trace in traces {
        let mut trace = trace.clone();
        alignment.apply(&mut trace);
        let (trace, _) = segment(&trace, model.labels_mut());
        model.observe(&trace);
        cut.push(trace);
    }
    (model, cut)
}

/// Checks that successive calls stay in order and have no slack, whatever the resolution of the
/// clock.
fn check_sequence(starts_ns: i64, durations_ns: i64, as_recorded_has_slack: bool) {
    let mut random = Random(5);
    let traces: Vec<_> = (0..300)
        .map(|n| coarse(&request(&mut random, n), starts_ns, durations_ns))
        .collect();
    let (model, cut) = model_and_traces(&traces);
    let relations = model.relations(0.0);
    let id = |task: &str| {
        let mut ids = model
            .labels()
            .iter()
            .filter(|(_, label)| label.task.ends_with(task) && &*label.start == "start");
        ids.next()
            .unwrap_or_else(|| panic!("no segment of {task}"))
            .0
    };
    let (first, second) = (id("first > db:serve"), id("second > db:serve"));
    assert!(
        relations.happens_before(first, second),
        "{starts_ns} {durations_ns}"
    );
    let slack_of = |trace: &SegmentedTrace| {
        let mut path = analyse(trace, &relations);
        drop_unsure_slack(trace, &mut path);
        path.segments
            .iter()
            .filter(|timing| timing.segment == first)
            .map(|timing| timing.slack_ns)
            .max()
    };
    let tick_ns = cut[0].clocks.first().map_or(0, |clock| clock.tick_ns);
    let most_as_recorded = cut.iter().filter_map(slack_of).max();
    let settled = cut.into_iter().map(|mut trace| {
        let (from_ns, to_ns) = (trace.start_ns, trace.end_ns);
        settle(&mut trace, &relations);
        assert_eq!((trace.start_ns, trace.end_ns), (from_ns, to_ns));
        trace
    });
    let most = settled.filter_map(|trace| slack_of(&trace)).max();
    assert_eq!(most, Some(0), "{starts_ns} {durations_ns}: tick {tick_ns}");
    assert_eq!(
        most_as_recorded > Some(0),
        as_recorded_has_slack,
        "{most_as_recorded:?}"
    );
}

#[test]
fn calls_one_after_the_other_have_no_slack() {
    check_sequence(1, 1, false);
    check_sequence(1000, 1000, false);
    check_sequence(1_000_000, 1000, true);
}

#[test]
fn siblings_that_overlap_by_one_unit_are_not_concurrent() {
    let traces: Vec<TraceRecords> = (0..50)
        .map(|n| {
            let at_ns = ORIGIN_NS + n * 7_001_000;
            let spans = vec![
                span(1, 0, "web", "page", at_ns, at_ns + 90_000),
                span(2, 1, "web", "one", at_ns + 10_000, at_ns + 40_000),
                span(3, 1, "web", "two", at_ns + 39_000, at_ns + 70_000),
            ];
            TraceRecords {
                id: TraceId(n as u128 + 1),
                spans,
                ..TraceRecords::default()
            }
        })
        .collect();
    let (model, _) = model_and_traces(&traces);
    let relations = model.relations(0.0);
    let id = |name: &str| {
        model
            .labels()
            .iter()
            .find(|(_, label)| label.task.ends_with(name))
            .expect("a segment of that name")
            .0
    };
    assert!(relations.happens_before(id("web:one"), id("web:two")));
    assert_eq!(
        model
            .mutual_exclusion_support(id("web:one"), id("web:two"))
            .contradictions,
        0
    );
    assert_eq!(evidence(&traces).resolution("web").unit_ns, 1000);
}

/// A gateway's handler ends between the answer and the end of a parallel call, and the records do
/// not show that it waits for the call. By the callee's inexact clock, the call may have ended
/// before the answer.
#[test]
fn a_span_beside_a_call_does_not_hide_the_callee() {
    let mut random = Random(11);
    let unsure = HostClock {
        error_ns: 1_000_000,
        ..HostClock::exact("auth".into())
    };
    let traces: Vec<TraceRecords> = (0..60)
        .map(|number| {
            let begin_ns = ORIGIN_NS + number * 997_003_001;
            let answer_ns = begin_ns + 50_000_000 + random.below(400_000_000) as i64;
            let handler_ns = answer_ns + 100_000 + random.below(700_000) as i64;
            let back_ns = handler_ns + 50_000 + random.below(200_000) as i64;
            let handler = SpanRecord {
                flags: SpanFlags::default(),
                ..span(2, 1, "gateway", "handle", begin_ns + 500_000, handler_ns)
            };
            let served = SpanRecord {
                flags: SpanFlags::SERVER,
                ..span(4, 3, "auth", "login", begin_ns + 3_000_000, answer_ns)
            };
            let spans = vec![
                span(1, 0, "gateway", "/*", begin_ns, back_ns + 200_000),
                handler,
                span(3, 1, "gateway", "POST", begin_ns + 1_500_000, back_ns),
                served,
            ];
            TraceRecords {
                id: TraceId(number as u128 + 1),
                spans,
                clocks: vec![unsure.clone(), HostClock::exact("gateway".into())],
                ..TraceRecords::default()
            }
        })
        .collect();
    let mut model = Model::new();
    let cut: Vec<SegmentedTrace> = traces
        .iter()
        .map(|trace| segment(trace, model.labels_mut()).0)
        .collect();
    cut.iter().for_each(|trace| model.observe(trace));
    let relations = model.relations(0.0);
    for mut trace in cut {
        settle(&mut trace, &relations);
        let path = analyse(&trace, &relations);
        let on_path: Vec<String> = path
            .critical()
            .map(|at| model.labels().get(path.segments[at].segment))
            .map(|label| label.expect("segments have labels").to_string())
            .collect();
        assert!(
            on_path.iter().any(|label| label.contains("> auth:login")),
            "{on_path:?}"
        );
    }
}

#[test]
fn what_follows_by_construction_needs_no_clock() {
    // A task whose events all fall into one millisecond.
    let traces: Vec<TraceRecords> = (0..40)
        .map(|n| {
            let event = |seq: u32| EventRecord {
                host: "a".into(),
                ts_ns: ORIGIN_NS + n * 3_000_000,
                seq,
                event: format!("e{seq}").into(),
                task: "t".into(),
            };
            TraceRecords {
                id: TraceId(n as u128 + 1),
                events: (0..4).map(event).collect(),
                ..Default::default()
            }
        })
        .collect();
    let (model, _) = model_and_traces(&traces);
    let name = |id| {
        model
            .labels()
            .get(id)
            .expect("segments have labels")
            .to_string()
    };
    let relations = model.relations(0.0);
    let found: Vec<_> = relations
        .all_happens_before()
        .iter()
        .map(|r| (name(r.first), name(r.second)))
        .collect();
    let expected = [
        ("e0", "e1", "e1", "e2"),
        ("e0", "e1", "e2", "e3"),
        ("e1", "e2", "e2", "e3"),
    ]
    .map(|(a, b, c, d)| (format!("t [{a} … {b}]"), format!("t [{c} … {d}]")));
    assert_eq!(found, expected);
}

/// Returns sequential calls by clocks in whole microseconds, of several services of one host.
fn services(number: i64, random: &mut Random) -> TraceRecords {
    let mut whole = coarse(&request(random, number), 1000, 1000);
    for span in &mut whole.spans {
        span.host = "h".into();
    }
    whole
}

/// Returns a separate request that began and ended on a whole millisecond.
fn tick(number: i64, service: &str, process: u128) -> TraceRecords {
    let from_ns = ORIGIN_NS + number * 60_000_000_000;
    let one = SpanRecord {
        service: service.into(),
        process,
        ..span(1, 0, "h", "tick", from_ns, from_ns + 5_000_000)
    };
    TraceRecords {
        id: TraceId(1_000_000 + number as u128),
        spans: vec![one],
        ..TraceRecords::default()
    }
}

#[test]
fn a_few_round_timestamps_blur_nobody() {
    let random = &mut Random(9);
    let plain: Vec<_> = (0..200).map(|number| services(number, random)).collect();
    let relations = |traces: &[TraceRecords]| {
        let (model, _) = model_and_traces(traces);
        let name = |id| model.labels().get(id).expect("a label").to_string();
        let relations = model.relations(0.0);
        let found = relations.all_happens_before();
        found
            .iter()
            .map(|r| (name(r.first), name(r.second)))
            .collect::<Vec<_>>()
    };
    let of_plain = relations(&plain);
    assert!(of_plain.len() > 10, "{}", of_plain.len());
    // Ticks of a service that occurs once, of one that occurs once in each of its processes, and of
    // one that is in every request.
    for (service, ticks) in [("cron", 1), ("cron", 9), ("web", 3)] {
        let mut traces = plain.clone();
        traces.extend((0..ticks).map(|number| tick(number, service, number as u128)));
        let found = evidence(&traces).resolution("h");
        assert_eq!((found.unit_ns, found.tick_ns), (1000, 1000), "{service}");
        assert!(found.timestamps >= 2000, "{service}: {}", found.timestamps);
        assert_eq!(relations(&traces), of_plain, "{service}");
    }
}

#[test]
fn a_program_in_whole_milliseconds_blurs_its_host_if_it_is_a_fair_part_of_it() {
    let random = &mut Random(10);
    let plain: Vec<_> = (0..40).map(|number| services(number, random)).collect();
    let unit_ns = |traces: &[TraceRecords]| evidence(traces).resolution("h").unit_ns;
    // Each process has too few timestamps, but all together have enough.
    let mut mixed = plain;
    mixed.extend((0..60).map(|number| tick(number, "lambda", number as u128)));
    assert_eq!(unit_ns(&mixed), 1_000_000_000);
    // One odd timestamp does not change the unit of a clock in whole milliseconds.
    let mut odd: Vec<_> = (0..60)
        .map(|number| coarse(&services(number, random), 1_000_000, 1_000_000))
        .collect();
    odd[7].spans[0].end_ns += 1;
    assert_eq!(unit_ns(&odd), 1_000_000);
    // A single request with few timestamps suffices for such a clock.
    assert_eq!(unit_ns(&odd[..1]), 1_000_000);
}
