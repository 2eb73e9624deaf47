//! Charts: lines, histograms, stacked bars, and lists of shares.

use super::axis::{end, text, ticks};
use super::palette::{area_class, line_class};
use super::svg::{Anchor, Picture, Sketch, label};
use crate::humanise::percent;
use crate::show::{Axis, Bar, Chart, Kind, Line, Stack, StackPart};

/// Width of all charts except lists of shares, in px.
const WIDTH_PX: f64 = 720.0;
const LEFT_PX: f64 = 74.0;
const RIGHT_PX: f64 = 20.0;
const PLOT_PX: f64 = 230.0;
/// Height of the marks and the axis's title below a plot; `LEGEND_PX` is the height of one line of
/// the legend.
const BELOW_PX: f64 = 46.0;
const LEGEND_PX: f64 = 24.0;
/// Factor between the highest value and the end of a linear vertical axis, except `Kind::Share`.
const HEADROOM: f64 = 1.05;
/// Maximum number of characters of a name in a legend.
const NAME_CHARS: usize = 28;
/// Approximate width of a character, in px.
const CHAR_PX: f64 = 7.2;

pub(super) fn draw(chart: &Chart) -> Picture {
    match chart {
        Chart::Lines { x, y, lines } => draw_lines((x, y), lines),
        Chart::Bars(bars) => draw_bars(bars),
        Chart::Columns(bars) => draw_columns(bars),
        Chart::Stacks { axis, stacks } => draw_stacks(axis, stacks),
    }
}

fn draw_lines((x, y): (&Axis, &Axis), lines: &[Line]) -> Picture {
    let points = || lines.iter().flat_map(|line| &line.points);
    let x_end = end(x, points().map(|(x, _)| *x).fold(0.0, f64::max), 1.0);
    let y_end = end(y, points().map(|(_, y)| *y).fold(0.0, f64::max), HEADROOM);
    let mut sketch = Sketch::default();
    let names: Vec<(&str, usize)> = lines.iter().map(|line| (&*line.name, line.style)).collect();
    let legend_px = match names.len() {
        0 | 1 => 0.0,
        _ => legend(&mut sketch, &names, true),
    };
    let (top, right) = (legend_px + 12.0, WIDTH_PX - RIGHT_PX);
    let bottom = top + PLOT_PX;
    let at = |(px_x, px_y): (f64, f64)| {
        (
            LEFT_PX + px_x / x_end * (right - LEFT_PX),
            bottom - px_y / y_end * PLOT_PX,
        )
    };
    for (place, said) in ticks(y, y_end, 5) {
        let (_, level) = at((0.0, place));
        sketch.line("grid", (LEFT_PX, level), (right, level));
        sketch.text("tick", (LEFT_PX - 8.0, level + 4.0), Anchor::End, &said);
    }
    for (place, said) in ticks(x, x_end, 7) {
        let (across, _) = at((place, 0.0));
        sketch.line("axis", (across, bottom), (across, bottom + 5.0));
        sketch.text("tick", (across, bottom + 19.0), Anchor::Middle, &said);
    }
    sketch.line("axis", (LEFT_PX, bottom), (right, bottom));
    for line in lines {
        let points = line.points.iter();
        let placed = points.map(|(a, b)| at((x.place(*a), y.place(*b))));
        sketch.polyline(&line_class(line.style), placed);
    }
    let middle = (LEFT_PX + right) / 2.0;
    sketch.text("label", (middle, bottom + 38.0), Anchor::Middle, &x.title);
    sketch.upright((14.0, (top + bottom) / 2.0), &y.title);
    sketch.into_picture(WIDTH_PX, bottom + BELOW_PX)
}

/// Draws the names of series with their colours, in as many lines as necessary. Returns the height
/// of the legend in px.
fn legend(sketch: &mut Sketch, names: &[(&str, usize)], are_lines: bool) -> f64 {
    let (mut x, mut y) = (LEFT_PX, 8.0);
    for (name, style) in names {
        let name = label(name, NAME_CHARS);
        let width = 34.0 + name.chars().count() as f64 * CHAR_PX + 18.0;
        if x > LEFT_PX && x + width > WIDTH_PX {
            x = LEFT_PX;
            y += LEGEND_PX;
        }
        if are_lines {
            sketch.line(&line_class(*style), (x, y + 7.0), (x + 26.0, y + 7.0));
        } else {
            sketch.rect(&area_class(*style), (x + 10.0, y), (14.0, 14.0));
        }
        sketch.text("label", (x + 32.0, y + 12.0), Anchor::Start, &name);
        x += width;
    }
    y + LEGEND_PX
}

