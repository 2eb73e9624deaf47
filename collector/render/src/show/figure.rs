//! Pictures as data; the renderer decides how to draw them.

use super::table::Kind;

/// A picture under its title.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Text above the picture.
    pub title: String,
    /// Description for those who cannot see the picture.
    pub alternative: String,
    /// Content of the picture.
    pub drawing: Drawing,
    /// True if terminals show the picture as text; pages show it in any case.
    pub is_for_terminals: bool,
}

/// Content of a picture.
#[derive(Clone, Debug)]
pub enum Drawing {
    /// A chart of numbers.
    Chart(Chart),
    /// A timeline of intervals.
    Timeline(Timeline),
    /// A graph of nodes and edges.
    Graph(Graph),
}

impl Figure {
    /// Creates a picture for pages and terminals.
    pub fn new(
        title: impl Into<String>,
        alternative: impl Into<String>,
        drawing: impl Into<Drawing>,
    ) -> Self {
        let (title, alternative) = (title.into(), alternative.into());
        Self {
            title,
            alternative,
            drawing: drawing.into(),
            is_for_terminals: true,
        }
    }

    /// Restricts the picture to pages.
    pub fn on_pages_only(self) -> Self {
        Self {
            is_for_terminals: false,
            ..self
        }
    }
}

impl From<Chart> for Drawing {
    fn from(chart: Chart) -> Self {
        Self::Chart(chart)
    }
}

impl From<Timeline> for Drawing {
    fn from(timeline: Timeline) -> Self {
        Self::Timeline(timeline)
    }
}

impl From<Graph> for Drawing {
    fn from(graph: Graph) -> Self {
        Self::Graph(graph)
    }
}

/// A chart of numbers.
#[derive(Clone, Debug)]
pub enum Chart {
    /// Lines over two axes that begin at 0.
    Lines { x: Axis, y: Axis, lines: Vec<Line> },
    /// Horizontal bars, the first at the top; their lengths are shares.
    Bars(Vec<Bar>),
    /// A histogram: adjacent bars, from the first part of a scale to the last. On pages, the bars
    /// are vertical, and the `beside` of a bar is above it.
    Columns(Vec<Bar>),
    /// Horizontal bars of several parts each, over one axis.
    Stacks { axis: Axis, stacks: Vec<Stack> },
}

/// One axis of a chart.
#[derive(Clone, Debug)]
pub struct Axis {
    /// Text along the axis.
    pub title: String,
    /// Kind of the numbers along the axis.
    pub kind: Kind,
    /// True if the position of a number n is log10(n + 1), so that 0 is visible.
    pub is_logarithmic: bool,
}

impl Axis {
    /// Creates a linear axis.
    pub fn new(title: &str, kind: Kind) -> Self {
        Self {
            title: title.to_owned(),
            kind,
            is_logarithmic: false,
        }
    }

    /// Returns the position of a number on the axis.
    pub fn place(&self, number: f64) -> f64 {
        if self.is_logarithmic {
            number.ln_1p() / std::f64::consts::LN_10
        } else {
            number
        }
    }
}

/// A line of a chart.
#[derive(Clone, Debug)]
pub struct Line {
    pub name: String,
    /// Index of the series, which determines the colour and dashes.
    pub style: usize,
    /// Points in order of x.
    pub points: Vec<(f64, f64)>,
}

/// A bar of a chart.
#[derive(Clone, Debug)]
pub struct Bar {
    pub name: String,
    pub share: f64,
    /// Additional text, such as a duration, or the mark of a bar in a histogram.
    pub beside: String,
}

/// A horizontal bar of several parts.
#[derive(Clone, Debug)]
pub struct Stack {
    pub name: String,
    /// Parts from left to right.
    pub parts: Vec<StackPart>,
}

/// A part of a stacked bar.
#[derive(Clone, Debug)]
pub struct StackPart {
    pub name: String,
    pub length: f64,
    /// Index of the series, which determines the colour.
    pub style: usize,
}

impl Stack {
    /// Returns the sum of the parts' lengths.
    pub fn length(&self) -> f64 {
        self.parts.iter().map(|part| part.length).sum()
    }
}

/// Intervals over time, such as those of one request. Times count from the start of the timeline,
/// in ns.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    pub length_ns: u64,
    /// Marked moments, in ns, with their names.
    pub marks: Vec<(u64, String)>,
    /// Rows from top to bottom.
    pub rows: Vec<TimelineRow>,
}

/// Style of an interval in a timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    Critical,
    Waited,
    Beside,
    Slack,
}

impl Timeline {
    /// Returns the styles in use, with their meanings. Omits the style of intervals off critical
    /// paths if no interval is on one.
    pub fn legend(&self) -> Vec<(Ink, &'static str)> {
        let any =
            |is: fn(&Interval) -> bool| self.rows.iter().flat_map(|row| &row.intervals).any(is);
        let is_marked = any(|one| one.is_critical);
        let kinds = [
            (is_marked, Ink::Critical, "critical path"),
            (
                any(|one| one.is_critical && one.waited_ns > 0),
                Ink::Waited,
                "waited before it",
            ),
            (
                is_marked && any(|one| !one.is_critical),
                Ink::Beside,
                "not on it",
            ),
            (
                any(|one| !one.is_critical && one.slack_ns > 0),
                Ink::Slack,
                "slack",
            ),
        ];
        let used = kinds.into_iter().filter(|(is_used, ..)| *is_used);
        used.map(|(_, ink, what)| (ink, what)).collect()
    }
}

/// One row of a timeline.
#[derive(Clone, Debug)]
pub struct TimelineRow {
    pub name: String,
    /// Number of enclosing tasks or spans, which need not have rows.
    pub depth: usize,
    /// Intervals in the row.
    pub intervals: Vec<Interval>,
}

/// Interval in which a task, an operation or a service ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interval {
    pub from_ns: u64,
    pub to_ns: u64,
    /// True if the interval is on the critical path.
    pub is_critical: bool,
    /// Waiting time before the interval, in ns; shown only on the critical path.
    pub waited_ns: u64,
    /// Time by which the interval could have been longer without making the request longer, in ns;
    /// shown only off the critical path.
    pub slack_ns: u64,
}

/// Nodes, and the edges between them.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    pub nodes: Vec<GraphNode>,
    pub edges: Vec<GraphEdge>,
}

/// A node of a graph, drawn as a box.
#[derive(Clone, Debug, Default)]
pub struct GraphNode {
    /// Name of the node in one line.
    pub name: String,
    /// Lines of text in the box, which shows the first three.
    pub lines: Vec<String>,
    /// Weight, 0 to 1.
    pub share: f64,
    /// Index of the series, which determines the colour of the box's edge.
    pub style: usize,
    /// Path of the linked page on a site, written by this program.
    pub path: Option<String>,
}

/// An edge of a graph, drawn as an arrow.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GraphEdge {
    /// Index of the node where the edge starts.
    pub from: usize,
    /// Index of the node where the edge ends.
    pub to: usize,
    /// Weight, 0 to 1.
    pub share: f64,
    /// True if the picture emphasises the edge.
    pub is_marked: bool,
    /// Lines next to the edge, if there is room.
    pub label: Vec<String>,
    /// Tooltip; may be empty.
    pub note: String,
}
