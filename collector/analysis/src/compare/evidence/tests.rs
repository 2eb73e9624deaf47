//! Tests of evidence.

use super::*;

/// Counts pairs of equal periods whose shares differ at a level of 1 %, by the evidence and by
/// Fisher's test, which takes requests as independent. Each period has 24 requests. A request is
/// like its predecessor with a probability of `stays` %, otherwise random.
fn false_changes(pairs: u64, stays: u64) -> [usize; 2] {
    let mut state = 5u64;
    let mut below = |limit: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    let mut differing = [0; 2];
    for _ in 0..pairs {
        let mut has = Vec::new();
        for period in [Period::Before, Period::After] {
            let mut own = below(2) == 0;
            for _ in 0..24 {
                if below(100) >= stays {
                    own = below(2) == 0;
                }
                has.push((period, own));
            }
        }
        let with = [0, 24].map(|from| {
            let own = has[from..from + 24].iter();
            own.filter(|(_, has)| *has).count() as u64
        });
        let evidence = RankEvidence::of_shares(&has, with, [24; 2]);
        let p_value = |of: RankEvidence| of.verdict(&Variability::default()).p_value;
        differing[0] += usize::from(evidence.map_or(1.0, p_value) <= 0.01);
        let [before, after] = with.map(|part| Share { part, of: 24 });
        differing[1] += usize::from(fisher_two_sided(before, after) <= 0.01);
    }
    differing
}

#[test]
fn properties_that_come_in_runs_are_less_evidence() {
    let [independent, _] = false_changes(2_000, 0);
    assert!(independent <= 30, "{independent} of 2000");
    let [in_runs, by_fisher] = false_changes(2_000, 75);
    assert!(3 * in_runs < by_fisher, "{in_runs} and {by_fisher} of 2000");
}

#[test]
fn runs_leave_a_property_of_one_period_significant() {
    let has = |at: usize| if at < 24 { false } else { at % 24 >= 8 };
    let rows: Vec<(Period, bool)> = (0..48)
        .map(|at| {
            let period = if at < 24 {
                Period::Before
            } else {
                Period::After
            };
            (period, has(at))
        })
        .collect();
    let found = SectionEvidence::of_shares(&rows, [0, 16], [24; 2]);
    let p_value = found.map(|of| of.evidence.verdict(&Variability::default()).p_value);
    assert!(p_value.is_some_and(|p_value| p_value < 1e-6), "{p_value:?}");
}

/// Returns observations of two periods whose times are random, those of the later period longer by
/// `more` %. All requests of a period start at once.
fn of_one_instant(requests: usize, more: f32) -> Vec<Observation> {
    let mut state = 5u64;
    let mut random = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32
    };
    let mut observations = Vec::new();
    for period in [Period::Before, Period::After] {
        let longer = 1.0 + more / 100.0 * f32::from(period as u8);
        observations.extend((0..requests).map(|_| Observation {
            stratum: 0,
            period,
            start_ns: period as i64,
            id: TraceId(u128::from(random())),
            time_ns: longer * (1.0 + (random() % 1_000) as f32 / 1_000.0),
        }));
    }
    observations
}

#[test]
fn requests_of_one_instant_are_not_in_the_order_of_their_times() {
    let evidence = RankEvidence::of(&of_one_instant(100, 20.0)).expect("both periods");
    let variability = Variability::of(&[&evidence]);
    let p_value = evidence.verdict(&variability).p_value;
    assert!(p_value < 1e-3, "{p_value}");
}

#[test]
fn rare_properties_do_not_seem_to_vary_between_the_halves_of_a_period() {
    // One request of 24 has each property, at a random place.
    let mut state = 5u64;
    let mut below = |limit: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % limit
    };
    let evidence: Vec<RankEvidence> = (0..60)
        .filter_map(|_| {
            let mut has: Vec<(Period, bool)> = [Period::Before, Period::After]
                .into_iter()
                .flat_map(|period| [(period, false); 24])
                .collect();
            for first in [0, 24] {
                has[first + below(24)].1 = true;
            }
            RankEvidence::of_shares(&has, [1; 2], [24; 2])
        })
        .collect();
    let variability = Variability::of(&evidence.iter().collect::<Vec<_>>());
    let (inflation, _) = variability.inflation(&evidence[0], &evidence[0].statistics[0]);
    assert!(inflation < 1.3, "{inflation}");
}

/// Joins the evidence of groups of requests, each given by its numbers of requests with a property
/// and without it, in each period. Requests with the property are spread over a period.
fn joined_p_value(groups: &[[[u64; 2]; 2]]) -> f64 {
    let of_group = |counts: &[[u64; 2]; 2]| {
        let mut has = Vec::new();
        for (period, [with, without]) in [Period::Before, Period::After].iter().zip(counts) {
            let all = with + without;
            has.extend((0..all).map(|at| (*period, (at + 1) * with / all > at * with / all)));
        }
        let of = counts.map(|counts| counts.iter().sum());
        let with = counts.map(|counts| counts[0]);
        (RankEvidence::of_shares(&has, with, of), with, of)
    };
    let groups: Vec<_> = groups.iter().map(of_group).collect();
    let groups: Vec<GroupEvidence<'_>> = groups
        .iter()
        .filter_map(|(evidence, with, of)| {
            Some(GroupEvidence {
                evidence: evidence.as_ref()?,
                with: *with,
                of: *of,
            })
        })
        .collect();
    let joined = RankEvidence::joined(&groups).expect("groups");
    joined.verdict(&Variability::default()).p_value
}

#[test]
fn groups_that_agree_are_more_evidence_and_groups_that_differ_are_less() {
    let more = [[1, 7], [5, 3]];
    let less = [[5, 3], [1, 7]];
    let one = joined_p_value(&[more]);
    assert!((0.05..0.2).contains(&one), "{one}");
    let agree = joined_p_value(&[more; 4]);
    assert!(agree < 1e-3, "{agree}");
    assert!((joined_p_value(&[less; 4]) / agree - 1.0).abs() < 1e-6);
    let differ = joined_p_value(&[more, less, more, less]);
    assert!(differ > 0.9, "{differ}");
}

#[test]
fn the_least_p_value_of_shares_is_that_of_the_most_extreme_division() {
    for (with, of, later) in [
        (1, 9, 4),
        (3, 12, 5),
        (9, 12, 5),
        (6, 12, 6),
        (12, 12, 5),
        (0, 7, 3),
    ] {
        let stratum = ShareStratum { with, of, later };
        let others = of - later;
        let possible = (0..=with.min(later)).filter(|seen| with - seen <= others);
        let least = possible
            .map(|seen| shares_two_sided(&[stratum], seen).expect("few members"))
            .fold(1.0, f64::min);
        let found = least_p_value_of_shares(&[stratum]);
        assert!(
            (found - least).abs() < 1e-12,
            "{stratum:?}: {found} {least}"
        );
    }
}
