//! The `infer` subcommand.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::clock::{PairReport, Verdict};
use stroboscope_analysis::convergence::{ConvergencePoint, LineLimit};
use tokio::runtime::Runtime;

use crate::arguments::{ReadingArguments, ShowArguments};
use crate::clock_words::{Timestamps, name, resolutions, signed, warnings};
use crate::cluster::ClusterArguments;
use crate::model_json::{
    Pairs, PipelineEntry, SegmentEntry, SegmentRow, pipeline_entries, segment_entries,
};
use crate::results::clock_pairs::ClockPair;
use crate::results::figures::convergence_figures;
use crate::roots::{RootRow, root_rows, show_roots};
use crate::shard::tell;
use crate::study::{NamedInference, NamedStudy, Reader};
use crate::suggest::command_on;
use crate::verb::{PageVerb, Report, TakeReport, give};
use crate::{Failure, Status};
use stroboscope_query::{
    Inference, Notes, RecordedSummary, Shard, infer_shard, load_clocks, save_model,
};
use stroboscope_render::humanise::{counted, duration, percent};
use stroboscope_render::rows;
use stroboscope_render::show::{Cell, Doc, Names};

/// Infer the causal model and show it
///
/// Starts from all hypotheses: for every two segments, that one happens before the other, or that
/// they exclude each other; for every two tasks that work on the same data elements, that they form
/// a pipeline. Drops each hypothesis that a trace contradicts, unless --tolerance allows it. The
/// attribute `element` names the data that a span or an event works on.
#[derive(Debug, Args)]
pub struct Infer {
    #[command(flatten)]
    reading: ReadingArguments,
    #[command(flatten)]
    show: ShowArguments,
    /// Number of traces between two points of the model's convergence, at most 512 points; 0 shows
    /// none. Default with --json: 10000
    #[arg(long, value_name = "COUNT", conflicts_with = "cluster")]
    convergence_every: Option<u64>,
    /// Also save the model, for `model --load`; compressed by zstd if the name ends in .zst. With
    /// --shard, save the part
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Read only this shard of the requests, such as 3/16, and save its results as a part. `merge`
    /// prints the result from the parts of all shards
    #[arg(
        long,
        value_name = "NUMBER/COUNT",
        requires = "save",
        conflicts_with_all = ["json", "convergence_every", "html", "parquet", "full_names"]
    )]
    shard: Option<Shard>,
    /// Correct timestamps as in this file of `merge --save-clocks`, if `merge` asks for it
    #[arg(long, value_name = "FILE", requires = "shard")]
    clocks: Option<PathBuf>,
    #[command(flatten)]
    cluster: ClusterArguments,
}

/// Default number of traces between two points of the convergence with `--json`.
const CONVERGENCE_EVERY: u64 = 10_000;

/// Size of the model after `traces` traces, and changes since the previous point.
#[derive(Debug, Serialize, JsonSchema)]
struct ConvergenceEntry {
    traces: u64,
    segments: usize,
    happens_before: usize,
    mutual_exclusion: usize,
    pipelines: usize,
    happens_before_added: usize,
    happens_before_removed: usize,
    mutual_exclusion_added: usize,
    mutual_exclusion_removed: usize,
}

impl From<&ConvergencePoint> for ConvergenceEntry {
    fn from(point: &ConvergencePoint) -> Self {
        Self {
            traces: point.traces,
            segments: point.segments,
            happens_before: point.happens_before,
            mutual_exclusion: point.mutual_exclusion,
            pipelines: point.pipelines,
            happens_before_added: point.changes.happens_before_added,
            happens_before_removed: point.changes.happens_before_removed,
            mutual_exclusion_added: point.changes.mutual_exclusion_added,
            mutual_exclusion_removed: point.changes.mutual_exclusion_removed,
        }
    }
}

/// Size of the model at one point of its convergence, as a row of a table.
struct ConvergenceRow<'a> {
    point: &'a ConvergencePoint,
    /// Number of traces since the previous point.
    traces: u64,
}

rows! {
    ConvergenceRow<'_> as row, "convergence":
        "The model after a number of traces, and its changes since the previous row.";
    {
        let (point, changes) = (row.point, row.point.changes);
        let per_thousand =
            |count: usize| Cell::from(count as f64 * 1e3 / row.traces.max(1) as f64);
    }
    traces: Count, "traces" = point.traces;
    happens_before: Count, "happens before" = point.happens_before as u64;
    mutual_exclusion: Count, "exclusions" = point.mutual_exclusion as u64;
    new_per_thousand: Mean, "new per 1000" = per_thousand(changes.happens_before_added + changes.mutual_exclusion_added);
    gone_per_thousand: Mean, "gone per 1000" =
        per_thousand(changes.happens_before_removed + changes.mutual_exclusion_removed);
    segments: Count, "segments" = point.segments as u64;
}

fn convergence_rows(inference: &Inference) -> Vec<ConvergenceRow<'_>> {
    let before = std::iter::once(0).chain(inference.convergence.iter().map(|point| point.traces));
    let points = inference.convergence.iter().zip(before);
    points
        .map(|(point, before)| ConvergenceRow {
            point,
            traces: point.traces - before,
        })
        .collect()
}

