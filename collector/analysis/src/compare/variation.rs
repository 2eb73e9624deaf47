//! Measures the variation of latencies among requests of one category (Spectroscope, §5.4), and its
//! change between two periods (§6.7), which the mean does not show.
//!
//! Requests on the same path are expected to take the same time. The squared coefficient of
//! variation, C² = (σ/μ)², measures how far that holds; a value below 1 is little variation. The
//! test for a change compares the relative distances from the median (Brown and Forsythe, Robust
//! tests for the equality of variances, 1974), over time slices.

use super::OfRoot;
use super::rows::Row;
use super::slices::{Slice, difference};
use crate::flow::CategoryId;
use crate::statistics::{benjamini_hochberg, kolmogorov_smirnov};

/// Number of requests above which a category is large (§5.4). In smaller categories, an estimate of
/// the variance is too imprecise.
const LARGE_MIN: u64 = 10;

/// Variation of latencies within the large categories of root operations that both periods have.
#[derive(Clone, Debug, Default)]
pub struct Variation {
    /// C² of each period's large categories, in ascending order.
    pub squared: [Vec<f64>; 2],
    /// P-value of the difference between the periods' C² (Kolmogorov and Smirnov, §6.7). `None` if
    /// a period has none.
    pub p_value: Option<f64>,
    /// Categories whose variation changed significantly, those with the most later requests first.
    pub changes: Vec<VariationChange>,
}

/// A category whose requests vary more or less than before.
#[derive(Clone, Debug, PartialEq)]
pub struct VariationChange {
    /// Root operation of its requests.
    pub root: String,
    /// The category.
    pub category: CategoryId,
    /// Number of requests in each period that the recorded ones represent.
    pub requests: [u64; 2],
    /// C² in each period.
    pub squared: [f64; 2],
    /// P-value of the change, corrected for the number of categories tested.
    pub q_value: f64,
}

impl Variation {
    /// Returns the fraction of a period's [C²](Self::squared) that are below 1: little variation.
    /// `None` if the period has none.
    pub fn low(&self, period: usize) -> Option<f64> {
        let all = &self.squared[period];
        let low = all.iter().filter(|squared| **squared < 1.0).count();
        (!all.is_empty()).then(|| low as f64 / all.len() as f64)
    }

    pub(super) fn of(roots: &[OfRoot<'_>], false_discoveries: f64) -> Variation {
        let mut squared = [Vec::new(), Vec::new()];
        let mut found = Vec::new();
        for root in roots {
            for (squared, flows) in squared.iter_mut().zip([root.before, root.after]) {
                let large = flows.categories.values();
                let large = large.filter(|category| category.requests > LARGE_MIN);
                squared.extend(large.filter_map(|category| category.squared_variation()));
            }
            for (id, rows) in &root.rows.categories {
                let both = [root.before, root.after].map(|flows| flows.categories.get(id));
                let [Some(before), Some(after)] = both else {
                    continue;
                };
                let requests = [before.requests, after.requests];
                if requests.iter().any(|requests| *requests <= LARGE_MIN) {
                    continue;
                }
                let of = [before.squared_variation(), after.squared_variation()];
                found.push((
                    p_value(rows, root.rows.slices),
                    VariationChange {
                        root: root.name.to_owned(),
                        category: *id,
                        requests: [before, after].map(|category| category.count.rounded()),
                        squared: of.map(Option::unwrap_or_default),
                        q_value: 1.0,
                    },
                ));
            }
        }
        let p_values: Vec<f64> = found.iter().map(|(p_value, _)| *p_value).collect();
        let mut changes: Vec<VariationChange> = found
            .into_iter()
            .zip(benjamini_hochberg(&p_values))
            .filter(|(_, q_value)| *q_value <= false_discoveries)
            .map(|((_, change), q_value)| VariationChange { q_value, ..change })
            .collect();
        changes.sort_by(|a, b| {
            (b.requests[1], &a.root, a.category).cmp(&(a.requests[1], &b.root, b.category))
        });
        squared.iter_mut().for_each(|of| of.sort_by(f64::total_cmp));
        let is_known = squared.iter().all(|of| !of.is_empty());
        // The test takes integers: C² in millionths.
        let whole = |of: &Vec<f64>| of.iter().map(|one| (one * 1e6) as u64).collect();
        let p_value = is_known.then(|| sorted_ks(squared.each_ref().map(whole)));
        Variation {
            squared,
            p_value,
            changes,
        }
    }
}

/// Returns the p-value of the difference between the distributions of each period's sorted values
/// (Kolmogorov and Smirnov).
pub(super) fn sorted_ks(values: [Vec<u64>; 2]) -> f64 {
    let [before, after] = values.map(|of| -> Vec<(u64, u64)> {
        let alike = of.chunk_by(|a, b| a == b);
        alike.map(|alike| (alike[0], alike.len() as u64)).collect()
    });
    kolmogorov_smirnov(&before, &after).p_value
}

/// Returns the p-value of the difference between both periods' relative distances from the median,
/// among [even](Row::is_even) requests.
fn p_value(rows: &[Row<'_>], slices: [usize; 2]) -> f64 {
    let mut of = slices.map(|count| vec![Slice::default(); count]);
    let mut count = [0; 2];
    for period in [0, 1] {
        let even = || rows.iter().filter(|row| row.is_even);
        let own = || even().filter(|row| row.period as usize == period);
        let mut latencies_ns: Vec<u64> = own().map(|row| row.request.latency_ns).collect();
        latencies_ns.sort_unstable();
        let Some(median_ns) = latencies_ns.get(latencies_ns.len() / 2) else {
            return 1.0;
        };
        let median_ns = (*median_ns).max(1) as f64;
        for row in own() {
            let off = (row.request.latency_ns as f64 - median_ns).abs() / median_ns;
            // The logarithm keeps a few outliers from deciding alone.
            of[period][row.slice].add(off.ln_1p(), 1.0);
        }
        count[period] = latencies_ns.len();
    }
    difference((&of[0], count[0]), (&of[1], count[1]))
}
