//! Charts: bars, cumulative distributions, convergence.

use plotters::chart::{ChartBuilder, SeriesLabelPosition};
use plotters::element::{DashedPathElement, Rectangle, Text};
use plotters::series::{DashedLineSeries, LineSeries};
use plotters::style::{Color as _, IntoFont as _, TRANSPARENT, WHITE};
use stroboscope_analysis::breakdown::{Breakdown, SHARE_STEPS};
use stroboscope_analysis::convergence::ConvergencePoint;
use stroboscope_analysis::distribution::Distribution;

use super::palette::{FAINT, INK, series_color, series_dashes};
use super::svg::{Drawn, Picture, PictureError, label};
use crate::humanise::{duration, percent};

const SANS: &str = "sans-serif";
/// Sizes of text as the library counts them: 1.24 times the px of the SVG.
pub const TEXT: i32 = 16;
const SMALL: i32 = 15;
const WIDTH_PX: u32 = 548;
const HEIGHT_PX: u32 = 320;
/// Stacked bars stand beside other charts as well.
const STACKED_WIDTH_PX: u32 = 548;
/// Bars with long names need more.
const BARS_WIDTH_PX: u32 = 860;
/// Characters of a label beside a bar.
const LABEL_CHARS: usize = 44;
/// The shortest axis of durations.
const AXIS_MIN_NS: f64 = 1e3;
/// A line in the legend.
const LEGEND_PX: u32 = 28;
/// The series whose line is solid.
const SOLID: usize = 2;
/// Points of the rates of change: of more, single changes would hide the trend.
const RATES_MAX: usize = 32;
/// Points of a cumulative distribution.
const CDF_POINTS: usize = 200;

/// A line of a chart.
struct Series {
    name: String,
    /// Its colour and dashes.
    number: usize,
    points: Vec<(f64, f64)>,
}

