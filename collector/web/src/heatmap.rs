//! Latency heatmap over time. Each cell links to its requests; a track below shows the recorded
//! periods.

use chrono::DateTime;
use stroboscope_analysis::sampling::WeightedCount;
use stroboscope_query::{Heatmap, HeatmapCell, band_edges_ns};
use stroboscope_render::humanise::{counted, duration_spaced, duration_tick};
use stroboscope_render::page::Html;

const WIDTH_PX: f64 = 1080.0;
const LEFT_PX: f64 = 64.0;
const RIGHT_PX: f64 = 16.0;
const TOP_PX: f64 = 8.0;
const BAND_PX: f64 = 12.0;
/// Height of the chart of request counts below the picture; `BURSTS_PX` is that of the track of
/// recorded periods.
const LOAD_PX: f64 = 34.0;
const BURSTS_PX: f64 = 8.0;
const GAP_PX: f64 = 10.0;
const BELOW_PX: f64 = 24.0;
/// Classes of the cells, in order of increasing intensity.
const LEVELS: [&str; 8] = [
    "cell h1", "cell h2", "cell h3", "cell h4", "cell h5", "cell h6", "cell h7", "cell h8",
];
/// Approximate maximum number of marks on the time axis.
const MARKS: i64 = 8;
/// Steps between marks, in seconds; in milliseconds if the whole range is shorter than two seconds.
const STEPS_S: [i64; 20] = [
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200,
    86_400, 172_800, 604_800,
];

struct Plot<'a> {
    map: &'a Heatmap,
    edges_ns: Vec<u64>,
    lowest: usize,
    highest: usize,
    /// Largest number of requests in a cell, at least 1.
    most: f64,
}

/// Draws the heatmap; returns nothing if there is no request.
pub(crate) fn heatmap(map: &Heatmap, bursts: &[(i64, i64)], step_ns: Option<i64>) -> Html {
    let mut html = Html::new();
    let bands = || map.cells.iter().map(|cell| cell.band);
    let (Some(lowest), Some(highest)) = (bands().min(), bands().max()) else {
        return html;
    };
    // Additional bands above and (if there is one) below keep few requests from filling the picture
    // with one colour.
    let plot = Plot {
        map,
        edges_ns: band_edges_ns(),
        lowest: lowest.saturating_sub(1),
        highest: highest + 1,
        most: map
            .cells
            .iter()
            .map(|cell| cell.requests.estimate())
            .fold(1.0, f64::max),
    };
    plot.open(&mut html);
    plot.scales(&mut html);
    for cell in &map.cells {
        plot.cell(&mut html, cell);
    }
    if let Some(step_ns) = step_ns {
        plot.step(&mut html, step_ns);
    }
    plot.load(&mut html);
    plot.bursts(&mut html, bursts);
    plot.times(&mut html);
    html.markup("</svg></div>\n");
    plot.table(&mut html);
    html.markup("</figure>\n");
    html
}

