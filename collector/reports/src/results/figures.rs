//! Pictures shared by several subcommands.

use stroboscope_analysis::breakdown::Breakdown;
use stroboscope_analysis::convergence::ConvergencePoint;
use stroboscope_analysis::critical_path::TracePath;
use stroboscope_analysis::distribution::Distribution;
use stroboscope_analysis::label::{Labels, SegmentId, SegmentLabel};
use stroboscope_analysis::model::Relations;
use stroboscope_analysis::task_path::JOINT;

use stroboscope_query::CausalGraph;
use stroboscope_render::findings::{
    TASKS_MAX, changes, convergence, duration_cdf, request_timeline, share_cdfs,
};
use stroboscope_render::humanise::{counted, duration, percent};
use stroboscope_render::show::{Figure, Graph, GraphEdge, GraphNode, SegmentName};

use crate::model_focus::focus_path;

/// Maximum number of segments in a graph, for readability.
const SEGMENTS_MAX: usize = 80;

/// Draws a distribution of requests' latency. Terminals show a table of latency instead.
pub fn latency_figure(latency: &Distribution) -> Figure {
    let p50 = duration(latency.percentiles().p50_ns as f64);
    let alternative = format!("Half of the requests take up to {p50}.");
    Figure::new(
        "Latency of requests, cumulative",
        alternative,
        duration_cdf("latency", latency),
    )
    .on_pages_only()
}

/// Draws the distribution of the slack of requests' last server segments. Except in `report`, a
/// table shows it, too.
pub fn slack_figure(slack: &Distribution) -> Figure {
    let title = "Slack of a request's last server segment, cumulative";
    let p50 = duration(slack.percentiles().p50_ns as f64);
    Figure::new(
        title,
        format!("Half of the requests have up to {p50}."),
        duration_cdf("slack", slack),
    )
    .on_pages_only()
}

/// Draws the distribution of each category's share of the critical path. `names` are the names of
/// the categories, in order of their numbers. Except in `report`, a table shows the distributions,
/// too.
pub fn shares_figure(names: &[String], breakdown: &Breakdown) -> Figure {
    let title = "Categories' shares of the critical path, cumulative";
    Figure::new(
        title,
        format!("One line each for {}.", names.join(", ")),
        share_cdfs(names, breakdown),
    )
    .on_pages_only()
}

/// Draws the convergence of the model. Returns an empty list for fewer than two points. Except in
/// `report`, a table has the same numbers.
pub fn convergence_figures(points: &[ConvergencePoint]) -> Vec<Figure> {
    let [_, .., last] = points else {
        return Vec::new();
    };
    let at_the_end = format!(
        "{} and {} at the end.",
        last.happens_before, last.mutual_exclusion
    );
    let figures = [
        Figure::new(
            "Relations of the model as requests came in",
            at_the_end,
            convergence(points),
        ),
        Figure::new(
            "New and removed relations as requests came in",
            "They become fewer.",
            changes(points),
        ),
    ];
    figures.map(Figure::on_pages_only).into()
}

/// Draws the timeline of one request.
pub fn request_figure(title: &str, path: &TracePath, labels: &Labels) -> Figure {
    let (timeline, left_out) = request_timeline(path, labels);
    let critical = path.critical().count();
    let more = match left_out {
        0 => String::new(),
        more => format!("; {more} more tasks than the {TASKS_MAX} shown had less part in it"),
    };
    Figure::new(
        format!("{title}{more}"),
        format!(
            "{} on its critical path.",
            counted(critical as u64, "segment")
        ),
        timeline,
    )
}

/// Parts of a graph of a model.
pub struct ModelGraph<'a> {
    pub labels: &'a Labels,
    pub relations: &'a Relations,
    /// Returns the name of a segment.
    pub name: &'a dyn Fn(SegmentId) -> SegmentName,
    /// Returns the colour of a segment, as the number of a series.
    pub style: &'a dyn Fn(SegmentId) -> usize,
    /// Number of requests from which the model was inferred.
    pub traces: u64,
}

impl ModelGraph<'_> {
    /// Draws the segments with the largest shares, with the happens-before relations among them
    /// that do not follow from others. `which` describes the shares. Returns `None` if there are no
    /// segments. Terminals show a table instead.
    pub fn figure(&self, mut segments: Vec<(SegmentId, f64)>, which: &str) -> Option<Figure> {
        // A stable sort keeps equal segments in order of their numbers.
        segments.sort_by(|a, b| b.1.total_cmp(&a.1));
        let others = segments.len().saturating_sub(SEGMENTS_MAX);
        segments.truncate(SEGMENTS_MAX);
        let shown = segments.iter().map(|(id, _)| *id).collect();
        let node = |(id, share): &(SegmentId, f64)| GraphNode {
            name: (self.name)(*id).short(),
            lines: self
                .labels
                .get(*id)
                .map_or_else(Vec::new, |label| box_lines(label, *share)),
            share: *share,
            style: (self.style)(*id),
            path: self
                .labels
                .get(*id)
                .map(|label| focus_path(&label.operation())),
        };
        let place = |id: SegmentId| segments.iter().position(|(known, _)| *known == id);
        let edge = |(a, b): &(SegmentId, SegmentId)| {
            let support = self
                .relations
                .happens_before_support(*a, *b)
                .unwrap_or_default();
            let share = support.cooccurrences as f64 / self.traces.max(1) as f64;
            Some(GraphEdge {
                from: place(*a)?,
                to: place(*b)?,
                share,
                note: format!(
                    "{} before {}: {} with both",
                    (self.name)(*a).short(),
                    (self.name)(*b).short(),
                    counted(support.cooccurrences, "request")
                ),
                ..GraphEdge::default()
            })
        };
        let graph = Graph {
            nodes: segments.iter().map(node).collect(),
            edges: CausalGraph::among(self.relations, &shown)
                .edges
                .iter()
                .filter_map(edge)
                .collect(),
        };
        let more = match others {
            0 => String::new(),
            more => format!("; {more} more are not drawn"),
        };
        let title = format!(
            "The {} {which}{more}",
            counted(graph.nodes.len() as u64, "segment")
        );
        let alternative = format!(
            "{} in all.",
            counted(
                self.relations.all_happens_before().len() as u64,
                "happens-before relation"
            )
        );
        (!graph.nodes.is_empty()).then(|| Figure::new(title, alternative, graph).on_pages_only())
    }
}

/// Returns the lines of a segment's box: component, boundaries, and share. The last line also names
/// the parent if there is one.
fn box_lines(segment: &SegmentLabel, share: f64) -> Vec<String> {
    let task = segment.task.rsplit_once(JOINT);
    let (outer, component) = task.unwrap_or(("", &segment.task));
    let place = match outer.rsplit(JOINT).next() {
        Some(parent) if !parent.is_empty() => format!("{}, in {parent}", percent(share)),
        _ => percent(share),
    };
    vec![
        component.to_owned(),
        format!("{} … {}", segment.start, segment.end),
        place,
    ]
}
