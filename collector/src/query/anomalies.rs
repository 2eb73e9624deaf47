//! What is different about slow requests. The pass that infers also finds out what slow is; a second one compares.

use std::collections::BTreeMap;
use std::sync::Arc;

use stroboscope_analysis::anomaly::{Anomalies, Anomaly, outlier_threshold_ns};
use stroboscope_analysis::record::TraceId;

use super::infer::Inference;
use super::paths::each_path;
use super::source::{Notes, QueryError, Selection, Source};

/// Names of examples are kept for at least so many traces before those no longer needed are let go.
const NAMES_MIN: usize = 4096;

/// Slow requests compared with the others, segment by segment.
#[derive(Debug)]
pub struct AnomalyReport {
    /// Requests that took longer than this are slow.
    pub threshold_ns: u64,
    /// How many are slow.
    pub outliers: u64,
    /// How many are not.
    pub others: u64,
    /// All segments: those with more of the critical path in slow requests than in others, then the rest; of both,
    /// those that surely differ first.
    pub ranked: Vec<Anomaly>,
    /// Names of example traces whose ids were not hexadecimal in their source.
    names: BTreeMap<TraceId, Arc<str>>,
    /// What was noticed on the way.
    pub notes: Notes,
}

impl AnomalyReport {
    /// The example traces of a segment, called as their sources called them.
    #[must_use]
    pub fn examples(&self, anomaly: &Anomaly) -> Vec<String> {
        let name = |id: &TraceId| self.names.get(id).map_or_else(|| id.to_string(), |name| name.to_string());
        anomaly.examples.iter().map(name).collect()
    }
}

/// Compares the slowest `part` (0 to 1) of the selected traces with the others.
///
/// # Errors
/// When the store cannot be listed.
pub fn anomalies(
    source: &Source,
    selection: Selection,
    inference: &Inference,
    part: f64,
) -> Result<AnomalyReport, QueryError> {
    let threshold_ns = outlier_threshold_ns(&inference.latency, part);
    let mut anomalies = Anomalies::new(threshold_ns);
    let mut names = BTreeMap::new();
    let mut names_max = NAMES_MIN;
    let notes = each_path(source, selection, inference, |answer| {
        anomalies.observe(answer.id, &answer.path);
        if let Some(name) = answer.name.filter(|_| answer.path.latency_ns > threshold_ns) {
            names.insert(answer.id, name);
        }
        if names.len() >= names_max {
            keep_examples(&mut names, &anomalies.ranked());
            // Doubling makes letting go cheap; what is kept is bounded by the number of segments.
            names_max = NAMES_MIN.max(2 * names.len());
        }
        true
    })?;
    let (outliers, others) = anomalies.requests();
    let ranked = causes_first(anomalies.ranked());
    keep_examples(&mut names, &ranked);
    Ok(AnomalyReport { threshold_ns, outliers, others, ranked, names, notes })
}

/// Brings segments with more of the critical path in slow requests to the front.
///
/// That a segment has less of it often is sure, as its share falls when another one grows; but it is an effect of
/// slowness and not its cause, and would hide the causes when slow requests are few.
fn causes_first(mut ranked: Vec<Anomaly>) -> Vec<Anomaly> {
    // Stable: inside both groups, the order stays.
    ranked.sort_by_key(|anomaly| anomaly.critical.mean <= 0.0);
    ranked
}

fn keep_examples(names: &mut BTreeMap<TraceId, Arc<str>>, ranked: &[Anomaly]) {
    let mut examples: Vec<TraceId> = ranked.iter().flat_map(|anomaly| anomaly.examples.clone()).collect();
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
            let difference = Difference { mean, effect_size: 0.0, p_value: 1.0 };
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
        assert_eq!(ranked.iter().map(|anomaly| anomaly.segment.0).collect::<Vec<_>>(), order);
    }

    #[test]
    fn effects_do_not_hide_causes() {
        check(&[], &[]);
        check(&[0.2, -0.1, 0.5, 0.0, 0.3, -0.4], &[0, 2, 4, 1, 3, 5]);
    }
}