/// Correction of the clocks.
#[derive(Debug, Serialize, JsonSchema)]
struct CorrectedClocks {
    /// Host to whose clock the others were corrected.
    reference: Option<String>,
    /// Hosts whose clocks nothing relates to that of the reference host.
    unaligned: Vec<String>,
    pairs: Vec<ClockPair>,
}

impl CorrectedClocks {
    /// Returns the correction of the clocks; `None` if no clocks are known to differ.
    fn of(inference: &Inference) -> Option<Self> {
        let alignment = Some(&inference.clocks).filter(|alignment| alignment.is_needed())?;
        Some(Self {
            reference: alignment.reference().map(str::to_owned),
            unaligned: alignment
                .unaligned()
                .iter()
                .map(ToString::to_string)
                .collect(),
            pairs: alignment.pairs().iter().map(ClockPair::of).collect(),
        })
    }
}

/// Describes the correction of the clocks, and their resolution.
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
    resolutions(alignment)
        .iter()
        .for_each(|line| text.push_str(&format!("{line}\n")));
    text
}

/// Amounts of data that processes recorded, and that they lost.
#[derive(Debug, Serialize, JsonSchema)]
struct RecordedEntry {
    processes: u64,
    /// Number of processes of each service.
    services: BTreeMap<String, u64>,
    batches: u64,
    records: u64,
    bursts: u64,
    /// Time in which both processes of a pair recorded, divided by the time in which at least one
    /// did. Both are summed over all pairs, while both processes ran. Null if no two processes ran
    /// at the same time, or none recorded then.
    window_overlap: Option<f64>,
    lost_records: u64,
    /// Lost records by service and cause.
    lost: Vec<LostRecords>,
    missing_batches: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct LostRecords {
    service: String,
    cause: String,
    records: u64,
}

impl From<&RecordedSummary> for RecordedEntry {
    fn from(recorded: &RecordedSummary) -> Self {
        let lost = |((service, cause), records): (&(String, String), &u64)| LostRecords {
            service: service.clone(),
            cause: cause.clone(),
            records: *records,
        };
        Self {
            processes: recorded.processes,
            services: recorded.services.clone(),
            batches: recorded.batches,
            records: recorded.records,
            bursts: recorded.bursts,
            window_overlap: recorded.window_overlap,
            lost_records: recorded.lost_records(),
            lost: recorded.lost.iter().map(lost).collect(),
            missing_batches: recorded.missing_batches,
        }
    }
}

fn recorded_text(recorded: &RecordedSummary) -> String {
    if recorded.batches == 0 {
        return String::new();
    }
    let overlap = recorded.window_overlap.map_or_else(String::new, |overlap| {
        format!("; the processes' windows overlap by {}", percent(overlap))
    });
    let lost = recorded.lost_records();
    format!(
        "{} of {} in {}{overlap}; {} lost, {} missing\n",
        counted(recorded.records, "record"),
        counted(recorded.processes, "process"),
        counted(recorded.bursts, "burst"),
        counted(lost, "record"),
        counted(recorded.missing_batches, "batch")
    )
}

impl Infer {
    pub fn run(self, runtime: &Runtime) -> Result<Status, Failure> {
        if let (Some(shard), Some(part)) = (self.shard, &self.save) {
            return self.run_shard(shard, part, runtime);
        }
        if self.cluster.is_asked() {
            return self.run_cluster(runtime);
        }
        // Each point costs a pass over all relations.
        let convergence_every = self.convergence_every.unwrap_or(if self.reading.from.json {
            CONVERGENCE_EVERY
        } else {
            0
        });
        let pace = (convergence_every > 0).then_some(LineLimit::Traces(convergence_every));
        let reader = Reader::of_terminal(runtime.handle());
        let study = NamedStudy::with(&self.reading, pace, &reader)?;
        if let Some(path) = &self.save {
            save_model(&study.known()?.inference.model, path).map_err(Failure::of)?;
        }
        give(&self.found(&study)?, &self.reading.from, &self.show)
    }

    fn run_shard(&self, shard: Shard, part: &Path, runtime: &Runtime) -> Result<Status, Failure> {
        let clocks = self.clocks.as_deref().map(load_clocks).transpose();
        let clocks = clocks.map_err(Failure::of)?;
        let study = NamedStudy::of(&self.reading, runtime.handle())?;
        let summary = infer_shard(
            study.source(),
            study.selection(),
            study.inner().settings(),
            (shard, clocks.as_ref()),
            (&self.reading.from.data.data, part),
        );
        tell(&summary.map_err(Failure::of)?, shard, part)
    }

