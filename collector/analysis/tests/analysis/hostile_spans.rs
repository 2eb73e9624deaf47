//! Arbitrary records: ids repeat, parents are missing or are their own children, spans end before
//! they start.

use crate::generator::Random;
use proptest::prelude::*;
use stroboscope_analysis::completeness::completeness;
use stroboscope_analysis::critical_path::analyse;
use stroboscope_analysis::label::Labels;
use stroboscope_analysis::model::Model;
use stroboscope_analysis::record::{PointEvent, SpanFlags, SpanRecord, TraceRecords};
use stroboscope_analysis::segment::{Segmenter, segment};

fn any_span() -> impl Strategy<Value = SpanRecord> {
    let events = proptest::collection::vec((0i64..44, "[ab]"), 0..3);
    let flags = prop_oneof![
        4 => Just(SpanFlags(0)),
        1 => Just(SpanFlags::CLIENT),
        1 => Just(SpanFlags::SERVER),
        1 => Just(SpanFlags::CUT_CLOSE),
    ];
    (
        0u64..9,
        0u64..9,
        "[xy]",
        0i64..40,
        -3i64..30,
        (flags, events),
    )
        .prop_map(
            |(span_id, parent_id, name, start_ns, length_ns, (flags, events))| SpanRecord {
                span_id,
                parent_id,
                service: "s".into(),
                name: name.into(),
                host: "h".into(),
                process: 1,
                start_ns,
                end_ns: start_ns + length_ns,
                flags,
                events: events
                    .into_iter()
                    .map(|(time_ns, name)| PointEvent {
                        time_ns,
                        name: name.into(),
                        element: None,
                    })
                    .collect(),
            },
        )
}

/// Generates a tree of spans with the ids 1, 2 …, in which parents precede their children. Names
/// are the ids, so each span is its own task.
fn any_tree() -> impl Strategy<Value = Vec<SpanRecord>> {
    proptest::collection::vec(any_span(), 1..10).prop_map(|mut spans| {
        for (index, span) in spans.iter_mut().enumerate() {
            span.span_id = index as u64 + 1;
            span.parent_id = if index == 0 {
                0
            } else {
                1 + span.parent_id % index as u64
            };
            span.name = format!("n{}", span.span_id).into();
        }
        spans
    })
}

/// Reports whether a span may have waited for one of its children. One clock took all times.
fn is_waited_for(child: &SpanRecord, parent: &SpanRecord) -> bool {
    let is_call =
        parent.flags.contains(SpanFlags::CLIENT) || child.flags.contains(SpanFlags::SERVER);
    let end_ns = parent.end_ns.max(parent.start_ns);
    let outlives =
        child.end_ns.max(child.start_ns) > end_ns && !parent.flags.contains(SpanFlags::CUT_CLOSE);
    !outlives || (is_call && child.start_ns <= end_ns)
}

