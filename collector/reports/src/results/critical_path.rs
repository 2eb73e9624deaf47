//! Critical paths of all requests together, shared by `critical-path`, `merge` and `report`.

use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::aggregate::{PathAggregate, PathStatistics};
use stroboscope_analysis::label::Labels;
use stroboscope_analysis::record::TraceId;
use stroboscope_analysis::sampling::WeightedCount;

use crate::latency::Latency;
use crate::roots::{RootRow, latency_text, root_rows, show_roots};
use crate::study::NamedInference;
use crate::verb::Report;
use stroboscope_query::{Bottleneck, CategoryTotals, Notes, Paths, bottleneck_text, bottlenecks};
use stroboscope_render::humanise::{duration, percent};
use stroboscope_render::page::path_segment;
use stroboscope_render::roots::{headline_is_of, requests_text};
use stroboscope_render::rows;
use stroboscope_render::show::{
    Axis, Bar, Cell, Chart, Doc, Figure, Kind, SegmentName, Stack, StackPart,
};

/// Maximum number of root operations whose operations are shown.
const ROOTS_SHOWN: usize = 5;
const OPERATIONS_MAX: usize = 15;
const PARTS_MAX: usize = 6;

/// Critical paths of all selected requests.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Aggregate {
    #[serde(flatten)]
    notes: Notes,
    used_traces: u64,
    traces_without_length: u64,
    latency: Latency,
    latency_of: &'static str,
    #[serde(skip)]
    requests_text: String,
    #[serde(skip)]
    latency_text: String,
    pub(crate) roots: Vec<RootRow>,
    mean_tail_share: f64,
    segments: Vec<SegmentShare>,
    categories: Vec<CategoryShare>,
    operations: Vec<OperationShare>,
    operations_by_root: Vec<RootOperations>,
    /// Operations that requests wait for most, by time on the critical path: one for all requests,
    /// or one for each main root operation if these differ. At most three root operations count as
    /// main, each with at least 5 % of the total latency.
    bottlenecks: Vec<Bottleneck>,
    /// Circumstances that make these figures misleading.
    circumstances: Vec<String>,
    /// Names of the categories; the colours of pictures are their indexes.
    #[serde(skip)]
    category_names: Vec<String>,
    #[serde(skip)]
    top: usize,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SegmentShare {
    #[serde(flatten)]
    segment: SegmentName,
    traces: u64,
    occurrences: u64,
    critical_traces: u64,
    after_answer_occurrences: u64,
    /// Time of the segment and of the wait for it on critical paths, as a share of the time of all
    /// requests, 0 to 1.
    share_of_time: f64,
    /// Part of `share_of_time` that is waiting.
    wait_share_of_time: f64,
    /// Mean of the segment's shares of each request: short requests count as much as long ones.
    mean_share: f64,
    mean_duration_share: f64,
    mean_wait_share: f64,
    duration: Latency,
    slack: Latency,
    #[serde(skip)]
    critical_share: f64,
    /// Id of the request with the longest critical instance of the segment, including the wait for
    /// it.
    #[serde(skip)]
    example: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct CategoryShare {
    category: String,
    /// Time of the category on critical paths, as a share of the time of all requests, 0 to 1.
    share_of_time: f64,
    mean_share: f64,
    critical_ns: u64,
    critical_duration_ns: u64,
    critical_wait_ns: u64,
    summed_delay_ns: u64,
    after_answer_ns: u64,
    #[serde(skip)]
    requests: WeightedCount,
}

#[derive(Debug, Serialize, JsonSchema)]
struct OperationShare {
    operation: String,
    /// Time of the operation on critical paths, as a share of the time of all requests, 0 to 1.
    share_of_time: f64,
    mean_share: f64,
    occurrences: u64,
    /// Mean time on the critical path per request, in ns.
    #[serde(skip)]
    mean_ns: f64,
}

/// Operations in requests of one root operation.
#[derive(Debug, Serialize, JsonSchema)]
struct RootOperations {
    root: String,
    used_traces: u64,
    operations: Vec<OperationShare>,
}

impl Aggregate {
    pub fn of(paths: Paths, known: NamedInference<'_>, top: usize) -> Self {
        let (labels, roots) = (known.inference.model.labels(), &known.inference.roots);
        let traces = paths.aggregate.traces();
        let of_root = |(root, of): &(String, PathAggregate)| RootOperations {
            root: root.clone(),
            used_traces: of.traces().rounded(),
            operations: operations(of, labels),
        };
        let segments = paths.aggregate.segments();
        let names = paths.categories.iter().map(|of| of.category.clone());
        let mut category_names: Vec<String> = names.collect();
        category_names.sort_unstable();
        Self {
            used_traces: traces.rounded(),
            requests_text: requests_text(traces),
            traces_without_length: paths.aggregate.without_length().rounded(),
            latency: Latency::of(&roots.headline()),
            latency_of: headline_is_of(roots),
            latency_text: latency_text(roots),
            roots: root_rows(roots, Some(&paths.failed)),
            mean_tail_share: paths.aggregate.tail_wait().1.mean(traces),
            segments: segments
                .map(|(id, of)| {
                    let example = paths.examples.get(&id);
                    SegmentShare::of(known.name(id), of, &paths.aggregate, example)
                })
                .collect(),
            categories: paths
                .categories
                .iter()
                .map(|totals| CategoryShare::of(totals, &paths.aggregate))
                .collect(),
            operations: operations(&paths.aggregate, labels),
            bottlenecks: bottlenecks(&paths, labels),
            circumstances: paths.circumstances(),
            operations_by_root: paths.by_root.iter().map(of_root).collect(),
            notes: paths.notes,
            category_names,
            top: if top == 0 { usize::MAX } else { top },
        }
    }

    /// Gives pictures the colours of these categories, in this order.
    pub fn with_categories(self, names: &[String]) -> Self {
        Self {
            category_names: names.to_vec(),
            ..self
        }
    }
}

impl SegmentShare {
    fn of(
        segment: SegmentName,
        of: &PathStatistics,
        paths: &PathAggregate,
        example: Option<&TraceId>,
    ) -> Self {
        let traces = paths.traces();
        let wait_ns = of.critical_wait_ns;
        Self {
            share_of_time: paths.share_of_time(of.critical_duration_ns + wait_ns),
            wait_share_of_time: paths.share_of_time(wait_ns),
            segment,
            traces: of.traces.rounded(),
            occurrences: of.occurrences.rounded(),
            critical_traces: of.critical_traces.rounded(),
            after_answer_occurrences: of.after_answer_occurrences.rounded(),
            mean_share: of.shares().mean(traces),
            mean_duration_share: of.duration_shares.mean(traces),
            mean_wait_share: of.wait_shares.mean(traces),
            duration: Latency::of(&of.duration),
            slack: Latency::of(&of.slack),
            critical_share: of.critical_traces.share_of(traces),
            example: example.map(ToString::to_string),
        }
    }
}

/// Converts a sum in ns to an integer for JSON; saturates above 584 years.
fn to_json_ns(sum_ns: u128) -> u64 {
    u64::try_from(sum_ns).unwrap_or(u64::MAX)
}

impl CategoryShare {
    fn of(totals: &CategoryTotals, paths: &PathAggregate) -> Self {
        let traces = paths.traces();
        Self {
            category: totals.category.clone(),
            share_of_time: paths.share_of_time(totals.critical_ns()),
            mean_share: totals.shares.mean(traces),
            critical_ns: to_json_ns(totals.critical_ns()),
            critical_duration_ns: to_json_ns(totals.critical_duration_ns),
            critical_wait_ns: to_json_ns(totals.critical_wait_ns),
            summed_delay_ns: to_json_ns(totals.summed_delay_ns),
            after_answer_ns: to_json_ns(totals.after_answer_ns),
            requests: traces,
        }
    }
}

/// Returns the operations with their shares of critical paths; requests wait most for the first.
fn operations(paths: &PathAggregate, labels: &Labels) -> Vec<OperationShare> {
    let of = paths.by_operation(labels).into_iter().map(|operation| {
        let sum_ns = operation.critical_duration_ns + operation.critical_wait_ns;
        OperationShare {
            mean_ns: paths.traces().mean(sum_ns as f64),
            share_of_time: paths.share_of_time(sum_ns),
            mean_share: (operation.duration_shares + operation.wait_shares).mean(paths.traces()),
            occurrences: operation.occurrences.rounded(),
            operation: operation.operation,
        }
    });
    let mut operations: Vec<OperationShare> = of.collect();
    operations.sort_by(|a, b| b.share_of_time.total_cmp(&a.share_of_time));
    operations
}

rows! {
    SegmentShare as row, "critical_path": "A segment, and its part in the critical paths of all requests.";
    {
        // A segment that always ends after the response has no slack.
        let has_slack = row.occurrences > row.after_answer_occurrences;
    }
    segment: Segment, "segment" = &row.segment;
    share_of_time: Share, "of all time" = row.share_of_time;
    wait_share_of_time: Share, "of it waiting" = row.wait_share_of_time;
    critical_share: Share, "critical in" = row.critical_share;
    duration_p50_ns: DurationNs, "p50" = row.duration.p50_ns;
    duration_p99_ns: DurationNs, "p99" = row.duration.p99_ns;
    slack_p50_ns: DurationNs, "" = has_slack.then_some(row.slack.p50_ns as f64);
    example: Request, "longest in" = row.example.as_deref();
    mean_share: Share, "" = row.mean_share;
    mean_wait_share: Share, "" = row.mean_wait_share;
}

rows! {
    CategoryShare as row, "categories":
        "A category of segments: its part of the critical paths of all requests, and what its segments sum up to.";
    {
        let per_request = |sum_ns: u64| Cell::from(row.requests.mean(sum_ns as f64));
    }
    category: Text, "category" = &*row.category;
    share_of_time: Share, "of all time" = row.share_of_time;
    critical_ns: DurationNs, "critical" = per_request(row.critical_ns);
    critical_wait_ns: DurationNs, "of it waiting" = per_request(row.critical_wait_ns);
    summed_delay_ns: DurationNs, "summed delay" = per_request(row.summed_delay_ns);
    mean_share: Share, "" = row.mean_share;
}

/// An operation in requests of one root operation.
struct OperationOf<'a>(&'a str, &'a OperationShare);

rows! {
    OperationOf<'_> as row, "critical_operations":
        "An operation's part in the critical paths of the requests of one root operation.";
    operation: Text, "operation" =
        Cell::Linked(row.1.operation.clone(), format!("/what-if?operation={}&scale=0.5", path_segment(&row.1.operation)));
    share_of_time: Share, "of all time" = row.1.share_of_time;
    mean_share: Share, "mean share of a request" = row.1.mean_share;
    root: Text, "" = row.0;
}

impl Report for Aggregate {
    fn notes(&self) -> &Notes {
        &self.notes
    }

    fn show(&self, doc: &mut Doc) {
        let without_length = match self.traces_without_length {
            0 => String::new(),
            count => format!(" ({count} more in which no time passed are left out)"),
        };
        doc.heading(format!(
            "{}{without_length}; {}",
            self.requests_text, self.latency_text
        ));
        doc.sentences(self.headlines());
        show_roots(&self.roots, doc);
        self.show_figures(doc);
        self.show_shares(doc);
        self.show_segments(doc);
    }
}

impl Aggregate {
    fn is_mixed(&self) -> bool {
        self.operations_by_root.len() > 1
    }

    /// Returns sentences about circumstances that make the figures misleading, then about the
    /// operations that requests wait for most.
    pub fn headlines(&self) -> impl Iterator<Item = String> {
        let waits = self
            .bottlenecks
            .iter()
            .map(|bottleneck| format!("Requests wait most for {}.", bottleneck_text(bottleneck)));
        self.circumstances.iter().cloned().chain(waits)
    }

    /// Shows the tables of operations and categories as pictures.
    pub fn show_figures(&self, doc: &mut Doc) {
        let bar = |operation: &OperationShare| Bar {
            name: operation.operation.clone(),
            share: operation.share_of_time,
            beside: format!("({})", duration(operation.mean_ns)),
        };
        let bars = self.operations.iter().take(OPERATIONS_MAX).map(bar);
        let bars: Vec<Bar> = bars.collect();
        if bars.is_empty() {
            return;
        }
        let list: Vec<String> = bars
            .iter()
            .map(|bar| format!("{} {}", bar.name, percent(bar.share)))
            .collect();
        let title =
            "Critical path, as part of the time of all requests together (mean time per request)";
        doc.figure(Figure::new(title, list.join(", "), Chart::Bars(bars)).on_pages_only());
        let stacks = vec![
            self.stack("Critical path", |category| category.critical_ns),
            self.stack("Summed delay", |category| category.summed_delay_ns),
        ];
        let axis = Axis::new("mean time per request", Kind::DurationNs);
        let title = "Critical path and summed delay by category";
        let alternative = "Two stacked bars; the table of categories has their figures.";
        doc.figure(Figure::new(title, alternative, Chart::Stacks { axis, stacks }).on_pages_only());
    }

    /// Builds one part for each category. If there are more than [`PARTS_MAX`], the last part is
    /// the sum of the rest.
    fn stack(&self, name: &str, sum_ns: fn(&CategoryShare) -> u64) -> Stack {
        let mut parts: Vec<StackPart> = Vec::new();
        for (place, category) in self.categories.iter().enumerate() {
            let length = category.requests.mean(sum_ns(category) as f64);
            if let Some(others) = parts.last_mut().filter(|_| place >= PARTS_MAX) {
                others.name = "others".to_owned();
                others.length += length;
            } else {
                let mut names = self.category_names.iter();
                let known = names.position(|name| *name == category.category);
                let (name, style) = (category.category.clone(), known.unwrap_or_default());
                parts.push(StackPart {
                    name,
                    length,
                    style,
                });
            }
        }
        Stack {
            name: name.to_owned(),
            parts,
        }
    }

    /// Shows shares by category, and by operation.
    pub fn show_shares(&self, doc: &mut Doc) {
        let of_all = if self.is_mixed() { " of all kinds" } else { "" };
        doc.table(
            format!("By category, for all requests{of_all}"),
            &self.categories,
            usize::MAX,
        );
        // Shares of different root operations do not fit in one table: each shown one has its own.
        for of in self.operations_by_root.iter().take(ROOTS_SHOWN) {
            let of_which = if self.is_mixed() {
                format!(", of {}", of.root)
            } else {
                String::new()
            };
            let title = format!("Critical path{of_which}, by operation");
            let rows: Vec<OperationOf<'_>> = of
                .operations
                .iter()
                .map(|share| OperationOf(&of.root, share))
                .collect();
            doc.table(title, &rows, self.top);
        }
        let more = self.operations_by_root.len().saturating_sub(ROOTS_SHOWN);
        if more > 0 {
            doc.sentence(format!("Of {more} more kinds of requests: --root NAME"));
        }
    }

    /// Shows the segments; requests wait most for the first.
    pub fn show_segments(&self, doc: &mut Doc) {
        let of_all = if self.is_mixed() {
            ", of requests of all kinds; --root NAME selects one"
        } else {
            ""
        };
        let mut segments: Vec<&SegmentShare> = self.segments.iter().collect();
        segments.sort_by(|a, b| b.share_of_time.total_cmp(&a.share_of_time));
        doc.table(format!("By segment{of_all}"), segments, self.top);
    }
}
