//! Event logs of a system whose relations are known, with their lines in the order of control,
//! merged with the delay of shipping, or shuffled. Also logs of hosts that exchange no messages.

use crate::generator::Random;
use std::collections::BTreeSet;
use stroboscope_analysis::clock::{Alignment, ClockEvidence, KernelClock, Verdict};
use stroboscope_analysis::model::Model;
use stroboscope_analysis::record::{EventRecord, TraceId, TraceRecords};
use stroboscope_analysis::segment::segment;

const ORIGIN_NS: i64 = 1_700_000_000_000_000_000;
const REQUESTS: i64 = 410;

type Relation = (String, String);

/// Returns one request's events in true time. `web` calls `db` twice, and `db` calls `cache` each
/// time. Meanwhile, a worker on each host does unrelated work.
fn request(random: &mut Random, number: i64) -> Vec<EventRecord> {
    let mut events = Vec::new();
    let mut write = |host: &str, task: &str, event: &str, ts_ns: i64| {
        let (host, task, event) = (host.into(), task.into(), event.into());
        events.push(EventRecord {
            host,
            ts_ns,
            seq: 0,
            event,
            task,
        });
    };
    let begin_ns = ORIGIN_NS + number * 3_000_000_123;
    let mut now_ns = begin_ns;
    let mut step = |random: &mut Random, host: &str, event: &str, most_us: usize| {
        now_ns += 60_000 + random.below(most_us * 1000) as i64;
        write(host, "request", event, now_ns);
    };
    step(random, "web", "begin", 1);
    for call in ["user", "page"] {
        step(random, "web", &format!("asks {call}"), 900);
        step(random, "db", &format!("asked {call}"), 150);
        step(random, "db", &format!("asks cache {call}"), 700);
        step(random, "cache", &format!("asked {call}"), 150);
        step(random, "cache", &format!("answers {call}"), 1500);
        step(random, "db", &format!("answered {call}"), 150);
        step(random, "db", &format!("answers {call}"), 400);
        step(random, "web", &format!("answered {call}"), 150);
    }
    step(random, "web", "end", 800);
    for host in ["web", "db", "cache"] {
        let mut at_ns = begin_ns + random.below(6_000_000) as i64;
        for event in ["takes", "sorts", "writes", "rests"] {
            write(host, &format!("worker on {host}"), event, at_ns);
            at_ns += 50_000 + random.below(1_500_000) as i64;
        }
    }
    events.sort_by_key(|event| event.ts_ns);
    events
}

/// Returns the requests, with their lines in the order that `arrival` determines.
fn log(mut arrival: impl FnMut(&mut Random, &EventRecord) -> i64) -> Vec<TraceRecords> {
    let (mut random, mut of_arrival) = (Random(7), Random(8));
    let trace = |number: i64| {
        let mut events = request(&mut random, number);
        events.sort_by_cached_key(|event| arrival(&mut of_arrival, event));
        events
            .iter_mut()
            .zip(0..)
            .for_each(|(event, seq)| event.seq = seq);
        TraceRecords {
            id: TraceId(number as u128 + 1),
            events,
            ..TraceRecords::default()
        }
    };
    (0..REQUESTS).map(trace).collect()
}

fn align(traces: &[TraceRecords]) -> (Alignment, ClockEvidence) {
    let mut evidence = ClockEvidence::new();
    traces.iter().for_each(|trace| evidence.observe(trace));
    (evidence.align(None), evidence)
}

fn relations(traces: &[TraceRecords], alignment: Option<&Alignment>) -> BTreeSet<Relation> {
    let mut model = Model::new();
    for trace in traces {
        let mut trace = trace.clone();
        if let Some(alignment) = alignment {
            alignment.apply(&mut trace);
        }
        let (trace, _) = segment(&trace, model.labels_mut());
        model.observe(&trace);
    }
    let name = |id| {
        model
            .labels()
            .get(id)
            .expect("segments have labels")
            .to_string()
    };
    let relations = model.relations(0.0);
    relations
        .all_happens_before()
        .iter()
        .map(|r| (name(r.first), name(r.second)))
        .collect()
}

/// Returns the number of relations that are found but not true, and of true ones that are not
/// found.
fn false_and_missed(found: &BTreeSet<Relation>, truth: &BTreeSet<Relation>) -> (usize, usize) {
    (
        found.difference(truth).count(),
        truth.difference(found).count(),
    )
}

fn in_order(_: &mut Random, event: &EventRecord) -> i64 {
    event.ts_ns
}

