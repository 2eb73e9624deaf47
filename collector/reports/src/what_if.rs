//! The `what-if` subcommand.

use clap::Args;
use regex::Regex;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeSet;
use std::time::Duration;
use stroboscope_analysis::label::{SegmentId, SegmentLabel};
use stroboscope_analysis::what_if::{Change, LatencyChange};

use crate::Failure;
use crate::arguments::{CategoryArguments, ReadingArguments, ShowArguments, parse_duration, to_ns};
use crate::latency::Latency;
use crate::study::NamedStudy;
use crate::suggest::command_on;
use crate::verb::{ReadingVerb, Report};
use stroboscope_query::{CategoriesQuestion, Notes, nearest, what_if};
use stroboscope_render::humanise::{counted, duration};
use stroboscope_render::rows;
use stroboscope_render::show::{Cell, Doc, SegmentName, TableSpec};

const ROOTS_SHOWN: usize = 10;
const SEGMENTS_SHOWN: usize = 10;

/// Show how fast requests would be if a segment took less time, or more
///
/// Every request is replayed by the model: a segment starts when the last of its predecessors has
/// ended. The differences between requests distinguish waiting from working. A wait ends with
/// something else, such as another segment, a place in a pool or a timer, and becomes shorter or
/// longer with it. Waits without a recorded reason keep their length. Queues that requests share
/// (workers, connections, locks) are detected if all requests of a period were recorded, and are
/// replayed with all their requests. Each change has a range, which covers chance and everything
/// that requests do not show. Requests do not show, for example, how long a segment works before it
/// waits, or the effect of load that no queue explains. The replay does not cover the effects of a
/// change on caches, or on the number of requests.
#[derive(Debug, Args)]
#[command(
    group(clap::ArgGroup::new("which").required(true).args(["segment", "operation", "category"])),
    group(clap::ArgGroup::new("change").required(true).args(["scale", "cap", "add"]))
)]
pub struct WhatIfVerb {
    #[command(flatten)]
    reading: ReadingArguments,
    #[command(flatten)]
    show: ShowArguments,
    /// Change the segments whose full name, `task [start … end]` with the whole path of the task,
    /// matches this regular expression; `--full-names` prints these parts
    #[arg(long, value_name = "REGEX")]
    segment: Option<Regex>,
    /// Change all segments of an operation, by its name in `critical-path`
    #[arg(long, value_name = "OPERATION")]
    operation: Option<String>,
    /// Change all segments of a category, by its name in `critical-path`
    #[arg(long, value_name = "NAME")]
    category: Option<String>,
    #[command(flatten)]
    categories: CategoryArguments,
    /// Multiply the segments' durations by this factor
    #[arg(long, value_name = "FACTOR", value_parser = parse_factor)]
    scale: Option<f64>,
    /// Limit the duration of each segment to this
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    cap: Option<Duration>,
    /// Add this duration to that of each segment
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    add: Option<Duration>,
}

fn parse_factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if factor.is_finite() && factor >= 0.0 => Ok(factor),
        _ => Err("a number from 0 up, such as 0.5".to_owned()),
    }
}

/// Ratio of `after_longest` to `after`, both by the mean, above which the text mentions the range.
const UNCERTAIN_FROM: f64 = 1.01;

impl WhatIfVerb {
    fn change(&self) -> Result<Change, Failure> {
        match (self.scale, self.cap, self.add) {
            (Some(factor), None, None) => Ok(Change::Scale(factor)),
            (None, Some(cap), None) => Ok(Change::CapNs(to_ns(cap))),
            (None, None, Some(more)) => Ok(Change::AddNs(to_ns(more))),
            _ => Err(Failure::needs_more("give one of --scale, --cap and --add")),
        }
    }
}

impl ReadingVerb for WhatIfVerb {
    type Report = WhatIf;
    // Empty, because SQL cannot pass the required arguments.
    const TABLES: &'static [TableSpec] = &[];

    fn arguments(&self) -> (ReadingArguments, &ShowArguments) {
        (self.reading.clone(), &self.show)
    }

