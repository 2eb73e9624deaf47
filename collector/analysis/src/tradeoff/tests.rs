//! Tests from records to models and decisions.

use stroboscope_tradeoff::{Curve, PerformanceModel, Piecewise, QualityModel, Utility};

use super::*;
use crate::pass::Pass as _;
use crate::record::{AttributeRecord, RecordOwner, SpanFlags, SpanRecord, TraceId, TraceRecords};

/// Returns a number from 0 to 1, by steps of SplitMix64.
fn random(a: u64, b: u64) -> f64 {
    let mut z = (a << 20 ^ b).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z >> 11) as f64 / (1_u64 << 53) as f64
}

/// Makes a request of one span, with the events that the SDK records for an exploration and for the
/// answer's items.
fn request(number: u64, kind: &str, (items, omitted): (usize, usize), rows: &str) -> TraceRecords {
    let mut attributes = Vec::new();
    let mut put = |key: &str, value: &str| {
        attributes.push(AttributeRecord {
            owner: RecordOwner::InSpan(1, 0),
            key: key.into(),
            value: value.into(),
        });
    };
    put("tradeoff.point", "ranker.candidates");
    put("tradeoff.kind", kind);
    put("tradeoff.proactive", "true");
    put("tradeoff.items", &items.to_string());
    put("tradeoff.omitted", &omitted.to_string());
    put("tradeoff.requests_per_second", "10");
    put("tradeoff.policy", "0");
    put("tradeoff.explored", "true");
    put("tradeoff.by_model", "false");
    put("tradeoff_items.point", "ranker.candidates");
    put(
        "tradeoff_items.schema",
        if kind == "omit" { "source" } else { "" },
    );
    put("tradeoff_items.rows", rows);
    let start_ns = number as i64 * 1_000_000;
    TraceRecords {
        id: TraceId(u128::from(number + 1).wrapping_mul(0x1234_5678_9abc_def1)),
        spans: vec![SpanRecord {
            span_id: 1,
            parent_id: 0,
            service: "ranker".into(),
            name: "rank".into(),
            host: "h".into(),
            process: 1,
            start_ns,
            end_ns: start_ns + 100_000,
            flags: SpanFlags::LOCAL_ROOT,
            events: Vec::new(),
        }],
        attributes,
        ..TraceRecords::default()
    }
}

fn observe(requests: impl Iterator<Item = TraceRecords>) -> PointObserved {
    let mut observed = TradeoffObservations::default();
    requests.for_each(|records| observed.observe(&records));
    observed.finish();
    assert_eq!(observed.malformed, 0);
    observed
        .points
        .remove("ranker.candidates")
        .expect("a point")
}

const SOURCES: [&str; 3] = ["friends", "pages", "ads"];
/// Share of whole answers in which each source has the first place, always with its first item.
const FIRST: [f64; 3] = [0.5, 0.3, 0.2];

/// Makes a request with thirty items, ten of each source. Some are left out at random, and the best
/// remaining item has all the worth.
fn explored(number: u64, rate: f64) -> TraceRecords {
    let first = [0, 0, 0, 0, 0, 10, 10, 10, 20, 20][number as usize / 4 % 10];
    let omitted = (30.0 * rate).ceil() as usize;
    let mut by_chance: Vec<usize> = (0..30).collect();
    by_chance.sort_by(|a, b| {
        let of = |place: &usize| random(number, 100 + *place as u64);
        of(a).total_cmp(&of(b))
    });
    let mut kept = by_chance.split_off(omitted);
    kept.sort_unstable();
    let worth = |place: usize| match place == first {
        true => 1.0,
        false => random(number, place as u64),
    };
    let best = *kept
        .iter()
        .max_by(|a, b| worth(**a).total_cmp(&worth(**b)))
        .expect("an item");
    let row = |place: &usize| format!("{}\t{}\n", SOURCES[place / 10], u64::from(*place == best));
    let rows: String = kept.iter().map(row).collect();
    request(number, "omit", (30, omitted), &rows)
}

fn weight(model: &QualityModel, source: &str) -> f64 {
    let found = model
        .weights
        .iter()
        .find(|weight| weight.value.as_deref() == Some(source));
    found.expect("a weight").weight
}

#[test]
fn reduced_answers_teach_nothing() {
    const RATES: [f64; 4] = [0.0, 0.3, 0.5, 0.8];
    let mixed = observe((0..12_000).map(|number| explored(number, RATES[number as usize % 4])));
    assert_eq!((mixed.answers.len(), mixed.answers_reduced), (3_000, 9_000));
    let (model, learned, judged) = learn_quality(&mixed, &QualitySettings::default());
    assert_eq!(learned + judged, 3_000);
    for (source, first) in SOURCES.into_iter().zip(FIRST) {
        let (weight, truth) = (weight(&model, source), first / 10.0);
        assert!(
            (weight - truth).abs() <= 0.05 * truth,
            "{source}: {weight}, and is {truth}"
        );
    }
    // At half, all ads are left out, and five pages that are never first. One answer in five is
    // worse.
    let half = model.mean_drop(0.5);
    assert!((half - FIRST[2]).abs() < 0.02, "{half}");
}