impl Plot<'_> {
    fn edge_ns(&self, band: usize) -> u64 {
        self.edges_ns.get(band).copied().unwrap_or(u64::MAX)
    }

    /// Returns the durations of a band, from the first up to the second, exclusive. The lowest band
    /// also holds durations of 0.
    fn band_ns(&self, band: usize) -> (u64, u64) {
        let from_ns = if band == 0 { 0 } else { self.edge_ns(band) };
        (from_ns, self.edge_ns(band + 1))
    }

    fn end_ns(&self) -> i64 {
        self.map.column_from_ns(self.map.columns)
    }

    fn bands_bottom(&self) -> f64 {
        TOP_PX + (self.highest - self.lowest + 1) as f64 * BAND_PX
    }

    fn x(&self, column: f64) -> f64 {
        let all = self.map.columns.max(1) as f64;
        LEFT_PX + column / all * (WIDTH_PX - LEFT_PX - RIGHT_PX)
    }

    fn x_of_ns(&self, at_ns: i64) -> f64 {
        let columns = (at_ns - self.map.from_ns) as f64 / self.map.column_ns.max(1) as f64;
        self.x(columns.clamp(0.0, self.map.columns as f64))
    }

    /// Returns the y coordinate of a band's upper edge.
    fn y(&self, band: usize) -> f64 {
        self.bands_bottom() - (band + 1 - self.lowest) as f64 * BAND_PX
    }

    fn open(&self, html: &mut Html) {
        let edges = &self.edges_ns[self.lowest..=(self.highest + 1).min(self.edges_ns.len() - 1)];
        let all: WeightedCount = self.map.cells.iter().map(|cell| cell.requests).sum();
        let height = self.bands_bottom() + GAP_PX + LOAD_PX + GAP_PX + BURSTS_PX + BELOW_PX;
        html.markup(
            "<figure class=\"heatmap\" data-select=\"/traces?from={from_ns}&amp;to={to_ns}&amp;min={min_ns}&amp;max={max_ns}\" \
             data-compare=\"/compare?before={before}&amp;after={after}\" data-explain=\"/explain?before={before}&amp;after={after}\" \
             data-x0-ns=\"",
        )
        .shown(self.map.from_ns)
        .markup("\" data-x1-ns=\"")
        .shown(self.end_ns())
        .markup("\" data-y=\"")
        .text(&serde_json::to_string(edges).unwrap_or_default())
        .markup("\"><figcaption>Latency over time</figcaption><p class=\"hint\">The stronger the colour, the more requests began then and took that \
                 long; each cell links to them, and from there to a comparison with earlier requests. Below: \
                 requests begun, and recorded periods.</p>")
        .markup("<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"Latency over time\">")
        .markup("<svg class=\"picture\" role=\"group\" viewBox=\"0 0 ")
        .shown(WIDTH_PX)
        .markup(" ")
        .px(height)
        .markup("\" aria-label=\"")
        .text(&format!(
            "{} over {}, by when they began and how long they took; a table below has the same numbers",
            counted(all.rounded(), "request"),
            duration_spaced((self.end_ns() - self.map.from_ns) as f64)
        ))
        .markup("\">");
    }

    /// Draws the latency axis, with a line at each power of ten.
    fn scales(&self, html: &mut Html) {
        for band in self.lowest..=self.highest + 1 {
            let edge_ns = self.edge_ns(band);
            if !is_power_of_ten(edge_ns) {
                continue;
            }
            let y = self.y(band) + BAND_PX;
            write_line(
                html,
                "<line class=\"grid\" x1=\"",
                (LEFT_PX, y),
                (WIDTH_PX - RIGHT_PX, y),
            );
            write_text(
                html,
                "<text class=\"tick end\" x=\"",
                (LEFT_PX - 8.0, y + 4.0),
                &duration_tick(edge_ns as f64),
            );
        }
    }

    fn cell(&self, html: &mut Html, cell: &HeatmapCell) {
        let (from_ns, to_ns) = (
            self.map.column_from_ns(cell.column),
            self.map.column_from_ns(cell.column + 1),
        );
        let (min_ns, max_ns) = self.band_ns(cell.band);
        let depth = cell.requests.estimate().ln_1p() / self.most.ln_1p();
        let level = ((depth * LEVELS.len() as f64).ceil() as usize).clamp(1, LEVELS.len()) - 1;
        let said = format!(
            "{}, {} to {}, at {}",
            counted(cell.requests.rounded(), "request"),
            duration_tick(min_ns as f64),
            duration_tick(max_ns as f64),
            moment(from_ns, self.map.column_ns)
        );
        let (x1, x2) = (self.x(cell.column as f64), self.x(cell.column as f64 + 1.0));
        // The keyboard skips the cells, because there may be thousands. The table has links by
        // latency.
        html.markup("<a tabindex=\"-1\" href=\"/traces?from=")
            .shown(from_ns)
            .markup("&amp;to=")
            .shown(to_ns)
            .markup("&amp;min=")
            .shown(min_ns)
            .markup("&amp;max=")
            .shown(max_ns)
            .markup("\" aria-label=\"")
            .text(&said)
            .markup("\"><rect class=\"")
            .markup(LEVELS[level])
            .markup("\" x=\"")
            .px(x1)
            .markup("\" y=\"")
            .px(self.y(cell.band))
            .markup("\" width=\"")
            .px((x2 - x1 - 0.4).max(0.6))
            .markup("\" height=\"")
            .px(BAND_PX - 0.6)
            .markup("\" data-count=\"")
            .shown(cell.requests.rounded())
            .markup("\" data-from-ns=\"")
            .shown(from_ns)
            .markup("\" data-to-ns=\"")
            .shown(to_ns)
            .markup("\" data-min-ns=\"")
            .shown(min_ns)
            .markup("\" data-max-ns=\"")
            .shown(max_ns)
            .markup("\"><title>")
            .text(&said)
            .markup("</title></rect></a>");
    }

    /// Marks the time at which latency changed.
    fn step(&self, html: &mut Html, step_ns: i64) {
        let x = self.x_of_ns(step_ns);
        write_line(
            html,
            "<line class=\"since\" x1=\"",
            (x, TOP_PX),
            (x, self.bands_bottom()),
        );
    }

    /// Draws the number of requests that began in each column.
    fn load(&self, html: &mut Html) {
        let mut began = vec![WeightedCount::default(); self.map.columns];
        for cell in &self.map.cells {
            began[cell.column] += cell.requests;
        }
        let began: Vec<u64> = began.into_iter().map(WeightedCount::rounded).collect();
        let most = began.iter().copied().max().unwrap_or(0).max(1);
        let top = self.bands_bottom() + GAP_PX;
        write_text(
            html,
            "<text class=\"tick end\" x=\"",
            (LEFT_PX - 8.0, top + 10.0),
            &most.to_string(),
        );
        write_text(
            html,
            "<text class=\"tick end\" x=\"",
            (LEFT_PX - 8.0, top + LOAD_PX),
            "0",
        );
        for (column, count) in began.iter().enumerate().filter(|(_, count)| **count > 0) {
            let height = (*count as f64 / most as f64 * LOAD_PX).max(1.0);
            let (x1, x2) = (self.x(column as f64), self.x(column as f64 + 1.0));
            let corner = (x1, top + LOAD_PX - height);
            write_rect(
                html,
                "<rect class=\"load\" x=\"",
                corner,
                ((x2 - x1 - 0.4).max(0.6), height),
            );
        }
    }

    /// Draws the recorded periods, because nothing is known about the time between them.
    fn bursts(&self, html: &mut Html, bursts: &[(i64, i64)]) {
        let top = self.bands_bottom() + GAP_PX + LOAD_PX + GAP_PX;
        write_rect(
            html,
            "<rect class=\"track\" x=\"",
            (LEFT_PX, top),
            (WIDTH_PX - LEFT_PX - RIGHT_PX, BURSTS_PX),
        );
        let mut drawn_to = f64::MIN;
        for (open_ns, close_ns) in bursts {
            if *close_ns < self.map.from_ns || *open_ns > self.end_ns() {
                continue;
            }
            let (x1, x2) = (self.x_of_ns(*open_ns), self.x_of_ns(*close_ns));
            // The previous mark covers this burst.
            if x2 <= drawn_to {
                continue;
            }
            let x1 = x1.max(drawn_to);
            write_rect(
                html,
                "<rect class=\"burst\" x=\"",
                (x1, top),
                ((x2 - x1).max(0.6), BURSTS_PX),
            );
            drawn_to = x2.max(x1 + 0.6);
        }
    }

    fn times(&self, html: &mut Html) {
        let bottom = self.bands_bottom() + GAP_PX + LOAD_PX + GAP_PX + BURSTS_PX;
        let length_ns = self.end_ns() - self.map.from_ns;
        let is_short = length_ns < 2_000_000_000;
        let unit_ns = if is_short { 1_000_000 } else { 1_000_000_000 };
        let steps_ns = STEPS_S.map(|step| step * unit_ns);
        let step_ns = steps_ns
            .into_iter()
            .find(|step_ns| length_ns / step_ns <= MARKS);
        let step_ns = step_ns.unwrap_or(length_ns / MARKS + 1);
        let mut at_ns = self
            .map
            .from_ns
            .div_euclid(step_ns)
            .saturating_add(1)
            .saturating_mul(step_ns);
        while at_ns < self.end_ns() {
            let x = self.x_of_ns(at_ns);
            write_line(
                html,
                "<line class=\"axis\" x1=\"",
                (x, bottom),
                (x, bottom + 4.0),
            );
            // A label that would be cut off at the edge is omitted.
            if x < WIDTH_PX - 40.0 {
                write_text(
                    html,
                    "<text class=\"tick mid\" x=\"",
                    (x, bottom + 18.0),
                    &moment(at_ns, step_ns),
                );
            }
            at_ns = at_ns.saturating_add(step_ns);
        }
    }

    /// Writes the data as a table for readers who cannot see the picture: by latency, with links to
    /// the requests.
    fn table(&self, html: &mut Html) {
        html.markup(
            "<details><summary>As a table</summary><div class=\"wide\"><table class=\"data\"><thead><tr>\
             <th scope=\"col\" data-kind=\"duration_ns\">from</th><th scope=\"col\" data-kind=\"duration_ns\">to</th>\
             <th scope=\"col\" data-kind=\"count\">requests</th></tr></thead><tbody>\n",
        );
        for band in (self.lowest..=self.highest).rev() {
            let of_band = self.map.cells.iter().filter(|cell| cell.band == band);
            let requests: WeightedCount = of_band.map(|cell| cell.requests).sum();
            let requests = requests.rounded();
            if requests == 0 {
                continue;
            }
            let (min_ns, max_ns) = self.band_ns(band);
            html.markup("<tr><td data-label=\"from\" data-value=\"")
                .shown(min_ns)
                .markup("\">")
                .text(&duration_spaced(min_ns as f64))
                .markup("</td><td data-label=\"to\" data-value=\"")
                .shown(max_ns)
                .markup("\">")
                .text(&duration_spaced(max_ns as f64))
                .markup("</td><td data-label=\"requests\" data-value=\"")
                .shown(requests)
                .markup("\"><a href=\"/traces?min=")
                .shown(min_ns)
                .markup("&amp;max=")
                .shown(max_ns)
                .markup("\">")
                .shown(requests)
                .markup("</a></td></tr>\n");
        }
        html.markup("</tbody></table></div></details>\n");
    }
}

