//! Rate at which requests arrive.

use std::collections::BTreeMap;

use stroboscope_analysis::flow::PeriodFlows;
use stroboscope_burst::BurstConfig;

use crate::sampled_notes::BurstRequests;

/// Returns the mean time in ns from one request to the next; `None` if fewer than two requests
/// arrived, if the starts of some were not kept, or if the bursts of samplers count and no burst
/// config has two requests.
///
/// Requests between windows are mostly not recorded. So only the time of the windows counts, and
/// the requests that began in them. The whole time counts instead if requests have sampling
/// weights, because weighted requests represent all requests. It also counts if most requests began
/// outside of windows, because another program recorded them. If samplers recorded at least half of
/// the requests because they began in bursts, the time of these bursts counts, even if there are
/// weights. `windows` must be disjoint and in order; the flows must be in order.
pub(super) fn inter_arrival_ns(
    flows: &PeriodFlows,
    windows: &[(i64, i64)],
    sampled: &BTreeMap<u64, BurstRequests>,
) -> Option<f64> {
    let starts_ns = &flows.arrivals_ns;
    let [first_ns, .., last_ns] = starts_ns[..] else {
        return None;
    };
    if flows.arrivals_left_out > 0 {
        return None;
    }
    let in_bursts: u64 = sampled.values().map(|of| of.requests).sum();
    if 2 * in_bursts >= starts_ns.len() as u64 {
        let rates = sampled.iter().map(|(bits, of)| {
            let open_ns = of.open_ns(BurstConfig::from_bits(*bits)).max(1);
            (of.requests - 1) as f64 / open_ns as f64
        });
        let others = starts_ns.len() as f64 / in_bursts as f64;
        return Some(1.0 / (rates.sum::<f64>() * others)).filter(|mean_ns| mean_ns.is_finite());
    }
    let (mut inside, mut inside_ns) = (0, 0.0);
    for (open_ns, close_ns) in windows {
        let before = |time_ns: i64| starts_ns.partition_point(|start_ns| *start_ns < time_ns);
        inside += before(*close_ns) - before(*open_ns);
        // From the first request to the last one, as without windows.
        let length_ns = close_ns
            .min(&last_ns)
            .saturating_sub(*open_ns.max(&first_ns));
        inside_ns += length_ns.max(0) as f64;
    }
    let count = flows.count();
    let represented = match count.is_weighted() {
        true => count.estimate() / count.recorded() as f64,
        false => 1.0,
    };
    if count.is_weighted() || 2 * inside < starts_ns.len() {
        let all_ns = last_ns.saturating_sub(first_ns) as f64;
        return Some(all_ns / (starts_ns.len() - 1) as f64 / represented);
    }
    Some(inside_ns / (inside as f64 - 1.0).max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: BTreeMap<u64, BurstRequests> = BTreeMap::new();

    fn flows(starts_ns: impl Iterator<Item = i64>) -> PeriodFlows {
        let mut flows = PeriodFlows::default();
        flows.arrivals_ns = starts_ns.collect();
        flows
    }

    /// A request arrives every 7 ns. A tenth of the time, a fiftieth, or all of it is recorded.
    #[test]
    fn the_share_of_recorded_time_does_not_matter() {
        for (window_ns, period_ns) in [(100, 1_000), (100, 5_000), (1_000, 1_000)] {
            let windows: Vec<(i64, i64)> = (0..2_000)
                .map(|at| (at * period_ns, at * period_ns + window_ns))
                .collect();
            let all = || (0..2_000 * period_ns).step_by(7);
            let recorded = flows(all().filter(|start_ns| start_ns % period_ns < window_ns));
            let found_ns = inter_arrival_ns(&recorded, &windows, &NONE).unwrap();
            assert!(
                (found_ns / 7.0 - 1.0).abs() < 0.01,
                "{window_ns} {found_ns}"
            );
            // Another program recorded all of them.
            let found_ns = inter_arrival_ns(&flows(all()), &[(0, 1)], &NONE).unwrap();
            assert!((found_ns - 7.0).abs() < 1e-9, "{found_ns}");
        }
    }

    /// A request arrives every 700 µs, and a sampler records those that begin in bursts.
    #[test]
    fn requests_that_samplers_recorded_count_in_their_bursts() {
        for bits in [0b11100, 0b10_0100, 0] {
            let config = BurstConfig::from_bits(bits);
            let all = (0..1_000_000_000_000_i64).step_by(700_000);
            let recorded = all.filter(|ns| config.contains_ms(*ns as u64 / 1_000_000));
            let recorded = flows(recorded);
            let starts_ns = &recorded.arrivals_ns;
            let of = BurstRequests {
                requests: starts_ns.len() as u64,
                first_ns: starts_ns[0],
                last_ns: *starts_ns.last().unwrap(),
            };
            let open_ns: i64 = of
                .bursts(config)
                .map(|(open_ns, close_ns)| close_ns - open_ns)
                .sum();
            let found_ns = inter_arrival_ns(&recorded, &[], &BTreeMap::from([(bits, of)])).unwrap();
            assert!(
                (found_ns / 700_000.0 - 1.0).abs() < 1e-3,
                "{bits} {found_ns}"
            );
            // The sum `open_ns` counts the burst of the last request in full, and that of the first
            // request from its millisecond.
            let differ_ns = open_ns.abs_diff(of.open_ns(config).cast_signed());
            assert!(differ_ns < 8_000_000, "{bits} {differ_ns}");
        }
    }

    #[test]
    fn without_two_requests_there_is_no_rate() {
        for count in 0..2 {
            assert_eq!(inter_arrival_ns(&flows(0..count), &[(0, 9)], &NONE), None);
        }
        let mut few = flows(0..5);
        assert_eq!(inter_arrival_ns(&few, &[], &NONE), Some(1.0));
        few.arrivals_left_out = 1;
        assert_eq!(inter_arrival_ns(&few, &[], &NONE), None);
    }
}
