//! Learns the model of latency by load and tradeoff rate.

use std::collections::BTreeMap;
use std::sync::Arc;

use stroboscope_tradeoff::{ClassCost, Curve, CurvePoint, PerformanceModel};

use super::NotLearned;
use super::observed::{PointObserved, TradeoffInstance};
use crate::statistics::incomplete_beta;
use crate::statistics::regression::{LinearFit, fit};

/// Options for learning a performance model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PerformanceSettings {
    /// Quantile of latency to learn, 0 to 1.
    pub quantile: f64,
    /// Minimum number of requests in a group of similar tradeoff rates and loads.
    pub requests_min: usize,
    /// Maximum relative difference of loads in one group, 0 to 1. A group may always span one
    /// request per second.
    pub load_step: f64,
    /// Significance level: differences in cost between classes of items count as real below this
    /// p-value.
    pub class_p_max: f64,
}

impl Default for PerformanceSettings {
    fn default() -> Self {
        Self {
            quantile: 0.5,
            requests_min: 20,
            load_step: 0.15,
            class_p_max: 0.001,
        }
    }
}

/// Tradeoff rates that exceed the lowest rate of a group by less than this belong to the group. A
/// rate below this counts as near 0.
const RATE_STEP: f64 = 0.02;

/// Learns the performance model of a point from the requests that explored it.
///
/// # Errors
/// Returns an error if no request explored the point, or if every group of similar tradeoff rates
/// and loads has too few requests with a steady load.
pub fn learn_performance(
    point: &PointObserved,
    settings: &PerformanceSettings,
) -> Result<PerformanceModel, NotLearned> {
    let explored: Vec<&TradeoffInstance> = point.explored().collect();
    if explored.is_empty() {
        return Err(NotLearned::NothingExplored);
    }
    let mut curves = Vec::new();
    for of_rate in by_rate(&steady(&explored)) {
        let points: Vec<CurvePoint> = by_load(&of_rate, settings)
            .into_iter()
            .map(|bin| curve_point(&bin, settings.quantile))
            .collect();
        if !points.is_empty() {
            let rate = of_rate.iter().map(|made| made.rate()).sum::<f64>() / of_rate.len() as f64;
            curves.push(Curve::of(rate, points));
        }
    }
    if curves.is_empty() {
        return Err(NotLearned::TooFew {
            requests: explored.len(),
            needed: settings.requests_min,
        });
    }
    let mut model = PerformanceModel::new(settings.quantile, curves);
    model.class_costs = class_costs(point, &explored, &model.curves, settings);
    Ok(model)
}

/// Time after a request, in nanoseconds, at which its load is checked again. A load is measured
/// over about a second, so the load one second later shows whether the measurement lagged.
const LATER_NS: std::ops::Range<i64> = 800_000_000..1_200_000_000;
/// Factor by which a steady load may change within a second. A load that changes more is in
/// transition.
const CHANGE_MAX: f64 = 1.5;

/// Returns the requests whose load was about the same one second later. A request that no other
/// request followed one second later counts as steady. While the load rises, requests already wait
/// for others that the measured load does not include yet. Such requests would make low loads look
/// slow. If several instances of a service have different loads, one with about the same load is
/// enough.
fn steady<'a>(explored: &[&'a TradeoffInstance]) -> Vec<&'a TradeoffInstance> {
    let mut ordered = explored.to_vec();
    ordered.sort_by_key(|made| made.start_ns);
    let is_steady = |made: &&TradeoffInstance| {
        let before = |after_ns: i64| {
            ordered.partition_point(|other| other.start_ns < made.start_ns.saturating_add(after_ns))
        };
        let later = ordered.get(before(LATER_NS.start)..before(LATER_NS.end));
        let later = later.unwrap_or_default();
        let is_near = |other: &&TradeoffInstance| {
            let change = other.requests_per_second.max(1.0) / made.requests_per_second.max(1.0);
            (1.0 / CHANGE_MAX..=CHANGE_MAX).contains(&change)
        };
        later.is_empty() || later.iter().any(is_near)
    };
    ordered.iter().copied().filter(is_steady).collect()
}

