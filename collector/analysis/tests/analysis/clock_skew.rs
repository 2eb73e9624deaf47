//! Event logs of tasks that cross hosts. The clocks of the hosts differ by less and by more than
//! round trips can show.

use crate::generator::Random;
use std::collections::BTreeSet;
use stroboscope_analysis::clock::ClockEvidence;
use stroboscope_analysis::model::Model;
use stroboscope_analysis::record::{EventRecord, TraceId, TraceRecords};
use stroboscope_analysis::segment::segment;

const ORIGIN_NS: i64 = 1_790_000_000_000_000_000;
const SEEDS: u64 = 13;
const REQUESTS: usize = 150;
const SKEWS_NS: [i64; 7] = [
    0, 50_000, 200_000, 500_000, 1_000_000, 5_000_000, 80_000_000,
];

/// Part of a request on one host, which may work, calls others, and answers.
struct Visit {
    host: usize,
    works: usize,
    calls: Vec<Visit>,
}

impl Visit {
    fn random(random: &mut Random, host: usize, hosts: usize) -> Visit {
        let calls = match hosts - host {
            1 => 0,
            _ => 1 + random.below(2),
        };
        let mut next = host + 1;
        let mut callees = Vec::new();
        for _ in 0..calls {
            if next < hosts {
                callees.push(Visit::random(random, next, hosts));
                next += 1 + random.below(2);
            }
        }
        Visit {
            host,
            works: random.below(3),
            calls: callees,
        }
    }
}

/// Request that is being simulated: its events in the order of control, by an exact clock.
struct Request<'a> {
    random: &'a mut Random,
    now_ns: i64,
    events: Vec<EventRecord>,
    /// True for each host whose worker has been woken.
    woken: [bool; 8],
}

impl Request<'_> {
    fn later(&mut self, least_us: i64, most_us: usize) {
        self.now_ns += least_us * 1000 + self.random.below(most_us * 1000) as i64;
    }

    fn write(&mut self, host: usize, task: &str, event: &str, ts_ns: i64) {
        let (host, task, event) = (format!("host{host}").into(), task.into(), event.into());
        let seq = self.events.len() as u32;
        self.events.push(EventRecord {
            host,
            ts_ns,
            seq,
            event,
            task,
        });
    }

    fn step(&mut self, host: usize, event: &str) {
        self.write(host, "request", event, self.now_ns);
    }

    fn visit(&mut self, visit: &Visit) {
        let host = visit.host;
        self.step(host, "received");
        for work in 0..visit.works {
            self.later(20, 700);
            self.step(host, &format!("worked {work}"));
        }
        for called in &visit.calls {
            if self.random.below(5) == 0 {
                continue;
            }
            self.later(20, 300);
            self.step(host, &format!("calls {}", called.host));
            self.later(30, 400);
            self.visit(called);
            self.later(30, 400);
            self.step(host, &format!("answered {}", called.host));
        }
        self.later(20, 500);
        self.step(host, "answers");
        // A worker processes pieces in any order, each after the previous one.
        if std::mem::replace(&mut self.woken[host], true) {
            return;
        }
        let (mut at_ns, task) = (self.now_ns, format!("worker {host}"));
        let mut pieces = ["ads", "chat", "feed"];
        pieces.rotate_left(self.random.below(3));
        for piece in pieces {
            self.write(host, &task, &format!("begin {piece}"), at_ns);
            at_ns += 60_000 + self.random.below(900_000) as i64;
            self.write(host, &task, &format!("end {piece}"), at_ns);
        }
    }
}

/// Returns traces with the times of exact clocks. The lines of one task arrive in the order of
/// control. Lines of different tasks are interleaved.
fn store(seed: u64) -> Vec<TraceRecords> {
    let random = &mut Random(seed * 7919 + 1);
    let hosts = 2 + random.below(4);
    let root = Visit::random(random, 0, hosts);
    let trace = |number: usize| {
        let now_ns = ORIGIN_NS + number as i64 * 100_000_003;
        let mut request = Request {
            random: &mut *random,
            now_ns,
            events: Vec::new(),
            woken: [false; 8],
        };
        request.visit(&root);
        let mut events = request.events;
        let first = random.below(8) as u32;
        for event in &mut events {
            event.seq = 2 * event.seq + u32::from(&*event.task == "request") * (first + 1);
        }
        // Lines with equal numbers are put in order of their tasks.
        events.sort_by(|a, b| (a.seq, &a.task).cmp(&(b.seq, &b.task)));
        (0..)
            .zip(&mut events)
            .for_each(|(seq, event)| event.seq = seq);
        shuffle(random, &mut events);
        TraceRecords {
            id: TraceId(number as u128 + 1),
            events,
            ..TraceRecords::default()
        }
    };
    (0..REQUESTS).map(trace).collect()
}

fn shuffle<T>(random: &mut Random, list: &mut [T]) {
    for at in (1..list.len()).rev() {
        list.swap(at, random.below(at + 1));
    }
}

/// Returns the traces as clocks with constant offsets up to `skew_ns` would record them.
fn skewed(traces: &[TraceRecords], seed: u64, skew_ns: i64) -> Vec<TraceRecords> {
    let random = &mut Random(seed + 77);
    let off_ns: Vec<i64> = (0..8)
        .map(|_| random.below(2 * skew_ns as usize + 1) as i64 - skew_ns)
        .collect();
    let mut skewed = traces.to_vec();
    for event in skewed.iter_mut().flat_map(|trace| &mut trace.events) {
        let host: usize = event.host[4..].parse().expect("a host's number");
        event.ts_ns += off_ns[host];
    }
    skewed
}

