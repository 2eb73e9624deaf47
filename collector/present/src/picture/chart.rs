//! Charts: lines, bars, stacked bars.

use plotters::chart::{ChartBuilder, SeriesLabelPosition};
use plotters::element::{DashedPathElement, Rectangle};
use plotters::series::{DashedLineSeries, LineSeries};
use plotters::style::{Color as _, IntoFont as _, TRANSPARENT, WHITE};

use super::palette::{FAINT, INK, series_color, series_dashes};
use super::svg::{Canvas, Drawn, Picture, PictureError, SANS, SMALL, TEXT, label, write};
use crate::humanise::percent;
use crate::show::{Axis, Bar, Chart, Kind, LegendPlace, Line, Stack, StackPart, axis_text};

const WIDTH_PX: u32 = 548;
const HEIGHT_PX: u32 = 320;
/// Bars with long names need more.
const BARS_WIDTH_PX: u32 = 860;
/// Characters of a label beside a bar.
const LABEL_CHARS: usize = 44;
/// A line in the legend.
const LEGEND_PX: u32 = 28;
/// What is above the highest line where the axis has no end of its own.
const HEADROOM: f64 = 1.1;

/// Draws a chart. `title` is for the error.
pub(super) fn draw(title: &str, chart: &Chart) -> Result<Picture, PictureError> {
    match chart {
        Chart::Lines {
            x,
            y,
            lines,
            legend,
        } => draw_lines(title, (x, y), lines, *legend),
        Chart::Bars(bars) => draw_bars(title, bars),
        Chart::Stacks { axis, stacks } => draw_stacks(title, axis, stacks),
    }
}

/// Where an axis ends whose numbers end there.
fn end(axis: &Axis, highest: f64, headroom: f64) -> f64 {
    let end = match axis.kind {
        Kind::Share => 1.0,
        _ if axis.is_logarithmic => axis.place(highest).ceil(),
        _ => highest * headroom,
    };
    // An axis of no length cannot be drawn.
    if end > 0.0 { end } else { 1.0 }
}

/// What stands at a place of an axis.
fn tick(axis: &Axis, place: f64) -> String {
    axis_text(
        if axis.is_logarithmic {
            10f64.powf(place) - 1.0
        } else {
            place
        },
        axis.kind,
    )
}

fn draw_lines(
    title: &str,
    (x, y): (&Axis, &Axis),
    lines: &[Line],
    legend: LegendPlace,
) -> Result<Picture, PictureError> {
    let points = || lines.iter().flat_map(|line| &line.points);
    let x_end = end(x, points().map(|(x, _)| *x).fold(0.0, f64::max), 1.0);
    let y_end = end(y, points().map(|(_, y)| *y).fold(0.0, f64::max), HEADROOM);
    Picture::draw(title, (WIDTH_PX, HEIGHT_PX), |canvas| {
        let mut chart = ChartBuilder::on(canvas)
            .margin(10)
            .margin_right(30)
            .x_label_area_size(46)
            .y_label_area_size(70)
            .build_cartesian_2d(0.0..x_end, 0.0..y_end)?;
        chart
            .configure_mesh()
            .x_desc(&x.title)
            .y_desc(&y.title)
            .x_labels(8)
            .y_labels(6)
            .x_label_formatter(&|place| tick(x, *place))
            .y_label_formatter(&|place| tick(y, *place))
            .axis_desc_style((SANS, TEXT).into_font().color(&INK))
            .label_style((SANS, SMALL).into_font().color(&INK))
            .axis_style(INK)
            .bold_line_style(FAINT)
            .light_line_style(TRANSPARENT)
            .draw()?;
        for line in lines {
            let color = series_color(line.style);
            let style = color.stroke_width(3);
            let points = line
                .points
                .iter()
                .map(|(at, number)| (x.place(*at), y.place(*number)));
            let (dash_px, gap_px) = series_dashes(line.style).unwrap_or((LEGEND_PX, 0));
            let drawn = match gap_px {
                0 => chart.draw_series(LineSeries::new(points, style))?,
                _ => chart.draw_series(DashedLineSeries::new(points, dash_px, gap_px, style))?,
            };
            drawn
                .label(label(&line.name, LABEL_CHARS))
                .legend(move |(x, y)| {
                    let ends = [(x, y), (x + LEGEND_PX as i32, y)];
                    DashedPathElement::new(ends, dash_px, gap_px, style)
                });
        }
        if lines.len() < 2 {
            return Ok(());
        }
        let place = match legend {
            LegendPlace::Upper => SeriesLabelPosition::UpperRight,
            LegendPlace::Middle => SeriesLabelPosition::MiddleRight,
            LegendPlace::Lower => SeriesLabelPosition::LowerRight,
        };
        chart
            .configure_series_labels()
            .position(place)
            .legend_area_size(LEGEND_PX as i32 + 6)
            .background_style(WHITE.mix(0.85))
            .border_style(FAINT)
            .label_font((SANS, SMALL).into_font().color(&INK))
            .draw()?;
        Ok(())
    })
}