/// What a chart's axes mean.
struct Axes<'a> {
    x: (&'a str, f64),
    y: (&'a str, f64),
    x_text: &'a dyn Fn(&f64) -> String,
    y_text: &'a dyn Fn(&f64) -> String,
    legend: SeriesLabelPosition,
}

fn lines(what: &'static str, axes: &Axes<'_>, series: &[Series]) -> Result<Picture, PictureError> {
    Picture::draw(what, (WIDTH_PX, HEIGHT_PX), |canvas| {
        // An axis of no length cannot be drawn.
        let end = |end: f64| if end > 0.0 { end } else { 1.0 };
        let mut chart = ChartBuilder::on(canvas)
            .margin(10)
            .margin_right(30)
            .x_label_area_size(46)
            .y_label_area_size(70)
            .build_cartesian_2d(0.0..end(axes.x.1), 0.0..end(axes.y.1))?;
        chart
            .configure_mesh()
            .x_desc(axes.x.0)
            .y_desc(axes.y.0)
            .x_labels(8)
            .y_labels(6)
            .x_label_formatter(axes.x_text)
            .y_label_formatter(axes.y_text)
            .axis_desc_style((SANS, TEXT).into_font().color(&INK))
            .label_style((SANS, SMALL).into_font().color(&INK))
            .axis_style(INK)
            .bold_line_style(FAINT)
            .light_line_style(TRANSPARENT)
            .draw()?;
        for one in series {
            let color = series_color(one.number);
            let style = color.stroke_width(3);
            let points = one.points.iter().copied();
            let (dash_px, gap_px) = series_dashes(one.number).unwrap_or((LEGEND_PX, 0));
            let drawn = match gap_px {
                0 => chart.draw_series(LineSeries::new(points, style))?,
                _ => chart.draw_series(DashedLineSeries::new(points, dash_px, gap_px, style))?,
            };
            drawn.label(label(&one.name, LABEL_CHARS)).legend(move |(x, y)| {
                let ends = [(x, y), (x + LEGEND_PX as i32, y)];
                DashedPathElement::new(ends, dash_px, gap_px, style)
            });
        }
        if series.len() < 2 {
            return Ok(());
        }
        chart
            .configure_series_labels()
            .position(axes.legend.clone())
            .legend_area_size(LEGEND_PX as i32 + 6)
            .background_style(WHITE.mix(0.85))
            .border_style(FAINT)
            .label_font((SANS, SMALL).into_font().color(&INK))
            .draw()?;
        Ok(())
    })
}

/// Relations as traces came in (The Mystery Machine, figure 3).
///
/// # Errors
/// When it cannot be drawn.
pub fn convergence(points: &[ConvergencePoint]) -> Result<Picture, PictureError> {
    let of = |name: &str, number, count: fn(&ConvergencePoint) -> usize| Series {
        name: name.to_owned(),
        number,
        points: points.iter().map(|point| (point.traces as f64, count(point) as f64)).collect(),
    };
    let series = [
        of("mutual exclusion", 0, |point| point.mutual_exclusion),
        of("segments", 1, |point| point.segments),
        of("happens before", SOLID, |point| point.happens_before),
    ];
    let highest = points.iter().map(|p| p.happens_before.max(p.mutual_exclusion)).max().unwrap_or(0);
    let axes = Axes {
        x: ("requests analysed", points.last().map_or(0.0, |point| point.traces as f64)),
        y: ("relations", highest as f64 * 1.1),
        x_text: &count_text,
        y_text: &count_text,
        legend: SeriesLabelPosition::MiddleRight,
    };
    lines("the convergence", &axes, &series)
}

/// New and removed relations per thousand traces, as traces came in.
///
/// # Errors
/// When they cannot be drawn.
pub fn changes(points: &[ConvergencePoint]) -> Result<Picture, PictureError> {
    let mut before = 0;
    let (mut added, mut removed) = (Vec::new(), Vec::new());
    for some in points.chunks(points.len().div_ceil(RATES_MAX).max(1)) {
        let traces = some.last().map_or(before, |point| point.traces);
        let thousands = (traces - before).max(1) as f64 / 1e3;
        let sum = |count: fn(&ConvergencePoint) -> usize| some.iter().map(count).sum::<usize>() as f64;
        // A logarithm that shows what is 0.
        let rate = |sum: f64| (traces as f64, (1.0 + sum / thousands).log10());
        added.push(rate(sum(|p| p.changes.happens_before_added + p.changes.mutual_exclusion_added)));
        removed.push(rate(sum(|p| p.changes.happens_before_removed + p.changes.mutual_exclusion_removed)));
        before = traces;
    }
    let highest = added.iter().chain(&removed).fold(0.0, |high: f64, (_, rate)| high.max(*rate));
    let series = [
        Series { name: "removed".to_owned(), number: 1, points: removed },
        Series { name: "new".to_owned(), number: SOLID, points: added },
    ];
    let axes = Axes {
        x: ("requests analysed", points.last().map_or(0.0, |point| point.traces as f64)),
        y: ("changes per 1000 requests", highest.ceil()),
        x_text: &count_text,
        y_text: &|log| count_text(&(10f64.powf(*log) - 1.0)),
        legend: SeriesLabelPosition::UpperRight,
    };
    lines("the changes", &axes, &series)
}

/// A count with few digits.
fn count_text(count: &f64) -> String {
    match count.abs() {
        small if small < 9.5 && small.fract() > 0.05 => format!("{count:.1}"),
        small if small < 1e4 => format!("{count:.0}"),
        thousands if thousands < 1e6 => format!("{:.0}k", count / 1e3),
        _ => format!("{:.1}M", count / 1e6),
    }
}

/// A cumulative distribution of durations, up to that which 99 % do not exceed.
pub fn duration_cdf(
    what: &'static str,
    axis: &str,
    distribution: &Distribution,
) -> Result<Picture, PictureError> {
    let point = |step: usize| {
        let part = step as f64 / CDF_POINTS as f64;
        (distribution.quantile_ns(part) as f64, part)
    };
    let end_ns = distribution.quantile_ns(0.99) as f64;
    let mut points: Vec<(f64, f64)> = (0..=CDF_POINTS).map(point).filter(|(ns, _)| *ns <= end_ns).collect();
    // Where all are 0 there is an axis all the same.
    let axis_ns = end_ns.max(AXIS_MIN_NS);
    points.extend(points.last().map(|(_, part)| (axis_ns, *part)));
    let axes = Axes {
        x: (axis, axis_ns),
        y: ("of requests", 1.0),
        x_text: &|ns| duration(*ns),
        y_text: &|part| format!("{:.0}%", part * 100.0),
        legend: SeriesLabelPosition::LowerRight,
    };
    lines(what, &axes, &[Series { name: axis.to_owned(), number: SOLID, points }])
}

/// Each category's share of the critical path as a cumulative distribution (The Mystery Machine, figure 6).
pub fn share_cdfs(names: &[String], breakdown: &Breakdown) -> Result<Picture, PictureError> {
    let one = |(number, name): (usize, &String)| {
        let point = |(step, part): (usize, f64)| (step as f64 / SHARE_STEPS as f64, part);
        Series {
            name: name.clone(),
            number,
            points: breakdown.share_cdf(number).into_iter().enumerate().map(point).collect(),
        }
    };
    let series: Vec<Series> = names.iter().enumerate().map(one).collect();
    let share = |part: &f64| format!("{:.0}%", part * 100.0);
    let axes = Axes {
        x: ("share of the critical path", 1.0),
        y: ("of requests", 1.0),
        x_text: &share,
        y_text: &share,
        legend: SeriesLabelPosition::LowerRight,
    };
    lines("the categories' shares", &axes, &series)
}

/// A part of a stacked bar.
#[derive(Clone)]
pub struct BarPart {
    /// What it is called.
    pub name: String,
    /// How long it is.
    pub ns: f64,
    /// Of the series of this number.
    pub color: usize,
}

/// Stacked horizontal bars over one axis of time.
pub fn stacked_bars(
    what: &'static str,
    axis: &str,
    bars: &[(&str, Vec<BarPart>)],
) -> Result<Picture, PictureError> {
    const BAR_PX: u32 = 54;
    const NAMES_PX: u32 = 190;
    /// Characters of a name that fit before the bars.
    const NAME_CHARS: usize = 25;
    let height_px = bars.len() as u32 * BAR_PX + 110;
    let sum = |parts: &[BarPart]| parts.iter().map(|part| part.ns).sum::<f64>();
    let longest_ns = bars.iter().map(|(_, parts)| sum(parts)).fold(0.0, f64::max).max(1.0);
    Picture::draw(what, (STACKED_WIDTH_PX, height_px), |canvas| {
        let count = bars.len() as f64;
        let mut chart = ChartBuilder::on(canvas)
            .margin(10)
            .margin_right(30)
            .margin_top(44)
            .x_label_area_size(46)
            .y_label_area_size(NAMES_PX)
            .build_cartesian_2d(0.0..longest_ns * 1.02, 0.0..count)?;
        chart
            .configure_mesh()
            .x_desc(axis)
            .x_labels(8)
            .x_label_formatter(&|ns: &f64| duration(*ns))
            .y_labels(0)
            .axis_desc_style((SANS, TEXT).into_font().color(&INK))
            .label_style((SANS, SMALL).into_font().color(&INK))
            .axis_style(INK)
            .bold_line_style(FAINT)
            .light_line_style(TRANSPARENT)
            .draw()?;
        for (row, (_, parts)) in bars.iter().enumerate() {
            let bottom = count - row as f64 - 0.85;
            let mut from_ns = 0.0;
            for part in parts {
                let to_ns = from_ns + part.ns;
                let corners = [(from_ns, bottom), (to_ns, bottom + 0.6)];
                chart.draw_series([Rectangle::new(corners, series_color(part.color).filled())])?;
                chart.draw_series([Rectangle::new(corners, WHITE.stroke_width(1))])?;
                from_ns = to_ns;
            }
        }
        let (_, rows_px) = chart.plotting_area().get_pixel_range();
        for (row, (name, parts)) in bars.iter().enumerate() {
            let height_px = f64::from(rows_px.end - rows_px.start) / count;
            let y = rows_px.start + ((row as f64 + 0.35) * height_px) as i32;
            write(canvas, &label(name, NAME_CHARS), (12, y), SMALL)?;
            write(canvas, &duration(sum(parts)), (12, y + 17), SMALL)?;
        }
        legend(canvas, bars.first().map_or(&[], |(_, parts)| parts))
    })
}

/// One line of coloured squares with names.
fn legend(canvas: &super::svg::Canvas<'_>, parts: &[BarPart]) -> Drawn {
    let mut x = 200;
    for part in parts {
        canvas.draw(&Rectangle::new([(x, 14), (x + 14, 28)], series_color(part.color).filled()))?;
        let name = label(&part.name, 20);
        write(canvas, &name, (x + 20, 14), SMALL)?;
        x += 44 + name.chars().count() as i32 * 8;
    }
    Ok(())
}

/// Writes a text with its upper left corner there.
pub fn write(canvas: &super::svg::Canvas<'_>, text: &str, at: (i32, i32), size: i32) -> Drawn {
    canvas.draw(&Text::new(label(text, 400), at, (SANS, size).into_font().color(&INK)))?;
    Ok(())
}

/// Horizontal bars of shares with their names, the first at the top.
pub fn share_bars(what: &'static str, bars: &[(String, f64, String)]) -> Result<Picture, PictureError> {
    const ROW_PX: i32 = 24;
    const NAMES_PX: i32 = 340;
    const BARS_PX: i32 = 390;
    let height_px = (bars.len() as i32 * ROW_PX + 16) as u32;
    let largest = bars.iter().map(|(_, share, _)| *share).fold(f64::MIN_POSITIVE, f64::max);
    Picture::draw(what, (BARS_WIDTH_PX, height_px), |canvas| {
        for (row, (name, share, beside)) in bars.iter().enumerate() {
            let y = 8 + row as i32 * ROW_PX;
            write(canvas, &label(name, LABEL_CHARS), (4, y + 3), SMALL)?;
            let end = NAMES_PX + (share / largest * f64::from(BARS_PX)).round() as i32;
            let corners = [(NAMES_PX, y + 2), (end.max(NAMES_PX + 1), y + ROW_PX - 4)];
            canvas.draw(&Rectangle::new(corners, series_color(2).filled()))?;
            write(canvas, &format!("{} {beside}", percent(*share)), (end + 6, y + 3), SMALL)?;
        }
        Ok(())
    })
}