fn by_rate<'a>(explored: &[&'a TradeoffInstance]) -> Vec<Vec<&'a TradeoffInstance>> {
    let mut ordered = explored.to_vec();
    ordered.sort_by(|a, b| a.rate().total_cmp(&b.rate()));
    let mut groups: Vec<Vec<&TradeoffInstance>> = Vec::new();
    for made in ordered {
        match groups.last_mut() {
            Some(group)
                if group
                    .first()
                    .is_some_and(|first| made.rate() - first.rate() < RATE_STEP) =>
            {
                group.push(made);
            }
            _ => groups.push(vec![made]),
        }
    }
    groups
}

/// Groups requests of similar load, by ascending load. Groups with fewer than `requests_min`
/// requests are left out.
fn by_load<'a>(
    of_rate: &[&'a TradeoffInstance],
    settings: &PerformanceSettings,
) -> Vec<Vec<&'a TradeoffInstance>> {
    let mut ordered = of_rate.to_vec();
    ordered.sort_by(|a, b| a.requests_per_second.total_cmp(&b.requests_per_second));
    let mut bins: Vec<Vec<&TradeoffInstance>> = Vec::new();
    for made in ordered {
        let is_near = |bin: &Vec<&TradeoffInstance>| {
            bin.first().is_some_and(|first| {
                let step = (first.requests_per_second * settings.load_step).max(1.0);
                made.requests_per_second - first.requests_per_second <= step
            })
        };
        match bins.last_mut() {
            Some(bin) if is_near(bin) => bin.push(made),
            _ => bins.push(vec![made]),
        }
    }
    bins.retain(|bin| bin.len() >= settings.requests_min);
    bins
}

/// Returns a bin's mean load, size, quantile of latency, and half the width of the quantile's 95 %
/// interval: order statistics, by the normal approximation of the binomial distribution.
fn curve_point(bin: &[&TradeoffInstance], quantile: f64) -> CurvePoint {
    let mut latencies: Vec<u64> = bin.iter().map(|made| made.latency_ns).collect();
    latencies.sort_unstable();
    let count = latencies.len() as f64;
    let at = |place: f64| {
        let place = place.clamp(0.0, count - 1.0) as usize;
        latencies.get(place).copied().unwrap_or_default() as f64
    };
    let spread = 1.96 * (count * quantile * (1.0 - quantile)).sqrt();
    let place = count * quantile;
    let per_second = bin.iter().map(|made| made.requests_per_second).sum::<f64>() / count;
    CurvePoint {
        requests_per_second: per_second,
        latency_ns: at(place),
        requests: bin.len() as u64,
        error_ns: (at(place + spread) - at(place - spread)) / 2.0,
    }
}

