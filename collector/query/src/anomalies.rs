//! Differences between slow requests and the others. The pass that infers the model also determines
//! the slowness thresholds. A second pass compares the requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stroboscope_analysis::anomaly::{Anomalies, Anomaly, outlier_threshold_ns};
use stroboscope_analysis::by_root::OTHER_ROOTS;
use stroboscope_analysis::pass::{Pass, TraceView};
use stroboscope_analysis::record::TraceId;
use stroboscope_analysis::sampling::WeightedCount;

use super::inference::Inference;
use super::notes::Notes;
use super::query_error::QueryError;
use super::sampled_notes::WeightUse;
use super::shard::ShardQuestion;
use super::study::{Question, StudyInput};
use stroboscope_store::tables::IdRange;

/// Minimum number of kept names at which names of traces other than examples are dropped.
const NAMES_MIN: usize = 4096;

/// Comparison of slow requests with the other requests, segment by segment.
#[derive(Debug)]
pub struct AnomalyReport {
    /// Latency in ns above which requests are slow, by root operation. The entry `(other)` applies
    /// to absent root operations. Without it, their requests are not slow.
    pub thresholds_ns: BTreeMap<String, u64>,
    /// Number of slow requests.
    pub outliers: WeightedCount,
    /// Number of requests that are not slow.
    pub others: WeightedCount,
    /// Ranked list of all segments. Segments with a larger share of the critical path in slow
    /// requests than in others come first, then the rest. In both groups, the segments that differ
    /// significantly come first.
    pub ranked: Vec<Anomaly>,
    /// Names of example traces whose ids their source did not write as 32 lower-case hexadecimal
    /// digits.
    names: BTreeMap<TraceId, Arc<str>>,
    /// Notes about the data that the query read.
    pub notes: Notes,
}

impl AnomalyReport {
    /// Returns the ids of the example traces of a segment, each as its source wrote it.
    #[must_use]
    pub fn examples(&self, anomaly: &Anomaly) -> Vec<String> {
        let name = |id: &TraceId| {
            self.names
                .get(id)
                .map_or_else(|| id.to_string(), |name| name.to_string())
        };
        anomaly.examples.iter().map(name).collect()
    }
}

/// Asks for the differences between the slowest requests of each root operation and its other
/// requests. The number is a fraction of requests, 0 to 1. A request is slow if its latency is
/// above the quantile at 1 minus this fraction. Root operations have quantiles of their own,
/// because a latency that is slow for one may be fast for another. Root operations beyond the
/// maximum number share one quantile.
#[derive(Clone, Copy, Debug)]
pub struct AnomalyQuestion(pub f64);

impl Question for AnomalyQuestion {
    type Records = ();
    type Preparation = BTreeMap<String, u64>;
    type Paths<'a> = SlowAndOthers<'a>;
    type Answer = AnomalyReport;

    fn what(&self) -> &'static str {
        "comparing slow requests"
    }

    fn records(&self) {}

    fn prepare(
        &self,
        studied: StudyInput<'_>,
        (): (),
    ) -> Result<BTreeMap<String, u64>, QueryError> {
        Ok(self.shard_preparation(studied.inference))
    }

    fn paths<'a>(
        &'a self,
        _: StudyInput<'a>,
        thresholds_ns: &'a BTreeMap<String, u64>,
    ) -> SlowAndOthers<'a> {
        SlowAndOthers {
            thresholds_ns,
            groups: SlowGroups {
                anomalies: Anomalies::new(u64::MAX),
                names: BTreeMap::new(),
                names_max: NAMES_MIN,
            },
        }
    }

    fn answer(
        &self,
        _: StudyInput<'_>,
        thresholds_ns: &BTreeMap<String, u64>,
        paths: SlowAndOthers<'_>,
        notes: Notes,
    ) -> Result<AnomalyReport, QueryError> {
        Ok(paths.groups.into_report(thresholds_ns.clone(), notes))
    }
}

impl ShardQuestion for AnomalyQuestion {
    type State = SlowGroups;

    fn shard_preparation(&self, inference: &Inference) -> BTreeMap<String, u64> {
        let roots = inference.roots.roots().iter();
        roots
            .filter(|(_, of)| of.latency.count() > 0)
            .map(|(root, of)| (root.clone(), outlier_threshold_ns(&of.latency, self.0)))
            .collect()
    }

    fn state(
        &self,
        _: StudyInput<'_>,
        _: Option<&IdRange>,
        (): (),
        paths: SlowAndOthers<'_>,
    ) -> Result<SlowGroups, QueryError> {
        Ok(paths.groups)
    }

    fn merge_states(&self, whole: &mut SlowGroups, part: SlowGroups) {
        whole.merge(part);
    }

