//! Uses of slack: validation by natural variation, prediction from history, and breakdown by
//! category and stratum.

use crate::generator::{Random, any_trace, labels};
use proptest::prelude::*;
use stroboscope_analysis::breakdown::{
    Breakdown, OTHER_STRATUM, QuantileSample, SAMPLE_MAX, SHARE_STEPS, STRATA_MAX,
    StratifiedBreakdown, quantile_stratum,
};
use stroboscope_analysis::category::SpanKinds;
use stroboscope_analysis::critical_path::{TracePath, analyse};
use stroboscope_analysis::distribution::Distribution;
use stroboscope_analysis::label::{Labels, SegmentId};
use stroboscope_analysis::model::Model;
use stroboscope_analysis::prediction::{SlackHistory, rank};
use stroboscope_analysis::record::{SpanFlags, SpanRecord, TraceId, TraceRecords};
use stroboscope_analysis::sampling::{Weight, WeightedCount};
use stroboscope_analysis::segment::{Segment, SegmentedTrace, segment};
use stroboscope_analysis::slack_validation::{ServerTime, SlackValidation, heat_cell_ns};

/// Returns requests in which a server works and then a page is shown. The page also needs another
/// part, which may take longer.
fn requests(count: usize) -> Vec<(SegmentedTrace, TracePath)> {
    let mut random = Random(12);
    let mut trace = |number: usize| {
        let server_ns = 1000 + random.below(5000) as i64;
        let other_ns = random.below(12_000) as i64;
        let ready_ns = server_ns.max(other_ns);
        let segments = vec![
            Segment::new(SegmentId(0), 0, server_ns),
            Segment::new(SegmentId(1), 0, other_ns),
            Segment::new(SegmentId(2), ready_ns, ready_ns + 500),
        ];
        SegmentedTrace::new(TraceId(number as u128), None, 0, 0, segments)
    };
    let traces: Vec<SegmentedTrace> = (0..count).map(&mut trace).collect();
    let mut model = Model::new();
    *model.labels_mut() = labels(3);
    traces.iter().for_each(|trace| model.observe(trace));
    let relations = model.relations(0.0);
    traces
        .into_iter()
        .map(|trace| {
            let path = analyse(&trace, &relations);
            (trace, path)
        })
        .collect()
}

#[test]
fn correlation_falls_as_slack_grows() {
    let requests: Vec<ServerTime> = requests(4000)
        .iter()
        .filter_map(|(_, path)| ServerTime::of(path, |id| id.0 == 0))
        .collect();
    let mut slacks = Distribution::default();
    requests
        .iter()
        .for_each(|request| slacks.record(request.slack_ns));
    let collect = |requests: &[ServerTime]| {
        let mut validation = SlackValidation::new(&slacks, 10);
        requests
            .iter()
            .for_each(|request| validation.observe(*request));
        validation
    };
    let whole = collect(&requests);
    let buckets = whole.buckets();
    assert!(buckets.len() >= 6 && buckets.iter().map(|b| b.requests).sum::<u64>() == 4000);
    // Without slack, the latency is the server time plus the constant time of the page.
    assert!(
        buckets[0].correlation().is_some_and(|c| c > 0.999),
        "{:?}",
        buckets[0].correlation()
    );
    assert!(
        buckets[0].requests > 1000,
        "many have no slack at all, and lie in one bucket"
    );
    let last = buckets[buckets.len() - 1].correlation();
    assert!(last.is_some_and(|c| c < 0.9), "{last:?}");
    let exact = stroboscope_analysis::statistics::correlation(
        requests
            .iter()
            .filter(|r| r.slack_ns == 0)
            .map(|r| (r.server_ns as f64, r.latency_ns as f64)),
    );
    assert!((buckets[0].correlation().unwrap_or(0.0) - exact.unwrap_or(9.0)).abs() < 1e-6);
    assert_eq!(buckets[0].heat.values().sum::<u64>(), buckets[0].requests);
    let mut merged = collect(&requests[999..]);
    merged.merge(&collect(&requests[..999]));
    assert_eq!(merged, whole);
    assert_eq!([0, 4, 8, 9, 11, 12].map(heat_cell_ns), [1, 2, 4, 5, 7, 8]);
}

