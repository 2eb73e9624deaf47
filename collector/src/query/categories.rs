//! Server, network and client time: on the critical path, and summed without regard to what ran at once (The Mystery
//! Machine, figure 5).

use std::collections::BTreeMap;

use stroboscope_analysis::aggregate::{PathAggregate, ShareSum};
use stroboscope_analysis::category::{Category, SpanKinds};
use stroboscope_analysis::label::Labels;

/// One category of segments, over many requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CategoryTotals {
    /// Which.
    pub category: Category,
    /// Durations of its segments on the critical path.
    pub critical_duration_ns: u128,
    /// What was waited for its segments on the critical path.
    pub critical_wait_ns: u128,
    /// Durations of all its segments: what a sum without causality takes for their part in latency.
    pub summed_delay_ns: u128,
    /// Shares of the critical paths, duration and wait; one whole for each request.
    pub shares: ShareSum,
}

impl CategoryTotals {
    /// Duration and wait on the critical path.
    #[must_use]
    pub fn critical_ns(&self) -> u128 {
        self.critical_duration_ns + self.critical_wait_ns
    }
}

/// The categories that occur, those with the largest part of the critical path first.
///
/// A category is a sum over its segments, so it is made of what is known of each, once all kinds are known.
pub(super) fn categories(
    aggregate: &PathAggregate,
    kinds: &SpanKinds,
    labels: &Labels,
) -> Vec<CategoryTotals> {
    let mut by_category = BTreeMap::<Category, CategoryTotals>::new();
    for (id, statistics) in aggregate.segments() {
        let Some(label) = labels.get(id) else { continue };
        let category = kinds.category(label);
        let totals = by_category.entry(category).or_insert_with(|| CategoryTotals {
            category,
            critical_duration_ns: 0,
            critical_wait_ns: 0,
            summed_delay_ns: 0,
            shares: ShareSum::default(),
        });
        totals.critical_duration_ns += statistics.critical_duration_ns;
        totals.critical_wait_ns += statistics.critical_wait_ns;
        totals.summed_delay_ns += statistics.duration.sum_ns();
        totals.shares = totals.shares + statistics.shares();
    }
    let mut categories: Vec<_> = by_category.into_values().collect();
    // A stable sort: of equals, server comes before network, and network before client.
    categories.sort_by_key(|totals| std::cmp::Reverse(totals.critical_ns()));
    categories
}

#[cfg(test)]
mod tests {
    use stroboscope_analysis::critical_path::analyse;
    use stroboscope_analysis::model::Model;
    use stroboscope_analysis::record::{SpanFlags, SpanRecord, TraceRecords};
    use stroboscope_analysis::segment::segment;

    use super::*;

    fn span(span_id: u64, service: &str, flags: SpanFlags, interval_ns: (i64, i64)) -> SpanRecord {
        SpanRecord {
            span_id,
            parent_id: span_id - 1,
            service: service.into(),
            name: "get".into(),
            host: "h".into(),
            process: 0,
            start_ns: interval_ns.0,
            end_ns: interval_ns.1,
            flags,
            events: Vec::new(),
        }
    }

    #[test]
    fn time_goes_to_whom_it_belongs() {
        // A browser works for 20 ns, waits for the network for 10 + 10 ns, and the server works for 60 ns.
        let none = SpanFlags::default();
        let spans = vec![
            span(1, "browser", none, (0, 100)),
            span(2, "http", SpanFlags::CLIENT, (10, 90)),
            span(3, "web", SpanFlags::SERVER, (20, 80)),
        ];
        let records = TraceRecords { spans, ..TraceRecords::default() };
        let (mut model, mut kinds, mut aggregate) =
            (Model::new(), SpanKinds::default(), PathAggregate::new());
        let (trace, _) = segment(&records, model.labels_mut());
        model.observe(&trace);
        kinds.observe(&records);
        aggregate.observe(&analyse(&trace, &model.relations(0.0)));
        let found: Vec<_> = categories(&aggregate, &kinds, model.labels())
            .iter()
            .map(|totals| {
                (totals.category, totals.critical_ns(), totals.summed_delay_ns, totals.shares.mean(1))
            })
            .collect();
        let expected = [
            (Category::Server, 60, 60, 0.6),
            (Category::Network, 20, 20, 0.2),
            (Category::Client, 20, 20, 0.2),
        ];
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert_eq!((found.0, found.1, found.2), (expected.0, expected.1, expected.2));
            assert!((found.3 - expected.3).abs() < 1e-12, "{found:?}");
        }
    }
}