#[test]
fn an_answer_is_whole_only_where_that_is_known() {
    let whole = explored(0, 0.0);
    let answers = |records: TraceRecords| {
        let point = observe([records].into_iter());
        (point.answers.len(), point.answers_reduced)
    };
    assert_eq!(answers(whole.clone()), (1, 0));
    // The decision was not recorded.
    let mut unknown = whole.clone();
    unknown
        .attributes
        .retain(|attribute| attribute.key.starts_with("tradeoff_items."));
    assert_eq!(answers(unknown), (0, 1));
    // Another point gave something up, and its component is cut by a burst's edge.
    let mut elsewhere = explored(0, 0.5);
    elsewhere.spans[0].span_id = 2;
    elsewhere.spans[0].flags = SpanFlags::CUT_OPEN;
    let mut both = whole;
    both.spans.extend(elsewhere.spans);
    let decisions = elsewhere
        .attributes
        .into_iter()
        .filter(|attribute| attribute.key.starts_with("tradeoff."))
        .map(|mut attribute| {
            attribute.owner = RecordOwner::InSpan(2, 0);
            if &*attribute.key == "tradeoff.point" {
                attribute.value = "store.reads".into();
            }
            attribute
        });
    both.attributes.extend(decisions);
    assert_eq!(answers(both), (0, 1));
}

#[test]
fn a_share_of_calls_costs_that_share_of_their_loss() {
    // In half of the answers, the call is worth 2, in the others nothing. Half of the calls that
    // explore are made in full.
    let loss = |number: u64| 2 * (number / 2 % 2);
    let point = observe((0..4_000).map(|number| {
        let rows = format!("{}\n", loss(number));
        request(number, "default", (1, number as usize % 2), &rows)
    }));
    assert_eq!((point.answers.len(), point.answers_reduced), (2_000, 2_000));
    let (model, _, judged) = learn_quality(&point, &QualitySettings::default());
    let dear = |number: &u64| loss(*number) > 0;
    let of_drop = Piecewise(vec![(0.0, 1.0), (0.3, 0.9), (2.0, -3.0)]);
    assert!(judged > 400);
    for step in 0..=100_u32 {
        let rate = f64::from(step) / 100.0;
        // Spreads the reduced calls among a thousand as the SDK does.
        let reduced: Vec<u64> = (0..1_000)
            .filter(|number| (*number as f64 * 0.618_033_988_75).fract() < rate)
            .collect();
        let drop = reduced
            .iter()
            .map(|number| loss(*number) as f64)
            .sum::<f64>()
            / 1_000.0;
        let learned = model.mean_drop(rate);
        assert!(
            (learned - drop).abs() < 0.05,
            "{rate}: {learned}, and is {drop}"
        );
        if let Some(judged) = model.drops.iter().find(|known| known.tradeoff_rate == rate) {
            let share = reduced.iter().filter(|number| dear(number)).count() as f64 / 1_000.0;
            assert!((judged.share_with_drop - share).abs() < 0.03, "{judged:?}");
        }
    }
    // The mean loss of a call is 1. Trying all rates shows that it pays best to make some calls in
    // full, but not all.
    let performance = PerformanceModel::new(
        0.5,
        vec![
            Curve::new(0.0, [(10.0, 60e6), (20.0, 70e6)]),
            Curve::new(1.0, [(10.0, 20e6), (20.0, 30e6)]),
        ],
    );
    let utility = Utility {
        of_latency: Piecewise(vec![(0.0, 1.0), (100e6, 0.0)]),
        of_drop: of_drop.clone(),
        instance_per_second: 0.0,
        instances: 1,
        instances_max: 1,
    };
    let of_request =
        |rate: f64| utility.of_latency.at(performance.latency_ns(15.0, rate)) + of_drop.at(rate);
    let best = (0..=1_000)
        .map(|step| f64::from(step) / 1_000.0)
        .max_by(|a, b| of_request(*a).total_cmp(&of_request(*b)))
        .expect("a rate");
    let decided = utility.decide(&performance, &model, 1.0, 15.0);
    assert!((0.2..0.4).contains(&best), "{best}");
    assert!(
        (decided.rate - best).abs() <= 0.03 && decided.per_second >= 15.0 * of_request(best) - 0.2,
        "{decided:?}, and best is {best}"
    );
}
