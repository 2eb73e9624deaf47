//! Report of `model --compare`.

use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use stroboscope_analysis::label::SegmentLabel;
use stroboscope_analysis::model::{Model, Support};
use stroboscope_analysis::statistics::Share;
use stroboscope_analysis::structural_change::{
    ChangeEvidence, ChangedRelation, ChangedSegment, RelationName, StructuralChange,
};

use crate::verb::{Report, schema_is_of};
use stroboscope_query::Notes;
use stroboscope_render::humanise::counted;
use stroboscope_render::rows;
use stroboscope_render::show::Doc;

fn seen_segments(model: &Model) -> usize {
    let labels = model.labels().iter();
    let seen = labels.filter(|(id, _)| model.segment_counts(*id).traces > 0);
    seen.count()
}

/// Number of traces and segments of a model.
#[derive(Serialize, JsonSchema)]
struct ModelSize {
    traces: u64,
    segments: usize,
}

impl From<&Model> for ModelSize {
    fn from(model: &Model) -> Self {
        Self {
            traces: model.traces(),
            segments: seen_segments(model),
        }
    }
}

/// Statistical evidence for a change between two models.
#[derive(Serialize, JsonSchema)]
struct EvidenceEntry {
    p_value: f64,
    q_value: f64,
    changed_by_at_least: f64,
}

impl From<ChangeEvidence> for EvidenceEntry {
    fn from(evidence: ChangeEvidence) -> Self {
        Self {
            p_value: evidence.p_value,
            q_value: evidence.q_value,
            changed_by_at_least: evidence.at_least,
        }
    }
}

/// Name of a segment, or of a task in pipelines.
#[derive(Serialize, JsonSchema)]
struct NameEntry {
    task: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    start: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<String>,
}

impl From<&SegmentLabel> for NameEntry {
    fn from(SegmentLabel { task, start, end }: &SegmentLabel) -> Self {
        Self {
            task: task.to_string(),
            start: Some(start.to_string()),
            end: Some(end.to_string()),
        }
    }
}

#[derive(Serialize, JsonSchema)]
struct SupportEntry {
    traces: u64,
    contradictions: u64,
}

impl From<Support> for SupportEntry {
    fn from(support: Support) -> Self {
        Self {
            traces: support.cooccurrences,
            contradictions: support.contradictions,
        }
    }
}

/// A relation that only one of the two models has.
#[derive(Serialize, JsonSchema)]
struct RelationChange {
    kind: &'static str,
    first: NameEntry,
    second: NameEntry,
    before: SupportEntry,
    after: SupportEntry,
    #[serde(flatten)]
    evidence: EvidenceEntry,
}

impl From<&ChangedRelation> for RelationChange {
    fn from(changed: &ChangedRelation) -> Self {
        let task = |task: &str| NameEntry {
            task: task.to_owned(),
            start: None,
            end: None,
        };
        let (kind, first, second) = match &changed.relation {
            RelationName::HappensBefore(a, b) => ("happens_before", a.into(), b.into()),
            RelationName::MutualExclusion(a, b) => ("mutual_exclusion", a.into(), b.into()),
            RelationName::Pipeline(a, b) => ("pipeline", task(a), task(b)),
        };
        Self {
            kind,
            first,
            second,
            before: changed.before.into(),
            after: changed.after.into(),
            evidence: changed.evidence.into(),
        }
    }
}

/// A segment that only one of the two models has.
#[derive(Serialize, JsonSchema)]
struct SegmentChange {
    #[serde(flatten)]
    name: NameEntry,
    traces_before: u64,
    traces_after: u64,
    #[serde(flatten)]
    evidence: EvidenceEntry,
}

impl From<&ChangedSegment> for SegmentChange {
    fn from(changed: &ChangedSegment) -> Self {
        Self {
            name: (&changed.label).into(),
            traces_before: changed.before.part,
            traces_after: changed.after.part,
            evidence: changed.evidence.into(),
        }
    }
}

/// Number of differences of each kind that sampling explains.
#[derive(Serialize, JsonSchema)]
struct ByChanceEntry {
    gained: usize,
    lost: usize,
    appeared: usize,
    vanished: usize,
}

/// Sizes of both models, and the differences that exceed sampling noise.
#[derive(Serialize, JsonSchema)]
struct ChangeEntry {
    before: ModelSize,
    after: ModelSize,
    gained: Vec<RelationChange>,
    lost: Vec<RelationChange>,
    appeared: Vec<SegmentChange>,
    vanished: Vec<SegmentChange>,
    by_chance: ByChanceEntry,
    tested: usize,
    untested_before: usize,
    untested_after: usize,
}

