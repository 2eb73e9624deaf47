//! Graphs: `layout-rs` says where everything goes, and it is drawn as the charts are.

use layout::core::base::Orientation;
use layout::core::format::{ClipHandle, RenderBackend};
use layout::core::geometry::Point;
use layout::core::style::StyleAttr;
use layout::std_shapes::shapes::{Arrow, Element, ShapeKind};
use layout::topo::layout::VisualGraph;
use plotters::element::{PathElement, Polygon, Rectangle};
use plotters::style::{Color as _, WHITE};

use super::palette::{CRITICAL, GREY, series_color};
use super::svg::{Canvas, Drawn, Picture, PictureError, TEXT, label, write};
use crate::show::{Graph, GraphEdge, GraphNode};

const LINE_CHARS: usize = 34;
/// Lines in a box.
const LINES_MAX: usize = 3;
const LINE_PX: i32 = 16;
const BOX_PX: Point = Point { x: 262.0, y: 60.0 };
const MARGIN_PX: f64 = 12.0;
/// Straight pieces of a curve.
const CURVE_PIECES: usize = 12;
const ARROW_PX: f64 = 8.0;

/// Draws a graph. `title` is for the error.
pub(super) fn draw(title: &str, graph: &Graph) -> Result<Picture, PictureError> {
    let mut layout = VisualGraph::new(Orientation::TopToBottom);
    let box_of = |number: usize| {
        // The text comes back when the box is drawn, and says which one it is.
        let shape = ShapeKind::new_box(&number.to_string());
        Element::create(shape, StyleAttr::simple(), Orientation::TopToBottom, BOX_PX)
    };
    let handles: Vec<_> = (0..graph.nodes.len())
        .map(|number| layout.add_node(box_of(number)))
        .collect();
    for edge in &graph.edges {
        if let (Some(from), Some(to)) = (handles.get(edge.from), handles.get(edge.to)) {
            let look = StyleAttr {
                line_width: width_px(edge) + if edge.is_marked { MARKED } else { 0 },
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
    let size = (placed.right_px + MARGIN_PX, placed.bottom_px + MARGIN_PX);
    Picture::draw(
        title,
        (size.0.ceil() as u32, size.1.ceil() as u32),
        |canvas| {
            placed
                .arrows
                .iter()
                .try_for_each(|(curve, width_px)| arrow(canvas, curve, *width_px))?;
            for (corner, number) in &placed.boxes {
                graph
                    .nodes
                    .get(*number)
                    .map_or(Ok(()), |node| node_box(canvas, *corner, node))?;
            }
            Ok(())
        },
    )
}

/// How thick an arrow is: what is in half of all is told from what is rare.
fn width_px(edge: &GraphEdge) -> usize {
    if edge.share < 0.5 { 1 } else { 2 }
}

/// The layout knows of widths only: so much is added to that of an arrow that is marked.
const MARKED: usize = 100;

fn node_box(canvas: &Canvas<'_>, corner: Point, node: &GraphNode) -> Drawn {
    let (x, y) = (corner.x.round() as i32, corner.y.round() as i32);
    let corners = [(x, y), (x + BOX_PX.x as i32, y + BOX_PX.y as i32)];
    canvas.draw(&Rectangle::new(corners, WHITE.filled()))?;
    canvas.draw(&Rectangle::new(
        corners,
        series_color(node.style).stroke_width(2),
    ))?;
    // How much of the box is filled along its lower edge is its share.
    let filled = (BOX_PX.x * node.share.clamp(0.0, 1.0)).round() as i32;
    let bar = [
        (x + 1, corners[1].1 - 6),
        (x + filled.max(1), corners[1].1 - 1),
    ];
    canvas.draw(&Rectangle::new(bar, CRITICAL.filled()))?;
    for ((line, place), size) in
        node.lines
            .iter()
            .take(LINES_MAX)
            .zip(0..)
            .zip([TEXT - 1, TEXT - 2, TEXT - 2])
    {
        write(
            canvas,
            &label(line, LINE_CHARS),
            (x + 7, y + 5 + place * LINE_PX),
            size,
        )?;
    }
    Ok(())
}

fn arrow(canvas: &Canvas<'_>, curve: &[(f64, f64)], width_px: usize) -> Drawn {
    let is_marked = width_px >= MARKED;
    let (color, width_px) = if is_marked {
        (CRITICAL, width_px - MARKED + 1)
    } else {
        (GREY, width_px)
    };
    let pixel = |(x, y): (f64, f64)| (x.round() as i32, y.round() as i32);
    canvas.draw(&PathElement::new(
        curve.iter().copied().map(pixel).collect::<Vec<_>>(),
        color.stroke_width(width_px as u32),
    ))?;
    if let [.., before, tip] = curve {
        let (dx, dy) = (tip.0 - before.0, tip.1 - before.1);
        let length = dx.hypot(dy).max(f64::MIN_POSITIVE);
        let (dx, dy) = (dx / length * ARROW_PX, dy / length * ARROW_PX);
        let back = (tip.0 - dx, tip.1 - dy);
        let side = |sign: f64| (back.0 - sign * dy * 0.45, back.1 + sign * dx * 0.45);
        let head = [*tip, side(1.0), side(-1.0)].map(pixel);
        canvas.draw(&Polygon::new(head.to_vec(), color.filled()))?;
    }
    Ok(())
}

/// Where the layout puts everything.
#[derive(Default)]
struct Placed {
    /// Upper left corners, and the box's number.
    boxes: Vec<(Point, usize)>,
    /// Curves, and how thick they are.
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
