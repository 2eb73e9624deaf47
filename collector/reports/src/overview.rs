//! The report `overview`: latency and its last change, bottlenecks, failures and losses.

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::distribution::Distribution;
use stroboscope_analysis::sampling::WeightedCount;
use stroboscope_query::{
    Bottleneck, CategoryRule, Heatmap, HeatmapQuestion, LatencyStep, Notes, OperationTime,
    PathsQuestion, QueryError, RecordedSummary, RootColumn, RootSeries, RootSeriesQuestion,
    StepQuestion, Study, band_edges_ns, bottleneck_text, bottlenecks, by_time,
};
use stroboscope_render::humanise::{counted, duration, duration_spaced, percent};
use stroboscope_render::roots::{headline_is_of, requests_text};
use stroboscope_render::rows;
use stroboscope_render::show::{Bar, Chart, Doc, Figure, Row as _, TableSpec};

use crate::Failure;
use crate::arguments::{ReadingArguments, ShowArguments};
use crate::latency::Latency;
use crate::roots::{RootRow, root_rows, show_roots};
use crate::step_commands::comparing_commands;
use crate::study::NamedStudy;
use crate::time::since;
use crate::verb::{ReadingVerb, Report};

const OPERATIONS_SHOWN: usize = 10;
/// Factor between the medians with and without failed requests, above which a report states that
/// failed requests shift the median.
pub(crate) const MEDIANS_RATIO: f64 = 1.1;

/// Show how long requests take, when that changed, what they wait for, and how many failed
///
/// Shows the latency of requests; when it changed, with the commands that compare before and after;
/// the operations that requests wait for most; requests by root operation; and losses. The JSON
/// also has latency over time.
#[derive(Debug, Args)]
pub struct OverviewVerb {
    #[command(flatten)]
    reading: ReadingArguments,
    #[command(flatten)]
    show: ShowArguments,
}

/// Overview of latency, waits, failures and losses.
#[derive(Debug, Serialize, JsonSchema)]
pub struct OverviewReport {
    #[serde(flatten)]
    pub notes: Notes,
    /// Number of requests behind the figures: complete ones, and incomplete ones if requested.
    pub used_traces: u64,
    /// Number of the requests behind the figures whose root failed, by an attribute `error` that is
    /// not false, or by a panic, even if they took no time. Counts recorded requests, without
    /// sampling weights.
    pub failed: u64,
    /// Latency of requests whose root operation has callers, if there are any; otherwise of all.
    pub latency: Latency,
    /// Latency without failed requests; null if none or all failed.
    pub latency_without_failed: Option<Latency>,
    /// Last change of latency; null if none was detected.
    pub step: Option<LatencyStep>,
    /// Operation that requests wait for most; one for each main root operation, if the waits
    /// differ. At most three count as main, each with at least 5 % of the total latency.
    pub bottlenecks: Vec<Bottleneck>,
    /// Sentences about circumstances that make figures misleading: busy processors, failed
    /// requests, requests without propagated context.
    pub circumstances: Vec<String>,
    /// Operations by their time on critical paths, the largest first.
    pub operations: Vec<OperationTime>,
    pub roots: Vec<RootRow>,
    /// Requests over time, for up to eight root operations: first those with callers, and in both
    /// groups those with the most time first.
    pub series: Vec<RootSeries>,
    pub heatmap: Vec<HeatmapRow>,
    /// Number of windows in which at least one process recorded; overlapping windows count as one.
    pub bursts: u64,
    pub processes: u64,
    /// Records lost by service and cause, as counted by the processes.
    pub losses: Vec<LossRow>,
    /// Number of batches that are missing before a stored batch of the same process.
    pub missing_batches: u64,
    #[serde(skip)]
    pub map: Heatmap,
    /// Requests that `latency` refers to, in words.
    #[serde(skip)]
    pub latency_is_of: &'static str,
    /// Weighted count behind `used_traces`.
    #[serde(skip)]
    pub requests: WeightedCount,
    /// Commands that examine the step further; empty without one, and on the page `/`, which has
    /// links.
    #[serde(skip)]
    commands: String,
}

/// Requests that began in one interval, and whose latency is in one range.
#[derive(Debug, Serialize, JsonSchema)]
pub struct HeatmapRow {
    /// Beginning of the interval, ns since the Unix epoch.
    from_ns: i64,
    until_ns: i64,
    /// Lower bound of latency.
    latency_from_ns: u64,
    /// Exclusive upper bound of latency; null if there is none.
    latency_until_ns: Option<u64>,
    requests: u64,
    /// Trace id of one of the requests.
    example: String,
}

/// Requests of one root operation in one interval, as a row of a table.
struct RootColumnRow<'a>(&'a RootSeries, &'a RootColumn);

/// Records that a service lost, by cause.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LossRow {
    pub service: String,
    pub cause: String,
    pub records: u64,
}

