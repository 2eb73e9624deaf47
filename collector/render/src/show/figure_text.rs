//! Draws pictures in characters, for terminals.

use super::figure::{Bar, Chart, Drawing, Graph, Ink, Interval, Line, Stack, Timeline};
use super::number::real;
use super::scrub::scrubbed;
use super::table::Kind;
use super::wrap;
use crate::humanise::{duration, percent};

/// Width of pictures if the width of the output is unknown, in characters.
const WIDTH: usize = 100;
/// Minimum width of the drawing next to the names, in characters.
const DRAWN_MIN: usize = 10;
/// Eighths of a character, filled from the left; those of `LEVELS` are filled from below.
const EIGHTHS: [char; 9] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];
const LEVELS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Fill characters of the parts of a stacked bar, by their style.
const FILLS: [char; 7] = ['█', '▒', '░', '#', '=', '+', '.'];

const CRITICAL: char = '█';
const BESIDE: char = '▒';
const WAITED: char = '─';
const SLACK: char = '·';
const MARK: char = '│';

/// Draws a picture as lines of text. `None` for `width` uses [`WIDTH`].
pub(super) fn lines(drawing: &Drawing, width: Option<usize>) -> Vec<String> {
    let width = width.unwrap_or(WIDTH);
    match drawing {
        Drawing::Chart(Chart::Lines { x, y, lines }) => {
            let end = last_x(lines);
            let mut said = vec![format!(
                "{} to {}, by {} up to {}",
                scrubbed(&y.title),
                axis_text(highest(lines, &|y| y), y.kind),
                scrubbed(&x.title),
                axis_text(end, x.kind)
            )];
            said.extend(curves(lines, end, &|number| y.place(number), width));
            said
        }
        Drawing::Chart(Chart::Bars(bars) | Chart::Columns(bars)) => bar_lines(bars, width),
        Drawing::Chart(Chart::Stacks { axis, stacks }) => stack_lines(stacks, axis.kind, width),
        Drawing::Timeline(timeline) => timeline_lines(timeline, width),
        Drawing::Graph(graph) => graph_lines(graph),
    }
}

/// Formats a number of an axis.
pub fn axis_text(number: f64, kind: Kind) -> String {
    match kind {
        Kind::Share => format!("{:.0}%", number * 100.0),
        Kind::Count | Kind::Number | Kind::Mean => count_text(number),
        kind => real(number, kind),
    }
}

/// Formats a number without a unit: with one decimal or none, from 10,000 on in thousands (`k`) or
/// millions (`M`).
fn count_text(count: f64) -> String {
    match count.abs() {
        small if small < 9.5 && small.fract() > 0.05 => format!("{count:.1}"),
        small if small < 9_999.5 => format!("{count:.0}"),
        thousands if thousands < 999.5e3 => format!("{:.0}k", count / 1e3),
        _ => format!("{:.1}M", count / 1e6),
    }
}

/// Layout with names in a column of their own, which takes up to half of the width.
struct NameColumn {
    width: usize,
    /// Columns for the drawing, at least [`DRAWN_MIN`].
    drawn: usize,
}

impl NameColumn {
    /// Creates the layout for these names, with `besides` columns for other text.
    fn of<'a>(names: impl Iterator<Item = &'a str>, width: usize, besides: usize) -> Self {
        let longest = names.map(|name| wrap::columns(&scrubbed(name))).max();
        let name_width = longest.unwrap_or(0).min(width / 2);
        let drawn = width.saturating_sub(name_width + 2 + besides);
        Self {
            width: name_width,
            drawn: drawn.max(DRAWN_MIN),
        }
    }

    /// Returns the lines of a name, with the drawing next to the first line.
    fn lines(&self, name: &str, drawn: &str) -> Vec<String> {
        let mut lines = wrap::cell(&scrubbed(name), self.width);
        if let Some(first) = lines.first_mut() {
            let line = format!("{}  {drawn}", wrap::padded(first, self.width));
            line.trim_end().clone_into(first);
        }
        lines
    }
}

