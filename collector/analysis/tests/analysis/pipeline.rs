//! Pipelines against their definition, and in logs that name the element in either way.

use crate::generator::any_trace;
use crate::segmentation::parse;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use stroboscope_analysis::critical_path::analyse;
use stroboscope_analysis::label::Labels;
use stroboscope_analysis::model::{Model, PIPELINE_TASKS_MAX, PipelineCounts};
use stroboscope_analysis::record::{
    ElementRecord, EventRecord, RecordOwner, SpanFlags, SpanRecord, TraceRecords,
};
use stroboscope_analysis::segment::{ClockBounds, ClockId, ElementId, SegmentedTrace, Segmenter};

/// Six labels of three tasks.
fn labels() -> Labels {
    let mut labels = Labels::default();
    for number in 0..6 {
        let (task, start) = (format!("t{}", number % 3), format!("e{number}"));
        labels.intern(&task.into(), &start.into(), &"end".into());
    }
    labels
}

fn any_elements(clocks: u16) -> impl Strategy<Value = SegmentedTrace> {
    let marks = proptest::collection::vec((0u32..5, 0..clocks), 12);
    (any_trace(6, 12), marks).prop_map(|(mut trace, marks)| {
        for (segment, (element, clock)) in trace.segments.iter_mut().zip(marks) {
            segment.element = if element == 4 {
                ElementId::NONE
            } else {
                ElementId(element)
            };
            (segment.start_clock, segment.end_clock) = (ClockId(clock), ClockId(clock));
        }
        trace.clocks = [0, 3, 7].map(ClockBounds::within).to_vec();
        trace
    })
}

/// A task's time on an element: start, end, and their clocks.
type Stay = (i64, i64, ClockId, ClockId);

fn stays(trace: &SegmentedTrace, task: u32) -> BTreeMap<ElementId, Stay> {
    let mut stays: BTreeMap<ElementId, Stay> = BTreeMap::new();
    for s in trace
        .segments
        .iter()
        .filter(|s| s.id.0 % 3 == task && s.element != ElementId::NONE)
    {
        let stay =
            stays
                .entry(s.element)
                .or_insert((s.start_ns, s.end_ns, s.start_clock, s.end_clock));
        if s.end_ns > stay.1 {
            (stay.1, stay.3) = (s.end_ns, s.end_clock);
        }
    }
    stays
}

fn naive(traces: &[SegmentedTrace]) -> Vec<(String, String, PipelineCounts)> {
    let mut all = Vec::new();
    for (first, second) in (0..3)
        .flat_map(|a| (0..3).map(move |b| (a, b)))
        .filter(|(a, b)| a != b)
    {
        let mut counts = PipelineCounts::default();
        for trace in traces {
            let (one, other) = (stays(trace, first), stays(trace, second));
            let shared: Vec<(Stay, Stay)> = one
                .iter()
                .filter_map(|(element, stay)| Some((*stay, *other.get(element)?)))
                .collect();
            if shared.is_empty() {
                continue;
            }
            let error = |clock: ClockId| trace.clock_bounds(clock).error_ns as i64;
            let clocks = |side: fn(&(Stay, Stay)) -> Stay| {
                shared
                    .iter()
                    .map(|pair| side(pair).2)
                    .collect::<BTreeSet<_>>()
                    .len()
            };
            let (clocks_of_first, clocks_of_second) =
                (clocks(|pair| pair.0), clocks(|pair| pair.1));
            let surely_before = |a: Stay, b: Stay, clocks: usize| {
                let tolerance = if clocks == 1 {
                    0
                } else {
                    error(a.2) + error(b.2)
                };
                a.0 + tolerance < b.0
            };
            let early = shared
                .iter()
                .any(|(a, b)| (b.0 + trace.tolerance_ns(b.2, a.3) as i64) < a.1);
            let reordered = shared.iter().any(|(a1, a2)| {
                shared.iter().any(|(b1, b2)| {
                    surely_before(*a1, *b1, clocks_of_first)
                        && surely_before(*b2, *a2, clocks_of_second)
                })
            });
            counts.cooccurrences += 1;
            counts.ordered += u64::from(shared.len() > 1);
            counts.contradictions += u64::from(early || reordered);
            counts.elements += shared.len() as u64;
        }
        if counts.cooccurrences > 0 {
            all.push((format!("t{first}"), format!("t{second}"), counts));
        }
    }
    all
}

fn model_of(traces: &[SegmentedTrace]) -> Model {
    let mut model = Model::new();
    *model.labels_mut() = labels();
    traces.iter().for_each(|trace| model.observe(trace));
    model
}