    fn conclude(
        &self,
        inference: &Inference,
        whole: SlowGroups,
        notes: Notes,
    ) -> Result<AnomalyReport, QueryError> {
        Ok(whole.into_report(self.shard_preparation(inference), notes))
    }
}

/// Pass that compares slow requests with the others, segment by segment.
#[derive(Debug)]
pub struct SlowAndOthers<'a> {
    thresholds_ns: &'a BTreeMap<String, u64>,
    groups: SlowGroups,
}

/// Slow requests and the others, segment by segment, with the names of slow requests.
#[derive(Debug, Serialize, Deserialize)]
pub struct SlowGroups {
    anomalies: Anomalies,
    names: BTreeMap<TraceId, Arc<str>>,
    /// Number of names at which names of traces other than examples are dropped.
    names_max: usize,
}

impl Pass<TraceView<'_>> for SlowAndOthers<'_> {
    fn observe(&mut self, seen: &TraceView<'_>) {
        let (trace, path) = (seen.trace, seen.path);
        let root = seen.records.root_name();
        let own_ns = self.thresholds_ns.get(&*root);
        let threshold_ns = own_ns.or_else(|| self.thresholds_ns.get(OTHER_ROOTS));
        // A root operation has no threshold if all its requests have a latency of 0. None of them
        // is slow.
        let threshold_ns = threshold_ns.copied().unwrap_or(u64::MAX);
        let groups = &mut self.groups;
        let request = (trace.id, seen.weight());
        groups
            .anomalies
            .observe_against(threshold_ns, request, path);
        if let Some(name) = trace
            .name
            .as_ref()
            .filter(|_| path.latency_ns > threshold_ns)
        {
            groups.names.insert(trace.id, name.clone());
            groups.bound_names();
        }
    }

    fn merge(&mut self, other: Self) {
        self.groups.merge(other.groups);
    }
}

impl SlowGroups {
    fn merge(&mut self, other: Self) {
        self.anomalies.merge(&other.anomalies);
        self.names.extend(other.names);
        self.bound_names();
    }

    fn bound_names(&mut self) {
        if self.names.len() >= self.names_max {
            keep_examples(&mut self.names, &self.anomalies.ranked());
            // Doubling makes dropping cheap. The number of segments bounds the names that are kept.
            self.names_max = NAMES_MIN.max(2 * self.names.len());
        }
    }

    fn into_report(mut self, thresholds_ns: BTreeMap<String, u64>, notes: Notes) -> AnomalyReport {
        let (outliers, others) = self.anomalies.requests();
        let ranked = causes_first(self.anomalies.ranked());
        keep_examples(&mut self.names, &ranked);
        AnomalyReport {
            thresholds_ns,
            outliers,
            others,
            ranked,
            names: self.names,
            notes: notes.weighing(WeightUse::Everything),
        }
    }
}

/// Moves segments with more of the critical path in slow requests to the front.
///
/// Segments with a smaller share in slow requests are mostly an effect: their share falls because
/// that of a slow segment grows. Such decreases may be the most certain differences, and would hide
/// the causes if slow requests are few.
fn causes_first(mut ranked: Vec<Anomaly>) -> Vec<Anomaly> {
    // The sort is stable, so both groups keep their order.
    ranked.sort_by_key(|anomaly| anomaly.critical.mean <= 0.0);
    ranked
}

fn keep_examples(names: &mut BTreeMap<TraceId, Arc<str>>, ranked: &[Anomaly]) {
    let examples = ranked.iter().flat_map(|anomaly| &anomaly.examples);
    let mut examples: Vec<TraceId> = examples.copied().collect();
    examples.sort_unstable();
    names.retain(|id, _| examples.binary_search(id).is_ok());
}

#[cfg(test)]
mod tests {
    use stroboscope_analysis::anomaly::GroupStatistics;
    use stroboscope_analysis::label::SegmentId;
    use stroboscope_analysis::statistics::Difference;

    use super::*;

    fn check(differences: &[f64], order: &[u32]) {
        let anomaly = |(segment, &mean): (usize, &f64)| {
            let difference = Difference {
                mean,
                effect_size: 0.0,
                p_value: 1.0,
            };
            Anomaly {
                segment: SegmentId(segment as u32),
                outliers: GroupStatistics::default(),
                others: GroupStatistics::default(),
                critical: difference,
                critical_q_value: 1.0,
                slack: difference,
                slack_q_value: 1.0,
                examples: Vec::new(),
            }
        };
        let ranked = causes_first(differences.iter().enumerate().map(anomaly).collect());
        assert_eq!(
            ranked
                .iter()
                .map(|anomaly| anomaly.segment.0)
                .collect::<Vec<_>>(),
            order
        );
    }

    #[test]
    fn effects_do_not_hide_causes() {
        check(&[], &[]);
        check(&[0.2, -0.1, 0.5, 0.0, 0.3, -0.4], &[0, 2, 4, 1, 3, 5]);
    }
}
