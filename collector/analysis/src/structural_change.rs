//! Structural changes of a system between two ranges of traces (The Mystery Machine, §4.6):
//! relations that are believed of only one range, and segments that only one range has.

use crate::label::{SegmentId, SegmentLabel};
use crate::model::{Model, PairCounts, PipelineCounts, Support};
use crate::statistics::{
    Share, benjamini_hochberg, differ_by_at_least, fisher_two_sided, is_testable,
};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// A relation between named segments or tasks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RelationName {
    /// The first segment ends no later than the second starts.
    HappensBefore(SegmentLabel, SegmentLabel),
    /// The two segments never overlap, and either may come first.
    MutualExclusion(SegmentLabel, SegmentLabel),
    /// The first task hands data elements to the second in order.
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

/// A relation that is believed of only one range, although both ranges test it.
#[derive(Clone, Debug, PartialEq)]
pub struct ChangedRelation {
    /// The relation that changed.
    pub relation: RelationName,
    /// Support in the earlier range.
    pub before: Support,
    /// Support in the later range.
    pub after: Support,
    /// Evidence that the change is not chance.
    pub evidence: ChangeEvidence,
}

/// A segment that occurs in only one range.
#[derive(Clone, Debug, PartialEq)]
pub struct ChangedSegment {
    /// The segment's label.
    pub label: SegmentLabel,
    /// Share of the earlier range's requests that have the segment.
    pub before: Share,
    /// Share of the later range's requests that have the segment.
    pub after: Share,
    /// Evidence that the change is not chance.
    pub evidence: ChangeEvidence,
}

/// Certainty of a difference between two samples of requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChangeEvidence {
    /// Probability of a difference of at least this size if nothing has changed (Fisher's exact
    /// test, two-sided).
    pub p_value: f64,
    /// P-value corrected for the number of differences examined (Benjamini and Hochberg): of all
    /// changes up to this q-value, on average at most this fraction is chance.
    pub q_value: f64,
    /// Minimum change, 0 to 1, of the share of requests that contradict the relation or have the
    /// segment, at 95 % confidence.
    pub at_least: f64,
}

/// Changes from one range to another. The lists have the significant changes, the largest
/// `at_least` first.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct StructuralChange {
    /// Relations that hold only in the later range.
    pub gained: Vec<ChangedRelation>,
    /// Relations that hold only in the earlier range.
    pub lost: Vec<ChangedRelation>,
    /// Segments that only the later range has.
    pub appeared: Vec<ChangedSegment>,
    /// Segments that only the earlier range has.
    pub vanished: Vec<ChangedSegment>,
    /// Numbers of further differences, which two samples of an unchanged system may also show.
    pub by_chance: ByChance,
    /// Number of relations that both ranges test in a way that could show a change. The q-values of
    /// relations correct for this number.
    pub tested: usize,
    /// Number of relations of the later range that the earlier range did not test: their segments
    /// are new, or did not occur together before, or their tasks shared too few data elements.
    pub untested_before: usize,
    /// Number of relations of the earlier range that the later range did not test.
    pub untested_after: usize,
}

/// Numbers of differences between two ranges that chance can explain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ByChance {
    /// Number of relations that hold only in the later range.
    pub gained: usize,
    /// Number of relations that hold only in the earlier range.
    pub lost: usize,
    /// Number of segments that only the later range has.
    pub appeared: usize,
    /// Number of segments that only the earlier range has.
    pub vanished: usize,
}

type RelationSupport = BTreeMap<RelationName, Support>;

