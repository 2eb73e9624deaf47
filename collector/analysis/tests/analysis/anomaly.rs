//! Tests of the differences of slow requests, and of the statistics behind them.

use crate::generator::Random;
use stroboscope_analysis::aggregate::PathAggregate;
use stroboscope_analysis::anomaly::{Anomalies, OUTLIER_PART, outlier_threshold_ns};
use stroboscope_analysis::critical_path::{TracePath, analyse};
use stroboscope_analysis::label::{Labels, SegmentId};
use stroboscope_analysis::model::Model;
use stroboscope_analysis::record::TraceId;
use stroboscope_analysis::sampling::{Weight, WeightedCount};
use stroboscope_analysis::segment::{Segment, SegmentedTrace};
use stroboscope_analysis::statistics::{
    ShareSample, benjamini_hochberg, correlation, student_two_sided, welch,
};

#[track_caller]
fn check_close(found: f64, expected: f64, within: f64) {
    assert!(
        (found - expected).abs() <= within,
        "{found} instead of {expected}"
    );
}

#[test]
fn tail_probabilities_equal_tables() {
    // Tables of Student's t: two-sided 5 %, 1 % and 0.1 %.
    for (t, freedom, p) in [
        (12.706_205, 1.0, 0.05),
        (2.228_139, 10.0, 0.05),
        (3.169_273, 10.0, 0.01),
        (4.586_894, 10.0, 0.001),
        (1.983_972, 100.0, 0.05),
        (1.959_966, 1e9, 0.05),
        (2.575_829, 1e9, 0.01),
    ] {
        check_close(student_two_sided(t, freedom), p, 1e-6);
        check_close(student_two_sided(-t, freedom), p, 1e-6);
    }
    assert_eq!(student_two_sided(0.0, 5.0), 1.0);
    assert_eq!(
        (
            student_two_sided(f64::INFINITY, 5.0),
            student_two_sided(f64::NAN, 5.0)
        ),
        (0.0, 1.0)
    );
}

fn sample(shares: &[u64]) -> ShareSample {
    let mut sample = ShareSample::default();
    for share in shares {
        sample.record(*share, 100, Weight::ONE);
    }
    sample
}

#[test]
fn samples_are_compared() {
    let (one, other) = (sample(&[10, 12, 14, 16, 18]), sample(&[20, 25, 30]));
    check_close(one.mean(), 0.14, 1e-9);
    check_close(one.variance(), 0.001, 1e-8);
    let difference = welch(&one, &other);
    // By hand: t = -0.11 / √(0.001/5 + 0.0025/3) = -3.4219 at 2.9891 degrees of freedom.
    check_close(difference.mean, -0.11, 1e-8);
    check_close(difference.effect_size, -0.11 / 0.0015f64.sqrt(), 1e-6);
    check_close(difference.p_value, student_two_sided(3.4219, 2.9891), 1e-5);
    assert_eq!(welch(&one, &one).p_value, 1.0);
    assert_eq!(welch(&one, &sample(&[9])).p_value, 1.0);
    assert_eq!(welch(&sample(&[9, 9]), &sample(&[7, 7])).p_value, 0.0);
    let mut four = WeightedCount::default();
    (0..4).for_each(|_| four.count(Weight::ONE));
    assert_eq!(sample(&[50, 50]).padded_to(four).mean(), 0.25);
    let mut merged = sample(&[10, 12]);
    merged.merge(&sample(&[14, 16, 18]));
    assert_eq!(merged, one);
}

#[test]
fn many_tests_are_corrected() {
    let found = benjamini_hochberg(&[0.01, 0.5, 0.02, 0.03]);
    for (found, expected) in found.into_iter().zip([0.04, 0.5, 0.04, 0.04]) {
        check_close(found, expected, 1e-12);
    }
    assert!(benjamini_hochberg(&[]).is_empty());
}

#[test]
fn correlations() {
    let of = |pairs: &[(f64, f64)]| correlation(pairs.iter().copied());
    check_close(
        of(&[(1.0, 2.0), (2.0, 4.0), (3.0, 6.0)]).expect("it varies"),
        1.0,
        1e-12,
    );
    check_close(
        of(&[(1.0, 1.0), (2.0, 3.0), (3.0, 2.0), (4.0, 4.0)]).expect("it varies"),
        0.8,
        1e-12,
    );
    check_close(
        of(&[(1.0, 6.0), (3.0, 2.0)]).expect("it varies"),
        -1.0,
        1e-12,
    );
    assert_eq!(
        (of(&[]), of(&[(1.0, 2.0)]), of(&[(1.0, 2.0), (1.0, 3.0)])),
        (None, None, None)
    );
    // The mean of ten times 7.1 is rounded.
    assert_eq!(of(&[(7.1, 7.1); 10]), None);
}

