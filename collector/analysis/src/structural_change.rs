//! How the structure of a system changed between two ranges of traces (The Mystery Machine, §4.6): relations that the
//! one range contradicts and the other does not.

use crate::label::{SegmentId, SegmentLabel};
use crate::model::{Model, Support};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A relation, by names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RelationName {
    /// The one segment always ends before the other one starts.
    HappensBefore(SegmentLabel, SegmentLabel),
    /// The two segments never overlap, and either may come first.
    MutualExclusion(SegmentLabel, SegmentLabel),
    /// The one task hands data elements to the other one in order.
    Pipeline(Arc<str>, Arc<str>),
}

impl fmt::Display for RelationName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RelationName::HappensBefore(a, b) => write!(f, "{a} → {b}"),
            RelationName::MutualExclusion(a, b) => write!(f, "{a} ∨ {b}"),
            RelationName::Pipeline(a, b) => write!(f, "{a} ≫ {b}"),
        }
    }
}

/// A relation that is believed of one range only, though both put it to the test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedRelation {
    /// Which relation.
    pub relation: RelationName,
    /// How far the earlier range put it to the test.
    pub before: Support,
    /// How far the later range did.
    pub after: Support,
}

/// What changed from one range to another.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct StructuralChange {
    /// Relations that hold only in the later range, most tested first.
    pub gained: Vec<ChangedRelation>,
    /// Relations that hold only in the earlier range, most tested first.
    pub lost: Vec<ChangedRelation>,
    /// Segments that only the later range has, in order of name.
    pub appeared: Vec<SegmentLabel>,
    /// Segments that only the earlier range has, in order of name.
    pub vanished: Vec<SegmentLabel>,
    /// Relations of the later range that the earlier one did not put to the test: of segments that are new, or that
    /// were never seen together.
    pub untested_before: usize,
    /// Relations of the earlier range that the later one did not put to the test.
    pub untested_after: usize,
}

type Believed = BTreeMap<RelationName, Support>;

impl StructuralChange {
    /// Compares what is believed of two ranges at this tolerance.
    pub fn between(before: &Model, after: &Model, tolerance: f64) -> StructuralChange {
        let (old, new) = (believed(before, tolerance), believed(after, tolerance));
        let mut change = StructuralChange {
            appeared: only_in(after, before),
            vanished: only_in(before, after),
            ..StructuralChange::default()
        };
        for (relation, support) in new.iter().filter(|(relation, _)| !holds(&old, relation)) {
            match tested(before, relation) {
                Some(before) => {
                    change.gained.push(ChangedRelation {
                        relation: relation.clone(),
                        before,
                        after: *support,
                    });
                }
                None => change.untested_before += 1,
            }
        }
        for (relation, support) in old.iter().filter(|(relation, _)| !holds(&new, relation)) {
            match tested(after, relation) {
                Some(after) => {
                    change.lost.push(ChangedRelation { relation: relation.clone(), before: *support, after });
                }
                None => change.untested_after += 1,
            }
        }
        // Stable: equally tested ones stay in order of name.
        let tests = |c: &ChangedRelation| c.before.cooccurrences.min(c.after.cooccurrences);
        change.gained.sort_by_key(|c| std::cmp::Reverse(tests(c)));
        change.lost.sort_by_key(|c| std::cmp::Reverse(tests(c)));
        change
    }
}

fn believed(model: &Model, tolerance: f64) -> Believed {
    let relations = model.relations(tolerance);
    let label = |id: SegmentId| model.labels().get(id).cloned();
    let mut believed = Believed::new();
    for relation in relations.all_happens_before() {
        if let Some((a, b)) = label(relation.first).zip(label(relation.second)) {
            believed.insert(RelationName::HappensBefore(a, b), relation.support);
        }
    }
    for relation in relations.all_mutual_exclusion() {
        if let Some((a, b)) = label(relation.first).zip(label(relation.second)) {
            // Numbers differ between the models; names do not.
            let (a, b) = if a < b { (a, b) } else { (b, a) };
            believed.insert(RelationName::MutualExclusion(a, b), relation.support);
        }
    }
    for pipeline in relations.all_pipelines() {
        let name = RelationName::Pipeline(pipeline.first.clone(), pipeline.second.clone());
        believed.insert(name, pipeline.support);
    }
    believed
}

/// Whether a relation is believed. Segments that are always in order exclude each other as well.
fn holds(believed: &Believed, relation: &RelationName) -> bool {
    let in_order = |a: &SegmentLabel, b: &SegmentLabel| {
        believed.contains_key(&RelationName::HappensBefore(a.clone(), b.clone()))
    };
    believed.contains_key(relation)
        || matches!(relation, RelationName::MutualExclusion(a, b) if in_order(a, b) || in_order(b, a))
}

/// How far a model put a relation to the test; `None`: not at all.
fn tested(model: &Model, relation: &RelationName) -> Option<Support> {
    let id = |label: &SegmentLabel| model.labels().id(&label.task, &label.start, &label.end);
    let support = match relation {
        RelationName::HappensBefore(a, b) => model.happens_before_support(id(a)?, id(b)?),
        RelationName::MutualExclusion(a, b) => model.mutual_exclusion_support(id(a)?, id(b)?),
        RelationName::Pipeline(a, b) => {
            let counts = model.pipeline_counts(a, b).filter(|counts| counts.ordered > 0)?;
            Support { cooccurrences: counts.cooccurrences, contradictions: counts.contradictions }
        }
    };
    (support.cooccurrences > 0).then_some(support)
}

fn only_in(one: &Model, other: &Model) -> Vec<SegmentLabel> {
    let seen = |model: &Model, id| model.segment_counts(id).traces > 0;
    let is_missing = |label: &SegmentLabel| {
        !other.labels().id(&label.task, &label.start, &label.end).is_some_and(|id| seen(other, id))
    };
    let mut labels: Vec<SegmentLabel> = one
        .labels()
        .iter()
        .filter(|(id, label)| seen(one, *id) && is_missing(label))
        .map(|(_, label)| label.clone())
        .collect();
    labels.sort_unstable();
    labels
}