    fn answer(&self, study: &NamedStudy) -> Result<WhatIf, Failure> {
        let change = self.change()?;
        let of_category = match &self.category {
            Some(name) => {
                let categories = study.ask(&CategoriesQuestion(self.categories.rule()))?;
                let number = categories.number(name).map_err(Failure::of)?;
                Some(move |segment| categories.of(segment) == number)
            }
            None => None,
        };
        let known = study.known()?;
        let is_chosen = |id: SegmentId, label: &SegmentLabel| {
            of_category.as_ref().is_some_and(|is_of| is_of(id))
                || self
                    .segment
                    .as_ref()
                    .is_some_and(|pattern| pattern.is_match(&label.to_string()))
                || self
                    .operation
                    .as_ref()
                    .is_some_and(|operation| *operation == label.operation())
        };
        let segments = known.inference.segments();
        let chosen = segments.filter(|(id, label)| is_chosen(*id, label));
        let segments: Vec<SegmentId> = chosen.map(|(id, _)| id).collect();
        if let Some(operation) = self.operation.as_ref().filter(|_| segments.is_empty()) {
            let segments = known.inference.segments();
            let known: BTreeSet<String> = segments.map(|(_, label)| label.operation()).collect();
            let nearest = nearest(operation, known.iter().map(String::as_str));
            let nearest = nearest.map_or_else(String::new, |name| format!(" (is it {name}?)"));
            let listed = command_on("critical-path", &self.reading.from.data.data);
            return Err(Failure::unknown(format!(
                "no segment is of the operation {operation}{nearest}; `{listed}` lists operations"
            )));
        }
        let found = what_if(study.inner(), segments, change).map_err(Failure::of)?;
        let latency = &found.latency;
        let of_root = |(root, latency): &(String, LatencyChange)| KindChange {
            root: root.clone(),
            requests: latency.before.weighted_count().rounded(),
            before: Latency::of(&latency.before),
            after: Latency::of(&latency.after),
            faster: latency.faster.rounded(),
            slower: latency.slower.rounded(),
        };
        // Latencies lie below 2⁶³ ns, as timestamps do, unless a change made them longer.
        let change_ns =
            |quantile: f64| i64::try_from(latency.change_ns(quantile)).unwrap_or(i64::MAX);
        let longest = Quantiles::of(
            |quantile| found.longest.after.quantile_ns(quantile),
            found.longest.after.mean_ns(),
        );
        Ok(WhatIf {
            used_traces: latency.before.weighted_count().rounded(),
            change: change.into(),
            segments: found.segments.iter().map(|id| known.name(*id)).collect(),
            before: Latency::of(&latency.before),
            after: Latency::of(&latency.after),
            latency_change: Quantiles::of(
                change_ns,
                latency.after.mean_ns() - latency.before.mean_ns(),
            ),
            latency_change_low: Quantiles::of_ends(found.expected.map(|of| of.change_ns.0), |ns| {
                ns.floor() as i64
            }),
            latency_change_high: Quantiles::of_ends(
                found.expected.map(|of| of.change_ns.1),
                |ns| ns.ceil() as i64,
            ),
            after_low: Quantiles::of_ends(found.expected.map(|of| of.after_ns.0), |ns| {
                ns.floor() as u64
            }),
            after_high: Quantiles::of_ends(found.expected.map(|of| of.after_ns.1), |ns| {
                ns.ceil() as u64
            }),
            by_root: found.by_root.iter().map(of_root).collect(),
            after_longest: longest,
            waiting: WaitsFound {
                segments_that_wait: found.waiting.0,
                waits_before_segments: found.waiting.1,
                shared_queues: found.shared_queues,
            },
            faster: latency.faster.rounded(),
            slower: latency.slower.rounded(),
            notes: found.notes,
        })
    }
}

