//! Naive ranking: the operation whose median self time changes most comes first.

use super::request::Simulated;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Service and name of an operation.
pub(crate) type Named = (Arc<str>, Arc<str>);

/// Returns the first operation of the ranking.
pub(crate) fn first([before, after]: [&[Simulated]; 2]) -> Option<Named> {
    let (before, after) = (medians(before), medians(after));
    let differences = before.iter().filter_map(|(of, median_ns)| {
        let difference_ns = (after.get(of)? - median_ns).abs();
        Some((difference_ns, of))
    });
    let largest = differences.max_by(|a, b| a.0.total_cmp(&b.0));
    largest.map(|(_, of)| of.clone())
}

fn medians(period: &[Simulated]) -> BTreeMap<Named, f64> {
    let mut values: BTreeMap<Named, Vec<f64>> = BTreeMap::new();
    for request in period {
        for (span, own_ns) in request.records.spans.iter().zip(request.self_ns()) {
            let of = (span.service.clone(), span.name.clone());
            values.entry(of).or_default().push(own_ns);
        }
    }
    let median = |mut values: Vec<f64>| {
        let at = values.len() / 2;
        *values.select_nth_unstable_by(at, f64::total_cmp).1
    };
    values
        .into_iter()
        .map(|(of, values)| (of, median(values)))
        .collect()
}