#[test]
fn the_last_request_tells_of_the_next() {
    let mut users = SlackHistory::default();
    let mut nothing = SlackHistory::default();
    let mut random = Random(8);
    let mut requests = Vec::new();
    for user in 0..200u64 {
        // A user's connection has its usual speed in nine of ten visits.
        for visit in 0..5i64 {
            let as_ever = random.below(10) != 0;
            let slow_link = (user % 2 == 0) == as_ever;
            requests.push((
                user,
                visit,
                if slow_link { 900 } else { 100 } + random.below(50) as u64,
            ));
        }
    }
    random.shuffle(&mut requests);
    for (user, visit, slack_ns) in &requests {
        users.observe(&format!("user{user}"), *visit, *slack_ns);
        nothing.observe(["x", "y"][random.below(2)], random.next() as i64, *slack_ns);
    }
    let ranked = rank([("coin", &nothing), ("user", &users)], 500);
    assert_eq!(
        ranked.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
        ["user", "coin"]
    );
    let quality = ranked[0].1;
    assert_eq!(quality.predicted, 800);
    let outcomes = [
        quality.true_positives,
        quality.true_negatives,
        quality.false_positives,
        quality.false_negatives,
    ];
    assert_eq!(outcomes.iter().sum::<u64>(), 800);
    assert!((quality.accuracy() + quality.type_i() + quality.type_ii() - 1.0).abs() < 1e-12);
    assert!((0.75..0.9).contains(&quality.accuracy()), "{quality:?}"); // 0.9² + 0.1² = 0.82
    assert!(
        quality.correlation.is_some_and(|c| c > 0.5) && ranked[1].1.informedness().abs() < 0.15
    );
    // Computed by hand; the values in order of time are 9, 1, 9, 9.
    let mut one = SlackHistory::default();
    [(3, 9), (1, 9), (2, 1), (4, 9)]
        .into_iter()
        .for_each(|(at, slack)| one.observe("k", at, slack));
    one.observe("lonely", 0, 5);
    let quality = one.quality(5);
    assert_eq!(
        (
            quality.predicted,
            quality.false_positives,
            quality.false_negatives,
            quality.true_positives
        ),
        (3, 1, 1, 1)
    );
}

fn category(id: SegmentId) -> usize {
    id.index() % 2
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn breakdowns_add_up(traces in proptest::collection::vec(any_trace(6, 9), 0..20), cut in 0usize..20) {
        let mut model = Model::new();
        *model.labels_mut() = labels(6);
        traces.iter().for_each(|trace| model.observe(trace));
        let relations = model.relations(0.0);
        let paths: Vec<TracePath> = traces.iter().map(|trace| analyse(trace, &relations)).collect();
        let collect = |paths: &[TracePath]| {
            let mut breakdown = Breakdown::default();
            paths.iter().for_each(|path| breakdown.observe(path, Weight::ONE, category));
            breakdown
        };
        let whole = collect(&paths);
        let critical: u128 =
            whole.categories.values().map(|c| c.critical_duration_ns + c.critical_wait_ns).sum();
        prop_assert_eq!(critical + whole.tail_wait_ns, whole.latency.sum_ns());
        let summed: u128 = whole.categories.values().map(|c| c.summed_delay_ns).sum();
        let all = traces.iter().flat_map(|trace| &trace.segments);
        prop_assert_eq!(summed, all.map(|s| u128::from(s.duration_ns())).sum::<u128>());
        for number in 0..2 {
            let cdf = whole.share_cdf(number);
            for step in [0, SHARE_STEPS / 3, SHARE_STEPS] {
                let at_most = |path: &&TracePath| {
                    let of = path.segments.iter().filter(|s| s.critical && category(s.segment) == number);
                    let part: u64 = of.map(|s| s.weight_ns()).sum();
                    part == 0 || part * SHARE_STEPS as u64 / path.critical_path_ns <= step as u64
                };
                let expected = paths.iter().filter(at_most).count() as f64 / paths.len().max(1) as f64;
                prop_assert!((cdf[step] - expected).abs() < 1e-12);
            }
        }
        let cut = cut.min(paths.len());
        let mut merged = collect(&paths[cut..]);
        merged.merge(&collect(&paths[..cut]));
        prop_assert_eq!(merged, whole);
    }
}