/// Latency before and after a change.
#[derive(Debug, Serialize, JsonSchema)]
pub struct WhatIf {
    #[serde(flatten)]
    notes: Notes,
    used_traces: u64,
    change: WrittenChange,
    segments: Vec<SegmentName>,
    before: Latency,
    after: Latency,
    latency_change: Quantiles<i64>,
    /// Lower bound of the change: 95 in 100 changes lie between `latency_change_low` and
    /// `latency_change_high`.
    latency_change_low: Quantiles<i64>,
    /// Upper bound of the change, with the same certainty as `latency_change_low`.
    latency_change_high: Quantiles<i64>,
    /// Lower bound of the latency of as many other requests after the change.
    after_low: Quantiles<u64>,
    /// Upper bound of the latency of as many other requests after the change.
    after_high: Quantiles<u64>,
    by_root: Vec<KindChange>,
    after_longest: Quantiles<u64>,
    waiting: WaitsFound,
    faster: u64,
    slower: u64,
}

/// Change as JSON: `{"scale": 0.5}`, `{"cap_ns": 7}` or `{"add_ns": 7}`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum WrittenChange {
    /// Factor of the durations.
    Scale(f64),
    /// Maximum duration, in ns.
    CapNs(u64),
    /// Additional duration, in ns.
    AddNs(u64),
}

impl From<Change> for WrittenChange {
    fn from(change: Change) -> Self {
        match change {
            Change::Scale(factor) => Self::Scale(factor),
            Change::CapNs(cap_ns) => Self::CapNs(cap_ns),
            Change::AddNs(more_ns) => Self::AddNs(more_ns),
        }
    }
}

/// Mean and three quantiles, of latency or of its change.
#[derive(Debug, Serialize, JsonSchema)]
struct Quantiles<T> {
    mean_ns: f64,
    p50_ns: T,
    p95_ns: T,
    p99_ns: T,
}

impl<T> Quantiles<T> {
    fn of(at: impl Fn(f64) -> T, mean_ns: f64) -> Self {
        Self {
            mean_ns,
            p50_ns: at(0.50),
            p95_ns: at(0.95),
            p99_ns: at(0.99),
        }
    }

