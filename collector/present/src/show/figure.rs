//! Pictures as data: what is to be seen. How it is drawn is the renderer's.

use super::table::Kind;

/// A picture under its title.
#[derive(Clone, Debug)]
pub struct Figure {
    /// What stands above it.
    pub title: String,
    /// What it shows, for those who cannot see it.
    pub alternative: String,
    /// What is to be seen.
    pub drawing: Drawing,
    /// Whether terminals show it too, as text. Not, where that would only repeat a table beside it.
    pub is_for_terminals: bool,
}

/// What is to be seen in a picture.
#[derive(Clone, Debug)]
pub enum Drawing {
    /// Numbers.
    Chart(Chart),
    /// What ran when.
    Timeline(Timeline),
    /// What is related to what.
    Graph(Graph),
}

impl Figure {
    /// A picture that pages and terminals show.
    #[must_use]
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

    /// The same for pages only.
    #[must_use]
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

/// Numbers.
#[derive(Clone, Debug)]
pub enum Chart {
    /// Lines over one plane, from (0, 0).
    Lines {
        x: Axis,
        y: Axis,
        lines: Vec<Line>,
        legend: LegendPlace,
    },
    /// Horizontal bars, the first at the top; their lengths are shares.
    Bars(Vec<Bar>),
    /// A histogram: bars that stand beside each other, without gaps, from the first part of a scale to the last. Bars that have something
    /// beside them are marked with it.
    Columns(Vec<Bar>),
    /// Horizontal bars of several parts each, over one axis.
    Stacks { axis: Axis, stacks: Vec<Stack> },
}

/// What the numbers along an edge mean.
#[derive(Clone, Debug)]
pub struct Axis {
    /// What stands beside it.
    pub title: String,
    /// What its numbers are.
    pub kind: Kind,
    /// Whether the distance of a number is its logarithm; of 1 more than it, so that 0 is seen.
    pub is_logarithmic: bool,
}

impl Axis {
    /// A linear one.
    #[must_use]
    pub fn new(title: &str, kind: Kind) -> Self {
        Self {
            title: title.to_owned(),
            kind,
            is_logarithmic: false,
        }
    }

    /// Where a number lies along it.
    #[must_use]
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
    /// Its colour and dashes: those of the series of this number.
    pub style: usize,
    /// Its points, in order of x.
    pub points: Vec<(f64, f64)>,
}

/// Where in a chart of lines their names stand, at the right edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LegendPlace {
    Upper,
    Middle,
    Lower,
}

/// A bar of a chart.
#[derive(Clone, Debug)]
pub struct Bar {
    pub name: String,
    pub share: f64,
    /// What stands behind it, after its share.
    pub beside: String,
}

/// A bar of several parts.
#[derive(Clone, Debug)]
pub struct Stack {
    pub name: String,
    /// From left to right.
    pub parts: Vec<StackPart>,
}

/// A part of such a bar.
#[derive(Clone, Debug)]
pub struct StackPart {
    pub name: String,
    pub length: f64,
    /// Its colour: that of the series of this number.
    pub style: usize,
}

impl Stack {
    /// How long it is, all together.
    #[must_use]
    pub fn length(&self) -> f64 {
        self.parts.iter().map(|part| part.length).sum()
    }
}

/// What ran when in one request. Times are since its begin.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    pub length_ns: u64,
    /// Moments with a name.
    pub marks: Vec<(u64, String)>,
    /// From top to bottom.
    pub rows: Vec<TimelineRow>,
}

/// What an interval of a timeline is drawn as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    Critical,
    Waited,
    Beside,
    Slack,
}

impl Timeline {
    /// What is drawn, and what it means.
    #[must_use]
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
                "beside it",
            ),
            (
                any(|one| !one.is_critical && one.slack_ns > 0),
                Ink::Slack,
                "slack",
            ),
        ];
        kinds
            .into_iter()
            .filter(|(is_used, ..)| *is_used)
            .map(|(_, ink, what)| (ink, what))
            .collect()
    }
}

/// One row of a timeline.
#[derive(Clone, Debug)]
pub struct TimelineRow {
    pub name: String,
    /// How many others it is inside.
    pub depth: usize,
    /// What is in it.
    pub intervals: Vec<Interval>,
}

/// Some time in which something ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interval {
    pub from_ns: u64,
    pub to_ns: u64,
    /// Whether it is on the critical path.
    pub is_critical: bool,
    /// How long was waited before it; shown on the critical path.
    pub waited_ns: u64,
    /// How much longer it could have taken; shown beside the critical path.
    pub slack_ns: u64,
}

/// What is related to what.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    pub nodes: Vec<GraphNode>,
    pub edges: Vec<GraphEdge>,
}

/// A box.
#[derive(Clone, Debug, Default)]
pub struct GraphNode {
    /// What it is called where there is one line for it.
    pub name: String,
    /// What stands in its box, a line each.
    pub lines: Vec<String>,
    /// How much weight it has, 0 to 1.
    pub share: f64,
    /// The colour of its edge: that of the series of this number.
    pub style: usize,
    /// On a site, the page that it leads to; our own program wrote it.
    pub path: Option<String>,
}

/// An arrow.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GraphEdge {
    /// From the node of this place
    pub from: usize,
    /// to the one of that.
    pub to: usize,
    /// How much weight it has, 0 to 1.
    pub share: f64,
    /// Whether it is what the picture is about.
    pub is_marked: bool,
    /// Lines beside it, where there is room.
    pub label: Vec<String>,
    /// Text shown where one points at it; may be empty.
    pub note: String,
}