#[test]
fn strata_by_value_and_by_quantile() {
    let requests = requests(500);
    let mut sample = QuantileSample::default();
    requests
        .iter()
        .for_each(|(trace, path)| sample.observe(trace.id, path.latency_ns as f64));
    sample.observe(TraceId(7777), f64::NAN);
    let edges = sample.edges(5);
    let mut stratified = StratifiedBreakdown::default();
    for (_, path) in &requests {
        stratified.observe(
            &quantile_stratum(&edges, path.latency_ns as f64),
            path,
            Weight::ONE,
            category,
        );
    }
    let strata = stratified.strata();
    assert_eq!(
        strata.keys().collect::<Vec<_>>(),
        ["p020", "p040", "p060", "p080", "p100"]
    );
    assert!(
        strata
            .values()
            .all(|stratum| (98..=102).contains(&stratum.requests.rounded()))
    );
    assert!(strata["p020"].latency.max_ns() <= strata["p040"].latency.quantile_ns(0.0) + 10);
    let mut many = StratifiedBreakdown::default();
    (0..STRATA_MAX + 9).for_each(|i| {
        many.observe(
            &format!("browser {i}"),
            &requests[0].1,
            Weight::ONE,
            category,
        );
    });
    assert_eq!(
        (
            many.strata().len(),
            many.strata()[OTHER_STRATUM].requests.rounded()
        ),
        (STRATA_MAX + 1, 9)
    );
    let mut other = StratifiedBreakdown::default();
    other.merge(&many);
    assert_eq!(
        other
            .strata()
            .values()
            .map(|s| s.requests)
            .sum::<WeightedCount>()
            .rounded(),
        STRATA_MAX as u64 + 9
    );
}

#[test]
fn large_samples_are_bounded_and_fair() {
    let (mut whole, mut one, mut other) = (
        QuantileSample::default(),
        QuantileSample::default(),
        QuantileSample::default(),
    );
    for number in 0..4 * SAMPLE_MAX as u64 {
        let (id, value) = (TraceId(u128::from(number)), number as f64);
        whole.observe(id, value);
        if number % 3 == 0 {
            one.observe(id, value);
        } else {
            other.observe(id, value);
        }
    }
    one.merge(&other);
    assert_eq!(one, whole);
    let median = whole.edges(2)[0] / (4 * SAMPLE_MAX) as f64;
    assert!((0.48..0.52).contains(&median), "{median}");
    assert!(QuantileSample::default().edges(5).is_empty());
}

#[test]
fn categories_follow_the_kinds_of_spans() {
    let span = |span_id: u64, parent_id, name: &str, flags| SpanRecord {
        span_id,
        parent_id,
        service: "s".into(),
        name: name.into(),
        host: "h".into(),
        process: 1,
        start_ns: span_id as i64 * 10,
        end_ns: 200 - span_id as i64 * 10,
        flags,
        events: Vec::new(),
    };
    let none = SpanFlags(0);
    let spans = vec![
        span(1, 0, "page", none),
        span(2, 1, "GET /users/7", SpanFlags::CLIENT),
        span(3, 2, "serve", SpanFlags::SERVER),
        span(4, 3, "render", none),
    ];
    let records = TraceRecords {
        spans,
        ..Default::default()
    };
    let mut labels = Labels::default();
    segment(&records, &mut labels);
    let shown = |kinds: &SpanKinds| {
        let one = labels
            .iter()
            .map(|(_, label)| format!("{} {}", label.operation(), kinds.category(label)));
        let mut all: Vec<String> = one.collect();
        all.dedup();
        all.join(", ")
    };
    let mut kinds = SpanKinds::default();
    assert_eq!(
        shown(&kinds),
        "s:page server, s:GET /users/* server, s:serve server, s:render server"
    );
    let mut part = SpanKinds::default();
    part.observe(&records);
    kinds.merge(&part);
    assert_eq!(
        shown(&kinds),
        "s:page client, s:GET /users/* network, s:serve server, s:render server"
    );
}