fn is_power_of_ten(number: u64) -> bool {
    number > 0 && 10u64.checked_pow(number.ilog10()) == Some(number)
}

/// Formats an instant as a date, or as a time of day to the minute, second or millisecond,
/// depending on the step.
fn moment(at_ns: i64, step_ns: i64) -> String {
    let format = match step_ns {
        step_ns if step_ns >= 86_400_000_000_000 => "%m-%d",
        step_ns if step_ns >= 60_000_000_000 => "%H:%M",
        step_ns if step_ns >= 1_000_000_000 => "%H:%M:%S",
        _ => "%H:%M:%S%.3f",
    };
    DateTime::from_timestamp_nanos(at_ns)
        .format(format)
        .to_string()
}

fn write_line(html: &mut Html, open: &'static str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
    html.markup(open)
        .px(x1)
        .markup("\" y1=\"")
        .px(y1)
        .markup("\" x2=\"")
        .px(x2)
        .markup("\" y2=\"")
        .px(y2)
        .markup("\"/>");
}

fn write_text(html: &mut Html, open: &'static str, (x, y): (f64, f64), text: &str) {
    html.markup(open)
        .px(x)
        .markup("\" y=\"")
        .px(y)
        .markup("\">")
        .text(text)
        .markup("</text>");
}

