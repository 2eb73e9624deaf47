//! Graphs: boxes in layers, and arrows between them.

use super::layered::{Px, lay_out};
use super::palette::box_class;
use super::svg::{Anchor, Picture, Sketch, label};
use crate::humanise::percent;
use crate::show::{Graph, GraphEdge, GraphNode};

const LINE_CHARS: usize = 34;
const LINES_MAX: usize = 3;
const LINE_PX: f64 = 16.0;
const BOX_PX: Px = (280.0, 60.0);
const MARGIN_PX: f64 = 12.0;
const ARROW_PX: f64 = 8.0;
/// Size of the space for the label of an edge.
const LABEL_PX: Px = (180.0, 34.0);
/// Positions of a label along a curve of its edge, the best first.
const LABEL_AT: [f64; 3] = [0.5, 0.7, 0.3];

pub(super) fn draw(graph: &Graph) -> Picture {
    let edges = graph.edges.iter().map(|edge| (edge.from, edge.to));
    let edges: Vec<(usize, usize)> = edges.collect();
    let has_labels = graph.edges.iter().any(|edge| !edge.label.is_empty());
    let label_px = if has_labels { LABEL_PX } else { (0.0, 0.0) };
    let layout = lay_out(graph.nodes.len(), &edges, BOX_PX, label_px);
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
    let mut taken: Vec<(Px, Px)> = layout
        .corners
        .iter()
        .map(|corner| (inside(*corner), BOX_PX))
        .collect();
    for (edge, route) in graph.edges.iter().zip(&layout.routes) {
        let route: Vec<Px> = route.iter().copied().map(inside).collect();
        edge_label(&mut sketch, &route, &edge.label, &mut taken);
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
    sketch.rect(&box_class(node.style), (x, y), BOX_PX);
    // The filled part of the box's lower edge shows its share.
    let filled = (BOX_PX.0 * node.share.clamp(0.0, 1.0)).max(1.0);
    sketch.rect("share", (x, y + BOX_PX.1 - 6.0), (filled, 6.0));
    for (line, place) in node.lines.iter().take(LINES_MAX).zip(0..) {
        let class = if place == 0 { "value" } else { "label" };
        let at = (x + 8.0, y + 16.0 + f64::from(place) * LINE_PX);
        sketch.text(class, at, Anchor::Start, &label(line, LINE_CHARS));
    }
    sketch.close_node(path);
}

/// Writes the label of an edge on the edge, at a position where it overlaps no box and no other
/// label. Omits the label if there is no such position.
fn edge_label(sketch: &mut Sketch, route: &[Px], label: &[String], taken: &mut Vec<(Px, Px)>) {
    let (width, height) = LABEL_PX;
    let curves = route.windows(4).step_by(3);
    let places = LABEL_AT
        .into_iter()
        .flat_map(|at| curves.clone().map(move |curve| point(curve, at)));
    let is_free = |((x, y), (wide, high)): &(Px, Px), corner: Px| {
        x + wide <= corner.0
            || corner.0 + width <= *x
            || y + high <= corner.1
            || corner.1 + height <= *y
    };
    let mut corners = places.map(|(x, y)| (x - width / 2.0, y - height / 2.0));
    let free = corners.find(|corner| taken.iter().all(|other| is_free(other, *corner)));
    let Some(corner) = free.filter(|_| !label.is_empty()) else {
        return;
    };
    taken.push((corner, LABEL_PX));
    for (line, place) in label.iter().zip(1..) {
        let at = (
            corner.0 + width / 2.0,
            corner.1 - 2.0 + f64::from(place) * LINE_PX,
        );
        sketch.text("beside-edge", at, Anchor::Middle, line);
    }
}

/// Returns a point of a cubic Bézier curve.
fn point(curve: &[Px], at: f64) -> Px {
    let back = 1.0 - at;
    let weights = [
        back.powi(3),
        3.0 * back * back * at,
        3.0 * back * at * at,
        at.powi(3),
    ];
    let of = |part: fn(&Px) -> f64| {
        curve
            .iter()
            .zip(weights)
            .map(|(px, weight)| weight * part(px))
            .sum()
    };
    (of(|px| px.0), of(|px| px.1))
}

/// Draws an arrow along a route. Edges with a weight of at least 0.5 are thicker than lighter ones,
/// and marked edges are the thickest.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_stand_between_boxes_and_over_no_other() {
        let edge = |from: usize, to: usize| GraphEdge {
            from,
            to,
            label: vec![format!("{from} to {to}")],
            ..GraphEdge::default()
        };
        let drawn = |edges: Vec<GraphEdge>| {
            let nodes = vec![GraphNode::default(); 4];
            draw(&Graph { nodes, edges }).svg()
        };
        let labels = |picture: &str| picture.matches("class=\"beside-edge").count();
        let star = drawn(vec![edge(0, 1), edge(0, 2), edge(0, 3)]);
        assert_eq!(labels(&star), 3, "{star}");
        // Eight parallel edges have room for one to three labels.
        let many = drawn((0..8).map(|_| edge(0, 1)).collect());
        assert!((1..4).contains(&labels(&many)), "{many}");
    }
}