type Relations = BTreeSet<(String, String)>;

/// Returns the names of all segments, and the relations between them.
fn inferred(traces: &[TraceRecords], aligned: bool) -> (BTreeSet<String>, Relations) {
    let mut evidence = ClockEvidence::new();
    traces.iter().for_each(|trace| evidence.observe(trace));
    let alignment = evidence.align(None);
    let mut model = Model::new();
    for trace in traces {
        let mut trace = trace.clone();
        if aligned {
            alignment.apply(&mut trace);
        }
        let (trace, _) = segment(&trace, model.labels_mut());
        model.observe(&trace);
    }
    let name = |id| model.labels().get(id).expect("a label").to_string();
    let relations = model.relations(0.0);
    let found = relations.all_happens_before();
    (
        model.labels().iter().map(|(id, _)| name(id)).collect(),
        found
            .iter()
            .map(|r| (name(r.first), name(r.second)))
            .collect(),
    )
}

#[test]
fn skew_invents_no_segment_and_refutes_no_relation() {
    let mut sums = Vec::new();
    for skew_ns in SKEWS_NS {
        let (mut wrong, mut refuted, mut invented, mut all) = (0, 0, 0, 0);
        for seed in 0..SEEDS {
            let right = store(seed);
            let (segments, relations) = inferred(&right, false);
            let unskewed = inferred(&right, true);
            let (found, seen) = inferred(&skewed(&right, seed, skew_ns), true);
            wrong += usize::from(found != segments);
            refuted += relations.difference(&seen).count();
            invented += seen.difference(&unskewed.1).count();
            all += unskewed.1.len();
        }
        println!(
            "{} µs: {wrong} of {SEEDS} stores with other segments; of {all} relations {refuted} true ones refuted, {invented} invented",
            skew_ns / 1000
        );
        sums.push((wrong, refuted, invented, all));
    }
    for (wrong, refuted, invented, all) in sums {
        assert_eq!((wrong, refuted), (0, 0));
        // Only differences beyond the error bounds contradict an order. Their number depends on the
        // estimated offsets.
        assert!(invented * 20 < all, "{invented} of {all}");
    }
}

/// Timestamps decide the order of shuffled lines. The order of lines has no effect, not even
/// between equal timestamps of a host, as where one piece ends and the next begins.
#[test]
fn shuffled_lines_decide_nothing() {
    for seed in 0..SEEDS {
        let mut right = store(seed);
        for trace in &mut right {
            trace.events.retain(|event| &*event.task == "worker 0");
        }
        let random = &mut Random(seed + 5);
        let mut shuffled = || {
            let mut traces = right.clone();
            for trace in &mut traces {
                // Lines go from late to early. Lines of one instant are in random order.
                trace
                    .events
                    .sort_by_cached_key(|event| (-event.ts_ns, random.next()));
                let events = (0..).zip(&mut trace.events);
                events.for_each(|(seq, event)| event.seq = seq);
            }
            inferred(&traces, false)
        };
        assert_eq!(shuffled(), shuffled(), "{seed}");
    }
}

fn names(lines: &[(&str, i64, &str)], errors_ns: u64) -> Vec<String> {
    use stroboscope_analysis::label::Labels;
    use stroboscope_analysis::record::HostClock;
    let event = |(seq, (host, ts_ns, event)): (u32, &(&str, i64, &str))| EventRecord {
        host: (*host).into(),
        ts_ns: *ts_ns,
        seq,
        event: (*event).into(),
        task: "t".into(),
    };
    let clock = |host: &str| HostClock {
        error_ns: errors_ns,
        ..HostClock::exact(host.into())
    };
    let records = TraceRecords {
        events: (0..).zip(lines).map(event).collect(),
        clocks: vec![clock("a"), clock("b"), clock("c")],
        ..TraceRecords::default()
    };
    let mut labels = Labels::default();
    let (trace, _) = segment(&records, &mut labels);
    let mut by_step: Vec<_> = trace.segments.iter().collect();
    by_step.sort_by_key(|segment| segment.step);
    by_step
        .iter()
        .map(|segment| labels.get(segment.id).expect("a label").to_string())
        .collect()
}

#[test]
fn only_the_contradicted_pair_of_a_task_changes_places() {
    // `c` is earlier than `a`, `b` and `d` by more than the error bounds. The other lines are out
    // of order only within the bounds.
    let lines = [
        ("a", 1000, "a"),
        ("b", 950, "b"),
        ("a", 1100, "d"),
        ("c", 700, "c"),
        ("b", 1060, "e"),
        ("a", 1200, "f"),
    ];
    let expected = [
        "t [c … a]",
        "t [a … b]",
        "t [b … d]",
        "t [d … e]",
        "t [e … f]",
    ];
    assert_eq!(names(&lines, 60), expected);
    // Lines of one host follow its clock, however many lines of other hosts lie between.
    let lines = [("a", 1010, "late"), ("b", 1005, "b"), ("a", 1000, "early")];
    assert_eq!(names(&lines, 60), ["t [b … early]", "t [early … late]"]);
}
