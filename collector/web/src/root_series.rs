//! Rate, failures and latency of each root operation over time, as rows of small pictures.

use stroboscope_query::{LatencyStep, RootColumn, RootSeries};
use stroboscope_render::humanise::{counted, duration_spaced, percent};
use stroboscope_render::page::{Html, path_segment};

/// Height of a picture in its own units. The number of columns is its width before stretching.
const HEIGHT: f64 = 24.0;
/// CSS classes of the lines of latency, one for each percentile.
const PERCENTILES: [&str; 3] = ["p50", "p95", "p99"];

/// Draws rate, failures and latency of root operations, with a line at the latency change `step` of
/// one of them. Draws nothing if all series together have only one column, or if there are none.
/// Otherwise states how many of the `roots` root operations have no series, if any.
pub(crate) fn root_series(series: &[RootSeries], roots: usize, step: Option<&LatencyStep>) -> Html {
    let mut html = Html::new();
    if series.iter().all(|series| width(series) < 2) {
        return html;
    }
    html.markup("<figure class=\"series\"><figcaption>Root operations over time</figcaption><div class=\"series-rows\">");
    for series in series {
        html.markup("<a class=\"series-root\" href=\"/critical-path?root=")
            .text(&path_segment(&series.root))
            .markup("\">")
            .text(&series.root)
            .markup("</a>");
        let step = step.filter(|step| step.root == series.root);
        let since = step.map(|step| series.place(step.at_ns));
        rate(&mut html, series, since);
        failures(&mut html, series, since);
        latency(&mut html, series, since);
    }
    html.markup("</div>");
    let others = roots.saturating_sub(series.len()) as u64;
    if others > 0 {
        let others = counted(others, "root operation");
        html.markup("<p class=\"hint\">")
            .text(&format!(
                "{others} with less time are not drawn; the table below has all."
            ))
            .markup("</p>");
    }
    html.markup("</figure>\n");
    html
}

/// Returns the number of columns, including those without requests.
fn width(series: &RootSeries) -> i64 {
    series.place(series.until_ns)
}

/// Opens a picture with its text above it.
fn open(html: &mut Html, series: &RootSeries, text: &str) {
    html.markup("<div class=\"spark\"><span class=\"hint\">")
        .text(text)
        .markup("</span><svg role=\"img\" preserveAspectRatio=\"none\" viewBox=\"0 0 ")
        .shown(width(series))
        .markup(" ")
        .px(HEIGHT)
        .markup("\" aria-label=\"")
        .text(&format!("{}, {text}", series.root))
        .markup("\">");
}

/// Closes a picture. Draws a line at the start of the column `since`, if given: there, the latency
/// of the operation changed.
fn close(html: &mut Html, since: Option<i64>) {
    if let Some(since) = since {
        html.markup("<path class=\"since\" d=\"M")
            .shown(since)
            .markup(" 0V")
            .px(HEIGHT)
            .markup("\"/>");
    }
    html.markup("</svg></div>");
}

/// Draws a bar for each column whose `share`, 0 to 1, is above 0.
fn bars(
    html: &mut Html,
    class: &'static str,
    series: &RootSeries,
    share: impl Fn(&RootColumn) -> f64,
) {
    for column in series.columns.iter().filter(|column| share(column) > 0.0) {
        // Every bar is at least one unit high, so that it is visible.
        let height = (share(column) * HEIGHT).max(1.0);
        html.markup("<rect class=\"")
            .markup(class)
            .markup("\" x=\"")
            .shown(series.place(column.from_ns))
            .markup("\" y=\"")
            .px(HEIGHT - height)
            .markup("\" width=\"1\" height=\"")
            .px(height)
            .markup("\"/>");
    }
}

fn rate(html: &mut Html, series: &RootSeries, since: Option<i64>) {
    let most = series.columns.iter().map(|column| column.requests).max();
    let most = most.unwrap_or_default();
    let width = duration_spaced(series.column_ns as f64);
    let text = format!("up to {} in {width}", counted(most, "request"));
    open(html, series, &text);
    let share = |column: &RootColumn| column.requests as f64 / most.max(1) as f64;
    bars(html, "load", series, share);
    close(html, since);
}