fn highest(lines: &[Line], place: &dyn Fn(f64) -> f64) -> f64 {
    let points = lines.iter().flat_map(|line| &line.points);
    points.map(|(_, y)| place(*y)).fold(0.0, f64::max)
}

fn last_x(lines: &[Line]) -> f64 {
    let ends = lines.iter().filter_map(|line| line.points.last());
    ends.map(|(x, _)| *x).fold(0.0, f64::max)
}

/// Draws each line of a chart as one row of characters whose heights follow its values.
fn curves(lines: &[Line], end: f64, place: &dyn Fn(f64) -> f64, width: usize) -> Vec<String> {
    let top = highest(lines, place).max(f64::MIN_POSITIVE);
    let names = NameColumn::of(lines.iter().map(|line| &*line.name), width, 0);
    let columns = names.drawn;
    let level = |line: &Line, column: usize| {
        let x = end * (column + 1) as f64 / columns as f64;
        let before = line.points.iter().take_while(|(at, _)| *at <= x);
        let y = before.last().map_or(0.0, |(_, y)| place(*y));
        LEVELS[(y / top * 8.0).round().clamp(0.0, 8.0) as usize]
    };
    let drawn = lines.iter().flat_map(|line| {
        let curve: String = (0..columns).map(|column| level(line, column)).collect();
        names.lines(&line.name, &curve)
    });
    drawn.collect()
}

fn bar_lines(bars: &[Bar], width: usize) -> Vec<String> {
    let beside: Vec<String> = bars
        .iter()
        .map(|bar| scrubbed(format!("{} {}", percent(bar.share), bar.beside).trim_end()))
        .collect();
    let widths = beside.iter().map(|beside| beside.chars().count() + 1);
    let room = widths.max().unwrap_or(0);
    let names = NameColumn::of(bars.iter().map(|bar| &*bar.name), width, room);
    let columns = names.drawn;
    let shares = bars.iter().map(|bar| bar.share);
    let longest = shares.fold(f64::MIN_POSITIVE, f64::max);
    let drawn = bars.iter().zip(beside).flat_map(|(bar, beside)| {
        let eighths = (bar.share.max(0.0) / longest * 8.0 * columns as f64).round() as usize;
        let part = EIGHTHS[eighths % 8].to_string();
        let whole = CRITICAL.to_string().repeat(eighths / 8);
        names.lines(&bar.name, &format!("{whole}{} {beside}", part.trim_end()))
    });
    drawn.collect()
}

fn stack_lines(stacks: &[Stack], kind: Kind, width: usize) -> Vec<String> {
    let totals = stacks.iter().map(|stack| axis_text(stack.length(), kind));
    let totals: Vec<String> = totals.collect();
    let widths = totals.iter().map(|total| total.chars().count() + 1);
    let room = widths.max().unwrap_or(0);
    let names = NameColumn::of(stacks.iter().map(|stack| &*stack.name), width, room);
    let columns = names.drawn;
    let lengths = stacks.iter().map(Stack::length);
    let longest = lengths.fold(f64::MIN_POSITIVE, f64::max);
    let fill = |style: usize| FILLS[style % FILLS.len()];
    let mut said: Vec<String> = Vec::new();
    for (stack, total) in stacks.iter().zip(totals) {
        let mut bar = String::new();
        let (mut sum, mut drawn) = (0.0, 0);
        for part in &stack.parts {
            sum += part.length;
            // The end of a part is rounded, not its length, because rounded lengths do not add up.
            let end = (sum / longest * columns as f64).round() as usize;
            bar.extend(std::iter::repeat_n(
                fill(part.style),
                end.saturating_sub(drawn),
            ));
            drawn = end.max(drawn);
        }
        said.extend(names.lines(&stack.name, &format!("{bar} {total}")));
    }
    let legend = stacks.first().map_or(&[][..], |stack| &stack.parts);
    let legend: Vec<String> = legend
        .iter()
        .map(|part| format!("{} {}", fill(part.style), scrubbed(&part.name)))
        .collect();
    said.push(legend.join("  "));
    said
}

