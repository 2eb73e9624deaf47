//! Simulated stores of sampled requests, compared with the store of all requests.

use stroboscope_analysis::compare::{CompareSettings, Comparison};
use stroboscope_analysis::distribution::Distribution;
use stroboscope_analysis::flow::PeriodFlows;
use stroboscope_analysis::record::{SpanFlags, SpanRecord, TraceRecords};
use stroboscope_analysis::sampling::Weight;

/// Generator of random numbers (`SplitMix64`).
struct Dice(u64);

impl Dice {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number from 0 (excluded) to 1.
    fn unit(&mut self) -> f64 {
        ((self.bits() >> 11) as f64 + 1.0) / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }
}

const MS: i64 = 1_000_000;
/// Time between the openings of windows, and the length of a window.
const PERIOD_NS: i64 = 400 * MS;
const WINDOW_NS: i64 = 50 * MS;

/// A request that occurred, recorded or not.
#[derive(Clone, Copy)]
struct Occurred {
    latency_ns: u64,
    /// True if a window held the whole request.
    is_held: bool,
}

/// Returns requests that occurred. In windows there are more of them, and they take longer. Many
/// are about as long as a window.
fn traffic(requests: usize, dice: &mut Dice) -> Vec<Occurred> {
    let request = |_| {
        let is_in_window = dice.unit() < 0.3;
        let length_ns = if is_in_window { WINDOW_NS } else { PERIOD_NS };
        let start_ns = (dice.unit() * length_ns as f64) as i64;
        let slower = if is_in_window { 2.0 } else { 1.0 };
        let latency_ns = (20e6 * slower * (0.9 * dice.normal()).exp()) as u64;
        let end_ns = start_ns + latency_ns as i64;
        Occurred {
            latency_ns,
            is_held: end_ns < WINDOW_NS,
        }
    };
    (0..requests).map(request).collect()
}

/// A sampler: the probability of keeping a request, and its statement.
#[derive(Clone, Copy)]
struct Sampler {
    one_in: u64,
    state: &'static str,
}

const ALL: Sampler = Sampler {
    one_in: 1,
    state: "ot=th:0",
};
const HALF: Sampler = Sampler {
    one_in: 2,
    state: "ot=th:8",
};
const EIGHTH: Sampler = Sampler {
    one_in: 8,
    state: "ot=th:e",
};
const ONE_IN_32: Sampler = Sampler {
    one_in: 32,
    state: "ot=th:f8",
};

impl Sampler {
    fn keeps(self, dice: &mut Dice) -> bool {
        dice.bits().is_multiple_of(self.one_in)
    }
}

/// Returns the weight of a request that was recorded completely because it was sampled, or because
/// a window held it. Without `windows`, another program recorded it.
fn weight(by: Sampler, windows: bool, is_sampled: bool, is_held: bool) -> Weight {
    let flags = match (windows && is_sampled, is_held) {
        (false, _) => SpanFlags(0),
        (true, true) => SpanFlags::SAMPLED,
        (true, false) => SpanFlags::SAMPLED.with(SpanFlags::OUTSIDE),
    };
    let root = SpanRecord {
        span_id: 1,
        parent_id: 0,
        service: "web".into(),
        name: "get".into(),
        host: "h".into(),
        process: 1,
        start_ns: 0,
        end_ns: 1,
        flags,
        events: Vec::new(),
    };
    let mut trace = TraceRecords {
        spans: vec![root],
        ..TraceRecords::default()
    };
    if is_sampled {
        trace.sampling.observe(true, by.state);
    }
    trace.weight()
}

/// Returns the latencies in the store of a simulation. One sampler keeps the requests up to
/// `split_ns`, the other one those above.
fn store(
    requests: &[Occurred],
    (samplers, split_ns): ([Sampler; 2], u64),
    windows: bool,
    dice: &mut Dice,
) -> Distribution {
    let weights = samplers.map(|by| {
        [false, true]
            .map(|is_sampled| [false, true].map(|is_held| weight(by, windows, is_sampled, is_held)))
    });
    let mut latency = Distribution::default();
    for of in requests {
        let at = usize::from(of.latency_ns > split_ns);
        let (is_sampled, is_held) = (samplers[at].keeps(dice), windows && of.is_held);
        if is_sampled || is_held {
            let weight = weights[at][usize::from(is_sampled)][usize::from(is_held)];
            latency.record_weighted(of.latency_ns, weight);
        }
    }
    latency
}

/// Returns one sampler for requests of any latency.
fn same(sampler: Sampler) -> ([Sampler; 2], u64) {
    ([sampler; 2], 0)
}

fn all(requests: &[Occurred]) -> Distribution {
    store(requests, same(ALL), true, &mut Dice(0))
}