fn failures(html: &mut Html, series: &RootSeries, since: Option<i64>) {
    let share = |column: &RootColumn| column.failed as f64 / column.requests.max(1) as f64;
    let most = series.columns.iter().map(share).fold(0.0, f64::max);
    if most == 0.0 {
        html.markup("<div class=\"spark\"><span class=\"hint\">none failed</span></div>");
        return;
    }
    open(html, series, &format!("up to {} failed", percent(most)));
    bars(html, "lost", series, |column| share(column) / most);
    close(html, since);
}

/// Draws the percentiles as lines: level within a column, and interrupted where no request began.
fn latency(html: &mut Html, series: &RootSeries, since: Option<i64>) {
    let of = |column: &RootColumn| [column.p50_ns, column.p95_ns, column.p99_ns];
    let longest = series.columns.iter().map(|column| column.p99_ns).max();
    let longest = longest.unwrap_or_default();
    let text = format!("p50, p95, p99 up to {}", duration_spaced(longest as f64));
    open(html, series, &text);
    for (place, class) in PERCENTILES.into_iter().enumerate() {
        html.markup("<path class=\"percentile ")
            .markup(class)
            .markup("\" d=\"");
        let mut end = None;
        for column in &series.columns {
            let at = series.place(column.from_ns);
            let y =
                HEIGHT - 1.0 - (HEIGHT - 2.0) * of(column)[place] as f64 / longest.max(1) as f64;
            if end == Some(at) {
                html.markup("V").px(y);
            } else {
                html.markup("M").shown(at).markup(" ").px(y);
            }
            html.markup("H").shown(at + 1);
            end = Some(at + 1);
        }
        html.markup("\"/>");
    }
    close(html, since);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_interrupted_where_no_request_began() {
        let column = |place: i64, requests: u64, failed: u64| RootColumn {
            from_ns: place * 2_000_000_000,
            requests,
            failed,
            p50_ns: 1_000_000,
            p95_ns: 2_000_000,
            p99_ns: 2_000_000 * requests,
        };
        let series = |width: i64, columns| RootSeries {
            root: "<a>:b".to_owned(),
            from_ns: 0,
            until_ns: width * 2_000_000_000,
            column_ns: 2_000_000_000,
            columns,
        };
        let step = LatencyStep {
            root: "<a>:b".to_owned(),
            before_from_ns: 0,
            at_ns: 2_000_000_000,
            until_ns: 8_000_000_000,
            medians_ns: [1, 2],
            p95_ns: [1, 2],
            requests: [1, 3],
            p_value: 0.0,
            requests_needed: None,
        };
        assert!(root_series(&[series(1, vec![column(0, 1, 1)])], 1, None).is_empty());
        let columns = vec![column(0, 1, 0), column(1, 2, 1), column(3, 1, 0)];
        let all = [series(4, columns)];
        let html = root_series(&all, 3, Some(&step)).into_string();
        assert!(html.contains("up to 2 requests in 2.00\u{a0}s"), "{html}");
        assert!(html.contains("up to 50.0% failed"), "{html}");
        assert!(html.contains("p50, p95, p99 up to 4.00\u{a0}ms"), "{html}");
        assert!(
            html.contains("<path class=\"percentile p99\" d=\"M0 12H1V1H2M3 12H4\"/>"),
            "{html}"
        );
        assert!(
            html.contains("href=\"/critical-path?root=%3Ca%3E") && !html.contains("<a>:b"),
            "{html}"
        );
        assert_eq!(html.matches("<rect class=\"load\"").count(), 3);
        assert_eq!(html.matches("<rect class=\"lost\"").count(), 1);
        assert_eq!(
            html.matches("<path class=\"since\" d=\"M1 0V24\"/>")
                .count(),
            3
        );
        assert!(html.contains("2 root operations with less time"), "{html}");
        let other = LatencyStep {
            root: "c:d".to_owned(),
            ..step
        };
        let html = root_series(&all, 1, Some(&other)).into_string();
        assert!(
            !html.contains("since") && !html.contains("with less time"),
            "{html}"
        );
    }
}
