//! Exclusion of segments, convergence of a model, and changes between two models.

use crate::generator::{Random, Structure, labels};
use stroboscope_analysis::convergence::{Convergence, POINTS_MAX};
use stroboscope_analysis::exclusion::Exclusion;
use stroboscope_analysis::label::{Labels, SegmentId};
use stroboscope_analysis::model::Model;
use stroboscope_analysis::record::TraceId;
use stroboscope_analysis::segment::{ElementId, Segment, SegmentedTrace};
use stroboscope_analysis::structural_change::StructuralChange;

/// Returns a trace of segments, given as (label, start, end).
fn trace(segments: &[(u32, i64, i64)]) -> SegmentedTrace {
    let segments = segments
        .iter()
        .map(|&(id, start_ns, end_ns)| Segment::new(SegmentId(id), start_ns, end_ns));
    SegmentedTrace::new(TraceId(7), None, i64::MAX, i64::MIN, segments.collect())
}

fn model_of(labels: Labels, traces: &[&[(u32, i64, i64)]]) -> Model {
    let mut model = Model::new();
    *model.labels_mut() = labels;
    traces
        .iter()
        .for_each(|segments| model.observe(&trace(segments)));
    model
}

#[test]
fn excluded_segments_leave_a_gap() {
    let mut labels = labels(3);
    let asked = std::cell::Cell::new(0);
    let mut exclusion = Exclusion::new(|label: &stroboscope_analysis::label::SegmentLabel| {
        asked.set(asked.get() + 1);
        label.task.ends_with('1')
    });
    let mut first = trace(&[(0, 0, 5), (1, 5, 9), (2, 6, 7), (1, 9, 10)]);
    exclusion.remove_from(&mut first, &labels);
    assert_eq!(
        first.segments.iter().map(|s| s.id.0).collect::<Vec<_>>(),
        [0, 2]
    );
    assert_eq!(
        (first.latency_ns(), exclusion.removed(), asked.get()),
        (10, 2, 3)
    );
    // A label that was added later.
    labels.intern(&"late1".into(), &"start".into(), &"end".into());
    let mut second = trace(&[(3, 0, 5), (0, 5, 9)]);
    exclusion.remove_from(&mut second, &labels);
    assert_eq!(
        (second.segments.len(), exclusion.removed(), asked.get()),
        (1, 3, 4)
    );
}

#[test]
fn a_series_counts_what_comes_and_goes() {
    let mut random = Random(4);
    let structure = Structure::random(&mut random, 0, 15);
    let mut model = model_of(labels(15), &[]);
    let mut convergence = Convergence::every(10, 0.0);
    for _ in 0..95 {
        model.observe(&structure.run(&mut random));
        convergence.observe(&model);
    }
    assert_eq!(
        convergence
            .points()
            .iter()
            .map(|p| p.traces)
            .collect::<Vec<_>>(),
        [10, 20, 30, 40, 50, 60, 70, 80, 90]
    );
    convergence.finish(&model);
    convergence.finish(&model);
    let points = convergence.points();
    assert_eq!(
        (points.len(), points[9].traces, points[9].segments),
        (10, 95, 15)
    );
    let mut believed = (0, 0);
    for point in points {
        let c = point.changes;
        believed.0 = believed.0 + c.happens_before_added - c.happens_before_removed;
        believed.1 = believed.1 + c.mutual_exclusion_added - c.mutual_exclusion_removed;
        assert_eq!(believed, (point.happens_before, point.mutual_exclusion));
    }
    assert_eq!(
        points[9].happens_before,
        model.relations(0.0).all_happens_before().len()
    );
}

#[test]
fn a_long_series_is_thinned_without_losing_changes() {
    let mut model = model_of(labels(20), &[]);
    let mut convergence = Convergence::every(1, 0.0);
    let mut random = Random(20);
    let structure = Structure::random(&mut random, 0, 20);
    for _ in 0..3 * POINTS_MAX {
        model.observe(&structure.run(&mut random));
        convergence.observe(&model);
        assert!(convergence.points().len() < POINTS_MAX);
    }
    let points = convergence.points();
    assert!(
        points
            .windows(2)
            .all(|pair| pair[0].traces < pair[1].traces)
    );
    let total = |pick: fn(&stroboscope_analysis::model::Changes) -> usize| {
        points.iter().map(|p| pick(&p.changes)).sum::<usize>()
    };
    assert!(total(|c| c.happens_before_removed) > 0);
    let last = points[points.len() - 1];
    assert_eq!(
        total(|c| c.happens_before_added) - total(|c| c.happens_before_removed),
        last.happens_before
    );
}