impl StructuralChange {
    /// Compares the segments of two ranges, and the relations that their models believe at this
    /// tolerance. On average, at most the fraction `false_discoveries` of the listed changes is
    /// chance; 1 lists all differences that both ranges test.
    ///
    /// A relation with no counterexample in one range and three in the other has not necessarily
    /// changed: few requests easily miss rare counterexamples. So each relation that both ranges
    /// test, believed or not, is tested for equal rates of contradiction.
    pub fn between(
        before: &Model,
        after: &Model,
        tolerance: f64,
        false_discoveries: f64,
    ) -> StructuralChange {
        let (old, new) = (believed(before, tolerance), believed(after, tolerance));
        let differs = |one: &RelationSupport,
                       other: &RelationSupport,
                       tested_by: &Model|
         -> (Vec<RelationName>, usize) {
            let differing = one
                .keys()
                .filter(|relation| !holds(other, relation))
                .cloned();
            let (tested, untested): (Vec<_>, Vec<_>) =
                differing.partition(|relation| tested(tested_by, relation).is_some());
            (tested, untested.len())
        };
        let (gained, untested_before) = differs(&new, &old, before);
        let (lost, untested_after) = differs(&old, &new, after);
        let tests = Tests::of(before, after);
        let judge = |relations: Vec<RelationName>| {
            let judged = relations.into_iter().filter_map(|relation| {
                let (before, after) = (tested(before, &relation)?, tested(after, &relation)?);
                let evidence = tests.evidence(share(before), share(after));
                Some(ChangedRelation {
                    relation,
                    before,
                    after,
                    evidence,
                })
            });
            certain(
                judged.collect(),
                |changed: &ChangedRelation| changed.evidence,
                false_discoveries,
            )
        };
        let ((gained, gained_by_chance), (lost, lost_by_chance)) = (judge(gained), judge(lost));
        let [appeared, vanished] = segments(before, after);
        let certain_segments = |all| {
            certain(
                all,
                |changed: &ChangedSegment| changed.evidence,
                false_discoveries,
            )
        };
        let ((appeared, appeared_by_chance), (vanished, vanished_by_chance)) =
            (certain_segments(appeared), certain_segments(vanished));
        let by_chance = ByChance {
            gained: gained_by_chance,
            lost: lost_by_chance,
            appeared: appeared_by_chance,
            vanished: vanished_by_chance,
        };
        let tested = tests.count;
        StructuralChange {
            gained,
            lost,
            appeared,
            vanished,
            by_chance,
            tested,
            untested_before,
            untested_after,
        }
    }
}

/// Selects the significant differences. On average, at most the fraction `most` of them is chance.
/// Returns them, the largest `at_least` first and then by p-value, and the number of the others.
fn certain<T>(all: Vec<T>, evidence: impl Fn(&T) -> ChangeEvidence, most: f64) -> (Vec<T>, usize) {
    let count = all.len();
    let mut certain: Vec<T> = all
        .into_iter()
        .filter(|one| evidence(one).q_value <= most)
        .collect();
    certain.sort_by(|a, b| {
        let (a, b) = (evidence(a), evidence(b));
        b.at_least
            .total_cmp(&a.at_least)
            .then(a.p_value.total_cmp(&b.p_value))
    });
    let by_chance = count - certain.len();
    (certain, by_chance)
}

fn share(support: Support) -> Share {
    Share {
        part: support.contradictions.min(support.cooccurrences),
        of: support.cooccurrences,
    }
}

/// P-values of all simultaneous tests, in ascending order, and their q-values.
#[derive(Default)]
struct Tests {
    count: usize,
    p_values: Vec<f64>,
    q_values: Vec<f64>,
}

impl Tests {
    /// Tests all relations that both models test, believed or not. If only apparent changes were
    /// tested, chance would look like a change.
    fn of(before: &Model, after: &Model) -> Tests {
        let ids: Vec<Option<SegmentId>> = before
            .labels()
            .iter()
            .map(|(_, label)| after.labels().id(&label.task, &label.start, &label.end))
            .collect();
        let here = |id: SegmentId| ids.get(id.index()).copied().flatten();
        let later: FxHashMap<(SegmentId, SegmentId), PairCounts> = after
            .pairs()
            .into_iter()
            .map(|pair| ((pair.a, pair.b), pair))
            .collect();
        let mut shares = Vec::new();
        for pair in before.pairs() {
            let Some(other) = here(pair.a)
                .zip(here(pair.b))
                .and_then(|ids| later.get(&ids))
            else {
                continue;
            };
            let both = |part: fn(&PairCounts) -> u64| {
                let of = |pair: &PairCounts| Share {
                    part: part(pair).min(pair.cooccurrences),
                    of: pair.cooccurrences,
                };
                (of(&pair), of(other))
            };
            if pair.a != pair.b {
                shares.push(both(|pair| pair.contradictions));
            }
            // The pair (b, a) has the same overlaps.
            if pair.a <= pair.b {
                shares.push(both(|pair| pair.overlaps));
            }
        }
        for (first, second, counts) in before.pipelines() {
            let Some(other) = after.pipeline_counts(&first, &second) else {
                continue;
            };
            let of = |counts: PipelineCounts| Share {
                part: counts.contradictions.min(counts.cooccurrences),
                of: counts.cooccurrences,
            };
            if counts.ordered > 0 && other.ordered > 0 {
                shares.push((of(counts), of(other)));
            }
        }
        Tests::of_shares(shares)
    }