    fn run_cluster(&self, runtime: &Runtime) -> Result<Status, Failure> {
        let (merged, recorded) = self.cluster.infer(&self.reading, runtime)?;
        if let Some(path) = &self.save {
            save_model(&merged.inference.model, path).map_err(Failure::of)?;
        }
        let names = Names::of(merged.inference.model.labels());
        let known = NamedInference::new(&merged.inference, &names);
        let (from, saved) = (&self.reading.from, self.save.as_deref());
        let report = InferenceReport::of((known, &recorded), &from.data.data, saved);
        give(&report, from, &self.show)
    }

    fn found<'a>(&'a self, study: &'a NamedStudy) -> Result<InferenceReport<'a>, Failure> {
        let recorded = study.source().recorded().map_err(Failure::of)?;
        let of = (study.known()?, &recorded);
        let data = &self.reading.from.data.data;
        Ok(InferenceReport::of(of, data, self.save.as_deref()))
    }
}

impl<'a> InferenceReport<'a> {
    /// Creates the report on an inference from `data`. `saved` is the file to which the model was
    /// saved.
    pub fn of(
        (known, recorded): (NamedInference<'a>, &RecordedSummary),
        data: &'a Path,
        saved: Option<&'a Path>,
    ) -> Self {
        let inference = known.inference;
        Self {
            notes: &inference.notes,
            recorded: recorded.into(),
            roots: root_rows(&inference.roots, None),
            segments: segment_entries(&inference.model),
            happens_before: Pairs(inference.relations.all_happens_before()),
            mutual_exclusion: Pairs(inference.relations.all_mutual_exclusion()),
            pipelines: pipeline_entries(&inference.relations),
            convergence: inference.convergence.iter().map(Into::into).collect(),
            clocks: CorrectedClocks::of(inference),
            timestamps: Timestamps::of(&inference.clocks),
            known,
            recorded_text: recorded_text(recorded),
            saved,
            data,
        }
    }
}

impl PageVerb for Infer {
    fn serve(&self, reader: &Reader, take: TakeReport<'_>) -> Result<(), Failure> {
        let pace = self.convergence_every.filter(|every| *every > 0);
        let study = NamedStudy::with(&self.reading, pace.map(LineLimit::Traces), reader)?;
        take(&self.found(&study)?)
    }
}

/// The model, and the data that it was inferred from.
#[derive(Serialize, JsonSchema)]
pub struct InferenceReport<'a> {
    #[serde(flatten)]
    notes: &'a Notes,
    recorded: RecordedEntry,
    roots: Vec<RootRow>,
    segments: Vec<SegmentEntry<'a>>,
    /// Pairs of segments where the first ends before the second begins, in all requests that have
    /// both, except for the share that `--tolerance` allows.
    #[schemars(with = "Vec<[u32; 2]>")]
    happens_before: Pairs<'a>,
    /// Pairs of segments of which either may come first, but which do not overlap, except in the
    /// share of requests that `--tolerance` allows.
    #[schemars(with = "Vec<[u32; 2]>")]
    mutual_exclusion: Pairs<'a>,
    pipelines: Vec<PipelineEntry<'a>>,
    convergence: Vec<ConvergenceEntry>,
    /// Correction of the clocks; null if no clocks are known to differ.
    clocks: Option<CorrectedClocks>,
    timestamps: Timestamps,
    #[serde(skip)]
    known: NamedInference<'a>,
    #[serde(skip)]
    recorded_text: String,
    #[serde(skip)]
    saved: Option<&'a Path>,
    #[serde(skip)]
    data: &'a Path,
}

impl Report for InferenceReport<'_> {
    fn notes(&self) -> &Notes {
        self.notes
    }

    fn show(&self, doc: &mut Doc) {
        let NamedInference { inference, .. } = self.known;
        // Show what makes orders between hosts uncertain before everything that depends on them.
        doc.sentence(warnings(&inference.clocks).join("\n"));
        show_roots(&self.roots, doc);
        doc.sentence(self.recorded_text.trim_end());
        doc.sentence(clocks_text(inference).trim_end());
        doc.sentence(format!(
            "{}, {} complete, {} in the model\n{}\n{} in which one happens before the other\n{} of which each excludes the other\n{} of \
             two tasks",
            counted(inference.notes.traces, "trace"),
            inference.notes.complete_traces,
            inference.model.traces(),
            counted(inference.segments().count() as u64, "segment"),
            counted(inference.relations.all_happens_before().len() as u64, "pair"),
            counted(inference.relations.all_mutual_exclusion().len() as u64, "pair"),
            counted(inference.relations.all_pipelines().len() as u64, "pipeline"),
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
        // Show no rows here, as there may be thousands of segments; `model --all` lists them.
        doc.table(
            "",
            &inference.segments().map(segment).collect::<Vec<_>>(),
            0,
        );
        doc.figures(convergence_figures(&inference.convergence));
        doc.table(
            "How the model converged",
            &convergence_rows(inference),
            usize::MAX,
        );
        let saved = self.saved.map_or_else(String::new, |path| {
            format!("Saved to {}.\n", path.display())
        });
        doc.sentence(format!(
            "{saved}Next: `{}` shows them, `{}` shows which of them matter.",
            command_on("model", self.data),
            command_on("critical-path", self.data),
        ));
    }
}
