//! Graphs: boxes in layers, and arrows between them.

use super::layered::{Px, lay_out};
use super::palette::box_class;
use super::svg::{Anchor, Picture, Sketch, label};
use crate::humanise::percent;
use crate::show::{Graph, GraphEdge, GraphNode};

const LINE_CHARS: usize = 34;
/// Lines in a box.
const LINES_MAX: usize = 3;
const LINE_PX: f64 = 16.0;
const BOX_PX: Px = (280.0, 60.0);
const MARGIN_PX: f64 = 12.0;
const ARROW_PX: f64 = 8.0;

/// Draws a graph.
pub(super) fn draw(graph: &Graph) -> Picture {
    let edges: Vec<(usize, usize)> = graph
        .edges
        .iter()
        .map(|edge| (edge.from, edge.to))
        .collect();
    let layout = lay_out(graph.nodes.len(), &edges, BOX_PX);
    let inside = |(x, y): Px| (x + MARGIN_PX, y + MARGIN_PX);
    let mut sketch = Sketch::default();
    // Marked edges lie above the others.
    for is_marked in [false, true] {
        let drawn = graph.edges.iter().zip(&layout.routes);
        for (edge, route) in drawn.filter(|(edge, _)| edge.is_marked == is_marked) {
            let route: Vec<Px> = route.iter().copied().map(inside).collect();
            arrow(&mut sketch, &route, edge);
        }
    }
    for (number, (node, corner)) in graph.nodes.iter().zip(layout.corners).enumerate() {
        node_box(&mut sketch, inside(corner), number, node);
    }
    let (width, height) = inside(layout.size);
    sketch.into_picture(width + MARGIN_PX, height + MARGIN_PX)
}

fn node_box(sketch: &mut Sketch, corner: Px, number: usize, node: &GraphNode) {
    let (x, y) = corner;
    let (name, path) = (
        format!("{}, {}", node.name, percent(node.share)),
        node.path.as_deref(),
    );
    sketch.open_node(number, &name, path);
    sketch.rect(box_class(node.style), (x, y), BOX_PX);
    // How much of the box is filled along its lower edge is its share.
    let filled = (BOX_PX.0 * node.share.clamp(0.0, 1.0)).max(1.0);
    sketch.rect("share", (x, y + BOX_PX.1 - 6.0), (filled, 6.0));
    for (line, place) in node.lines.iter().take(LINES_MAX).zip(0..) {
        let class = if place == 0 { "value" } else { "label" };
        let at = (x + 8.0, y + 16.0 + f64::from(place) * LINE_PX);
        sketch.text(class, at, Anchor::Start, &label(line, LINE_CHARS));
    }
    sketch.close_node(path);
}

/// Draws an arrow along a route. Edges in half of all requests are thicker than rare ones.
fn arrow(sketch: &mut Sketch, route: &[Px], edge: &GraphEdge) {
    let [.., before, end] = *route else {
        return;
    };
    let class = match (edge.is_marked, edge.share < 0.5) {
        (true, _) => "edge marked",
        (false, true) => "edge rare",
        (false, false) => "edge",
    };
    let (dx, dy) = (end.0 - before.0, end.1 - before.1);
    let length = dx.hypot(dy).max(f64::MIN_POSITIVE);
    let (dx, dy) = (dx / length * ARROW_PX, dy / length * ARROW_PX);
    let back = (end.0 - dx, end.1 - dy);
    let side = |sign: f64| (back.0 - sign * dy * 0.45, back.1 + sign * dx * 0.45);
    let tip = [side(1.0), end, side(-1.0)];
    sketch.edge(class, (edge.from, edge.to), route, tip, &edge.note);
}