    fn of_shares(shares: impl IntoIterator<Item = (Share, Share)>) -> Tests {
        let testable = shares
            .into_iter()
            .filter(|&(one, other)| is_testable(one, other));
        let mut p_values: Vec<f64> = testable
            .map(|(one, other)| fisher_two_sided(one, other))
            .collect();
        p_values.sort_by(f64::total_cmp);
        let q_values = benjamini_hochberg(&p_values);
        Tests {
            count: p_values.len(),
            p_values,
            q_values,
        }
    }

    /// Returns the evidence for one of the tested differences.
    fn evidence(&self, before: Share, after: Share) -> ChangeEvidence {
        let p_value = fisher_two_sided(before, after);
        let place = self.p_values.partition_point(|known| *known < p_value);
        let q_value = self.q_values.get(place).copied().unwrap_or(1.0);
        ChangeEvidence {
            p_value,
            q_value,
            at_least: differ_by_at_least(before, after),
        }
    }
}

/// Finds the segments that only the later model has, and those that only the earlier model has, in
/// order of label.
fn segments(before: &Model, after: &Model) -> [Vec<ChangedSegment>; 2] {
    let seen = |model: &Model, label: &SegmentLabel| {
        let id = model.labels().id(&label.task, &label.start, &label.end);
        Share {
            part: id.map_or(0, |id| model.segment_counts(id).traces),
            of: model.traces(),
        }
    };
    let labels: BTreeSet<&SegmentLabel> = before
        .labels()
        .iter()
        .chain(after.labels().iter())
        .map(|(_, label)| label)
        .collect();
    let both: Vec<(&SegmentLabel, Share, Share)> = labels
        .into_iter()
        .map(|label| (label, seen(before, label), seen(after, label)))
        .collect();
    let tests = Tests::of_shares(both.iter().map(|&(_, before, after)| (before, after)));
    let only = |is_it: fn(Share, Share) -> bool| {
        let changed = both
            .iter()
            .filter(|(_, before, after)| is_it(*before, *after));
        let judged = changed.map(|&(label, before, after)| ChangedSegment {
            label: label.clone(),
            before,
            after,
            evidence: tests.evidence(before, after),
        });
        judged.collect()
    };
    [
        only(|before, after| before.part == 0 && after.part > 0),
        only(|before, after| before.part > 0 && after.part == 0),
    ]
}

fn believed(model: &Model, tolerance: f64) -> RelationSupport {
    let relations = model.relations(tolerance);
    let label = |id: SegmentId| model.labels().get(id).cloned();
    let mut believed = RelationSupport::new();
    for relation in relations.all_happens_before() {
        if let Some((a, b)) = label(relation.first).zip(label(relation.second)) {
            believed.insert(RelationName::HappensBefore(a, b), relation.support);
        }
    }
    for relation in relations.all_mutual_exclusion() {
        if let Some((a, b)) = label(relation.first).zip(label(relation.second)) {
            // Order by label: segment numbers differ between the models.
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

/// Reports whether a relation is believed. Segments that are always in order also exclude each
/// other.
fn holds(believed: &RelationSupport, relation: &RelationName) -> bool {
    let in_order = |a: &SegmentLabel, b: &SegmentLabel| {
        believed.contains_key(&RelationName::HappensBefore(a.clone(), b.clone()))
    };
    believed.contains_key(relation)
        || matches!(relation, RelationName::MutualExclusion(a, b) if in_order(a, b) || in_order(b, a))
}

/// Returns the support that a model has for a relation; `None` if no trace of the model tested the
/// relation.
fn tested(model: &Model, relation: &RelationName) -> Option<Support> {
    let id = |label: &SegmentLabel| model.labels().id(&label.task, &label.start, &label.end);
    let support = match relation {
        RelationName::HappensBefore(a, b) => model.happens_before_support(id(a)?, id(b)?),
        RelationName::MutualExclusion(a, b) => model.mutual_exclusion_support(id(a)?, id(b)?),
        RelationName::Pipeline(a, b) => {
            let counts = model
                .pipeline_counts(a, b)
                .filter(|counts| counts.ordered > 0)?;
            Support {
                cooccurrences: counts.cooccurrences,
                contradictions: counts.contradictions,
            }
        }
    };
    (support.cooccurrences > 0).then_some(support)
}