/// Returns the first feature with the relative costs of its classes; `None` without features, if
/// the costs do not differ significantly, if there are too few data or classes, or if omitting
/// items is not known to save time. An F test of nested regressions compares two models of the
/// latency of requests with similar rates and loads that omitted items without a model. One uses
/// the number of omitted items of each class, the other only their total number.
fn class_costs(
    point: &PointObserved,
    explored: &[&TradeoffInstance],
    curves: &[Curve],
    settings: &PerformanceSettings,
) -> Option<(String, Vec<ClassCost>)> {
    let feature = point.schema.first()?;
    let random: Vec<&TradeoffInstance> = explored
        .iter()
        .copied()
        .filter(|made| made.omitted > 0 && !made.is_by_model)
        .collect();
    let mut classes: BTreeMap<Arc<str>, usize> = BTreeMap::new();
    for (class, _) in random.iter().flat_map(|made| &made.omitted_by) {
        let next = classes.len();
        classes.entry(class.clone()).or_insert(next);
    }
    let width = classes.len();
    if width < 2 {
        return None;
    }
    // Values are centred within a bin, which removes most of the effect of load and rate.
    let (mut rows, mut latencies, mut bins) = (Vec::new(), Vec::new(), 0);
    for of_rate in by_rate(&random) {
        for bin in by_load(&of_rate, settings) {
            let counted: Vec<Vec<f64>> = bin.iter().map(|made| counts(made, &classes)).collect();
            let count = bin.len() as f64;
            let means: Vec<f64> = (0..width)
                .map(|class| counted.iter().filter_map(|row| row.get(class)).sum::<f64>() / count)
                .collect();
            let mean_ns = bin.iter().map(|made| made.latency_ns as f64).sum::<f64>() / count;
            for (made, row) in bin.iter().zip(counted) {
                rows.push(
                    row.iter()
                        .zip(&means)
                        .map(|(value, mean)| value - mean)
                        .collect(),
                );
                latencies.push(made.latency_ns as f64 - mean_ns);
            }
            bins += 1;
        }
    }
    let sums: Vec<Vec<f64>> = rows
        .iter()
        .map(|row: &Vec<f64>| vec![row.iter().sum()])
        .collect();
    let (apart, together) = (fit(&rows, &latencies, 1e-6)?, fit(&sums, &latencies, 1e-6)?);
    let freedom = rows.len() as f64 - (bins + width) as f64;
    if freedom < 30.0 || !differ(&apart, &together, (width - 1) as f64, freedom, settings) {
        return None;
    }
    // Requests of a bin leave out similar shares of their items, so bins show mainly the
    // differences between classes. A comparison with requests that leave out almost nothing gives
    // the average savings per item.
    let mean_saved_ns = mean_saved_ns(curves, &random)?;
    let frequency = |place: usize| rows_mean(&random, &classes, place);
    let weighted: f64 = apart
        .weights
        .iter()
        .enumerate()
        .map(|(place, weight)| weight * frequency(place))
        .sum();
    let all: f64 = (0..width).map(frequency).sum();
    let costs = classes.iter().map(|(class, place)| {
        let deviation = apart
            .weights
            .get(*place)
            .map_or(0.0, |weight| weight - weighted / all);
        ClassCost {
            class: class.to_string(),
            // No class gets a cost below 0.05.
            relative_cost: ((mean_saved_ns - deviation) / mean_saved_ns).max(0.05),
        }
    });
    Some((feature.to_string(), costs.collect()))
}

/// Returns the average time that leaving out an item saves, in ns: the latency at a rate near 0
/// minus the latency of requests at the same load, per omitted item. Returns `None` if no curve has
/// such a rate, if the load of every request exceeds that curve's loads, or if nothing is saved.
fn mean_saved_ns(curves: &[Curve], random: &[&TradeoffInstance]) -> Option<f64> {
    let full = curves
        .iter()
        .find(|curve| curve.tradeoff_rate < RATE_STEP)?;
    let saved = random.iter().filter_map(|made| {
        let full_ns = full.latency_ns(made.requests_per_second);
        full_ns
            .is_finite()
            .then_some((full_ns - made.latency_ns as f64, made.omitted as f64))
    });
    let (saved_ns, omitted) = saved.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    Some(saved_ns / omitted).filter(|mean| *mean > 0.0)
}

/// Returns the average number of omitted items of a class per request.
fn rows_mean(
    random: &[&TradeoffInstance],
    classes: &BTreeMap<Arc<str>, usize>,
    place: usize,
) -> f64 {
    let counted = random.iter().flat_map(|made| &made.omitted_by);
    let of_class = counted.filter(|(class, _)| classes.get(class) == Some(&place));
    of_class.map(|(_, count)| *count as f64).sum::<f64>() / random.len() as f64
}

fn counts(made: &TradeoffInstance, classes: &BTreeMap<Arc<str>, usize>) -> Vec<f64> {
    let mut row = vec![0.0; classes.len()];
    for (class, count) in &made.omitted_by {
        if let Some(cell) = classes.get(class).and_then(|place| row.get_mut(*place)) {
            *cell = *count as f64;
        }
    }
    row
}