rows! {
    HeatmapRow as row, "heatmap": "Requests that began in one span of time and took about as long.";
    from_ns: Instant, "from" = row.from_ns;
    until_ns: Instant, "until" = row.until_ns;
    latency_from_ns: DurationNs, "latency from" = row.latency_from_ns;
    latency_until_ns: DurationNs, "latency to" = row.latency_until_ns.map(|ns| ns as f64);
    requests: Count, "requests" = row.requests;
    example: Request, "one of them" = &*row.example;
}

rows! {
    RootColumnRow<'_> as row, "root_series": "Requests of one root operation that began in one span of time.";
    root: Text, "root operation" = &*row.0.root;
    from_ns: Instant, "from" = row.1.from_ns;
    until_ns: Instant, "until" = row.1.from_ns.saturating_add(row.0.column_ns);
    requests: Count, "requests" = row.1.requests;
    failed: Count, "failed" = row.1.failed;
    p50_ns: DurationNs, "p50" = row.1.p50_ns;
    p95_ns: DurationNs, "p95" = row.1.p95_ns;
    p99_ns: DurationNs, "p99" = row.1.p99_ns;
}

rows! {
    LossRow as row, "losses": "Records that processes lost, as they counted them.";
    service: Text, "lost by" = &*row.service;
    cause: Text, "cause" = &*row.cause;
    records: Count, "records" = row.records;
}

impl OverviewReport {
    /// Computes the overview with one pass over the critical paths of the study's requests.
    pub fn of(study: &Study) -> Result<Self, QueryError> {
        let asked = (
            ((HeatmapQuestion, RootSeriesQuestion), StepQuestion),
            PathsQuestion(CategoryRule::default()),
        );
        let (((map, series), step), paths) = study.ask(&asked)?;
        let inference = study.inference()?;
        let labels = inference.model.labels();
        let recorded = study.source().recorded()?;
        let requests = paths.aggregate.traces();
        let without_failed = (!paths.failed.is_empty()).then(|| {
            let mut others = Distribution::default();
            let roots = inference.roots.headline_roots();
            let known = roots.filter_map(|(root, _)| paths.latency_without_failed.get(root));
            known.for_each(|of_root| others.merge(of_root));
            others
        });
        let without_failed = without_failed.filter(|others| others.count() > 0);
        Ok(Self {
            used_traces: requests.rounded(),
            failed: paths.failed_requests().recorded(),
            latency: Latency::of(&inference.roots.headline()),
            latency_without_failed: without_failed.as_ref().map(Latency::of),
            step,
            bottlenecks: bottlenecks(&paths, labels),
            circumstances: paths.circumstances(),
            operations: by_time(&paths.aggregate, labels),
            roots: root_rows(&inference.roots, Some(&paths.failed)),
            series,
            heatmap: heatmap_rows(&map),
            bursts: recorded.bursts,
            processes: recorded.processes,
            losses: loss_rows(&recorded),
            missing_batches: recorded.missing_batches,
            map,
            latency_is_of: headline_is_of(&inference.roots),
            commands: String::new(),
            requests,
            notes: paths.notes,
        })
    }

    /// Describes the latency without failed requests, and whether failed ones pull the median up or
    /// down; `None` if none or all failed.
    pub fn without_failed_text(&self) -> Option<String> {
        let others = self.latency_without_failed.as_ref()?;
        let [all_ns, others_ns] = [self.latency.p50_ns, others.p50_ns].map(|ns| ns as f64);
        let moved = if all_ns * MEDIANS_RATIO < others_ns {
            "; failed ones are faster, and pull the median down"
        } else if others_ns * MEDIANS_RATIO < all_ns {
            "; failed ones are slower, and pull the median up"
        } else {
            ""
        };
        Some(format!(
            "Without failed requests: p50 {}, p95 {}, p99 {}{moved}.",
            duration(others_ns),
            duration(others.p95_ns as f64),
            duration(others.p99_ns as f64),
        ))
    }

    /// Returns the number of records that processes lost.
    pub fn lost_records(&self) -> u64 {
        self.losses
            .iter()
            .fold(0, |sum, row| sum.saturating_add(row.records))
    }

    /// Draws the operations that requests wait for most; `None` if there are none.
    pub fn waits(&self) -> Option<Figure> {
        let bars: Vec<Bar> = self
            .operations
            .iter()
            .take(OPERATIONS_SHOWN)
            .map(|one| Bar {
                name: one.operation.clone(),
                share: one.share_of_time,
                beside: format!("({})", duration(one.mean_ns)),
            })
            .collect();
        let list: Vec<String> = bars
            .iter()
            .map(|bar| format!("{} {}", bar.name, percent(bar.share)))
            .collect();
        let title = "Critical path, as part of the time of all requests together";
        (!bars.is_empty()).then(|| Figure::new(title, list.join(", "), Chart::Bars(bars)))
    }
}

