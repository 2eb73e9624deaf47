//! Tests whether the frequency of features changed by more than chance.

use super::CompareSettings;
use super::budget::{WeightedTest, decisions};
use super::evidence::{GroupEvidence, RankEvidence, Variability};
use super::production::{Feature, FeatureChange, OperationChange};
use super::rows::Period;
use crate::flow::Operation;
use std::collections::BTreeMap;

/// Result of a test of a feature.
#[derive(Clone, Copy, Debug)]
pub(super) struct FeatureTest {
    pub(super) q_value: f64,
    /// Period of the section that the q-value is for; `None` if it is for both whole periods.
    pub(super) section: Option<Period>,
}

/// Tests features for a change between the whole periods. A feature without such a change, but with
/// evidence from a section of one period, is tested for a change between that section and the other
/// period.
///
/// A feature of an operation is tested in the requests of each root operation and caller. For whole
/// periods, it is also tested in all of them together, except for [`Feature::Exactly`]. A change of
/// a rare operation may show only there.
pub(super) fn tested<'a>(
    operations: impl Iterator<Item = &'a OperationChange>,
    settings: &CompareSettings,
) -> Vec<FeatureTest> {
    let mut features: Vec<&FeatureChange> = Vec::new();
    let mut groups: BTreeMap<(&Operation, &Feature), Vec<GroupEvidence<'_>>> = BTreeMap::new();
    let mut keys = Vec::new();
    for operation in operations {
        for change in &operation.features {
            // Indices of productions have a meaning only within one operation change.
            let is_general = !matches!(change.feature, Feature::Exactly(_));
            let key = (&operation.called.operation, &change.feature);
            if is_general {
                let [before, after] = change.requests;
                groups.entry(key).or_default().push(GroupEvidence {
                    evidence: &change.evidence,
                    with: [before[0], after[0]],
                    of: [before[1], after[1]],
                });
            }
            keys.push(is_general.then_some(key));
            features.push(change);
        }
    }
    groups.retain(|_, of| of.len() > 1);
    let groups = groups.into_iter();
    let joined = groups.filter_map(|(key, groups)| Some((key, RankEvidence::joined(&groups)?)));
    let joined: BTreeMap<_, RankEvidence> = joined.collect();
    let q_values = |evidence: &[&RankEvidence], is_joined: bool| {
        let variability = Variability::of(evidence);
        let test = |(at, evidence): (usize, &&RankEvidence)| {
            let own = WeightedTest {
                p_value: evidence.verdict(&variability).p_value,
                least_p_value: evidence.least_p_value,
                spread_ns: 0.0,
            };
            let key = keys[at].filter(|_| is_joined);
            let joined = key.and_then(|key| joined.get(&key));
            joined.map_or(own, |joined| {
                let of_joined = joined.verdict(&variability);
                let is_alike = of_joined.is_slower == (features[at].gain() > 0.0);
                let of_joined = if is_alike { of_joined.p_value } else { 1.0 };
                WeightedTest {
                    p_value: (2.0 * own.p_value.min(of_joined)).min(1.0),
                    least_p_value: 2.0 * own.least_p_value.min(joined.least_p_value),
                    ..own
                }
            })
        };
        let tests: Vec<WeightedTest> = evidence.iter().enumerate().map(test).collect();
        let decisions = decisions(&tests, settings.false_discoveries);
        let q_values = decisions.iter().map(|of| of.q_value.unwrap_or(1.0));
        q_values.collect::<Vec<f64>>()
    };
    let whole: Vec<&RankEvidence> = features.iter().map(|change| &change.evidence).collect();
    let sections = features.iter().map(|change| match &change.section {
        Some(section) => &section.evidence,
        None => &change.evidence,
    });
    let sections: Vec<&RankEvidence> = sections.collect();
    let whole = q_values(&whole, true).into_iter();
    let tests = whole.zip(q_values(&sections, false));
    let test = |(change, (whole, of_section)): (&&FeatureChange, (f64, f64))| {
        let is_unsure = whole > settings.false_discoveries;
        let section = change.section.as_ref().filter(|_| is_unsure);
        FeatureTest {
            q_value: section.map_or(whole, |_| of_section),
            section: section.map(|section| section.period),
        }
    };
    features.iter().zip(tests).map(test).collect()
}
