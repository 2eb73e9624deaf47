//! `infer`

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::{Map, Value, json};
use stroboscope_analysis::clock::{PairReport, Verdict};
use stroboscope_analysis::convergence::{ConvergencePoint, Pace};
use stroboscope_analysis::model::Relation;
use tokio::runtime::Runtime;

use super::arguments::{ReadingArguments, ShowArguments};
use super::clock_words::{name, resolutions, signed, timestamps_json, verdict, warnings};
use super::model_json::{SegmentRow, pipelines_json, segments_json};
use super::roots::{root_rows, show_roots};
use super::study::{Known, Study};
use super::verb::{Report, give};
use super::{Failure, Status, notes};
use crate::suggest::command_on;
use stroboscope_present::humanise::{duration, percent};
use stroboscope_present::roots::roots_json;
use stroboscope_present::show::{Cell, Column, Doc, Kind, Row, TableSpec};
use stroboscope_query::{Inference, Notes, Recorded, save_model};

/// Infer the causal model and say what it holds
///
/// Starts from every hypothesis about every two segments (one happens before the other; they exclude each other) and
/// about every two tasks that work on the same data elements (a pipeline), and drops what a trace contradicts. What a
/// span or an event works on is named by its attribute `element`.
#[derive(Debug, Args)]
pub(super) struct Infer {
    #[command(flatten)]
    reading: ReadingArguments,
    #[command(flatten)]
    show: ShowArguments,
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

/// What the model held after so many traces.
struct ConvergenceRow<'a> {
    point: &'a ConvergencePoint,
    /// Since the point before.
    traces: u64,
}

impl Row for ConvergenceRow<'_> {
    const TABLE: TableSpec = TableSpec {
        name: "convergence",
        about: "What the model held after so many traces, and what came and went since the row before.",
        columns: Cow::Borrowed(&[
            Column::new("traces", "traces", Kind::Count),
            Column::new("happens_before", "happens before", Kind::Count),
            Column::new("mutual_exclusion", "exclusions", Kind::Count),
            Column::new("new_per_thousand", "new per 1000", Kind::Number),
            Column::new("gone_per_thousand", "gone per 1000", Kind::Number),
            Column::new("segments", "segments", Kind::Count),
        ]),
    };

    fn cells(&self) -> Vec<Cell> {
        let (point, changes) = (self.point, self.point.changes);
        let per_thousand = |count: usize| Cell::from(count as f64 * 1e3 / self.traces.max(1) as f64);
        vec![
            point.traces.into(),
            (point.happens_before as u64).into(),
            (point.mutual_exclusion as u64).into(),
            per_thousand(changes.happens_before_added + changes.mutual_exclusion_added),
            per_thousand(changes.happens_before_removed + changes.mutual_exclusion_removed),
            (point.segments as u64).into(),
        ]
    }
}

fn convergence_rows(inference: &Inference) -> Vec<ConvergenceRow<'_>> {
    let before = std::iter::once(0).chain(inference.convergence.iter().map(|point| point.traces));
    let points = inference.convergence.iter().zip(before);
    points.map(|(point, before)| ConvergenceRow { point, traces: point.traces - before }).collect()
}

