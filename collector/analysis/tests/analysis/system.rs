//! A small system with all structures: a fork and a join, a pipeline over data elements, a lock,
//! and hosts whose clocks are wrong. The tests compare the inferred relations with those of the
//! system. They compare slack and replays with the system itself, run again with one segment longer
//! or shorter.

use crate::fleet::{Fleet, ORIGIN_NS};
use crate::generator::Random;
use crate::naive;
use proptest::prelude::*;
use std::collections::BTreeSet;
use stroboscope_analysis::clock::ClockEvidence;
use stroboscope_analysis::critical_path::analyse;
use stroboscope_analysis::label::{Labels, SegmentId};
use stroboscope_analysis::model::{Model, Relations};
use stroboscope_analysis::record::{
    ElementRecord, EventRecord, RecordOwner, TraceId, TraceRecords,
};
use stroboscope_analysis::segment::{ElementId, Segment, SegmentedTrace, segment};
use stroboscope_analysis::what_if::{Change, WaitModel, WhatIf, replay};

/// Durations of the parts of one request, and the order in which the lock is taken.
#[derive(Clone, Debug)]
struct Request {
    begin_ns: u64,
    /// For each element, the time to make it and the time to show it.
    elements: Vec<[u64; 2]>,
    /// Time for which each of the two holders keeps the lock.
    locked: [u64; 2],
    first: usize,
    /// Duration of a parallel branch.
    aside_ns: u64,
    end_ns: u64,
}

/// Labels, in the order of their numbers.
const TASKS: [&str; 7] = ["begin", "make", "show", "lock a", "lock b", "aside", "end"];

/// Segments of a request: label, element, start and end.
type Parts = Vec<(u32, Option<u32>, u64, u64)>;

impl Request {
    fn random(random: &mut Random, elements: usize) -> Request {
        // Some parts are far longer than others, so that every possible order occurs.
        let mut length = || 1 + ((random.below(20) as u64) << (random.below(4) * 3));
        let begin_ns = length();
        let elements = (0..elements).map(|_| [length(), length()]).collect();
        let (locked, aside_ns, end_ns) = ([length(), length()], length(), length());
        Request {
            begin_ns,
            elements,
            locked,
            first: random.below(2),
            aside_ns,
            end_ns,
        }
    }

    /// Runs the request. All parts after `begin` start as soon as they can, and `end` starts when
    /// all others have ended.
    fn run(&self) -> Parts {
        let mut parts = vec![(0, None, 0, self.begin_ns)];
        let (mut made_ns, mut shown_ns) = (self.begin_ns, self.begin_ns);
        for (element, [make_ns, show_ns]) in (0..).zip(&self.elements) {
            parts.push((1, Some(element), made_ns, made_ns + make_ns));
            made_ns += make_ns;
            let from_ns = made_ns.max(shown_ns);
            shown_ns = from_ns + show_ns;
            parts.push((2, Some(element), from_ns, shown_ns));
        }
        let mut free_ns = self.begin_ns;
        for who in [self.first, 1 - self.first] {
            parts.push((3 + who as u32, None, free_ns, free_ns + self.locked[who]));
            free_ns += self.locked[who];
        }
        parts.push((5, None, self.begin_ns, self.begin_ns + self.aside_ns));
        let all_ns = parts.iter().map(|part| part.3).max().unwrap_or(0);
        parts.push((6, None, all_ns, all_ns + self.end_ns));
        parts
    }

    fn latency_ns(&self) -> u64 {
        self.run().iter().map(|part| part.3).max().unwrap_or(0)
    }

    /// Returns the duration of the part with this label and element.
    fn length_ns(&mut self, label: u32, element: ElementId) -> &mut u64 {
        match label {
            0 => &mut self.begin_ns,
            1 | 2 => &mut self.elements[element.0 as usize][label as usize - 1],
            3 | 4 => &mut self.locked[label as usize - 3],
            5 => &mut self.aside_ns,
            _ => &mut self.end_ns,
        }
    }

    fn trace(&self) -> SegmentedTrace {
        let segment = |(label, element, from_ns, to_ns): (u32, Option<u32>, u64, u64)| Segment {
            element: element.map_or(ElementId::NONE, ElementId),
            ..Segment::new(SegmentId(label), from_ns as i64, to_ns as i64)
        };
        SegmentedTrace::new(
            TraceId(1),
            None,
            0,
            0,
            self.run().into_iter().map(segment).collect(),
        )
    }
}

