//! What `model --compare` shows.

use std::borrow::Cow;

use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use stroboscope_analysis::label::SegmentLabel;
use stroboscope_analysis::model::{Model, Support};
use stroboscope_analysis::statistics::Share;
use stroboscope_analysis::structural_change::{
    ByChance, ChangeEvidence, ChangedRelation, ChangedSegment, RelationName, StructuralChange,
};

use super::verb::Report;
use stroboscope_present::show::{Cell, Column, Doc, Kind, Row, TableSpec};
use stroboscope_query::Notes;

fn label_json(label: &SegmentLabel) -> Value {
    json!({"task": &*label.task, "start": &*label.start, "end": &*label.end})
}

fn seen_segments(model: &Model) -> usize {
    model.labels().iter().filter(|(id, _)| model.segment_counts(*id).traces > 0).count()
}

fn evidence_json(evidence: ChangeEvidence) -> [(&'static str, Value); 3] {
    let ChangeEvidence { p_value, q_value, at_least } = evidence;
    [("p_value", p_value.into()), ("q_value", q_value.into()), ("changed_by_at_least", at_least.into())]
}

/// Both models in short, and all that differs.
fn to_json(change: &StructuralChange, before: &Model, after: &Model) -> Value {
    let model = |model: &Model| json!({"traces": model.traces(), "segments": seen_segments(model)});
    let with_evidence = |mut value: Value, evidence: ChangeEvidence| {
        if let Some(keys) = value.as_object_mut() {
            keys.extend(evidence_json(evidence).map(|(key, value)| (key.to_owned(), value)));
        }
        value
    };
    let support =
        |support: Support| json!({"traces": support.cooccurrences, "contradictions": support.contradictions});
    let relation = |changed: &ChangedRelation| {
        let (kind, first, second) = match &changed.relation {
            RelationName::HappensBefore(a, b) => ("happens_before", label_json(a), label_json(b)),
            RelationName::MutualExclusion(a, b) => ("mutual_exclusion", label_json(a), label_json(b)),
            RelationName::Pipeline(a, b) => ("pipeline", json!({"task": &**a}), json!({"task": &**b})),
        };
        let value = json!({
            "kind": kind,
            "first": first,
            "second": second,
            "before": support(changed.before),
            "after": support(changed.after),
        });
        with_evidence(value, changed.evidence)
    };
    let segment = |changed: &ChangedSegment| {
        let mut value = label_json(&changed.label);
        value["traces_before"] = changed.before.part.into();
        value["traces_after"] = changed.after.part.into();
        with_evidence(value, changed.evidence)
    };
    let ByChance { gained, lost, appeared, vanished } = change.by_chance;
    json!({
        "before": model(before),
        "after": model(after),
        "gained": change.gained.iter().map(relation).collect::<Vec<_>>(),
        "lost": change.lost.iter().map(relation).collect::<Vec<_>>(),
        "appeared": change.appeared.iter().map(segment).collect::<Vec<_>>(),
        "vanished": change.vanished.iter().map(segment).collect::<Vec<_>>(),
        "by_chance": {"gained": gained, "lost": lost, "appeared": appeared, "vanished": vanished},
        "tested": change.tested,
        "untested_before": change.untested_before,
        "untested_after": change.untested_after,
    })
}

/// How a model differs from an earlier one.
pub(super) struct Changed<'a> {
    pub change: &'a StructuralChange,
    pub before: &'a Model,
    pub after: &'a Model,
    /// So many of each kind are shown.
    pub top: usize,
    pub notes: &'a Notes,
}

impl Serialize for Changed<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        to_json(self.change, self.before, self.after).serialize(serializer)
    }
}

/// A relation or a segment that changed.
struct ChangedRow {
    kind: &'static str,
    what: String,
    before: (u64, u64),
    after: (u64, u64),
    evidence: ChangeEvidence,
}

impl Row for ChangedRow {
    const TABLE: TableSpec = TableSpec {
        name: "model_changes",
        about: "A relation or a segment that one model has and the other has not: how many of how many requests contradict \
                the relation, or have the segment.",
        columns: Cow::Borrowed(&[
            Column::new("what", "what", Kind::Text),
            Column::new("kind", "", Kind::Text),
            Column::new("requests_before", "before", Kind::Count),
            Column::new("all_before", "of", Kind::Count),
            Column::new("requests_after", "after", Kind::Count),
            Column::new("all_after", "of", Kind::Count),
            Column::new("changed_by_at_least", "changed by", Kind::Share),
            Column::new("q_value", "chance", Kind::Probability),
        ]),
    };

    fn cells(&self) -> Vec<Cell> {
        vec![
            (&*self.what).into(),
            self.kind.into(),
            self.before.0.into(),
            self.before.1.into(),
            self.after.0.into(),
            self.after.1.into(),
            self.evidence.at_least.into(),
            self.evidence.q_value.into(),
        ]
    }
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

impl Report for Changed<'_> {
    fn notes(&self) -> &Notes {
        self.notes
    }

    fn show(&self, doc: &mut Doc) {
        let Self { change, before, after, top, .. } = *self;
        let model =
            |model: &Model| format!("{} requests of {} segments", model.traces(), seen_segments(model));
        doc.heading("What changed in the system's structure");
        doc.sentence(format!("Before: {}; after: {}", model(before), model(after)));
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
            ("Segments that are new", segment_rows("appeared", &change.appeared), by_chance.appeared),
            ("Segments that are gone", segment_rows("vanished", &change.vanished), by_chance.vanished),
        ];
        for (heading, rows, by_chance) in sections {
            let more = if by_chance > 0 {
                format!("; {by_chance} more are within what sampling gives")
            } else {
                String::new()
            };
            let shown = if rows.len() > top { format!(", {top} shown") } else { String::new() };
            doc.sentence(format!("{heading} ({}{shown}{more})", rows.len()));
            doc.table("", &rows, top);
        }
        doc.sentence(format!(
            "{} relations were not put to the test before, and {} no longer are: of segments that were not seen together.\n\
             \"Changed by\": by how much the share of requests changed at least (95 %). \"Chance\": the part of the changes \
             up to this one that two samples of the same show, with regard to the {} relations tested; \
             --false-discoveries says up to which part they are listed.",
            change.untested_before, change.untested_after, change.tested
        ));
    }
}