fn clocks_json(inference: &Inference) -> Value {
    let alignment = &inference.clocks;
    if !alignment.is_needed() {
        return Value::Null;
    }
    let pair = |pair: &PairReport| {
        json!({
            "client": &*pair.client,
            "server": &*pair.server,
            "verdict": verdict(pair.verdict),
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

/// How clocks were corrected, and how coarse they are.
fn clocks_text(inference: &Inference) -> String {
    let alignment = &inference.clocks;
    let mut text = String::new();
    if alignment.is_needed() {
        text.push_str(&format!(
            "clocks differ; corrected to that of {}:\n",
            name(alignment.reference().unwrap_or_default())
        ));
    }
    let differ = |pair: &&PairReport| alignment.is_needed() && pair.verdict == Verdict::Differ;
    for pair in alignment.pairs().iter().filter(differ) {
        text.push_str(&format!(
            "  {} to {}: {} ± {}, drifting by {:+.1} ppm\n",
            name(&pair.client),
            name(&pair.server),
            signed(pair.offset_ns),
            duration(pair.error_ns as f64),
            pair.drift_ppm
        ));
    }
    resolutions(alignment).iter().for_each(|line| text.push_str(&format!("{line}\n")));
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
            self.convergence_every.unwrap_or(if self.reading.from.json { CONVERGENCE_EVERY } else { 0 });
        let pace = (convergence_every > 0).then_some(Pace::Traces(convergence_every));
        let study = Study::with_convergence(&self.reading, pace, runtime.handle())?;
        let known = study.known()?;
        if let Some(path) = &self.save {
            save_model(&known.inference.model, path).map_err(Failure::of)?;
        }
        let recorded = study.source().recorded().map_err(Failure::of)?;
        let found =
            Inferred { known, recorded, saved: self.save.as_deref(), data: &self.reading.from.data.data };
        give(&found, &self.reading.from, &self.show)
    }
}

/// The model, and what it was made of.
struct Inferred<'a> {
    known: Known<'a>,
    recorded: Recorded,
    saved: Option<&'a Path>,
    data: &'a Path,
}

impl Serialize for Inferred<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let inference = self.known.inference;
        let mut head = notes::keys(&inference.notes);
        head.insert("recorded".into(), recorded_json(&self.recorded));
        head.insert("roots".into(), roots_json(&inference.roots));
        head.insert("segments".into(), segments_json(&inference.model).into());
        let mut tail = Map::new();
        tail.insert("pipelines".into(), pipelines_json(&inference.relations).into());
        tail.insert("convergence".into(), convergence_json(inference).into());
        tail.insert("clocks".into(), clocks_json(inference));
        tail.insert("timestamps".into(), timestamps_json(&inference.clocks));
        let (happens_before, mutual_exclusion) =
            (inference.relations.all_happens_before(), inference.relations.all_mutual_exclusion());
        Answer { head, happens_before, mutual_exclusion, tail }.serialize(serializer)
    }
}

impl Report for Inferred<'_> {
    fn notes(&self) -> &Notes {
        &self.known.inference.notes
    }

    fn show(&self, doc: &mut Doc) {
        let Known { inference, .. } = self.known;
        // What makes orders between hosts uncertain stands before all that rests on them.
        doc.sentence(warnings(&inference.clocks).join("\n"));
        show_roots(&root_rows(&inference.roots), doc);
        doc.sentence(recorded_text(&self.recorded).trim_end());
        doc.sentence(clocks_text(inference).trim_end());
        doc.sentence(format!(
            "{} traces, {} complete, {} in the model\n{} segments\n{} pairs in which one happens before the other\n{} pairs \
             that exclude each other\n{} pipelines of two tasks",
            inference.notes.traces,
            inference.notes.complete_traces,
            inference.model.traces(),
            inference.segments().count(),
            inference.relations.all_happens_before().len(),
            inference.relations.all_mutual_exclusion().len(),
            inference.relations.all_pipelines().len(),
        ));
        let segment = |(id, label)| {
            let counts = inference.model.segment_counts(id);
            SegmentRow {
                name: self.known.name(id),
                label,
                occurrences: counts.occurrences,
                traces: counts.traces,
            }
        };
        // There may be thousands; `model` shows them.
        doc.table("", &inference.segments().map(segment).collect::<Vec<_>>(), 0);
        doc.table("How the model converged", &convergence_rows(inference), usize::MAX);
        let saved = self.saved.map_or_else(String::new, |path| format!("Saved to {}.\n", path.display()));
        doc.sentence(format!(
            "{saved}Next: `{}` shows them, `{}` says which of them matter.",
            command_on("model", self.data),
            command_on("critical-path", self.data),
        ));
    }
}