/// Returns the number of unit intervals of a span's time without a child for which the span waits.
fn own_time(spans: &[SpanRecord], span: &SpanRecord) -> u64 {
    let covers = |s: &SpanRecord, t: i64| s.start_ns <= t && t < s.end_ns;
    let is_child = |s: &&SpanRecord| s.parent_id == span.span_id && is_waited_for(s, span);
    let children: Vec<&SpanRecord> = spans.iter().filter(is_child).collect();
    (span.start_ns..span.end_ns)
        .filter(|t| !children.iter().any(|child| covers(child, *t)))
        .count() as u64
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn a_span_is_cut_into_exactly_its_own_time(spans in any_tree()) {
        let records = TraceRecords { spans, ..Default::default() };
        let mut labels = Labels::default();
        let (trace, _) = segment(&records, &mut labels);
        for span in &records.spans {
            let operation = format!("s:n{}", span.span_id);
            let own: Vec<_> = trace
                .segments
                .iter()
                .filter(|s| labels.get(s.id).is_some_and(|label| label.operation() == operation))
                .collect();
            prop_assert_eq!(own.iter().map(|s| s.duration_ns()).sum::<u64>(), own_time(&records.spans, span));
            prop_assert!(own.iter().all(|s| span.start_ns <= s.start_ns && s.end_ns <= span.end_ns));
            prop_assert!(own.windows(2).all(|pair| pair[0].end_ns <= pair[1].start_ns));
            // No segment crosses the end of a span that waits for it.
            let mut answers = Vec::new();
            let mut child = span;
            while let Some(parent) = records.spans.iter().find(|s| s.span_id == child.parent_id) {
                if !is_waited_for(child, parent) {
                    break;
                }
                if !parent.flags.contains(SpanFlags::CUT_CLOSE) {
                    answers.push(parent.end_ns.max(parent.start_ns));
                }
                child = parent;
            }
            if let Some(answer_ns) = answers.into_iter().min() {
                prop_assert!(own.iter().all(|s| s.end_ns <= answer_ns || answer_ns <= s.start_ns));
            }
        }
        let root = &records.spans[0];
        let is_known = !root.flags.contains(SpanFlags::CUT_CLOSE);
        prop_assert_eq!(trace.answer_ns, if is_known { root.end_ns.max(root.start_ns) } else { trace.end_ns });
    }

    #[test]
    fn nothing_breaks_and_order_does_not_matter(
        spans in proptest::collection::vec(any_span(), 0..14), seed in any::<u64>(),
        twins in proptest::collection::vec((any::<prop::sample::Index>(), any_span()), 0..3),
    ) {
        let mut records = TraceRecords { spans, ..Default::default() };
        // Some ids repeat, with other flags and events.
        for (of, twin) in twins.into_iter().filter(|_| !records.spans.is_empty()).collect::<Vec<_>>() {
            let SpanRecord { flags, events, .. } = twin;
            records.spans.push(SpanRecord { flags, events, ..of.get(&records.spans).clone() });
        }
        let mut model = Model::new();
        let (trace, diagnostics) = segment(&records, model.labels_mut());
        model.observe(&trace);
        let path = analyse(&trace, &model.relations(0.0));
        prop_assert_eq!(path.critical_path_ns, trace.latency_ns());
        let complete = completeness(&records, &[]);
        Random(seed).shuffle(&mut records.spans);
        let mut labels = Labels::default();
        prop_assert_eq!(segment(&records, &mut labels), (trace, diagnostics));
        prop_assert_eq!(completeness(&records, &[]), complete);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    /// A segmenter caches names across traces, even if the labels change.
    #[test]
    fn a_segmenter_cuts_as_a_new_one_does(
        traces in proptest::collection::vec((proptest::collection::vec(any_span(), 0..14), 0usize..2), 1..12),
    ) {
        let mut segmenter = Segmenter::default();
        let (mut labels, mut twins) = ([Labels::default(), Labels::with_max(9)], [Labels::default(), Labels::with_max(9)]);
        for (spans, which) in traces {
            let records = TraceRecords { spans, ..Default::default() };
            let cut = segmenter.segment(&records, &mut labels[which]);
            prop_assert_eq!(cut, segment(&records, &mut twins[which]));
            prop_assert_eq!(labels[which].refused(), twins[which].refused());
        }
    }
}

#[test]
fn long_chains_and_wide_fans_end_in_good_time() {
    let span = |span_id: u64, parent_id: u64| SpanRecord {
        span_id,
        parent_id,
        service: "s".into(),
        name: "n".into(),
        host: "h".into(),
        process: 1,
        start_ns: span_id as i64,
        end_ns: 1_000_000,
        flags: SpanFlags(0),
        events: Vec::new(),
    };
    let size = 20_000;
    let mut labels = Labels::default();
    for parent_of in [
        |id: u64| id - 1,
        |id: u64| u64::from(id > 1),
        |id: u64| id % 20_000 + 1,
    ] {
        let spans = (1..=size).map(|id| span(id, parent_of(id))).collect();
        let (trace, _) = segment(
            &TraceRecords {
                spans,
                ..Default::default()
            },
            &mut labels,
        );
        assert!(!trace.segments.is_empty());
    }
}

#[test]
fn the_largest_times_do_not_overflow() {
    let mut model = Model::new();
    let spans = vec![SpanRecord {
        span_id: 1,
        parent_id: 0,
        service: "s".into(),
        name: "n".into(),
        host: "h".into(),
        process: 1,
        start_ns: i64::MIN,
        end_ns: i64::MAX,
        flags: SpanFlags(0),
        events: Vec::new(),
    }];
    let (trace, _) = segment(
        &TraceRecords {
            spans,
            ..Default::default()
        },
        model.labels_mut(),
    );
    model.observe(&trace);
    assert_eq!(
        analyse(&trace, &model.relations(0.0)).critical_path_ns,
        u64::MAX
    );
}