fn found(model: &Model) -> Vec<(String, String, PipelineCounts)> {
    model
        .pipelines()
        .into_iter()
        .map(|(a, b, counts)| (a.to_string(), b.to_string(), counts))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn counts_equal_the_definition(
        traces in prop_oneof![
            proptest::collection::vec(any_elements(1), 0..8),
            proptest::collection::vec(any_elements(4), 0..8),
        ],
        cut in 0usize..8,
    ) {
        let model = model_of(&traces);
        prop_assert_eq!(found(&model), naive(&traces));
        let cut = cut.min(traces.len());
        let mut merged = model_of(&traces[cut..]);
        merged.merge(&model_of(&traces[..cut]));
        prop_assert_eq!(found(&merged), found(&model));
        prop_assert_eq!(Model::from_parts(&merged.parts()).expect("parts").relations(0.2), merged.relations(0.2));
        for tolerance in [0.0, 0.3] {
            let believed: Vec<_> = found(&model)
                .into_iter()
                .filter(|(_, _, c)| c.ordered > 0 && c.contradictions as f64 <= tolerance * c.cooccurrences as f64)
                .map(|(first, second, c)| (first, second, c.elements))
                .collect();
            let relations = model.relations(tolerance);
            let listed = relations.all_pipelines().iter();
            let listed: Vec<_> = listed.map(|p| (p.first.to_string(), p.second.to_string(), p.elements)).collect();
            prop_assert_eq!(&listed, &believed);
            for trace in &traces {
                for (a, b) in trace.segments.iter().flat_map(|a| trace.segments.iter().map(move |b| (a, b))) {
                    let tasks = (format!("t{}", a.id.0 % 3), format!("t{}", b.id.0 % 3));
                    let expected = a.element == b.element
                        && a.element != ElementId::NONE
                        && believed.iter().any(|(first, second, _)| (first, second) == (&tasks.0, &tasks.1));
                    prop_assert_eq!(relations.pipelined(a, b), expected);
                }
            }
        }
    }
}

/// Returns an event log of the lines `task event time` or `task event time element`.
fn log(lines: &str) -> TraceRecords {
    let mut records = TraceRecords::default();
    for (seq, line) in lines
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .enumerate()
    {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (seq, ts_ns) = (seq as u32, words[2].parse().expect("a time"));
        let (task, event) = (words[0].into(), words[1].into());
        records.events.push(EventRecord {
            host: "h".into(),
            ts_ns,
            seq,
            event,
            task,
        });
        if let Some(element) = words.get(3) {
            let owner = RecordOwner::Event(seq);
            records.elements.push(ElementRecord {
                owner,
                element: (*element).into(),
            });
        }
    }
    records
}

#[track_caller]
fn check(segmenter: &mut Segmenter, lines: &str, expected: &str) -> (SegmentedTrace, Model) {
    let mut model = Model::new();
    let (trace, _) = segmenter.segment(&log(lines), model.labels_mut());
    model.observe(&trace);
    let relations = model.relations(0.0);
    let pipelines = relations.all_pipelines().iter();
    let shown: Vec<String> = pipelines
        .map(|p| format!("{}>>{} {}", p.first, p.second, p.elements))
        .collect();
    assert_eq!(shown.join(", "), expected);
    (trace, model)
}

const SENDER: &str = "send begin 0 a\n send sent 10 a\n send sent 20 b\n send sent 30 c\n";

#[test]
fn elements_that_flow_in_order_are_a_pipeline() {
    let mut plain = Segmenter::default();
    let shower = "show start 0\n show begin 12 a\n show end 15 a\n show begin 21 b\n show end 40 b\n show begin 40 c\n show end 44 c";
    check(&mut plain, &format!("{SENDER}{shower}"), "send>>show 3");
    // The elements are shown in another order.
    let swapped = "show begin 32 b\n show end 35 b\n show begin 36 a\n show end 40 a";
    check(&mut plain, &format!("{SENDER}{swapped}"), "");
    // Work that is logged only at its end may have waited before.
    check(
        &mut plain,
        &format!("{SENDER}show shown 11 a\n show shown 22 b\n show shown 33 c"),
        "send>>show 2",
    );
    check(
        &mut plain,
        &format!("{SENDER}show shown 11 a\n show shown 19 b\n show shown 33 c"),
        "",
    );
    let early = "show begin 9 a\n show end 11 a\n show begin 36 b\n show end 40 b";
    check(&mut plain, &format!("{SENDER}{early}"), "");
    check(
        &mut plain,
        &format!("{SENDER}show begin 32 b\n show end 35 b"),
        "",
    );
}

