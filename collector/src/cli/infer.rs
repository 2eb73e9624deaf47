//! `infer`

use clap::Args;
use serde_json::{Value, json};
use stroboscope_analysis::model::Relation;
use tokio::runtime::Runtime;

use super::arguments::ReadingArguments;
use super::output::{print, print_json};
use super::{Failure, Status, notes};
use crate::query::{Inference, Selection, Source, infer};

/// Infer the causal model and say what it holds
///
/// Starts from every hypothesis about every two segments (one happens before the other; they exclude each other) and
/// drops what a trace contradicts.
#[derive(Debug, Args)]
pub struct Infer {
    #[command(flatten)]
    reading: ReadingArguments,
}

/// Opens the store and infers, as most reading verbs begin.
pub(super) fn prepare(
    reading: &ReadingArguments,
    runtime: &Runtime,
) -> Result<(Source, Selection, Inference), Failure> {
    let source = Source::open(&reading.data.data, runtime.handle().clone()).map_err(Failure::of)?;
    let selection = Selection { include_incomplete: reading.include_incomplete };
    let inference = infer(&source, selection, reading.tolerance).map_err(Failure::of)?;
    Ok((source, selection, inference))
}

/// The segments as the contract has them.
pub(super) fn segments_json(inference: &Inference) -> Vec<Value> {
    let segment = |(id, label): (
        stroboscope_analysis::label::SegmentId,
        &stroboscope_analysis::label::SegmentLabel,
    )| {
        let counts = inference.model.segment_counts(id);
        json!({
            "id": id.0,
            "task": &*label.task,
            "start": &*label.start,
            "end": &*label.end,
            "count": counts.occurrences,
            "traces": counts.traces,
        })
    };
    inference.model.labels().iter().map(segment).collect()
}

fn pairs(relations: &[Relation]) -> Vec<Value> {
    relations.iter().map(|relation| json!([relation.first.0, relation.second.0])).collect()
}

impl Infer {
    pub(super) fn run(self, runtime: &Runtime) -> Result<Status, Failure> {
        let (_, _, inference) = prepare(&self.reading, runtime)?;
        let (before, exclusive) =
            (inference.relations.all_happens_before(), inference.relations.all_mutual_exclusion());
        if self.reading.json {
            let mut keys = notes::keys(&inference.notes);
            keys.insert("segments".into(), segments_json(&inference).into());
            keys.insert("happens_before".into(), pairs(before).into());
            keys.insert("mutual_exclusion".into(), pairs(exclusive).into());
            // Pipelines are not inferred yet; the key is part of the contract.
            keys.insert("pipelines".into(), Value::Array(Vec::new()));
            print_json(&keys.into())?;
        } else {
            print(&format!(
                "{} traces, {} complete, {} in the model\n{} segments\n{} pairs in which one happens before the other\n\
                 {} pairs that exclude each other\nNext: `stroboscope model` shows them, `stroboscope critical-path` \
                 says which of them matter.",
                inference.notes.traces,
                inference.notes.complete_traces,
                inference.model.traces(),
                inference.model.labels().len(),
                before.len(),
                exclusive.len(),
            ))?;
        }
        Ok(notes::tell(&inference.notes))
    }
}