fn labels() -> Labels {
    let mut labels = Labels::default();
    for task in TASKS {
        labels.intern(&task.into(), &"from".into(), &"to".into());
    }
    labels
}

fn learn(traces: &[SegmentedTrace], labels: Labels) -> (Model, Relations) {
    let mut model = Model::new();
    *model.labels_mut() = labels;
    traces.iter().for_each(|trace| model.observe(trace));
    let relations = model.relations(0.0);
    (model, relations)
}

fn pipelines(relations: &Relations) -> Vec<(String, String)> {
    let names = relations.all_pipelines().iter();
    names
        .map(|pipeline| (pipeline.first.to_string(), pipeline.second.to_string()))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    /// The model equals the system. Therefore, the slack of each segment is exactly the time by
    /// which it can grow in the system.
    #[test]
    fn slack_and_replays_are_what_the_system_does(seed in any::<u64>(), elements in 2usize..6) {
        let mut random = Random(seed);
        let requests: Vec<Request> = (0..1_000).map(|_| Request::random(&mut random, elements)).collect();
        let traces: Vec<SegmentedTrace> = requests.iter().map(Request::trace).collect();
        let (model, relations) = learn(&traces, labels());
        prop_assert_eq!(model.pairs(), naive::pairs(&traces, TASKS.len()));
        let before: BTreeSet<(u32, u32)> =
            relations.all_happens_before().iter().map(|r| (r.first.0, r.second.0)).collect();
        let truth = (1..7).map(|other| (0, other)).chain((1..6).map(|other| (other, 6)));
        prop_assert_eq!(before, truth.collect::<BTreeSet<_>>());
        // The two holders of the lock exclude each other, and no two elements are made or shown at
        // once.
        let apart: Vec<(u32, u32)> = relations.all_mutual_exclusion().iter().map(|r| (r.first.0, r.second.0)).collect();
        prop_assert_eq!(apart, vec![(3, 4)]);
        prop_assert!(relations.mutual_exclusion(SegmentId(1), SegmentId(1)));
        prop_assert!(relations.mutual_exclusion(SegmentId(2), SegmentId(2)));
        prop_assert_eq!(pipelines(&relations), vec![("make".to_owned(), "show".to_owned())]);
        for (request, trace) in requests.iter().zip(&traces).take(40) {
            let path = analyse(trace, &relations);
            prop_assert_eq!((path.latency_ns, path.critical_path_ns), (request.latency_ns(), request.latency_ns()));
            for (timing, part) in path.segments.iter().zip(&trace.segments) {
                let really = |length_ns: u64| {
                    let mut changed = request.clone();
                    *changed.length_ns(part.id.0, part.element) = length_ns;
                    changed.latency_ns()
                };
                let length_ns = part.duration_ns();
                prop_assert_eq!(timing.wait_ns, 0, "nobody waits for what the model does not know");
                prop_assert_eq!(really(length_ns + timing.slack_ns), path.latency_ns);
                prop_assert_eq!(really(length_ns + timing.slack_ns + 1), path.latency_ns + 1);
                prop_assert_eq!(really(length_ns + timing.slack_ns + 777), path.latency_ns + 777);
                for changed_ns in [0, length_ns / 3, length_ns * 5] {
                    let replayed = replay(trace, &path, &relations, |at| {
                        if trace.segments[at] == *part { changed_ns } else { path.segments[at].duration_ns() }
                    });
                    prop_assert_eq!(replayed, really(changed_ns));
                }
            }
        }
    }
}