fn draw_stacks(axis: &Axis, stacks: &[Stack]) -> Picture {
    const ROW_PX: f64 = 58.0;
    let mut sketch = Sketch::default();
    let parts: &[StackPart] = stacks.first().map_or(&[], |stack| &stack.parts);
    let names: Vec<(&str, usize)> = parts.iter().map(|part| (&*part.name, part.style)).collect();
    let top = legend(&mut sketch, &names, false);
    let longest = stacks.iter().map(Stack::length).fold(0.0, f64::max);
    let longest = longest.max(f64::MIN_POSITIVE);
    let (left, right) = (4.0, WIDTH_PX - RIGHT_PX);
    let bottom = top + stacks.len() as f64 * ROW_PX;
    let across = |length: f64| left + length / longest * (right - left);
    for (place, said) in ticks(axis, longest, 6) {
        sketch.line("grid", (across(place), top), (across(place), bottom + 5.0));
        let anchor = if place > 0.0 {
            Anchor::Middle
        } else {
            Anchor::Start
        };
        sketch.text("tick", (across(place), bottom + 19.0), anchor, &said);
    }
    for (stack, row) in stacks.iter().zip(0..) {
        let y = top + f64::from(row) * ROW_PX;
        let said = format!(
            "{} {}",
            label(&stack.name, 60),
            text(stack.length(), axis.kind)
        );
        sketch.text("label", (left, y + 16.0), Anchor::Start, &said);
        let mut from = 0.0;
        for part in &stack.parts {
            let to = from + part.length;
            let (x1, x2) = (across(from), across(to));
            let name = format!("{}: {}", part.name, text(part.length, axis.kind));
            sketch.named_rect(
                &area_class(part.style),
                (x1, y + 24.0),
                ((x2 - x1 - 1.0).max(0.5), 24.0),
                &name,
            );
            from = to;
        }
    }
    sketch.text(
        "label",
        ((left + right) / 2.0, bottom + 38.0),
        Anchor::Middle,
        &axis.title,
    );
    sketch.into_picture(WIDTH_PX, bottom + BELOW_PX)
}

/// Draws horizontal bars of shares under their names, the first at the top.
fn draw_bars(bars: &[Bar]) -> Picture {
    const ROW_PX: f64 = 36.0;
    // Narrower than other charts: a bar's length is meaningless unless all of it fits on a narrow
    // screen.
    const BARS_PX: f64 = 480.0;
    let shares = bars.iter().map(|bar| bar.share);
    let largest = shares.fold(f64::MIN_POSITIVE, f64::max);
    let mut sketch = Sketch::default();
    let room = BARS_PX - 8.0;
    for (bar, row) in bars.iter().zip(0..) {
        let y = f64::from(row) * ROW_PX + 4.0;
        // Share and name stand next to each other at the left edge, visible on a narrow screen.
        let said = format!("{} {}", label(&bar.name, 44), bar.beside);
        sketch.text("value", (56.0, y + 14.0), Anchor::End, &percent(bar.share));
        sketch.text("label", (66.0, y + 14.0), Anchor::Start, &said);
        sketch.rect("track", (4.0, y + 20.0), (room, 7.0));
        let width = (bar.share / largest * room).max(1.0);
        sketch.rect(&area_class(2), (4.0, y + 20.0), (width, 7.0));
    }
    sketch.into_picture(BARS_PX, bars.len() as f64 * ROW_PX + 8.0)
}

/// Draws vertical bars of shares. Names are below the bars, as far as there is room, and additional
/// texts above the bars.
fn draw_columns(bars: &[Bar]) -> Picture {
    const MARK_PX: f64 = 22.0;
    let largest = bars.iter().map(|bar| bar.share).fold(0.0, f64::max);
    let y = Axis::new("", Kind::Number);
    let y_end = end(&y, largest, HEADROOM);
    let (top, right) = (MARK_PX + 6.0, WIDTH_PX - RIGHT_PX);
    let bottom = top + PLOT_PX;
    let level = |share: f64| bottom - share / y_end * PLOT_PX;
    let mut sketch = Sketch::default();
    for (share, _) in ticks(&y, y_end, 4) {
        sketch.line("grid", (LEFT_PX, level(share)), (right, level(share)));
        let tick = (LEFT_PX - 8.0, level(share) + 4.0);
        sketch.text("tick", tick, Anchor::End, &percent(share));
    }
    let wide = (right - LEFT_PX) / bars.len().max(1) as f64;
    let longest = bars.iter().map(|bar| bar.name.chars().count()).max();
    let name_px = (longest.unwrap_or(0) as f64 + 2.0) * CHAR_PX;
    let each = (name_px / wide).ceil().max(1.0) as usize;
    for (at, bar) in bars.iter().enumerate() {
        let (x, height) = (LEFT_PX + at as f64 * wide, bottom - level(bar.share));
        let corner = (x, level(bar.share));
        let said = format!("{}: {} {}", bar.name, percent(bar.share), bar.beside);
        let size = ((wide - 1.0).max(0.5), height.max(1.0));
        sketch.named_rect(&area_class(2), corner, size, said.trim_end());
        let middle = x + wide / 2.0;
        if at % each == each / 2 {
            sketch.line("axis", (middle, bottom), (middle, bottom + 5.0));
            sketch.text("tick", (middle, bottom + 19.0), Anchor::Middle, &bar.name);
        }
        if !bar.beside.is_empty() {
            let place = (middle, corner.1 - 6.0);
            sketch.text("label", place, Anchor::Middle, &bar.beside);
        }
    }
    sketch.line("axis", (LEFT_PX, bottom), (right, bottom));
    sketch.into_picture(WIDTH_PX, bottom + 28.0)
}