#[test]
fn the_order_of_lines_is_not_taken_for_the_order_of_control() {
    let clean = log(in_order);
    let truth = relations(&clean, None);
    assert!(truth.len() > 100, "{}", truth.len());
    let merged = log(|random, event| event.ts_ns + random.below(1_000_000) as i64);
    let one_late = log(|_, event| event.ts_ns + if &*event.host == "db" { 1_000_000 } else { 0 });
    let shuffled = log(|random, _| random.next() as i64);
    for (name, traces, is_told) in [
        ("clean", &clean, false),
        ("merged", &merged, true),
        ("one late", &one_late, true),
        ("shuffled", &shuffled, true),
    ] {
        let (alignment, evidence) = align(traces);
        let found = relations(traces, Some(&alignment));
        let (not_true, missed) = false_and_missed(&found, &truth);
        println!(
            "{name}: {not_true} false, {missed} missed of {}; {} tasks out of order",
            truth.len(),
            evidence.disordered()
        );
        assert!(
            !alignment.is_needed(),
            "{name}: clocks that are right were corrected: {:?}",
            alignment.pairs()
        );
        assert_eq!(alignment.islands().len(), 1, "{name}: clocks agree");
        assert_eq!((not_true, missed), (0, 0), "{name}");
        assert_eq!(alignment.disbelieved_lines() > 0, is_told, "{name}");
    }
}

/// Returns the traces as clocks that are up to 100 ms off would record them.
fn skewed(traces: &[TraceRecords]) -> Vec<TraceRecords> {
    let mut skewed = traces.to_vec();
    for event in skewed.iter_mut().flat_map(|trace| &mut trace.events) {
        event.ts_ns += match &*event.host {
            "db" => 100_000_000,
            "cache" => -63_000_000,
            _ => 0,
        };
    }
    skewed
}

#[test]
fn clocks_that_are_off_are_still_corrected() {
    let clean = log(in_order);
    let truth = relations(&clean, None);
    let skewed = skewed(&clean);
    let (alignment, _) = align(&skewed);
    assert!(alignment.is_needed() && alignment.islands().len() == 1);
    assert!(
        alignment
            .pairs()
            .iter()
            .all(|pair| pair.verdict == Verdict::Differ),
        "{:?}",
        alignment.pairs()
    );
    let (found, as_recorded) = (
        relations(&skewed, Some(&alignment)),
        relations(&skewed, None),
    );
    let (not_true, missed) = false_and_missed(&found, &truth);
    println!(
        "corrected: {not_true} false, {missed} missed of {}",
        truth.len()
    );
    println!(
        "as recorded: {:?} false and missed",
        false_and_missed(&as_recorded, &truth)
    );
    assert!(
        not_true * 20 < truth.len() && missed == 0,
        "{not_true} false, {missed} missed"
    );
}

#[test]
fn evidence_that_contradicts_itself_corrects_nothing() {
    // In each trace, the lines of `db` are off by another time of up to 1 s. Its round trips are
    // impossible, or have another offset.
    let mut traces = log(in_order);
    let mut random = Random(3);
    for trace in &mut traces {
        let off_ns = random.below(2_000_000_000) as i64 - 1_000_000_000;
        for event in trace.events.iter_mut().filter(|event| &*event.host == "db") {
            event.ts_ns += off_ns;
        }
    }
    let (alignment, _) = align(&traces);
    assert!(!alignment.is_needed(), "{:?}", alignment.pairs());
    assert!(alignment.contradictory().count() > 0);
    // `web` and `cache` exchange messages only via `db`.
    assert_eq!(alignment.islands().len(), 3);
    let truth = relations(&log(in_order), None);
    let found = relations(&traces, Some(&alignment));
    let (not_true, missed) = false_and_missed(&found, &truth);
    println!(
        "contradictory: {not_true} false, {missed} missed of {}",
        truth.len()
    );
    // A segment between two hosts that would end before it starts loses its own end, which may cost
    // a relation.
    assert!(not_true * 50 < truth.len() && missed * 50 < truth.len());
}

/// Returns the traces with only the workers, which never go to another host.
fn untied(traces: &[TraceRecords]) -> Vec<TraceRecords> {
    let mut untied = traces.to_vec();
    untied
        .iter_mut()
        .for_each(|trace| trace.events.retain(|event| &*event.task != "request"));
    untied
}