/// Returns the request as an event log with tasks on three hosts, in true time, with lines in order
/// of time.
fn as_log(request: &Request, random: &mut Random, second: i64) -> TraceRecords {
    let start_ns = ORIGIN_NS + second * 1_000_000_000;
    let scale = |ns: u64| ns as i64 * 20_000;
    let mut events: Vec<(i64, usize, &str, &str, Option<u32>)> = Vec::new();
    // The request itself visits both other hosts and comes back, so that round trips are recorded.
    let mut now_ns = start_ns;
    let mut at = |after_ns: i64, host: usize, event: &'static str| {
        now_ns += after_ns;
        events.push((now_ns, host, "request", event, None));
        now_ns
    };
    let mut way_ns = || 200_000 + random.below(20_000) as i64;
    at(0, 0, "begin");
    at(scale(request.begin_ns), 0, "asks one");
    at(way_ns(), 1, "one is asked");
    at(300_000, 1, "one answers");
    at(way_ns(), 0, "asks two");
    at(way_ns(), 2, "two is asked");
    at(300_000, 2, "two answers");
    let forked_ns = at(way_ns(), 0, "forks");
    let on = |label: u32| -> (usize, &str, [&str; 2]) {
        match label {
            1 => (1, "maker", ["make", "made"]),
            2 => (2, "shower", ["show", "shown"]),
            3 => (1, "a", ["a locks", "a unlocks"]),
            4 => (2, "b", ["b locks", "b unlocks"]),
            _ => (1, "aside", ["aside begins", "aside ends"]),
        }
    };
    let mut last_ns = forked_ns;
    for (label, element, from_ns, to_ns) in request
        .run()
        .into_iter()
        .filter(|part| (1..6).contains(&part.0))
    {
        let (host, task, names) = on(label);
        // A message between hosts separates each step from the next.
        let step_ns = match (label, element) {
            (1, _) => 1,
            (2, Some(_)) => 2,
            (3 | 4, _) if from_ns > request.begin_ns => 2,
            _ => 1,
        } * 250_000;
        let ns = |at_ns: u64| forked_ns + step_ns + scale(at_ns - request.begin_ns);
        events.push((ns(from_ns), host, task, names[0], element));
        events.push((ns(to_ns), host, task, names[1], element));
        last_ns = last_ns.max(ns(to_ns));
    }
    events.push((last_ns + 250_000, 0, "request", "joined", None));
    events.push((
        last_ns + 250_000 + scale(request.end_ns),
        0,
        "request",
        "end",
        None,
    ));
    events.sort_by_key(|event| event.0);
    let mut records = TraceRecords {
        id: TraceId(u128::from(random.next())),
        ..TraceRecords::default()
    };
    for (seq, (ts_ns, host, task, event, element)) in (0..).zip(events) {
        let host = format!("h{host}").into();
        records.events.push(EventRecord {
            host,
            ts_ns,
            seq,
            event: event.into(),
            task: task.into(),
        });
        let element = element.map(|element| format!("e{element}").into());
        let owner = RecordOwner::Event(seq);
        records
            .elements
            .extend(element.map(|element| ElementRecord { owner, element }));
    }
    records
}

/// Believed relations, by the text of labels.
struct Beliefs {
    before: BTreeSet<(String, String)>,
    apart: BTreeSet<(String, String)>,
    pipelines: Vec<(String, String)>,
}