fn heatmap_rows(map: &Heatmap) -> Vec<HeatmapRow> {
    let edges_ns = band_edges_ns();
    // The first band begins at 1 ns, but also holds requests that take no time.
    let from_ns = |band: usize| match band {
        0 => 0,
        _ => edges_ns.get(band).copied().unwrap_or(u64::MAX),
    };
    let row = |cell: &stroboscope_query::HeatmapCell| HeatmapRow {
        from_ns: map.column_from_ns(cell.column),
        until_ns: map.column_from_ns(cell.column + 1),
        latency_from_ns: from_ns(cell.band),
        latency_until_ns: edges_ns.get(cell.band + 1).copied(),
        requests: cell.requests.rounded(),
        example: cell.example.to_string(),
    };
    map.cells.iter().map(row).collect()
}

fn loss_rows(recorded: &RecordedSummary) -> Vec<LossRow> {
    let lost = recorded.lost.iter();
    let row = lost.map(|((service, cause), records)| LossRow {
        service: service.clone(),
        cause: cause.clone(),
        records: *records,
    });
    row.collect()
}

/// Describes a step: `Since about 14:32:10 the median of web:home is 150 ms rather than 68 ms`.
pub fn step_text(step: &LatencyStep) -> String {
    let spaced = |both_ns: [u64; 2]| both_ns.map(|ns| duration_spaced(ns as f64));
    let [before, after] = spaced(step.medians_ns);
    let [p95_before, p95_after] = spaced(step.p95_ns);
    let [old, new] = step.requests;
    let (since, root) = (since(step.at_ns, step.until_ns), &step.root);
    match step.requests_needed {
        None if step.is_of_tail() => format!(
            "Since about {since} one in twenty of {root} takes {p95_after} or more rather than {p95_before}, and half of them {after} \
             rather than {before}"
        ),
        None => format!("Since about {since} the median of {root} is {after} rather than {before}"),
        Some(needed) => format!(
            "Since about {since} the median of {root} may be {after} rather than {before}, which is too short to tell: {old} requests \
             before and {new} after, where some {needed} would show it"
        ),
    }
}

impl ReadingVerb for OverviewVerb {
    type Report = OverviewReport;
    const TABLES: &'static [TableSpec] = &[HeatmapRow::TABLE, RootColumnRow::TABLE, LossRow::TABLE];

    fn arguments(&self) -> (ReadingArguments, &ShowArguments) {
        (self.reading.clone(), &self.show)
    }

    fn answer(&self, study: &NamedStudy) -> Result<OverviewReport, Failure> {
        let mut report = OverviewReport::of(study.inner()).map_err(Failure::of)?;
        if let Some(step) = &report.step {
            let times_ns = [step.before_from_ns, step.at_ns, step.until_ns];
            report.commands = comparing_commands(&step.root, times_ns, &self.reading);
        }
        Ok(report)
    }
}

impl Report for OverviewReport {
    fn notes(&self) -> &Notes {
        &self.notes
    }

    fn show(&self, doc: &mut Doc) {
        doc.heading("Overview");
        doc.sentences(&self.circumstances);
        if let Some(step) = &self.step {
            doc.sentence(format!("{}. {}", step_text(step), self.commands));
        }
        if self.used_traces > 0 {
            doc.sentence(format!(
                "{}; latency of {}: p50 {}, p95 {}, p99 {}.",
                requests_text(self.requests),
                self.latency_is_of,
                duration(self.latency.p50_ns as f64),
                duration(self.latency.p95_ns as f64),
                duration(self.latency.p99_ns as f64),
            ));
        }
        doc.sentences(self.without_failed_text());
        if self.failed > 0 {
            let failed = counted(self.failed, "recorded request");
            doc.sentence(format!(
                "Failed: {failed}; `stroboscope failures` shows since when, and where they start."
            ));
        }
        for most in &self.bottlenecks {
            doc.sentence(format!("Requests wait most for {}.", bottleneck_text(most)));
        }
        if let Some(waits) = self.waits() {
            doc.figure(waits);
        }
        show_roots(&self.roots, doc);
        if self.missing_batches > 0 {
            let missing = counted(self.missing_batches, "batch");
            doc.sentence(format!("Missing between others: {missing}."));
        }
        doc.table("Records lost", &self.losses, usize::MAX);
        // Hide thousands of rows from readers; Parquet files and SQL have them.
        doc.table("Latency over time", &self.heatmap, 0);
        let rows = self.series.iter().flat_map(|series| {
            let columns = series.columns.iter();
            columns.map(move |column| RootColumnRow(series, column))
        });
        let rows: Vec<RootColumnRow<'_>> = rows.collect();
        doc.table("Root operations over time", &rows, 0);
    }
}