    /// Converts the lower or the upper ends of the ranges of mean, p50, p95 and p99.
    fn of_ends(ends: [f64; 4], rounded: impl Fn(f64) -> T) -> Self {
        let [mean_ns, p50_ns, p95_ns, p99_ns] = ends;
        Self {
            mean_ns,
            p50_ns: rounded(p50_ns),
            p95_ns: rounded(p95_ns),
            p99_ns: rounded(p99_ns),
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
struct WaitsFound {
    segments_that_wait: usize,
    waits_before_segments: usize,
    /// Number of queues, such as for workers, connections or locks, in which requests wait for each
    /// other.
    shared_queues: usize,
}

/// Latency of the requests of one root operation, before and after a change.
#[derive(Debug, Serialize, JsonSchema)]
struct KindChange {
    root: String,
    #[serde(skip)]
    requests: u64,
    before: Latency,
    after: Latency,
    faster: u64,
    slower: u64,
}

rows! {
    KindChange as row, "what_if_by_root": "Latency of the requests of one root operation, before and after a change.";
    {
        let ns = |ns: u64| Cell::from(ns as f64);
        let (before, after) = (&row.before, &row.after);
    }
    root: Text, "root operation" = &*row.root;
    requests: Count, "requests" = row.requests;
    before_p50_ns: DurationNs, "p50 before" = ns(before.p50_ns);
    after_p50_ns: DurationNs, "after" = ns(after.p50_ns);
    before_p95_ns: DurationNs, "p95 before" = ns(before.p95_ns);
    after_p95_ns: DurationNs, "after" = ns(after.p95_ns);
    before_p99_ns: DurationNs, "p99 before" = ns(before.p99_ns);
    after_p99_ns: DurationNs, "after" = ns(after.p99_ns);
}

/// Mean or a quantile of the latency, before and after the change.
struct QuantileChange {
    name: &'static str,
    before_ns: f64,
    after_ns: f64,
    change_ns: f64,
    change_low_ns: f64,
    change_high_ns: f64,
}

rows! {
    QuantileChange as row, "what_if": "The mean or a quantile of the latency, before and after a change.";
    {
        let change = if row.before_ns == 0.0 {
            0.0
        } else {
            row.change_ns / row.before_ns
        };
    }
    quantile: Text, "latency" = row.name;
    before_ns: DurationNs, "before" = row.before_ns;
    after_ns: DurationNs, "after" = row.after_ns;
    change_ns: DurationNs, "change" = row.change_ns;
    change_share: Share, "by" = change;
    change_low_ns: DurationNs, "from" = row.change_low_ns;
    change_high_ns: DurationNs, "to" = row.change_high_ns;
}

/// A segment to which the change applies, as a row of a table.
struct ChangedSegmentRow<'a>(&'a SegmentName);

rows! {
    ChangedSegmentRow<'_> as row, "what_if_segments": "A segment that is changed.";
    segment: Segment, "segment" = row.0;
}

impl WhatIf {
    fn quantiles(&self) -> [QuantileChange; 4] {
        let (before, after) = (&self.before, &self.after);
        let (change, low, high) = (
            &self.latency_change,
            &self.latency_change_low,
            &self.latency_change_high,
        );
        let mean = QuantileChange {
            name: "mean",
            before_ns: before.mean_ns,
            after_ns: after.mean_ns,
            change_ns: change.mean_ns,
            change_low_ns: low.mean_ns,
            change_high_ns: high.mean_ns,
        };
        let quantile =
            |name, of: fn(&Latency) -> u64, at: fn(&Quantiles<i64>) -> i64| QuantileChange {
                name,
                before_ns: of(before) as f64,
                after_ns: of(after) as f64,
                change_ns: at(change) as f64,
                change_low_ns: at(low) as f64,
                change_high_ns: at(high) as f64,
            };
        [
            mean,
            quantile("p50", |latency| latency.p50_ns, |change| change.p50_ns),
            quantile("p95", |latency| latency.p95_ns, |change| change.p95_ns),
            quantile("p99", |latency| latency.p99_ns, |change| change.p99_ns),
        ]
    }
}

impl Report for WhatIf {
    fn notes(&self) -> &Notes {
        &self.notes
    }

    fn show(&self, doc: &mut Doc) {
        let change = match self.change {
            WrittenChange::Scale(factor) => format!("took {factor} times as long"),
            WrittenChange::CapNs(cap_ns) => format!("took {} at most", duration(cap_ns as f64)),
            WrittenChange::AddNs(more_ns) => format!("took {} longer", duration(more_ns as f64)),
        };
        doc.heading(format!(
            "{} {change}",
            match self.segments.len() {
                1 => "If this segment".to_owned(),
                many => format!("If each of these {many} segments"),
            }
        ));
        let changed: Vec<ChangedSegmentRow<'_>> =
            self.segments.iter().map(ChangedSegmentRow).collect();
        doc.table("", &changed, SEGMENTS_SHOWN);
        doc.sentence(format!(
            "Of {}, {} would be faster and {} slower.",
            counted(self.used_traces, "request"),
            self.faster,
            self.slower
        ));
        // A latency over several root operations describes none of them, so show each.
        let kinds = if self.by_root.len() > 1 {
            ROOTS_SHOWN
        } else {
            0
        };
        doc.table("Requests of each kind by themselves", &self.by_root, kinds);
        let quantiles = self.quantiles();
        let all = if kinds > 0 {
            "All requests together"
        } else {
            ""
        };
        doc.table(all, &quantiles, quantiles.len());
        doc.sentence(
            "Each change lies within its range in 95 of 100 cases, given other samples of requests and the facts \
             that requests do not show.",
        );
        let (least_ns, most_ns) = (self.after.mean_ns, self.after_longest.mean_ns);
        if most_ns > least_ns * UNCERTAIN_FROM {
            doc.sentence(format!(
                "By the mean, a request takes {} to {}: some segments work and then wait, and how long they worked cannot \
                 be known. The table takes it for waiting.",
                duration(least_ns),
                duration(most_ns)
            ));
        }
        let waiting = &self.waiting;
        doc.sentence(format!(
            "Found to wait for others, and made to follow what they wait for: {} inside, {} before they start; \
             {} that requests share.",
            counted(waiting.segments_that_wait as u64, "segment"),
            waiting.waits_before_segments,
            counted(waiting.shared_queues as u64, "queue"),
        ));
    }
}
