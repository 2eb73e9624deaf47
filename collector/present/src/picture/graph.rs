//! Graphs: `layout-rs` says where everything goes.

use layout::core::base::Orientation;
use layout::core::format::{ClipHandle, RenderBackend};
use layout::core::geometry::Point;
use layout::core::style::StyleAttr;
use layout::std_shapes::shapes::{Arrow, Element, ShapeKind};
use layout::topo::layout::VisualGraph;

use super::palette::box_class;
use super::svg::{Anchor, Picture, Sketch, label};
use crate::humanise::percent;
use crate::show::{Graph, GraphEdge, GraphNode};

const LINE_CHARS: usize = 34;
/// Lines in a box.
const LINES_MAX: usize = 3;
const LINE_PX: f64 = 16.0;
const BOX_PX: Point = Point { x: 262.0, y: 60.0 };
const MARGIN_PX: f64 = 12.0;
/// Straight pieces of a curve.
const CURVE_PIECES: usize = 12;
const ARROW_PX: f64 = 8.0;

/// Draws a graph.
pub(super) fn draw(graph: &Graph) -> Picture {
    let mut layout = VisualGraph::new(Orientation::TopToBottom);
    let box_of = |number: usize| {
        // The text comes back when the box is drawn, and says which one it is.
        let shape = ShapeKind::new_box(&number.to_string());
        Element::create(shape, StyleAttr::simple(), Orientation::TopToBottom, BOX_PX)
    };
    let handles: Vec<_> = (0..graph.nodes.len())
        .map(|number| layout.add_node(box_of(number)))
        .collect();
    for (number, edge) in graph.edges.iter().enumerate() {
        if let (Some(from), Some(to)) = (handles.get(edge.from), handles.get(edge.to)) {
            let look = StyleAttr {
                // The layout knows of widths only, and gives them back: so they say which edge it is.
                line_width: number,
                ..StyleAttr::simple()
            };
            layout.add_edge(
                Arrow {
                    look,
                    ..Arrow::simple("")
                },
                *from,
                *to,
            );
        }
    }
    let mut placed = Placed::default();
    if !handles.is_empty() {
        layout.do_it(false, false, false, &mut placed);
    }
    let mut sketch = Sketch::default();
    for (curve, number) in &placed.arrows {
        if let Some(edge) = graph.edges.get(*number) {
            arrow(&mut sketch, curve, edge);
        }
    }
    for (corner, number) in &placed.boxes {
        if let Some(node) = graph.nodes.get(*number) {
            node_box(&mut sketch, *corner, *number, node);
        }
    }
    sketch.into_picture(placed.right_px + MARGIN_PX, placed.bottom_px + MARGIN_PX)
}

fn node_box(sketch: &mut Sketch, corner: Point, number: usize, node: &GraphNode) {
    let (x, y) = (corner.x, corner.y);
    let (name, path) = (
        format!("{}, {}", node.name, percent(node.share)),
        node.path.as_deref(),
    );
    sketch.open_node(number, &name, path);
    sketch.rect(box_class(node.style), (x, y), (BOX_PX.x, BOX_PX.y));
    // How much of the box is filled along its lower edge is its share.
    let filled = (BOX_PX.x * node.share.clamp(0.0, 1.0)).max(1.0);
    sketch.rect("share", (x, y + BOX_PX.y - 6.0), (filled, 6.0));
    for (line, place) in node.lines.iter().take(LINES_MAX).zip(0..) {
        let class = if place == 0 { "value" } else { "label" };
        let at = (x + 8.0, y + 16.0 + f64::from(place) * LINE_PX);
        sketch.text(class, at, Anchor::Start, &label(line, LINE_CHARS));
    }
    sketch.close_node(path);
}