fn write_rect(
    html: &mut Html,
    open: &'static str,
    (x, y): (f64, f64),
    (width, height): (f64, f64),
) {
    html.markup(open)
        .px(x)
        .markup("\" y=\"")
        .px(y)
        .markup("\" width=\"")
        .px(width)
        .markup("\" height=\"")
        .px(height)
        .markup("\"/>");
}

#[cfg(test)]
mod tests {
    use super::*;
    use stroboscope_analysis::record::TraceId;
    use stroboscope_analysis::sampling::Weight;

    /// Returns a heatmap of seven requests in this band.
    fn map_of(band: usize) -> Heatmap {
        let mut one = WeightedCount::default();
        one.count(Weight::ONE);
        Heatmap {
            from_ns: 1_700_000_000_000_000_000,
            column_ns: 1 << 30,
            columns: 3,
            cells: vec![HeatmapCell {
                column: 2,
                band,
                requests: (0..7).map(|_| one).sum(),
                example: TraceId(1),
            }],
        }
    }

    #[test]
    fn the_lowest_band_leads_to_requests_without_duration() {
        let page = heatmap(&map_of(0), &[], None).into_string();
        let link = format!("min=0&amp;max={}", band_edges_ns()[1]);
        // The cell's and the table's.
        assert_eq!(page.matches(&link).count(), 2, "{page}");
    }

    #[test]
    fn each_part_leads_to_its_requests() {
        let edges = band_edges_ns();
        let band = edges.iter().position(|edge| *edge == 1_000_000).unwrap();
        let map = map_of(band);
        let from_ns = map.from_ns;
        // The first burst is not in the range; the mark of the third one covers the fourth.
        let bursts = [-9, 0, 1 << 30, (1 << 30) + 6, 2 << 30];
        let bursts = bursts.map(|at| (from_ns + at, from_ns + at + 1));
        let page = heatmap(&map, &bursts, Some(from_ns + 1_000_000_000)).into_string();
        let from = from_ns + (2 << 30);
        let link = format!(
            "/traces?from={from}&amp;to={}&amp;min=1000000&amp;max={}",
            from + (1 << 30),
            edges[band + 1]
        );
        assert!(page.contains(&link), "{page}");
        assert!(
            page.contains("data-count=\"7\"") && page.contains("1\u{a0}ms</text>"),
            "{page}"
        );
        assert_eq!(page.matches("class=\"burst\"").count(), 3, "{page}");
        assert_eq!(page.matches("class=\"since\"").count(), 1, "{page}");
        assert!(
            page.contains("data-compare=\"/compare?before={before}&amp;after={after}\""),
            "{page}"
        );
        assert!(heatmap(&Heatmap::default(), &[], None).is_empty());
    }

    #[test]
    fn moments_are_as_fine_as_steps() {
        assert_eq!(moment(0, 1_000_000), "00:00:00.000");
        assert_eq!(moment(61_000_000_000, 1_000_000_000), "00:01:01");
        assert_eq!(moment(0, 86_400_000_000_000), "01-01");
    }
}