#[test]
fn an_element_is_waited_for() {
    let mut records = TraceRecords::default();
    let mut span = |name: &str, start_ns, end_ns, element: &str| {
        let span_id = records.spans.len() as u64 + 1;
        records.spans.push(SpanRecord {
            span_id,
            parent_id: u64::from(span_id > 1),
            service: "s".into(),
            name: name.into(),
            host: "h".into(),
            process: 1,
            start_ns,
            end_ns,
            flags: SpanFlags(0),
            events: Vec::new(),
        });
        if !element.is_empty() {
            let owner = RecordOwner::Span(span_id);
            records.elements.push(ElementRecord {
                owner,
                element: element.into(),
            });
        }
    };
    span("page", 0, 50, "");
    [
        ("send", 0, 10, "a"),
        ("send", 10, 20, "b"),
        ("show", 12, 18, "a"),
        ("show", 20, 50, "b"),
    ]
    .into_iter()
    .for_each(|(name, start_ns, end_ns, element)| span(name, start_ns, end_ns, element));
    let mut model = Model::new();
    let (trace, _) = Segmenter::default().segment(&records, model.labels_mut());
    model.observe(&trace);
    let relations = model.relations(0.0);
    assert_eq!(&*relations.all_pipelines()[0].second, "s:page > s:show"); // siblings with elements have no number
    let path = analyse(&trace, &relations);
    let shown: Vec<_> = path
        .segments
        .iter()
        .map(|s| (s.start_ns, s.wait_ns, s.critical, s.slack_ns))
        .collect();
    // Without the pipeline, b would seem to have waited for a to be shown.
    assert_eq!(
        shown,
        [
            (0, 0, true, 0),
            (10, 0, true, 0),
            (12, 2, false, 2),
            (20, 0, true, 0)
        ]
    );
}

#[test]
fn trailing_tokens_name_elements_if_asked_for() {
    let lines = "send begin-1 0\n send sent-1 10\n send sent-2 20\n show begin/1 12\n show end:1 15\n show begin/2 21\n show end:2 29";
    check(&mut Segmenter::default(), lines, "");
    let mut segmenter = Segmenter::with_trailing_elements();
    let (_, model) = check(&mut segmenter, lines, "send>>show 2");
    let labels: Vec<String> = model
        .labels()
        .iter()
        .map(|(_, label)| label.to_string())
        .collect();
    assert_eq!(
        labels,
        [
            "send [begin-* … sent-*]",
            "send [sent-* … sent-*]",
            "show [begin/* … end:*]",
            "show [end:* … begin/*]"
        ]
    );
    // A word that is not an id remains a part of the name.
    let (_, model) = check(&mut segmenter, "a x-one 0\n a v2 1\n a 7 2\n a q- 3", "");
    assert_eq!(
        model.labels().iter().next().map(|(_, l)| l.to_string()),
        Some("a [x-one … v2]".into())
    );
    assert!(model.labels().id("a", "7", "q-").is_some());
}

#[test]
fn tasks_past_the_bound_are_counted() {
    let lines: String = (0..PIPELINE_TASKS_MAX + 3)
        .map(|i| format!("t{i} a {i} x\n t{i} b {} x\n", i + 1))
        .collect();
    let mut model = Model::new();
    let (trace, _) = Segmenter::default().segment(&log(&lines), model.labels_mut());
    model.observe(&trace);
    assert_eq!(model.refused_pipeline_tasks(), 3);
    assert_eq!(
        model.pipelines().len(),
        PIPELINE_TASKS_MAX * (PIPELINE_TASKS_MAX - 1)
    );
    assert!(model.relations(0.0).all_pipelines().is_empty()); // one element has no order
}

/// The spans of the sender and of the shower have events about each element.
#[test]
fn events_inside_spans_are_about_elements() {
    let pipelines = |tree: &str| {
        let mut model = Model::new();
        let mut records = parse(tree);
        for forwards in [true, false] {
            let (trace, _) = Segmenter::default().segment(&records, model.labels_mut());
            model.observe(&trace);
            if forwards {
                records
                    .spans
                    .iter_mut()
                    .for_each(|span| span.events.reverse());
            }
        }
        let relations = model.relations(0.0);
        let shown = relations.all_pipelines().iter();
        let shown = shown.map(|p| format!("{}>>{} {}", p.first, p.second, p.elements));
        shown.collect::<Vec<_>>().join(", ")
    };
    const SENDER: &str = "web:page 0..100\n web:send 0..40 !began=a@0 !sent=a@10 !began=b@11 !sent=b@20 !began=c@21 !sent=c@30\n";
    let shown = |name: &str, at: [i64; 3]| {
        let [a, b, c] = at.map(|ts_ns| (ts_ns, ts_ns + 5));
        let (a0, a1, b0, b1, c0, c1) = (a.0, a.1, b.0, b.1, c.0, c.1);
        format!(
            "{SENDER} web:{name} 40..90 !show=a@{a0} !shown=a@{a1} !show=b@{b0} !shown=b@{b1} !show=c@{c0} !shown=c@{c1}"
        )
    };
    let sent = "web:page > web:send";
    assert_eq!(
        pipelines(&shown("show", [45, 55, 65])),
        format!("{sent}>>web:page > web:show 6")
    );
    assert_eq!(pipelines(&shown("show", [45, 65, 55])), "");
    // Only the ends are logged: `a` has no beginning, and `b` and `c` are in order.
    let done = format!("{SENDER} web:show 40..90 !shown=a@45 !shown=b@55 !shown=c@65");
    assert_eq!(pipelines(&done), format!("{sent}>>web:page > web:show 4"));
    // Events that name no element form no pipeline.
    let none = format!("{SENDER} web:show 40..90 !shown@45 !shown@55 !shown@65");
    assert_eq!(pipelines(&none), "");
}