impl ChangeEntry {
    fn of(change: &StructuralChange, before: &Model, after: &Model) -> Self {
        let by_chance = change.by_chance;
        Self {
            before: before.into(),
            after: after.into(),
            gained: change.gained.iter().map(Into::into).collect(),
            lost: change.lost.iter().map(Into::into).collect(),
            appeared: change.appeared.iter().map(Into::into).collect(),
            vanished: change.vanished.iter().map(Into::into).collect(),
            by_chance: ByChanceEntry {
                gained: by_chance.gained,
                lost: by_chance.lost,
                appeared: by_chance.appeared,
                vanished: by_chance.vanished,
            },
            tested: change.tested,
            untested_before: change.untested_before,
            untested_after: change.untested_after,
        }
    }
}

/// Differences between a model and an earlier one.
pub struct ModelChangeReport<'a> {
    pub change: &'a StructuralChange,
    pub before: &'a Model,
    pub after: &'a Model,
    /// Maximum number of changes of each kind to show.
    pub top: usize,
    pub notes: &'a Notes,
}

impl Serialize for ModelChangeReport<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        ChangeEntry::of(self.change, self.before, self.after).serialize(serializer)
    }
}

schema_is_of!(ModelChangeReport<'_>, ChangeEntry);

struct ChangedRow {
    kind: &'static str,
    what: String,
    before: (u64, u64),
    after: (u64, u64),
    evidence: ChangeEvidence,
}

rows! {
    ChangedRow as row, "model_changes":
        "A relation or a segment that only one of the models has, and the number of requests that contradict the \
                relation, or have the segment.";
    what: Text, "what" = &*row.what;
    kind: Text, "" = row.kind;
    requests_before: Count, "before" = row.before.0;
    all_before: Count, "of" = row.before.1;
    requests_after: Count, "after" = row.after.0;
    all_after: Count, "of" = row.after.1;
    changed_by_at_least: Share, "changed by" = row.evidence.at_least;
    q_value: Probability, "chance" = row.evidence.q_value;
}

fn relation_rows(kind: &'static str, changed: &[ChangedRelation]) -> Vec<ChangedRow> {
    let of = |support: Support| (support.contradictions, support.cooccurrences);
    let row = |changed: &ChangedRelation| ChangedRow {
        kind,
        what: changed.relation.to_string(),
        before: of(changed.before),
        after: of(changed.after),
        evidence: changed.evidence,
    };
    changed.iter().map(row).collect()
}

fn segment_rows(kind: &'static str, changed: &[ChangedSegment]) -> Vec<ChangedRow> {
    let of = |share: Share| (share.part, share.of);
    let row = |changed: &ChangedSegment| ChangedRow {
        kind,
        what: changed.label.to_string(),
        before: of(changed.before),
        after: of(changed.after),
        evidence: changed.evidence,
    };
    changed.iter().map(row).collect()
}

impl Report for ModelChangeReport<'_> {
    fn notes(&self) -> &Notes {
        self.notes
    }

    fn show(&self, doc: &mut Doc) {
        let (change, top) = (self.change, self.top);
        let model = |model: &Model| {
            format!(
                "{} of {}",
                counted(model.traces(), "request"),
                counted(seen_segments(model) as u64, "segment")
            )
        };
        doc.heading("Changes in the system's structure");
        doc.sentence(format!(
            "Before: {}; after: {}",
            model(self.before),
            model(self.after)
        ));
        let by_chance = change.by_chance;
        let sections = [
            (
                "Relations gained: contradicted before, and no longer",
                relation_rows("gained", &change.gained),
                by_chance.gained,
            ),
            (
                "Relations lost: believed before, and contradicted now",
                relation_rows("lost", &change.lost),
                by_chance.lost,
            ),
            (
                "Segments that are new",
                segment_rows("appeared", &change.appeared),
                by_chance.appeared,
            ),
            (
                "Segments that are gone",
                segment_rows("vanished", &change.vanished),
                by_chance.vanished,
            ),
        ];
        for (heading, rows, by_chance) in sections {
            let more = if by_chance > 0 {
                format!("; {by_chance} more are within the sampling error")
            } else {
                String::new()
            };
            let shown = if rows.len() > top {
                format!(", {top} shown")
            } else {
                String::new()
            };
            doc.sentence(format!("{heading} ({}{shown}{more})", rows.len()));
            doc.table("", &rows, top);
        }
        doc.sentence(format!(
            "{} relations were not tested before, and {} no longer are: their segments were not seen \
             together.\n\"Changed by\": the least change of the share of requests (95 %). \"Chance\": the part of \
             the changes up to this one that two samples of the same show, with regard to the {} relations tested; \
             --false-discoveries sets the largest part that is listed.",
            change.untested_before, change.untested_after, change.tested
        ));
    }
}