/// Returns paths of requests with segments 0 and 1 in series. One in twenty also has the debugging
/// segment 2, which is slow.
fn paths(random: &mut Random) -> Vec<(TraceId, TracePath)> {
    let mut model = Model::new();
    let mut labels = Labels::default();
    crate::generator::intern(&mut labels, 0..3);
    *model.labels_mut() = labels;
    let traces: Vec<SegmentedTrace> = (0..2000u32)
        .map(|number| {
            let mut at_ns = 0;
            let mut segment = |id: u32, duration_ns: i64| {
                at_ns += duration_ns;
                Segment::new(SegmentId(id), at_ns - duration_ns, at_ns)
            };
            let mut segments = vec![segment(0, 1000 + random.below(500) as i64)];
            if number % 20 == 7 {
                segments.push(segment(2, 3000 + random.below(100) as i64));
            }
            segments.push(segment(1, 1000 + random.below(500) as i64));
            SegmentedTrace::new(TraceId(u128::from(number)), None, 0, 0, segments)
        })
        .collect();
    traces.iter().for_each(|trace| model.observe(trace));
    let relations = model.relations(0.0);
    traces
        .iter()
        .map(|trace| (trace.id, analyse(trace, &relations)))
        .collect()
}

#[test]
fn a_debugging_segment_is_found() {
    let mut random = Random(3);
    let mut paths = paths(&mut random);
    let mut aggregate = PathAggregate::new();
    paths
        .iter()
        .for_each(|(_, path)| aggregate.observe(path, Weight::ONE));
    let threshold_ns = outlier_threshold_ns(aggregate.latency(), OUTLIER_PART);
    let collect = |paths: &[(TraceId, TracePath)]| {
        let mut anomalies = Anomalies::new(threshold_ns);
        paths
            .iter()
            .for_each(|(id, path)| anomalies.observe((*id, Weight::ONE), path));
        anomalies
    };
    let whole = collect(&paths);
    let requests = |of: &Anomalies| (of.requests().0.rounded(), of.requests().1.rounded());
    assert_eq!(requests(&whole), (100, 1900));
    let ranked = whole.ranked();
    let first = &ranked[0];
    assert_eq!(
        (
            first.segment,
            first.outliers.traces.rounded(),
            first.others.traces.rounded()
        ),
        (SegmentId(2), 100, 0)
    );
    assert_eq!(
        (
            first.outliers.critical_share.effective(),
            first.others.critical_share.effective()
        ),
        (100.0, 1900.0)
    );
    assert!(
        first.critical.mean > 0.5
            && first.critical.effect_size > 3.0
            && first.critical_q_value < 1e-9
    );
    assert!(first.examples.len() == 3 && first.examples.iter().all(|id| id.0 % 20 == 7));
    assert!(
        ranked[2].critical.mean < -0.1,
        "what is always there has a smaller share of slow requests"
    );
    random.shuffle(&mut paths);
    let mut merged = collect(&paths[700..]);
    merged.merge(&collect(&paths[..700]));
    assert_eq!(merged, whole);
}

/// A request of weight 4 counts like four equal requests; their number is less certain.
#[test]
fn a_weighted_request_counts_as_several() {
    let paths = paths(&mut Random(7));
    let threshold_ns = 4000;
    let four = Weight::of_threshold(3 << 54);
    let [mut once, mut several] = [(); 2].map(|()| Anomalies::new(threshold_ns));
    for (id, path) in &paths {
        let weight = if id.0 % 3 == 0 { four } else { Weight::ONE };
        once.observe((*id, weight), path);
        (0..weight.value() as u32).for_each(|_| several.observe((*id, Weight::ONE), path));
    }
    let (once, several) = (once.ranked(), several.ranked());
    for anomaly in &once {
        let other = several.iter().find(|of| of.segment == anomaly.segment);
        let other = other.expect("the same segments");
        for (group, of) in [
            (anomaly.outliers, other.outliers),
            (anomaly.others, other.others),
        ] {
            assert_eq!(group.traces.rounded(), of.traces.rounded());
            let (share, expected) = (group.critical_share, of.critical_share);
            check_close(share.mean(), expected.mean(), 1e-9);
            check_close(share.variance(), expected.variance(), 1e-3);
            assert!(share.effective() < expected.effective());
        }
        check_close(anomaly.critical.mean, other.critical.mean, 1e-9);
        assert!(anomaly.critical.p_value >= other.critical.p_value);
    }
}

#[test]
fn without_outliers_nothing_is_sure() {
    let paths = paths(&mut Random(5));
    let mut anomalies = Anomalies::new(u64::MAX);
    paths
        .iter()
        .for_each(|(id, path)| anomalies.observe((*id, Weight::ONE), path));
    let (outliers, others) = anomalies.requests();
    assert_eq!((outliers.rounded(), others.rounded()), (0, 2000));
    assert!(
        anomalies
            .ranked()
            .iter()
            .all(|a| a.critical_q_value == 1.0 && a.examples.is_empty())
    );
}