fn beliefs(all: &[TraceRecords]) -> (Beliefs, Vec<SegmentedTrace>, Model) {
    let mut labels = Labels::default();
    let traces: Vec<SegmentedTrace> = all
        .iter()
        .map(|records| segment(records, &mut labels).0)
        .collect();
    let (model, relations) = learn(&traces, labels);
    let name = |id: SegmentId| {
        model
            .labels()
            .get(id)
            .expect("segments have labels")
            .to_string()
    };
    let believed = Beliefs {
        before: relations
            .all_happens_before()
            .iter()
            .map(|r| (name(r.first), name(r.second)))
            .collect(),
        apart: model
            .pairs()
            .into_iter()
            .filter(|p| p.overlaps == 0)
            .map(|p| (name(p.a), name(p.b)))
            .collect(),
        pipelines: pipelines(&relations),
    };
    (believed, traces, model)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]
    /// Clocks are up to 100 ms off and drift. The model still believes all true relations. It
    /// believes none that the truth would contradict even if it were known only within the clocks'
    /// error bounds.
    #[test]
    fn wrong_clocks_hide_no_lock_no_pipeline_and_no_order(seed in any::<u64>(), elements in 2usize..5) {
        let mut random = Random(seed);
        let fleet = Fleet::random(&mut random, 3);
        let truth: Vec<TraceRecords> = (0..150)
            .map(|second| {
                let request = Request::random(&mut random, elements);
                as_log(&request, &mut random, second * 5)
            })
            .collect();
        let skewed: Vec<TraceRecords> = truth.iter().map(|records| fleet.skew(records)).collect();
        let mut evidence = ClockEvidence::new();
        skewed.iter().for_each(|records| evidence.observe(records));
        let alignment = evidence.align(Some("h0"));
        prop_assert!(alignment.is_needed() && alignment.unaligned().is_empty());
        let mut aligned = skewed.clone();
        for ((records, recorded), truth) in aligned.iter_mut().zip(&skewed).zip(&truth) {
            alignment.apply(records);
            prop_assert_eq!(alignment.contradictions(recorded), 0);
            for (event, true_event) in records.events.iter().zip(&truth.events) {
                let error_ns = records.clocks.iter().find(|clock| clock.host == event.host).map_or(0, |c| c.error_ns);
                let off_ns = event.ts_ns.abs_diff(fleet.clocks[0].read(true_event.ts_ns));
                prop_assert!(off_ns <= error_ns, "{} is off by {off_ns} ns, over {error_ns}", event.host);
            }
        }
        // The true records under more than twice the error bounds: an order that they contradict is
        // also contradicted in the aligned records.
        let vaguely: Vec<TraceRecords> = truth.iter().zip(&aligned).map(|(truth, aligned)| {
            let mut clocks = aligned.clocks.clone();
            clocks.iter_mut().for_each(|clock| clock.error_ns = 2 * clock.error_ns + 1_000);
            TraceRecords { clocks, ..truth.clone() }
        }).collect();
        let (exact, exact_traces, exact_model) = beliefs(&truth);
        let (found, traces, model) = beliefs(&aligned);
        let (vague, ..) = beliefs(&vaguely);
        prop_assert_eq!(exact_model.pairs(), naive::pairs(&exact_traces, exact_model.labels().len()));
        prop_assert_eq!(model.pairs(), naive::pairs(&traces, model.labels().len()));
        prop_assert!(exact.before.is_subset(&found.before) && found.before.is_subset(&vague.before));
        prop_assert!(exact.apart.is_subset(&found.apart) && found.apart.is_subset(&vague.apart));
        let is_before = |a: &str, b: &str| found.before.contains(&(a.to_owned(), b.to_owned()));
        for (task, names) in [("maker", "make … made"), ("a", "a locks … a unlocks"), ("b", "b locks … b unlocks")] {
            let segment = format!("{task} [{names}]");
            prop_assert!(is_before("request [asks one … one is asked]", &segment), "{segment}");
            prop_assert!(is_before(&segment, "request [joined … end]"), "{segment}");
        }
        let lock = ["a [a locks … a unlocks]", "b [b locks … b unlocks]"].map(str::to_owned);
        prop_assert!(found.apart.contains(&(lock[0].clone(), lock[1].clone())));
        prop_assert!(!is_before(&lock[0], &lock[1]) && !is_before(&lock[1], &lock[0]), "both orders occur");
        let pipeline = ("maker".to_owned(), "shower".to_owned());
        prop_assert!(exact.pipelines.contains(&pipeline) && found.pipelines.contains(&pipeline));
        // An unchanged replay of the inferred relations equals the request. One segment at a time
        // may grow.
        let relations = model.relations(0.0);
        let waiting = WaitModel::unknown(&relations);
        for trace in traces.iter().take(30) {
            let path = analyse(trace, &relations);
            prop_assert_eq!(path.critical_path_ns, trace.latency_ns());
            let mut unchanged = WhatIf::new(&waiting, |_, _| Some(Change::Scale(1.0)));
            prop_assert_eq!(unchanged.replay(trace, &path, model.labels()).latency_ns, trace.latency_ns());
            for (index, timing) in path.segments.iter().enumerate() {
                let grown = |by_ns: u64| replay(trace, &path, &relations, |at| {
                    path.segments[at].duration_ns() + if at == index { by_ns } else { 0 }
                });
                prop_assert_eq!(grown(timing.slack_ns), path.latency_ns);
                prop_assert_eq!(grown(timing.slack_ns + 1), path.latency_ns + 1);
            }
        }
    }
}