fn timeline_lines(timeline: &Timeline, width: usize) -> Vec<String> {
    let indented: Vec<String> = timeline
        .rows
        .iter()
        .map(|row| format!("{}{}", "  ".repeat(row.depth), row.name))
        .collect();
    let names = NameColumn::of(indented.iter().map(|name| &**name), width, 0);
    let columns = names.drawn;
    let length_ns = timeline.length_ns.max(1) as f64;
    let column = |ns: u64| ((ns as f64 / length_ns * columns as f64) as usize).min(columns);
    // Each stroke fills at least one character, because a short one would be invisible otherwise.
    let cells = |from_ns: u64, to_ns: u64| {
        let from = column(from_ns).min(columns - 1);
        from..column(to_ns).max(from + 1)
    };
    let row = |intervals: &[Interval]| {
        let mut row = vec![' '; columns];
        timeline
            .marks
            .iter()
            .for_each(|(at_ns, _)| row[column(*at_ns).min(columns - 1)] = MARK);
        // Later strokes cover earlier ones, so critical intervals are always visible.
        let mut draw = |from_ns: u64, to_ns: u64, with: char| row[cells(from_ns, to_ns)].fill(with);
        for interval in intervals
            .iter()
            .filter(|interval| !interval.is_critical && interval.slack_ns > 0)
        {
            draw(
                interval.to_ns,
                interval.to_ns.saturating_add(interval.slack_ns),
                SLACK,
            );
        }
        for interval in intervals
            .iter()
            .filter(|interval| interval.is_critical && interval.waited_ns > 0)
        {
            draw(
                interval.from_ns.saturating_sub(interval.waited_ns),
                interval.from_ns,
                WAITED,
            );
        }
        for (is_critical, with) in [(false, BESIDE), (true, CRITICAL)] {
            for interval in intervals
                .iter()
                .filter(|interval| interval.is_critical == is_critical)
            {
                draw(interval.from_ns, interval.to_ns, with);
            }
        }
        row.into_iter().collect::<String>()
    };
    let mut said: Vec<String> = timeline
        .rows
        .iter()
        .zip(&indented)
        .flat_map(|(of, name)| names.lines(name, &row(&of.intervals)))
        .collect();
    let mut legend = vec![format!("{} in all", duration(timeline.length_ns as f64))];
    let character = |ink| match ink {
        Ink::Critical => CRITICAL,
        Ink::Waited => WAITED,
        Ink::Beside => BESIDE,
        Ink::Slack => SLACK,
    };
    legend.extend(
        timeline
            .legend()
            .into_iter()
            .map(|(ink, what)| format!("{} {what}", character(ink))),
    );
    legend.extend(
        timeline
            .marks
            .iter()
            .map(|(_, name)| format!("{MARK} {}", scrubbed(name))),
    );
    said.push(legend.join("  "));
    said
}

