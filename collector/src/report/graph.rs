//! The causal model as a graph: `layout-rs` says where everything goes, and it is drawn as the charts are.

use std::collections::{BTreeMap, BTreeSet};

use layout::core::base::Orientation;
use layout::core::format::{ClipHandle, RenderBackend};
use layout::core::geometry::Point;
use layout::core::style::StyleAttr;
use layout::std_shapes::shapes::{Arrow, Element, ShapeKind};
use layout::topo::layout::VisualGraph;
use plotters::element::{PathElement, Polygon, Rectangle};
use plotters::style::{Color as _, RGBColor};
use stroboscope_analysis::aggregate::PathAggregate;
use stroboscope_analysis::label::{Labels, SegmentId, SegmentLabel};
use stroboscope_analysis::model::Relations;

use stroboscope_present::humanise::percent;
use stroboscope_present::picture::chart::{TEXT, write};
use stroboscope_present::picture::palette::{CRITICAL, GREY, series_color};
use stroboscope_present::picture::{Canvas, Drawn, Picture, PictureError, label};
use stroboscope_query::{Categories, CausalGraph};

/// Segments shown; more of them nobody reads.
pub(super) const SEGMENTS_MAX: usize = 32;
const LINE_CHARS: usize = 34;
const BOX_PX: Point = Point { x: 262.0, y: 60.0 };
const MARGIN_PX: f64 = 12.0;
/// Straight pieces of a curve.
const CURVE_PIECES: usize = 12;
const ARROW_PX: f64 = 8.0;

/// The segments to show: those with the largest shares of the critical path, and how many others there are.
pub(super) fn most_important(aggregate: &PathAggregate) -> (Vec<(SegmentId, f64)>, usize) {
    let traces = aggregate.traces();
    let share = |(id, statistics): (SegmentId, &stroboscope_analysis::aggregate::PathStatistics)| {
        (id, statistics.shares().mean(traces))
    };
    let mut segments: Vec<(SegmentId, f64)> = aggregate.segments().map(share).collect();
    // A stable sort: equals stay in order of their numbers.
    segments.sort_by(|a, b| b.1.total_cmp(&a.1));
    let others = segments.len().saturating_sub(SEGMENTS_MAX);
    segments.truncate(SEGMENTS_MAX);
    (segments, others)
}

/// Draws these segments with their happens-before relations that do not follow from others among them.
pub(super) fn draw(
    segments: &[(SegmentId, f64)],
    relations: &Relations,
    labels: &Labels,
    categories: &Categories,
) -> Result<Picture, PictureError> {
    let shown: BTreeSet<SegmentId> = segments.iter().map(|(id, _)| *id).collect();
    let mut graph = VisualGraph::new(Orientation::TopToBottom);
    let mut nodes = BTreeMap::new();
    for (number, (id, _)) in segments.iter().enumerate() {
        // The text comes back when the box is drawn, and says which one it is.
        let shape = ShapeKind::new_box(&number.to_string());
        let element = Element::create(shape, StyleAttr::simple(), Orientation::TopToBottom, BOX_PX);
        nodes.insert(*id, graph.add_node(element));
    }
    for (a, b) in &CausalGraph::among(relations, &shown).edges {
        graph.add_edge(Arrow::simple(""), nodes[a], nodes[b]);
    }
    let mut placed = Placed::default();
    graph.do_it(false, false, false, &mut placed);
    let size = (placed.right_px + MARGIN_PX, placed.bottom_px + MARGIN_PX);
    Picture::draw("the model", (size.0.ceil() as u32, size.1.ceil() as u32), |canvas| {
        placed.arrows.iter().try_for_each(|curve| arrow(canvas, curve))?;
        for (corner, number) in &placed.boxes {
            let Some((id, share)) = segments.get(*number) else { continue };
            if let Some(label) = labels.get(*id) {
                segment_box(canvas, *corner, label, *share, series_color(categories.of(*id)))?;
            }
        }
        Ok(())
    })
}

