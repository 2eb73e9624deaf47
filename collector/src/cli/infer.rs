//! `infer`

use std::path::PathBuf;

use clap::Args;
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::{Map, Value, json};
use stroboscope_analysis::clock::PairReport;
use stroboscope_analysis::convergence::ConvergencePoint;
use stroboscope_analysis::label::{SegmentId, SegmentLabel};
use stroboscope_analysis::model::{Model, Pipeline, Relation, Relations};
use tokio::runtime::Runtime;

use super::arguments::ReadingArguments;
use super::output::{Table, print};
use super::{Failure, Status, notes};
use crate::figures::{duration, percent};
use crate::hint::command_on;
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

fn prepare_with(
    reading: &ReadingArguments,
    convergence_every: u64,
    runtime: &Runtime,
) -> Result<(Source, Selection, Inference), Failure> {
    let (source, selection) = open(reading, runtime)?;
    let inference = infer_as(reading, &source, selection, convergence_every)?;
    Ok((source, selection, inference))
}

/// Opens the store.
pub(super) fn open(reading: &ReadingArguments, runtime: &Runtime) -> Result<(Source, Selection), Failure> {
    let source = Source::open(&reading.data.data, runtime.handle().clone()).map_err(Failure::of)?;
    Ok((source, reading.selection()))
}

/// Infers as the arguments say.
pub(super) fn infer_as(
    reading: &ReadingArguments,
    source: &Source,
    selection: Selection,
    convergence_every: u64,
) -> Result<Inference, Failure> {
    let settings = InferSettings {
        tolerance: reading.tolerance,
        exclude: reading.exclude.clone(),
        trailing_elements: reading.trailing_elements,
        convergence_every,
    };
    let inference = infer_with(source, selection, settings).map_err(Failure::of)?;
    if inference.notes.traces == 0 {
        return Err(Failure(format!("no request in {} began between --since and --until", source.name())));
    }
    Ok(inference)
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

/// The whole answer. Of relations there may be millions: they are written one by one, and not held as values before.
struct Answer<'a> {
    head: Map<String, Value>,
    happens_before: &'a [Relation],
    mutual_exclusion: &'a [Relation],
    tail: Map<String, Value>,
}

impl Serialize for Answer<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.head.iter().try_for_each(|(key, value)| map.serialize_entry(key, value))?;
        map.serialize_entry("happens_before", &Pairs(self.happens_before))?;
        map.serialize_entry("mutual_exclusion", &Pairs(self.mutual_exclusion))?;
        self.tail.iter().try_for_each(|(key, value)| map.serialize_entry(key, value))?;
        map.end()
    }
}

struct Pairs<'a>(&'a [Relation]);

impl Serialize for Pairs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|relation| [relation.first.0, relation.second.0]))
    }
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
            let mut tail = Map::new();
            tail.insert("pipelines".into(), pipelines_json(&inference.relations).into());
            tail.insert("convergence".into(), convergence_json(&inference).into());
            tail.insert("clocks".into(), clocks_json(&inference));
            let answer = Answer { head: keys, happens_before: before, mutual_exclusion: exclusive, tail };
            print(&serde_json::to_string(&answer).map_err(Failure::of)?)?;
        } else {
            print(&format!(
                "{}{}{} traces, {} complete, {} in the model\n{} segments\n{} pairs in which one happens before the \
                 other\n{} pairs that exclude each other\n{} pipelines of two tasks\n{}{}Next: `{}` shows them, `{}` says which \
                 of them matter.",
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
                command_on("model", &self.reading.data.data),
                command_on("critical-path", &self.reading.data.data),
            ))?;
        }
        Ok(notes::tell(&inference.notes))
    }
}