/// Lists the edges, and the nodes without an edge.
fn graph_lines(graph: &Graph) -> Vec<String> {
    let name = |at: usize| {
        graph.nodes.get(at).map_or_else(String::new, |node| {
            format!("{} ({})", scrubbed(&node.name), percent(node.share))
        })
    };
    let edges = graph
        .edges
        .iter()
        .map(|edge| format!("{} → {}", name(edge.from), name(edge.to)));
    let is_alone = |at: &usize| {
        !graph
            .edges
            .iter()
            .any(|edge| edge.from == *at || edge.to == *at)
    };
    edges
        .chain((0..graph.nodes.len()).filter(is_alone).map(name))
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::figure::{Axis, GraphEdge, GraphNode, StackPart, TimelineRow};
    use super::*;

    #[track_caller]
    fn check(drawing: impl Into<Drawing>, width: usize, expected: &[&str]) {
        let said = lines(&drawing.into(), Some(width));
        assert_eq!(said, expected, "\n{}", said.join("\n"));
        assert!(said.iter().all(|line| !line.contains(char::is_control)));
    }

    proptest! {
        #[test]
        fn numbers_of_axes_take_the_next_unit(power in 3i32..10, factor in 0.99..1.01f64) {
            for kind in [Kind::Count, Kind::DurationNs] {
                let text = axis_text(10f64.powi(power) * factor, kind);
                let digits = text.chars().take_while(char::is_ascii_digit).count();
                let digits_max = match text.trim_start_matches(|c: char| !c.is_alphabetic()) {
                    "M" => usize::MAX,
                    "" => 4,
                    _ => 3,
                };
                prop_assert!(digits <= digits_max, "{text}");
            }
        }
    }

    #[test]
    fn bars_fit_the_width() {
        let bar = |name: &str, share| Bar {
            name: name.to_owned(),
            share,
            beside: "(1ms)".to_owned(),
        };
        check(
            Chart::Bars(vec![
                bar("a", 0.5),
                bar("b\u{1b}c", 0.25),
                bar("d", 0.03125),
            ]),
            33,
            &[
                "a    ████████████████ 50.0% (1ms)",
                "b\u{fffd}c  ████████ 25.0% (1ms)",
                "d    █ 3.1% (1ms)",
            ],
        );
        check(Chart::Bars(Vec::new()), 33, &[]);
    }

    #[test]
    fn parts_of_a_stack_are_told_apart() {
        let part = |name: &str, length, style| StackPart {
            name: name.to_owned(),
            length,
            style,
        };
        let stack = |name: &str, parts| Stack {
            name: name.to_owned(),
            parts,
        };
        let stacks = vec![
            stack("all", vec![part("server", 3e6, 0), part("network", 1e6, 1)]),
            stack(
                "some",
                vec![part("server", 1e6, 0), part("network", 1e6, 1)],
            ),
        ];
        check(
            Chart::Stacks {
                axis: Axis::new("time", Kind::DurationNs),
                stacks,
            },
            25,
            &[
                "all   █████████▒▒▒ 4.00ms",
                "some  ███▒▒▒ 2.00ms",
                "█ server  ▒ network",
            ],
        );
    }

    #[test]
    fn lines_are_as_high_as_they_are() {
        let line = Line {
            name: "l".to_owned(),
            style: 0,
            points: vec![(0.0, 0.0), (5.0, 0.5), (10.0, 1.0)],
        };
        let (x, y) = (
            Axis::new("requests", Kind::Count),
            Axis::new("of them", Kind::Share),
        );
        let chart = Chart::Lines {
            x,
            y,
            lines: vec![line],
        };
        check(
            chart,
            13,
            &["of them to 100%, by requests up to 10", "l      ▄▄▄▄▄█"],
        );
    }

    #[test]
    fn a_timeline_has_a_line_for_each_row() {
        let interval = |from_ns, to_ns, is_critical| Interval {
            from_ns,
            to_ns,
            is_critical,
            waited_ns: 10,
            slack_ns: 20,
        };
        let row = |name: &str, depth, intervals| TimelineRow {
            name: name.to_owned(),
            depth,
            intervals,
        };
        let timeline = Timeline {
            length_ns: 100,
            marks: vec![(90, "answer".to_owned())],
            rows: vec![
                row("a", 0, vec![interval(0, 30, true), interval(60, 80, true)]),
                row("b", 1, vec![interval(20, 60, false)]),
            ],
        };
        check(
            timeline,
            25,
            &[
                "a    ██████    ──████  │",
                "  b      ▒▒▒▒▒▒▒▒····  │",
                "100ns in all  █ critical path  ─ waited before it  ▒ not on it  · slack  │ answer",
            ],
        );
        check(Timeline::default(), 25, &["0ns in all"]);
    }

    #[test]
    fn a_graph_is_its_edges() {
        let node = |name: &str| GraphNode {
            name: name.to_owned(),
            lines: Vec::new(),
            share: 0.5,
            ..GraphNode::default()
        };
        let nodes = vec![node("a"), node("b"), node("c")];
        let graph = Graph {
            nodes,
            edges: vec![GraphEdge {
                from: 0,
                to: 2,
                share: 1.0,
                ..GraphEdge::default()
            }],
        };
        check(graph, 80, &["a (50.0%) → c (50.0%)", "b (50.0%)"]);
    }
}