/// Stacked horizontal bars over one axis of time.
fn draw_stacks(title: &str, axis: &Axis, stacks: &[Stack]) -> Result<Picture, PictureError> {
    const BAR_PX: u32 = 54;
    const NAMES_PX: u32 = 190;
    /// Characters of a name that fit before the bars.
    const NAME_CHARS: usize = 25;
    let height_px = stacks.len() as u32 * BAR_PX + 110;
    let longest = stacks
        .iter()
        .map(Stack::length)
        .fold(0.0, f64::max)
        .max(f64::MIN_POSITIVE);
    Picture::draw(title, (WIDTH_PX, height_px), |canvas| {
        let count = stacks.len() as f64;
        let mut chart = ChartBuilder::on(canvas)
            .margin(10)
            .margin_right(30)
            .margin_top(44)
            .x_label_area_size(46)
            .y_label_area_size(NAMES_PX)
            .build_cartesian_2d(0.0..longest * 1.02, 0.0..count)?;
        chart
            .configure_mesh()
            .x_desc(&axis.title)
            .x_labels(8)
            .x_label_formatter(&|place: &f64| tick(axis, *place))
            .y_labels(0)
            .axis_desc_style((SANS, TEXT).into_font().color(&INK))
            .label_style((SANS, SMALL).into_font().color(&INK))
            .axis_style(INK)
            .bold_line_style(FAINT)
            .light_line_style(TRANSPARENT)
            .draw()?;
        for (row, stack) in stacks.iter().enumerate() {
            let bottom = count - row as f64 - 0.85;
            let mut from = 0.0;
            for part in &stack.parts {
                let to = from + part.length;
                let corners = [(from, bottom), (to, bottom + 0.6)];
                chart.draw_series([Rectangle::new(corners, series_color(part.style).filled())])?;
                chart.draw_series([Rectangle::new(corners, WHITE.stroke_width(1))])?;
                from = to;
            }
        }
        let (_, rows_px) = chart.plotting_area().get_pixel_range();
        for (row, stack) in stacks.iter().enumerate() {
            let height_px = f64::from(rows_px.end - rows_px.start) / count;
            let y = rows_px.start + ((row as f64 + 0.35) * height_px) as i32;
            write(canvas, &label(&stack.name, NAME_CHARS), (12, y), SMALL)?;
            write(
                canvas,
                &axis_text(stack.length(), axis.kind),
                (12, y + 17),
                SMALL,
            )?;
        }
        legend(canvas, stacks.first().map_or(&[], |stack| &stack.parts))
    })
}

/// One line of coloured squares with names.
fn legend(canvas: &Canvas<'_>, parts: &[StackPart]) -> Drawn {
    let mut x = 200;
    for part in parts {
        canvas.draw(&Rectangle::new(
            [(x, 14), (x + 14, 28)],
            series_color(part.style).filled(),
        ))?;
        let name = label(&part.name, 20);
        write(canvas, &name, (x + 20, 14), SMALL)?;
        x += 44 + name.chars().count() as i32 * 8;
    }
    Ok(())
}

/// Horizontal bars of shares with their names, the first at the top.
fn draw_bars(title: &str, bars: &[Bar]) -> Result<Picture, PictureError> {
    const ROW_PX: i32 = 24;
    const NAMES_PX: i32 = 340;
    const BARS_PX: i32 = 390;
    let height_px = (bars.len() as i32 * ROW_PX + 16) as u32;
    let largest = bars
        .iter()
        .map(|bar| bar.share)
        .fold(f64::MIN_POSITIVE, f64::max);
    Picture::draw(title, (BARS_WIDTH_PX, height_px), |canvas| {
        for (
            row,
            Bar {
                name,
                share,
                beside,
            },
        ) in bars.iter().enumerate()
        {
            let y = 8 + row as i32 * ROW_PX;
            write(canvas, &label(name, LABEL_CHARS), (4, y + 3), SMALL)?;
            let end = NAMES_PX + (share / largest * f64::from(BARS_PX)).round() as i32;
            let corners = [(NAMES_PX, y + 2), (end.max(NAMES_PX + 1), y + ROW_PX - 4)];
            canvas.draw(&Rectangle::new(corners, series_color(2).filled()))?;
            write(
                canvas,
                &format!("{} {beside}", percent(*share)),
                (end + 6, y + 3),
                SMALL,
            )?;
        }
        Ok(())
    })
}