#[test]
fn orders_between_hosts_that_nothing_ties_together_are_unknown() {
    let clean = untied(&log(in_order));
    let truth = relations(&clean, None);
    let skewed = skewed(&clean);
    let (alignment, _) = align(&skewed);
    assert_eq!(
        (alignment.islands().len(), alignment.unaligned().len()),
        (3, 2)
    );
    let found = relations(&skewed, Some(&alignment));
    let as_recorded = relations(&skewed, None);
    println!(
        "untied: {} found, {} true, {} as recorded",
        found.len(),
        truth.len(),
        as_recorded.len()
    );
    assert!(as_recorded.len() > 2 * truth.len());
    assert_eq!(found, truth);
    // Kernels that synchronize their clocks align the hosts, within the errors of the clocks.
    let mut evidence = ClockEvidence::new();
    clean.iter().for_each(|trace| evidence.observe(trace));
    for (host, max_error_ns) in [("web", 40_000), ("db", 10_000), ("cache", 25_000)] {
        let said = KernelClock {
            synchronised: host != "cache",
            max_error_ns,
            estimated_error_ns: 900,
        };
        evidence.note_kernel(&host.into(), said);
    }
    let alignment = evidence.align(Some("web"));
    assert_eq!(alignment.convert("db", 7), Some((7, 50_000)));
    assert_eq!(alignment.convert("cache", 7), None);
    assert_eq!(
        alignment
            .unsynchronised()
            .map(|host| &**host)
            .collect::<Vec<_>>(),
        ["cache"]
    );
}

#[test]
fn a_ring_says_as_much_as_its_one_way_bounds() {
    let mut random = Random(11);
    let names = ["a", "b", "c", "d"];
    for _ in 0..200 {
        // A request goes from `a` via the other hosts back to `a`. In true time, each message
        // arrives after it was sent. The clocks are off.
        let hosts = 3 + random.below(2);
        let ahead: Vec<i64> = (0..hosts)
            .map(|_| random.below(2_000_001) as i64 - 1_000_000)
            .collect();
        let mut true_ns = 5_000_000;
        let mut times = Vec::new();
        for at in (0..hosts).chain([0]) {
            true_ns += 100 + random.below(10_000) as i64;
            let from_ns = true_ns;
            true_ns += 100 + random.below(10_000) as i64;
            times.push((at, from_ns + ahead[at], true_ns + ahead[at]));
        }
        let event = |at: usize, ts_ns: i64| EventRecord {
            host: names[at].into(),
            ts_ns,
            seq: 0,
            event: "e".into(),
            task: "t".into(),
        };
        let mut events: Vec<_> = times
            .iter()
            .flat_map(|(at, from_ns, to_ns)| [event(*at, *from_ns), event(*at, *to_ns)])
            .collect();
        events
            .iter_mut()
            .zip(0..)
            .for_each(|(event, seq)| event.seq = seq);
        let records = TraceRecords {
            events,
            ..TraceRecords::default()
        };
        let (found, impossible) = stroboscope_analysis::clock::round_trips(&records);
        assert_eq!((found.len(), impossible), (hosts - 1, 0));
        // The reference: the maximum by which each clock is ahead of another, by each message and
        // by shortest paths. A host's stay is equally long by any clock, so its arrival and its
        // departure count as one clock.
        let mut most = vec![vec![i64::MAX / 4; hosts]; hosts];
        most.iter_mut()
            .enumerate()
            .for_each(|(at, row)| row[at] = 0);
        let first_out = times[0].2;
        let stays: i64 = times[1..hosts]
            .iter()
            .map(|(_, from_ns, to_ns)| to_ns - from_ns)
            .sum();
        for pair in times.windows(2) {
            let ((a, _, sent_ns), (b, received_ns, _)) = (pair[0], pair[1]);
            most[a][b] = most[a][b].min(received_ns - sent_ns);
        }
        // Paths via other hosts add up the bounds of messages, regardless of the stays between
        // them.
        for via in 0..hosts {
            for a in 0..hosts {
                for b in 0..hosts {
                    most[a][b] = most[a][b].min(most[a][via] + most[via][b]);
                }
            }
        }
        for round_trip in found {
            let at = names
                .iter()
                .position(|name| *name == &*round_trip.server)
                .expect("a host of the ring");
            let rtt_ns = most[0][at] + most[at][0];
            assert_eq!(round_trip.rtt_ns as i64, rtt_ns);
            assert_eq!(rtt_ns, times[hosts].1 - first_out - stays);
            let middle = (most[0][at] - most[at][0]).div_euclid(2);
            assert!((round_trip.offset_ns() - i128::from(middle)).abs() <= 1);
            let off_ns = round_trip.offset_ns() - i128::from(ahead[at] - ahead[0]);
            assert!(off_ns.unsigned_abs() <= u128::from(round_trip.error_ns()));
        }
    }
}