/// The weighted number and the weighted sum of latencies are on average those of all requests, also
/// where windows record more and slower requests.
#[test]
fn weights_are_unbiased() {
    const STORES: u64 = 400;
    let requests = traffic(2_000, &mut Dice(1));
    let whole = all(&requests);
    let held = requests.iter().filter(|of| of.is_held).count();
    assert!((100..1_000).contains(&held), "{held}");
    assert!(!whole.weighted_count().is_weighted());
    for sampler in [HALF, EIGHTH, ONE_IN_32] {
        let (mut counts, mut sums) = (Vec::new(), Vec::new());
        for seed in 0..STORES {
            let found = store(&requests, same(sampler), true, &mut Dice(seed + 10));
            counts.push(found.weighted_count().estimate());
            sums.push(found.sum_ns() as f64);
        }
        for (of, values, truth) in [
            ("number", counts, requests.len() as f64),
            ("sum", sums, whole.sum_ns() as f64),
        ] {
            let mean = values.iter().sum::<f64>() / STORES as f64;
            let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
            let error = squares.sqrt() / STORES as f64;
            let off = (mean - truth) / error;
            assert!(off.abs() < 3.5, "{of} {}: {off} errors", sampler.state);
            assert!(error < 0.02 * truth, "{of} {}: {error}", sampler.state);
        }
    }
}

/// The 95 % interval of a percentile of a sampled store contains the percentile of all requests in
/// 93 to 97 % of 1,000 stores.
#[test]
fn intervals_of_percentiles_cover_those_of_all_requests() {
    const STORES: u64 = 1_000;
    let requests = traffic(4_000, &mut Dice(2));
    let whole = all(&requests);
    let median_ns = whole.quantile_ns(0.5);
    let check = |name: &str, samplers, windows: bool| {
        let mut covered = [0u64; 3];
        for seed in 0..STORES {
            let found = store(&requests, samplers, windows, &mut Dice(1_000 + seed));
            for (covered, quantile) in covered.iter_mut().zip([0.5, 0.9, 0.95]) {
                let [low_ns, high_ns] = found.quantile_interval_ns(quantile);
                let truth_ns = whole.quantile_ns(quantile);
                assert!(low_ns <= found.quantile_ns(quantile));
                *covered += u64::from((low_ns..=high_ns).contains(&truth_ns));
            }
        }
        let shares = covered.map(|covered| covered as f64 / STORES as f64);
        println!("{name}: {shares:?}");
        assert!(
            shares.iter().all(|share| (0.93..=0.97).contains(share)),
            "{name}: {shares:?}"
        );
    };
    check("ot=th, a half", same(HALF), false);
    check("ot=th, an eighth", same(EIGHTH), false);
    check(
        "ot=th, slow ones more often",
        ([ONE_IN_32, HALF], 2 * median_ns),
        false,
    );
    check("our ratio, a half", same(HALF), true);
    check("our ratio, an eighth", same(EIGHTH), true);
}

/// The 95 % interval of the change of the mean contains the change for all requests in 93 to 97 %
/// of 1,000 pairs of sampled stores.
#[test]
fn intervals_of_comparisons_cover_the_change_for_all_requests() {
    const STORES: u64 = 1_000;
    let before = traffic(3_000, &mut Dice(4));
    let mut after = traffic(4_000, &mut Dice(5));
    for of in &mut after {
        of.latency_ns += of.latency_ns / 10;
    }
    let compared = |latencies: [Distribution; 2]| {
        let [before, after] = latencies.map(|latency| {
            let mut flows = PeriodFlows::default();
            flows.latency = latency;
            flows
        });
        Comparison::of(&before, &after, &|_| false, &CompareSettings::default())
    };
    let truth = compared([all(&before), all(&after)]);
    assert_eq!(truth.change_interval_ns, [truth.change_ns; 2]);
    let check = |name: &str, samplers, windows: bool| {
        let covers = |seed: &u64| {
            let dice = &mut Dice(10_000 + seed);
            let found = compared([
                store(&before, samplers, windows, dice),
                store(&after, samplers, windows, dice),
            ]);
            let [low_ns, high_ns] = found.change_interval_ns;
            (low_ns..=high_ns).contains(&truth.change_ns)
        };
        let covered = (0..STORES).filter(covers).count() as f64 / STORES as f64;
        println!("{name}: {covered}");
        assert!((0.93..=0.97).contains(&covered), "{name}: {covered}");
    };
    check("ot=th, an eighth", same(EIGHTH), false);
    check(
        "ot=th, slow ones more often",
        ([EIGHTH, HALF], 40_000_000),
        false,
    );
    check("our ratio, an eighth", same(EIGHTH), true);
}

/// Without weights there is nothing to estimate.
#[test]
fn the_interval_of_an_unsampled_store_is_its_percentile() {
    let whole = all(&traffic(500, &mut Dice(3)));
    for quantile in [0.0, 0.5, 0.99, 1.0] {
        let found_ns = whole.quantile_ns(quantile);
        assert_eq!(whole.quantile_interval_ns(quantile), [found_ns; 2]);
    }
    assert_eq!(Distribution::default().quantile_interval_ns(0.5), [0, 0]);
}
