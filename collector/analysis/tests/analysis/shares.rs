//! Compares Fisher's exact test with its definition, and tests it on two halves of one period.

use crate::generator::{Random, labels};
use proptest::prelude::*;
use stroboscope_analysis::label::SegmentId;
use stroboscope_analysis::model::Model;
use stroboscope_analysis::record::TraceId;
use stroboscope_analysis::segment::{Segment, SegmentedTrace};
use stroboscope_analysis::statistics::{Share, differ_by_at_least, fisher_two_sided, is_testable};
use stroboscope_analysis::structural_change::StructuralChange;

fn share(part: u64, of: u64) -> Share {
    Share { part, of }
}

/// Returns the p-value by the definition: all tables with these sums, by products of binomial
/// coefficients.
fn brute(one: Share, other: Share) -> f64 {
    let choose =
        |n: u64, k: u64| (0..k).fold(1.0, |product, i| product * (n - i) as f64 / (i + 1) as f64);
    let parts = one.part + other.part;
    let probability =
        |x: u64| choose(one.of, x) * choose(other.of, parts - x) / choose(one.of + other.of, parts);
    let tables = parts.saturating_sub(other.of)..=parts.min(one.of);
    let seen = probability(one.part);
    tables
        .map(probability)
        .filter(|p| *p <= seen * (1.0 + 1e-7))
        .sum()
}

proptest! {
    #[test]
    fn the_test_is_its_definition(n in 0_u64..60, m in 0_u64..60, a in 0_u64..60, b in 0_u64..60) {
        let (one, other) = (share(a.min(n), n), share(b.min(m), m));
        let p = fisher_two_sided(one, other);
        prop_assert!((p - brute(one, other)).abs() < 1e-9, "{one:?} {other:?}: {p} {}", brute(one, other));
        prop_assert!((p - fisher_two_sided(other, one)).abs() < 1e-9);
        prop_assert!(is_testable(one, other) || p == 1.0);
    }
}

#[test]
fn published_values_come_out() {
    // Fisher's tea (3 of 4 against 1 of 4), and a table of Agresti's.
    assert!((fisher_two_sided(share(3, 4), share(1, 4)) - 34.0 / 70.0).abs() < 1e-12);
    assert!(
        (fisher_two_sided(share(1, 10), share(11, 14)) - 0.002_759_456_185_220_083).abs() < 1e-12
    );
    // Newcombe's table II, (a) 56/70 - 48/80 by method 10: 0.0524 to 0.3339.
    assert!((differ_by_at_least(share(56, 70), share(48, 80)) - 0.0524).abs() < 5e-5);
    assert_eq!(differ_by_at_least(share(5, 10), share(50, 100)), 0.0);
    // Large counts cause no error, and differences far beyond chance yield 0 at worst.
    assert_eq!(
        fisher_two_sided(share(1_000_000, 2_000_000), share(1_000_000, 2_000_000)),
        1.0
    );
    assert!(fisher_two_sided(share(0, 1_000_000), share(400_000, 1_000_000)) < 1e-300);
}

const SEGMENTS: usize = 12;

/// Returns the model of requests with sequential segments. Each pair of neighbours changes places
/// in its own share of requests, and one more segment is rare.
fn model_of(requests: usize, turned: bool, random: &mut Random) -> Model {
    let mut model = Model::new();
    *model.labels_mut() = labels(SEGMENTS + 1);
    for number in 0..requests {
        let mut order: Vec<usize> = (0..SEGMENTS).collect();
        for first in 0..SEGMENTS - 1 {
            // From one in 60 to one in 600.
            if random.below(60 + 54 * first) == 0 {
                order.swap(first, first + 1);
            }
        }
        if turned {
            let (a, b) = (
                order.iter().position(|s| *s == 4),
                order.iter().position(|s| *s == 5),
            );
            order.swap(a.unwrap(), b.unwrap());
        }
        if random.below(150) == 0 {
            order.push(SEGMENTS);
        }
        let segments = order.iter().enumerate().map(|(place, id)| {
            let start_ns = place as i64 * 10;
            Segment::new(SegmentId(*id as u32), start_ns, start_ns + 10)
        });
        model.observe(&SegmentedTrace::new(
            TraceId(number as u128),
            None,
            i64::MAX,
            i64::MIN,
            segments.collect(),
        ));
    }
    model
}

#[test]
fn two_halves_of_one_period_differ_by_what_sampling_gives() {
    let (mut listed, mut differing, mut tested) = (0, 0, 0);
    for seed in 0..20 {
        let mut random = Random(seed);
        let (before, after) = (
            model_of(200, false, &mut random),
            model_of(200, false, &mut random),
        );
        let all = StructuralChange::between(&before, &after, 0.0, 1.0);
        differing += all.gained.len() + all.lost.len();
        tested += all.tested;
        assert_eq!(all.by_chance.gained + all.by_chance.lost, 0);
        let change = StructuralChange::between(&before, &after, 0.0, 0.05);
        listed +=
            change.gained.len() + change.lost.len() + change.appeared.len() + change.vanished.len();
        assert_eq!(
            change.gained.len() + change.by_chance.gained,
            all.gained.len()
        );
        assert_eq!(change.lost.len() + change.by_chance.lost, all.lost.len());
    }
    assert!(
        differing > 60 && tested > differing,
        "{differing} differ of {tested}"
    );
    assert!(listed <= 1, "{listed} of {differing} are listed");
}

#[test]
fn a_real_change_is_listed_first() {
    for seed in 0..20 {
        let mut random = Random(100 + seed);
        let (before, after) = (
            model_of(200, false, &mut random),
            model_of(200, true, &mut random),
        );
        let change = StructuralChange::between(&before, &after, 0.2, 0.05);
        let named = |relation: &str| relation.replace(" [start … end]", "");
        assert_eq!(
            named(&change.gained[0].relation.to_string()),
            "t005 → t004",
            "{change:#?}"
        );
        assert_eq!(
            named(&change.lost[0].relation.to_string()),
            "t004 → t005",
            "{change:#?}"
        );
        assert!(change.lost[0].evidence.at_least > 0.8 && change.lost[0].evidence.q_value < 1e-30);
    }
}
