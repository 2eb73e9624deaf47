//! Compares estimates with their definition, and finds planted modes.

use super::*;
use proptest::prelude::*;

/// Computes the density at a place by its definition: a sum over all values.
fn direct(values: &[(u64, u64)], density: &Density, place: usize) -> f64 {
    let at = density.start_log2 + place as f64 * density.step_log2;
    let h = density.bandwidth_log2;
    let kernels = values.iter().map(|(value, count)| {
        let z = (at - log2(*value)) / h;
        *count as f64 * (-z * z / 2.0).exp() / (h * TAU.sqrt())
    });
    kernels.sum::<f64>() / density.count as f64
}

fn normal(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed;
    let mut unit = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((state >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    };
    move || (-2.0 * unit().ln()).sqrt() * (TAU * unit()).cos()
}

/// Makes latencies around several means, given as (mean in ns, relative spread, count).
fn mixture(seed: u64, parts: &[(f64, f64, usize)]) -> Vec<(u64, u64)> {
    let mut normal = normal(seed);
    let mut values = Vec::new();
    for (mean_ns, spread, count) in parts {
        values.extend((0..*count).map(|_| (mean_ns * (spread * normal()).exp()) as u64));
    }
    values.sort_unstable();
    let alike = values.chunk_by(|a, b| a == b);
    alike.map(|alike| (alike[0], alike.len() as u64)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn it_is_the_sum_of_all_kernels(
        values in prop::collection::btree_map(0u64..10_000_000_000, 1u64..50, 1..60),
    ) {
        let values: Vec<(u64, u64)> = values.into_iter().collect();
        let density = density(&values).expect("values");
        let highest = density.densities.iter().copied().fold(0.0, f64::max);
        for place in (0..GRID).step_by(7) {
            let expected = direct(&values, &density, place);
            let off = (density.densities[place] - expected).abs();
            // Values lie between places of the grid; the bandwidth is at least two places.
            prop_assert!(off <= 0.03 * highest, "{place}: {off} of {highest}");
        }
        let all: f64 = density.densities.iter().sum::<f64>() * density.step_log2;
        prop_assert!((all - 1.0).abs() < 0.02, "{all}");
        let shares: f64 = density.modes.iter().map(|mode| mode.share).sum();
        prop_assert!((shares - all).abs() < 1e-9);
    }
}

/// Compares with the best bandwidth for a normal distribution: 1.06 σ n^(-1/5).
#[test]
fn of_a_normal_distribution_the_bandwidth_is_the_best() {
    for (seed, count) in [(1, 500), (2, 5_000), (3, 50_000)] {
        let spread = 0.5;
        let density = density(&mixture(seed, &[(1e8, spread, count)])).expect("values");
        assert_eq!(density.rule, BandwidthRule::Diffusion);
        let best = 1.06 * spread / std::f64::consts::LN_2 * (count as f64).powf(-0.2);
        let ratio = density.bandwidth_log2 / best;
        assert!((0.6..1.4).contains(&ratio), "{count}: {ratio}");
        assert_eq!(density.modes.len(), 1, "{:?}", density.modes);
        assert!((density.modes[0].value_ns / 1e8 - 1.0).abs() < 0.15);
    }
}

/// Finds the modes of hits, misses and timeouts. The rule of thumb would yield a bandwidth of about
/// 0.23.
#[test]
fn modes_of_a_mixture_are_found() {
    let parts = [(2e6, 0.08, 6_000), (3e6, 0.08, 3_000), (1e9, 0.02, 300)];
    for seed in 0..10 {
        let values = mixture(seed, &parts);
        let density = density(&values).expect("values");
        assert_eq!(density.rule, BandwidthRule::Diffusion);
        assert!(density.bandwidth_log2 < 0.12, "{}", density.bandwidth_log2);
        let modes = &density.modes;
        assert_eq!(modes.len(), 3, "seed {seed}: {modes:?}");
        for (mode, (mean_ns, _, count)) in modes.iter().zip(parts) {
            assert!((mode.value_ns / mean_ns - 1.0).abs() < 0.05, "{mode:?}");
            let share = count as f64 / 9_300.0;
            assert!((mode.share - share).abs() < 0.02, "{mode:?} {share}");
        }
    }
}

#[test]
fn noise_is_seldom_a_mode() {
    let mut more = 0;
    for seed in 0..40 {
        let values = mixture(100 + seed, &[(5e6, 0.4, 300)]);
        more += density(&values).expect("values").modes.len() - 1;
    }
    assert!(more <= 2, "{more} of 40");
}

#[test]
fn few_values_have_a_density_too() {
    assert_eq!(density(&[]), None);
    assert_eq!(density(&[(5, 0)]), None);
    for values in [
        vec![(1_000_000, 1)],
        vec![(0, 3)],
        vec![(1_000_000, 70)],
        vec![(1, 1), (u64::MAX, 1)],
        vec![(1_000_000, 5), (2_000_000, 5)],
    ] {
        let density = density(&values).expect("values");
        assert_ne!(density.rule, BandwidthRule::Diffusion);
        assert!(density.densities.iter().all(|one| one.is_finite()));
        assert!(!density.modes.is_empty(), "{values:?}");
    }
    let same = density(&[(1_000_000, 70)]).expect("values");
    assert_eq!(same.rule, BandwidthRule::Grid);
    assert!((same.modes[0].value_ns / 1e6 - 1.0).abs() < 0.01);
}

/// The order of the values does not matter.
#[test]
fn order_and_grouping_are_nothing() {
    let values = mixture(5, &[(1e6, 0.3, 400), (9e6, 0.1, 200)]);
    let expected = density(&values);
    let mut shuffled = values.clone();
    shuffled.rotate_left(123);
    shuffled.swap(3, 300);
    let found = density(&shuffled).expect("values");
    let expected = expected.expect("values");
    assert_eq!(found.modes.len(), expected.modes.len());
    for (a, b) in found.densities.iter().zip(&expected.densities) {
        assert!((a - b).abs() < 1e-9);
    }
}