fn differ(
    apart: &LinearFit,
    together: &LinearFit,
    more: f64,
    freedom: f64,
    settings: &PerformanceSettings,
) -> bool {
    let gained = (together.residual - apart.residual).max(0.0) / more;
    let f = gained / (apart.residual / freedom);
    // Upper tail of F: I_x(d2/2, d1/2) at x = d2 / (d2 + d1 F).
    let p = incomplete_beta(freedom / 2.0, more / 2.0, freedom / (freedom + more * f));
    f.is_finite() && p < settings.class_p_max
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::TraceId;

    fn made(number: u64, load: f64, omitted: u64, latency_ns: f64) -> TradeoffInstance {
        let ads = number % (omitted + 1);
        TradeoffInstance {
            trace: TraceId(number.into()),
            start_ns: number as i64,
            latency_ns: latency_ns as u64,
            service: "ranker".into(),
            kind: "omit".into(),
            is_proactive: true,
            items: 100,
            omitted,
            omitted_by: vec![("ads".into(), ads), ("pages".into(), omitted - ads)],
            requests_per_second: load,
            policy: 0,
            is_explored: true,
            is_by_model: false,
            cause: "".into(),
        }
    }

    fn point(cost_of_ads: f64) -> PointObserved {
        let mut made_all = Vec::new();
        for number in 0..6_000_u64 {
            let (load, omitted) = (
                [10.0, 20.0, 30.0][number as usize % 3],
                [0, 50][number as usize / 3 % 2],
            );
            let mut one = made(number, load, omitted, 0.0);
            let noise =
                (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f64 / (1 << 24) as f64;
            let saved: f64 = one
                .omitted_by
                .iter()
                .map(|(class, count)| {
                    *count as f64 * if &**class == "ads" { cost_of_ads } else { 1.0 }
                })
                .sum();
            one.latency_ns = (1e6 * (load + 100.0 - saved / 2.0 + 10.0 * (noise - 0.5))) as u64;
            made_all.push(one);
        }
        PointObserved {
            schema: vec!["generator".into()],
            made: made_all,
            ..PointObserved::default()
        }
    }

    #[test]
    fn curves_are_medians_by_load_and_rate() {
        let model =
            learn_performance(&point(1.0), &PerformanceSettings::default()).expect("learned");
        assert_eq!(model.curves.len(), 2);
        for (rate, load, expected_ms) in [(0.0, 10.0, 110.0), (0.0, 30.0, 130.0), (0.5, 20.0, 95.0)]
        {
            let ms = model.latency_ns(load, rate) / 1e6;
            assert!((ms - expected_ms).abs() < 1.0, "{rate} {load}: {ms}");
        }
        assert_eq!(model.class_costs, None, "all cost the same");
    }

    #[test]
    fn loads_that_are_on_their_way_are_left_out() {
        // The load rises from 10 to 40 a second at the tenth second. The measured load rises over
        // the following second, but the latency at once.
        let of = |number: u64| {
            let at_s = match number {
                0..100 => number as f64 / 10.0,
                _ => 10.0 + (number - 100) as f64 / 40.0,
            };
            let share = (at_s - 10.0).clamp(0.0, 1.0);
            let mut one = made(
                number,
                10.0 + 30.0 * share,
                0,
                if at_s < 10.0 { 5e6 } else { 50e6 },
            );
            one.start_ns = (at_s * 1e9) as i64;
            one
        };
        let made: Vec<TradeoffInstance> = (0..500).map(of).collect();
        let steady: Vec<&TradeoffInstance> = steady(&made.iter().collect::<Vec<_>>());
        assert!(steady.len() > 450, "{}", steady.len());
        let is_misleading = |made: &&&TradeoffInstance| {
            made.requests_per_second < 25.0 && made.latency_ns > 5_000_000
        };
        assert_eq!(steady.iter().filter(is_misleading).count(), 0);
    }

    #[test]
    fn classes_that_cost_more_are_told() {
        let model =
            learn_performance(&point(3.0), &PerformanceSettings::default()).expect("learned");
        let (feature, costs) = model.class_costs.expect("they differ");
        assert_eq!(feature, "generator");
        let of = |class: &str| {
            costs
                .iter()
                .find(|cost| cost.class == class)
                .expect("there")
                .relative_cost
        };
        assert!((of("ads") / of("pages") - 3.0).abs() < 0.2, "{costs:?}");
        assert!((of("ads") - 1.5).abs() < 0.05, "{costs:?}");
    }

    #[test]
    fn nothing_or_too_little_is_said() {
        let empty = learn_performance(&PointObserved::default(), &PerformanceSettings::default());
        assert_eq!(empty, Err(NotLearned::NothingExplored));
        let few = PointObserved {
            made: (0..5).map(|number| made(number, 10.0, 0, 1e6)).collect(),
            ..PointObserved::default()
        };
        let few = learn_performance(&few, &PerformanceSettings::default());
        assert_eq!(
            few,
            Err(NotLearned::TooFew {
                requests: 5,
                needed: 20
            })
        );
    }
}
