//! What `model --compare` shows.

use serde_json::{Value, json};
use stroboscope_analysis::label::SegmentLabel;
use stroboscope_analysis::model::{Model, Support};
use stroboscope_analysis::structural_change::{ChangedRelation, RelationName, StructuralChange};

use super::output::Table;

fn label_json(label: &SegmentLabel) -> Value {
    json!({"task": &*label.task, "start": &*label.start, "end": &*label.end})
}

fn seen_segments(model: &Model) -> usize {
    model.labels().iter().filter(|(id, _)| model.segment_counts(*id).traces > 0).count()
}

/// Both models in short, and all that differs.
pub(super) fn to_json(change: &StructuralChange, before: &Model, after: &Model) -> Value {
    let model = |model: &Model| json!({"traces": model.traces(), "segments": seen_segments(model)});
    let support =
        |support: Support| json!({"traces": support.cooccurrences, "contradictions": support.contradictions});
    let relation = |changed: &ChangedRelation| {
        let (kind, first, second) = match &changed.relation {
            RelationName::HappensBefore(a, b) => ("happens_before", label_json(a), label_json(b)),
            RelationName::MutualExclusion(a, b) => ("mutual_exclusion", label_json(a), label_json(b)),
            RelationName::Pipeline(a, b) => ("pipeline", json!({"task": &**a}), json!({"task": &**b})),
        };
        json!({
            "kind": kind,
            "first": first,
            "second": second,
            "before": support(changed.before),
            "after": support(changed.after),
        })
    };
    json!({
        "before": model(before),
        "after": model(after),
        "gained": change.gained.iter().map(relation).collect::<Vec<_>>(),
        "lost": change.lost.iter().map(relation).collect::<Vec<_>>(),
        "appeared": change.appeared.iter().map(label_json).collect::<Vec<_>>(),
        "vanished": change.vanished.iter().map(label_json).collect::<Vec<_>>(),
        "untested_before": change.untested_before,
        "untested_after": change.untested_after,
    })
}

/// The same for people, at most `top` of each kind.
pub(super) fn to_text(change: &StructuralChange, before: &Model, after: &Model, top: usize) -> String {
    let model = |model: &Model| format!("{} requests of {} segments", model.traces(), seen_segments(model));
    let mut text = format!("Before: {}; after: {}\n", model(before), model(after));
    let relations = |heading: &str, changed: &[ChangedRelation]| {
        let mut table = Table::new(&["contradicted before", "after", "relation"]);
        for changed in changed.iter().take(top) {
            let of = |support: Support| format!("{} of {}", support.contradictions, support.cooccurrences);
            table.row(vec![of(changed.before), of(changed.after), changed.relation.to_string()]);
        }
        section(heading, changed.len(), top, &table)
    };
    let segments = |heading: &str, labels: &[SegmentLabel]| {
        let mut table = Table::new(&["segment"]);
        labels.iter().take(top).for_each(|label| table.row(vec![label.to_string()]));
        section(heading, labels.len(), top, &table)
    };
    text += &relations("Relations gained: contradicted before, and no longer", &change.gained);
    text += &relations("Relations lost: believed before, and contradicted now", &change.lost);
    text += &segments("Segments that are new", &change.appeared);
    text += &segments("Segments that are gone", &change.vanished);
    text + &format!(
        "\n{} relations were not put to the test before, and {} no longer are: of segments that were not seen together",
        change.untested_before, change.untested_after
    )
}

fn section(heading: &str, count: usize, top: usize, table: &Table) -> String {
    let shown = if count > top { format!(", {top} shown") } else { String::new() };
    let rows = if count > 0 { table.render() + "\n" } else { String::new() };
    format!("\n{heading} ({count}{shown})\n{rows}")
}