fn segment_box(
    canvas: &Canvas<'_>,
    corner: Point,
    segment: &SegmentLabel,
    share: f64,
    color: RGBColor,
) -> Drawn {
    let (x, y) = (corner.x.round() as i32, corner.y.round() as i32);
    let corners = [(x, y), (x + BOX_PX.x as i32, y + BOX_PX.y as i32)];
    canvas.draw(&Rectangle::new(corners, plotters::style::WHITE.filled()))?;
    canvas.draw(&Rectangle::new(corners, color.stroke_width(2)))?;
    // How much of the box is filled along its lower edge is the share of the critical path.
    let filled = (BOX_PX.x * share.clamp(0.0, 1.0)).round() as i32;
    let bar = [(x + 1, corners[1].1 - 6), (x + filled.max(1), corners[1].1 - 1)];
    canvas.draw(&Rectangle::new(bar, CRITICAL.filled()))?;
    let (outer, component) = segment.task.rsplit_once(" > ").unwrap_or(("", &segment.task));
    write(canvas, &label(component, LINE_CHARS), (x + 7, y + 5), TEXT - 1)?;
    write(
        canvas,
        &label(&format!("{} … {}", segment.start, segment.end), LINE_CHARS),
        (x + 7, y + 21),
        TEXT - 2,
    )?;
    let place = match outer.rsplit(" > ").next() {
        Some(parent) if !parent.is_empty() => {
            format!("{}, in {}", percent(share), label(parent, LINE_CHARS - 10))
        }
        _ => percent(share),
    };
    write(canvas, &place, (x + 7, y + 37), TEXT - 2)
}

fn arrow(canvas: &Canvas<'_>, curve: &[(f64, f64)]) -> Drawn {
    let pixel = |(x, y): (f64, f64)| (x.round() as i32, y.round() as i32);
    canvas.draw(&PathElement::new(
        curve.iter().copied().map(pixel).collect::<Vec<_>>(),
        GREY.stroke_width(1),
    ))?;
    if let [.., before, tip] = curve {
        let (dx, dy) = (tip.0 - before.0, tip.1 - before.1);
        let length = dx.hypot(dy).max(f64::MIN_POSITIVE);
        let (dx, dy) = (dx / length * ARROW_PX, dy / length * ARROW_PX);
        let back = (tip.0 - dx, tip.1 - dy);
        let side = |sign: f64| (back.0 - sign * dy * 0.45, back.1 + sign * dx * 0.45);
        let head = [*tip, side(1.0), side(-1.0)].map(pixel);
        canvas.draw(&Polygon::new(head.to_vec(), GREY.filled()))?;
    }
    Ok(())
}

/// Where the layout puts everything.
#[derive(Default)]
struct Placed {
    /// Upper left corners, and the box's number.
    boxes: Vec<(Point, usize)>,
    arrows: Vec<Vec<(f64, f64)>>,
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
    fn draw_rect(&mut self, xy: Point, size: Point, _: &StyleAttr, _: Option<String>, _: Option<ClipHandle>) {
        self.reach(xy.x + size.x, xy.y + size.y);
    }

    fn draw_text(&mut self, center: Point, text: &str, _: &StyleAttr) {
        if let Ok(number) = text.parse() {
            let corner = Point { x: center.x - BOX_PX.x / 2.0, y: center.y - BOX_PX.y / 2.0 };
            self.boxes.push((corner, number));
        }
    }

    fn draw_arrow(
        &mut self,
        path: &[(Point, Point)],
        _: bool,
        _: (bool, bool),
        _: &StyleAttr,
        _: Option<String>,
        _: &str,
    ) {
        let curve = flattened(path);
        curve.iter().for_each(|(x, y)| self.reach(*x, *y));
        self.arrows.push(curve);
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
    let Some(((start, leave), rest)) = path.split_first() else { return Vec::new() };
    let (mut from, mut leave) = (*start, *leave);
    let mut points = vec![(from.x, from.y)];
    for (enter, to) in rest {
        for piece in 1..=CURVE_PIECES {
            let t = piece as f64 / CURVE_PIECES as f64;
            let u = 1.0 - t;
            let at = |p0: f64, p1: f64, p2: f64, p3: f64| {
                u * u * u * p0 + 3.0 * u * u * t * p1 + 3.0 * u * t * t * p2 + t * t * t * p3
            };
            points.push((at(from.x, leave.x, enter.x, to.x), at(from.y, leave.y, enter.y, to.y)));
        }
        from = *to;
        leave = Point { x: 2.0 * to.x - enter.x, y: 2.0 * to.y - enter.y };
    }
    points
}
