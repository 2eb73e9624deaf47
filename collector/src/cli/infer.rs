//! `infer`

use clap::Args;
use serde_json::{Value, json};
use stroboscope_analysis::clock::PairReport;
use stroboscope_analysis::convergence::ConvergencePoint;
use stroboscope_analysis::model::{Pipeline, Relation};
use tokio::runtime::Runtime;

use super::arguments::ReadingArguments;
use super::output::{print, print_json};
use super::{Failure, Status, notes};
use crate::figures::{duration, percent};
use crate::hint::command_on;
use crate::query::{InferSettings, Inference, Recorded, Selection, Source, infer_with};

/// Infer the causal model and say what it holds
///
/// Starts from every hypothesis about every two segments (one happens before the other; they exclude each other) and
/// drops what a trace contradicts.
#[derive(Debug, Args)]
pub struct Infer {
    #[command(flatten)]
    reading: ReadingArguments,
    /// With --json, show what the model held after each so many traces, at most 512 times; 0 does not
    #[arg(long, value_name = "COUNT", default_value_t = 10_000)]
    convergence_every: u64,
}

/// Opens the store and infers, as most reading verbs begin.
pub(super) fn prepare(
    reading: &ReadingArguments,
    runtime: &Runtime,
) -> Result<(Source, Selection, Inference), Failure> {
    prepare_with(reading, 0, runtime)
}

fn prepare_with(
    reading: &ReadingArguments,
    convergence_every: u64,
    runtime: &Runtime,
) -> Result<(Source, Selection, Inference), Failure> {
    let source = Source::open(&reading.data.data, runtime.handle().clone()).map_err(Failure::of)?;
    let selection =
        Selection { include_incomplete: reading.include_incomplete, trust_clocks: reading.trust_clocks };
    let settings =
        InferSettings { tolerance: reading.tolerance, exclude: reading.exclude.clone(), convergence_every };
    let inference = infer_with(&source, selection, settings).map_err(Failure::of)?;
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
    inference.segments().map(segment).collect()
}

fn pairs(relations: &[Relation]) -> Vec<Value> {
    relations.iter().map(|relation| json!([relation.first.0, relation.second.0])).collect()
}

fn pipelines_json(inference: &Inference) -> Vec<Value> {
    let pipeline = |pipeline: &Pipeline| json!({"first": &*pipeline.first, "second": &*pipeline.second, "elements": pipeline.elements});
    inference.relations.all_pipelines().iter().map(pipeline).collect()
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
        let convergence_every = if self.reading.json { self.convergence_every } else { 0 };
        let (source, _, inference) = prepare_with(&self.reading, convergence_every, runtime)?;
        let recorded = source.recorded().map_err(Failure::of)?;
        let (before, exclusive) =
            (inference.relations.all_happens_before(), inference.relations.all_mutual_exclusion());
        if self.reading.json {
            let mut keys = notes::keys(&inference.notes);
            keys.insert("recorded".into(), recorded_json(&recorded));
            keys.insert("segments".into(), segments_json(&inference).into());
            keys.insert("happens_before".into(), pairs(before).into());
            keys.insert("mutual_exclusion".into(), pairs(exclusive).into());
            keys.insert("pipelines".into(), pipelines_json(&inference).into());
            keys.insert("convergence".into(), convergence_json(&inference).into());
            keys.insert("clocks".into(), clocks_json(&inference));
            print_json(&keys.into())?;
        } else {
            print(&format!(
                "{}{}{} traces, {} complete, {} in the model\n{} segments\n{} pairs in which one happens before the \
                 other\n{} pairs that exclude each other\n{} pipelines of two tasks\nNext: `{}` shows them, `{}` \
                 says which of them matter.",
                recorded_text(&recorded),
                clocks_text(&inference),
                inference.notes.traces,
                inference.notes.complete_traces,
                inference.model.traces(),
                inference.segments().count(),
                before.len(),
                exclusive.len(),
                inference.relations.all_pipelines().len(),
                command_on("model", &self.reading.data.data),
                command_on("critical-path", &self.reading.data.data),
            ))?;
        }
        Ok(notes::tell(&inference.notes))
    }
}
