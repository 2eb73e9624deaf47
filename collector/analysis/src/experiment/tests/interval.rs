//! Tests of confidence intervals and their agreement with p-values.

use super::*;

/// Simulates small, skewed experiments. The latencies of a third are whole milliseconds, those of
/// another third multiples of 5 ms.
#[test]
fn an_interval_excludes_no_effect_if_and_only_if_the_p_value_is_below_its_level() {
    let mut compared = 0;
    for seed in 0..120 {
        let mut random = Random(seed);
        let resolution = [1.0, 1e6, 5e6][seed as usize % 3];
        let sigma = 0.5 + 2.0 * random.part();
        let factor = random.lognormal(1.0);
        let users: Vec<(f64, bool)> = (0..30)
            .map(|_| (random.lognormal(1.0), random.next().is_multiple_of(2)))
            .collect();
        let mut requests = Vec::new();
        for place in 0..96 {
            let unit = random.next() % 30;
            let (slow, is_test) = users[unit as usize];
            let own = random.lognormal(sigma);
            let took = 1e7 * slow * own * if is_test { factor } else { 1.0 };
            requests.push(ExperimentRequest {
                unit,
                burst: place / 8,
                is_test,
                latency_ns: ((took / resolution).floor() * resolution) as u64,
            });
        }
        let experiment = Experiment::new(requests);
        for metric in [Metric::Mean, Metric::Quantile(0.5), Metric::Quantile(0.75)] {
            let Ok(effect) = experiment.effect(metric, 0.05) else {
                continue;
            };
            compared += 1;
            let (low, high) = effect.interval;
            assert_eq!(
                low > 0.0 || high < 0.0,
                effect.p_value < 0.05,
                "{seed} {metric:?}: {effect:?}"
            );
            assert_eq!(effect.p_value, experiment.p_value(metric));
        }
    }
    assert!(compared > 150, "{compared}");
}

/// The median of both sides is 1 ms, although more of the control's requests take longer.
#[test]
fn equal_percentiles_do_not_differ() {
    let requests = (0..800_u64).map(|place| ExperimentRequest {
        unit: place,
        burst: place / 8,
        is_test: place.is_multiple_of(2),
        latency_ns: match place / 2 % 20 {
            0 => 2_000_000,
            1..8 if place % 2 == 1 => 2_000_000,
            _ => 1_000_000,
        },
    });
    let experiment = Experiment::new(requests);
    let effect = experiment.effect(Metric::Quantile(0.5), 0.05).unwrap();
    assert_eq!((effect.difference(), effect.p_value), (0.0, 1.0));
    assert!(
        effect.interval.0 < 0.0 && effect.interval.1 > 0.0,
        "{effect:?}"
    );
}
