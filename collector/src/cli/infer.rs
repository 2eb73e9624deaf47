//! `infer`

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use stroboscope_analysis::clock::PairReport;
use stroboscope_analysis::convergence::ConvergencePoint;
use stroboscope_analysis::label::{SegmentId, SegmentLabel};
use stroboscope_analysis::model::{Model, Pipeline, Relation, Relations};
use tokio::runtime::Runtime;

use super::arguments::ReadingArguments;
use super::output::{Table, print, print_json};
use super::{Failure, Status, notes};
use crate::figures::{duration, percent, program};
use crate::query::{InferSettings, Inference, Recorded, Selection, Source, infer_with, save_model};

/// Infer the causal model and say what it holds
///
/// Starts from every hypothesis about every two segments (one happens before the other; they exclude each other) and
/// about every two tasks that work on the same data elements (a pipeline), and drops what a trace contradicts. What a
/// span or an event works on is named by its attribute `element`.
#[derive(Debug, Args)]
pub struct Infer {
    #[command(flatten)]
    reading: ReadingArguments,
    /// Show what the model held after each so many traces, at most 512 times; 0 does not. With --json, 10000 unless
    /// said otherwise
    #[arg(long, value_name = "COUNT")]
    convergence_every: Option<u64>,
    /// Also save the model, for `model --load`; packed by zstd if the name ends in .zst
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

/// Traces between two points of the convergence that `--json` shows.
const CONVERGENCE_EVERY: u64 = 10_000;

/// Opens the store and infers, as most reading verbs begin.
pub(super) fn prepare(
    reading: &ReadingArguments,
    runtime: &Runtime,
) -> Result<(Source, Selection, Inference), Failure> {
    prepare_with(reading, 0, runtime)
}

pub(super) fn prepare_with(
    reading: &ReadingArguments,
    convergence_every: u64,
    runtime: &Runtime,
) -> Result<(Source, Selection, Inference), Failure> {
    let source = Source::open(&reading.data.data, runtime.handle().clone()).map_err(Failure::of)?;
    let selection = reading.selection();
    let settings = InferSettings {
        tolerance: reading.tolerance,
        exclude: reading.exclude.clone(),
        trailing_elements: reading.trailing_elements,
        convergence_every,
    };
    let inference = infer_with(&source, selection, settings).map_err(Failure::of)?;
    if inference.notes.traces == 0 {
        return Err(Failure(format!("no request in {} began between --since and --until", source.name())));
    }
    Ok((source, selection, inference))
}

/// The segments as the contract has them.
pub(super) fn segments_json(model: &Model) -> Vec<Value> {
    let segment = |(id, label): (SegmentId, &SegmentLabel)| {
        let counts = model.segment_counts(id);
        json!({
            "id": id.0,
            "task": &*label.task,
            "start": &*label.start,
            "end": &*label.end,
            "count": counts.occurrences,
            "traces": counts.traces,
        })
    };
    let is_seen = |(id, _): &(SegmentId, &SegmentLabel)| model.segment_counts(*id).traces > 0;
    model.labels().iter().filter(is_seen).map(segment).collect()
}

fn pairs(relations: &[Relation]) -> Vec<Value> {
    relations.iter().map(|relation| json!([relation.first.0, relation.second.0])).collect()
}

pub(super) fn pipelines_json(relations: &Relations) -> Vec<Value> {
    let pipeline = |pipeline: &Pipeline| json!({"first": &*pipeline.first, "second": &*pipeline.second, "elements": pipeline.elements});
    relations.all_pipelines().iter().map(pipeline).collect()
}

fn convergence_json(inference: &Inference) -> Vec<Value> {
    let point = |point: &ConvergencePoint| {
        json!({
            "traces": point.traces,
            "segments": point.segments,
            "happens_before": point.happens_before,
            "mutual_exclusion": point.mutual_exclusion,
            "pipelines": point.pipelines,
            "happens_before_added": point.changes.happens_before_added,
            "happens_before_removed": point.changes.happens_before_removed,
            "mutual_exclusion_added": point.changes.mutual_exclusion_added,
            "mutual_exclusion_removed": point.changes.mutual_exclusion_removed,
        })
    };
    inference.convergence.iter().map(point).collect()
}

/// The convergence as a table, if it was asked for.
fn convergence_text(inference: &Inference) -> String {
    if inference.convergence.is_empty() {
        return String::new();
    }
    let mut table =
        Table::new(&["traces", "happens before", "exclusions", "new per 1000", "gone per 1000", "segments"]);
    let mut traces_before = 0;
    for point in &inference.convergence {
        let changes = point.changes;
        let per_thousand = |count: usize| {
            format!("{:.1}", count as f64 * 1e3 / (point.traces - traces_before).max(1) as f64)
        };
        table.row(vec![
            point.traces.to_string(),
            point.happens_before.to_string(),
            point.mutual_exclusion.to_string(),
            per_thousand(changes.happens_before_added + changes.mutual_exclusion_added),
            per_thousand(changes.happens_before_removed + changes.mutual_exclusion_removed),
            point.segments.to_string(),
        ]);
        traces_before = point.traces;
    }
    format!("The model as traces came in\n{}\n", table.render())
}

/// How clocks were corrected; null when they were not.
fn clocks_json(inference: &Inference) -> Value {
    let Some(alignment) = &inference.alignment else { return Value::Null };
    let pair = |pair: &PairReport| {
        json!({
            "client": &*pair.client,
            "server": &*pair.server,
            "round_trips": pair.round_trips,
            "offset_ns": i64::try_from(pair.offset_ns).ok(),
            "error_ns": pair.error_ns,
            "rtt_ns": pair.rtt_ns,
            "drift_ppm": pair.drift_ppm,
            "steps": pair.steps,
        })
    };
    json!({
        "reference": alignment.reference(),
        "unaligned": alignment.unaligned().iter().map(|host| &**host).collect::<Vec<_>>(),
        "pairs": alignment.pairs().iter().map(pair).collect::<Vec<_>>(),
    })
}

fn clocks_text(inference: &Inference) -> String {
    let Some(alignment) = &inference.alignment else { return String::new() };
    let mut text = format!("clocks differ; corrected to that of {}:\n", alignment.reference().unwrap_or("?"));
    for pair in alignment.pairs() {
        text.push_str(&format!(
            "  {} is {} ahead of {}, ± {}, drifting by {:.1} ppm\n",
            pair.server,
            duration(pair.offset_ns as f64),
            pair.client,
            duration(pair.error_ns as f64),
            pair.drift_ppm
        ));
    }
    if !alignment.unaligned().is_empty() {
        text.push_str(&format!(
            "  not aligned, for want of round trips: {}\n",
            alignment.unaligned().join(", ")
        ));
    }
    text
}

fn recorded_json(recorded: &Recorded) -> Value {
    let lost = recorded.lost.iter();
    let lost: Vec<Value> = lost
        .map(|((service, cause), records)| json!({"service": service, "cause": cause, "records": records}))
        .collect();
    json!({
        "processes": recorded.processes,
        "services": recorded.services,
        "batches": recorded.batches,
        "records": recorded.records,
        "bursts": recorded.bursts,
        "window_overlap": recorded.window_overlap,
        "lost_records": recorded.lost_records(),
        "lost": lost,
        "missing_batches": recorded.missing_batches,
    })
}

fn recorded_text(recorded: &Recorded) -> String {
    if recorded.batches == 0 {
        return String::new();
    }
    let Recorded { processes, records, bursts, missing_batches, .. } = recorded;
    let overlap = recorded.window_overlap.map_or_else(String::new, |overlap| {
        format!("; the processes' windows overlap by {}", percent(overlap))
    });
    let lost = recorded.lost_records();
    format!(
        "{records} records of {processes} processes in {bursts} bursts{overlap}; {lost} records lost, {missing_batches} \
         batches missing\n"
    )
}

impl Infer {
    pub(super) fn run(self, runtime: &Runtime) -> Result<Status, Failure> {
        // Each point costs a look at all relations.
        let convergence_every =
            self.convergence_every.unwrap_or(if self.reading.json { CONVERGENCE_EVERY } else { 0 });
        let (source, _, inference) = prepare_with(&self.reading, convergence_every, runtime)?;
        if let Some(path) = &self.save {
            save_model(&inference.model, path).map_err(Failure::of)?;
        }
        let recorded = source.recorded().map_err(Failure::of)?;
        let (before, exclusive) =
            (inference.relations.all_happens_before(), inference.relations.all_mutual_exclusion());
        if self.reading.json {
            let mut keys = notes::keys(&inference.notes);
            keys.insert("recorded".into(), recorded_json(&recorded));
            keys.insert("segments".into(), segments_json(&inference.model).into());
            keys.insert("happens_before".into(), pairs(before).into());
            keys.insert("mutual_exclusion".into(), pairs(exclusive).into());
            keys.insert("pipelines".into(), pipelines_json(&inference.relations).into());
            keys.insert("convergence".into(), convergence_json(&inference).into());
            keys.insert("clocks".into(), clocks_json(&inference));
            print_json(&keys.into())?;
        } else {
            print(&format!(
                "{}{}{} traces, {} complete, {} in the model\n{} segments\n{} pairs in which one happens before the \
                 other\n{} pairs that exclude each other\n{} pipelines of two tasks\n{}{}Next: `{program} model{data}` shows them, \
                 `{program} critical-path{data}` says which of them matter.",
                recorded_text(&recorded),
                clocks_text(&inference),
                inference.notes.traces,
                inference.notes.complete_traces,
                inference.model.traces(),
                inference.segments().count(),
                before.len(),
                exclusive.len(),
                inference.relations.all_pipelines().len(),
                convergence_text(&inference),
                self.save.as_ref().map_or_else(String::new, |path| format!("saved to {}\n", path.display())),
                program = program(),
                data = self.reading.data.hint(),
            ))?;
        }
        Ok(notes::tell(&inference.notes))
    }
}