#[track_caller]
fn check(
    before: &[&[(u32, i64, i64)]],
    after: &[&[(u32, i64, i64)]],
    gained: &[&str],
    lost: &[&str],
) -> StructuralChange {
    // The second model numbers the labels in reverse order.
    let mut turned = Labels::default();
    for number in (0..5).rev() {
        turned.intern(
            &format!("t{number:03}").into(),
            &"start".into(),
            &"end".into(),
        );
    }
    let renumbered: Vec<Vec<(u32, i64, i64)>> = after
        .iter()
        .map(|t| {
            t.iter()
                .map(|(id, start, end)| (4 - id, *start, *end))
                .collect()
        })
        .collect();
    let renumbered: Vec<&[(u32, i64, i64)]> = renumbered.iter().map(Vec::as_slice).collect();
    let change = StructuralChange::between(
        &model_of(labels(5), before),
        &model_of(turned, &renumbered),
        0.0,
        1.0,
    );
    let shown = |changed: &[stroboscope_analysis::structural_change::ChangedRelation]| {
        let text = changed
            .iter()
            .map(|c| c.relation.to_string().replace(" [start … end]", ""));
        text.collect::<Vec<_>>()
    };
    assert_eq!(
        (shown(&change.gained), shown(&change.lost)),
        (
            gained.iter().map(|s| s.to_string()).collect(),
            lost.iter().map(|s| s.to_string()).collect()
        )
    );
    change
}

#[test]
fn ranges_are_compared_by_name() {
    let in_order: &[(u32, i64, i64)] = &[(0, 0, 5), (1, 5, 9)];
    let turned: &[(u32, i64, i64)] = &[(1, 0, 5), (0, 5, 9)];
    let at_once: &[(u32, i64, i64)] = &[(0, 0, 5), (1, 4, 9)];
    check(&[in_order], &[in_order], &[], &[]);
    check(&[in_order], &[at_once], &[], &["t000 → t001"]);
    check(&[at_once], &[turned], &["t001 → t000"], &[]);
    let change = check(&[in_order, turned], &[in_order], &["t000 → t001"], &[]);
    // Segments that are always in order never overlap either, so no exclusion is lost.
    assert_eq!(
        (
            change.gained[0].before.contradictions,
            change.gained[0].after.cooccurrences
        ),
        (1, 1)
    );
    let change = check(
        &[&[(0, 0, 5), (1, 5, 9), (2, 9, 9)]],
        &[&[(0, 0, 5), (3, 5, 9), (1, 9, 9)]],
        &[],
        &[],
    );
    assert_eq!(
        change
            .appeared
            .iter()
            .map(|s| &*s.label.task)
            .collect::<Vec<_>>(),
        ["t003"]
    );
    assert_eq!(
        change
            .vanished
            .iter()
            .map(|s| &*s.label.task)
            .collect::<Vec<_>>(),
        ["t002"]
    );
    assert_eq!((change.untested_before, change.untested_after), (2, 2));
}

#[test]
fn pipelines_are_compared_as_well() {
    let pipeline = |elements: &[(u32, i64, u32)]| {
        let mut model = model_of(labels(2), &[]);
        let segments = elements.iter().map(|&(id, start_ns, element)| Segment {
            element: ElementId(element),
            ..Segment::new(SegmentId(id), start_ns, start_ns + 1)
        });
        model.observe(&SegmentedTrace::new(
            TraceId(1),
            None,
            0,
            0,
            segments.collect(),
        ));
        model
    };
    let flows = pipeline(&[(0, 0, 1), (0, 1, 2), (1, 2, 1), (1, 3, 2)]);
    let swapped = pipeline(&[(0, 0, 1), (0, 1, 2), (1, 2, 2), (1, 3, 1)]);
    let change = StructuralChange::between(&flows, &swapped, 0.0, 1.0);
    assert_eq!(
        change
            .lost
            .iter()
            .map(|c| c.relation.to_string())
            .collect::<Vec<_>>(),
        ["t000 ≫ t001"]
    );
    assert_eq!(
        StructuralChange::between(&swapped, &flows, 0.0, 1.0)
            .gained
            .len(),
        1
    );
}