/// What is in half of all is told from what is rare.
fn arrow(sketch: &mut Sketch, curve: &[(f64, f64)], edge: &GraphEdge) {
    let class = match (edge.is_marked, edge.share < 0.5) {
        (true, _) => "edge marked",
        (false, true) => "edge rare",
        (false, false) => "edge",
    };
    let mut tip = Vec::new();
    if let [.., before, end] = curve {
        let (dx, dy) = (end.0 - before.0, end.1 - before.1);
        let length = dx.hypot(dy).max(f64::MIN_POSITIVE);
        let (dx, dy) = (dx / length * ARROW_PX, dy / length * ARROW_PX);
        let back = (end.0 - dx, end.1 - dy);
        let side = |sign: f64| (back.0 - sign * dy * 0.45, back.1 + sign * dx * 0.45);
        tip = vec![side(1.0), *end, side(-1.0)];
    }
    sketch.edge(class, (edge.from, edge.to), curve, &tip, &edge.note);
}

/// Where the layout puts everything.
#[derive(Default)]
struct Placed {
    /// Upper left corners, and the box's number.
    boxes: Vec<(Point, usize)>,
    /// Curves, and the edge's number.
    arrows: Vec<(Vec<(f64, f64)>, usize)>,
    right_px: f64,
    bottom_px: f64,
}

impl Placed {
    fn reach(&mut self, x: f64, y: f64) {
        self.right_px = self.right_px.max(x);
        self.bottom_px = self.bottom_px.max(y);
    }
}

impl RenderBackend for Placed {
    fn draw_rect(
        &mut self,
        xy: Point,
        size: Point,
        _: &StyleAttr,
        _: Option<String>,
        _: Option<ClipHandle>,
    ) {
        self.reach(xy.x + size.x, xy.y + size.y);
    }

    fn draw_text(&mut self, center: Point, text: &str, _: &StyleAttr) {
        if let Ok(number) = text.parse() {
            let corner = Point {
                x: center.x - BOX_PX.x / 2.0,
                y: center.y - BOX_PX.y / 2.0,
            };
            self.boxes.push((corner, number));
        }
    }

    fn draw_arrow(
        &mut self,
        path: &[(Point, Point)],
        _: bool,
        _: (bool, bool),
        look: &StyleAttr,
        _: Option<String>,
        _: &str,
    ) {
        let curve = flattened(path);
        curve.iter().for_each(|(x, y)| self.reach(*x, *y));
        self.arrows.push((curve, look.line_width));
    }

    // The layout draws nothing else of boxes and arrows.
    fn draw_line(&mut self, _: Point, _: Point, _: &StyleAttr, _: Option<String>) {}

    fn draw_circle(&mut self, _: Point, _: Point, _: &StyleAttr, _: Option<String>) {}

    fn create_clip(&mut self, _: Point, _: Point, _: usize) -> ClipHandle {
        0
    }
}

/// A path of cubic Bézier curves in straight pieces. Its first pair is a point and how it is left; each of the others is
/// how a point is entered, and the point, and it is left the opposite way.
fn flattened(path: &[(Point, Point)]) -> Vec<(f64, f64)> {
    let Some(((start, leave), rest)) = path.split_first() else {
        return Vec::new();
    };
    let (mut from, mut leave) = (*start, *leave);
    let mut points = vec![(from.x, from.y)];
    for (enter, to) in rest {
        for piece in 1..=CURVE_PIECES {
            let t = piece as f64 / CURVE_PIECES as f64;
            let u = 1.0 - t;
            let at = |p0: f64, p1: f64, p2: f64, p3: f64| {
                u * u * u * p0 + 3.0 * u * u * t * p1 + 3.0 * u * t * t * p2 + t * t * t * p3
            };
            points.push((
                at(from.x, leave.x, enter.x, to.x),
                at(from.y, leave.y, enter.y, to.y),
            ));
        }
        from = *to;
        leave = Point {
            x: 2.0 * to.x - enter.x,
            y: 2.0 * to.y - enter.y,
        };
    }
    points
}
