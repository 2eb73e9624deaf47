//! `/`: the overview page.

use std::time::Instant;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use stroboscope_query::{Bottleneck, InferSettings, Notes, QueryError, Study};
use stroboscope_render::humanise::{are, count_spaced, counted, duration_spaced, percent};
use stroboscope_render::page::{Asset, Html, PagedRows, body, paged_body, path_segment};
use stroboscope_render::show::Doc;
use stroboscope_reports::overview::{OverviewReport, step_text};
use tokio::runtime::Handle;

use crate::heatmap::heatmap;
use crate::periods::TwoPeriods;
use crate::progress::ProgressSender;
use crate::range_strip::RangeUse;
use crate::respond::{Head, NoPage, content, page, page_now};
use crate::root_series::root_series;
use crate::scope::Scope;
use crate::site::Site;

/// Default maximum number of rows in the tables of root operations and of losses.
const ROWS_SHOWN: usize = 15;

pub(crate) async fn overview(State(site): State<Site>, scope: Scope) -> Response {
    let mut head = Head::new("Overview", "/", &scope, RangeUse::RangeAndRoot);
    head.scripts = &[Asset::Heatmap];
    if let Err(wrong) = scope.check() {
        return page_now(&site, head, Err(NoPage::bad_request(wrong))).await;
    }
    page(
        &site,
        head,
        &scope.key("/"),
        move |site, runtime, telling| {
            let mut html = Html::new();
            html.markup("<div data-live=\"")
                .text(&scope.with_rows("/fragment/overview"))
                .markup("\" data-live-seconds=\"5\">")
                .html(&content_of(&scope, site, runtime, telling)?)
                .markup("</div>\n");
            Ok(html)
        },
    )
    .await
}

/// Returns the part of the page that refreshes itself.
pub(crate) async fn fragment(State(site): State<Site>, scope: Scope) -> Response {
    let key = scope.key("/fragment/overview");
    if let Some(answer) = site.refreshed().fresh(&key) {
        return answer.carrying(&scope).alone();
    }
    let (began, of_scope) = (Instant::now(), scope.clone());
    let answer = content(&site, &key, move |site, runtime, telling| {
        content_of(&of_scope, site, runtime, telling)
    })
    .await;
    site.refreshed().keep(key, &answer, began.elapsed());
    answer.carrying(&scope).alone()
}

/// Converts an error of the store to content for the page, with an HTTP status.
fn unreadable(error: &QueryError) -> NoPage {
    match error {
        QueryError::NoneInRange(_) => NoPage {
            status: StatusCode::OK,
            message: "Nothing to show: no request began in this time range. The strip above shows when requests \
             began."
                .to_owned(),
        },
        QueryError::Empty { .. } => NoPage {
            status: StatusCode::OK,
            message: format!(
                "Nothing to show yet: {error}. Point services here with STROBOSCOPE_COLLECTOR, or try `stroboscope demo`."
            ),
        },
        QueryError::Memory { lack, .. } => NoPage::lack(*lack, error),
        other => NoPage {
            status: StatusCode::UNPROCESSABLE_ENTITY,
            message: other.to_string(),
        },
    }
}

fn content_of(
    scope: &Scope,
    site: &Site,
    runtime: &Handle,
    telling: &ProgressSender,
) -> Result<Html, NoPage> {
    let source = site
        .source(runtime, telling.observer())
        .map_err(|error| unreadable(&error))?;
    let source = source.with_root(scope.root());
    let selection = scope.selection(site, runtime);
    let selection = selection.map_err(NoPage::bad_request)?;
    let study = Study::new(source, selection, InferSettings::default());
    let report = OverviewReport::of(&study).map_err(|error| unreadable(&error))?;
    let bursts = study
        .source()
        .bursts()
        .map_err(|error| unreadable(&error))?;
    let mut html = Html::new();
    for sentence in &report.circumstances {
        html.markup("<p class=\"notice error\">")
            .text(sentence)
            .markup("</p>\n");
    }
    headline(&mut html, &report);
    damage(&mut html, &report.notes);
    figures(&mut html, &report);
    let sure = report.step.as_ref();
    let sure = sure.filter(|step| step.requests_needed.is_none());
    html.html(&heatmap(&report.map, &bursts, sure.map(|step| step.at_ns)));
    html.html(&root_series(&report.series, report.roots.len(), sure));
    let mut doc = Doc::new();
    if let Some(waits) = report.waits() {
        doc.figure(waits);
    }
    html.html(&body(&doc));
    ways_on(&mut html, &report.bottlenecks, site.has_kernel(runtime));
    let mut doc = Doc::new();
    doc.table("", &report.roots, ROWS_SHOWN);
    quality(&mut doc, &report);
    let rows = PagedRows {
        rows: scope.rows,
        address: "/?",
    };
    html.html(&paged_body(&doc, rows));
    Ok(html)
}

/// Writes the headline: a change of latency, percentiles, failures, and the waits of requests.
fn headline(html: &mut Html, report: &OverviewReport) {
    if report.used_traces == 0 {
        return;
    }
    html.markup("<p class=\"lede\">");
    if let Some(step) = &report.step {
        html.text(&step_text(step)).markup(" (");
        let periods = TwoPeriods {
            before_from_ns: Some(step.before_from_ns),
            at_ns: step.at_ns,
            until_ns: Some(step.until_ns),
            root: Some(&step.root),
        };
        periods.link(html, "compare", "compare before and after");
        html.markup(" · ");
        periods.link(html, "explain", "explain what changed");
        html.markup(").</p>\n<p>");
    }
    html.text(&format!(
        "Half of {} take up to {}, one in a hundred more than {}.",
        report.latency_is_of,
        duration_spaced(report.latency.p50_ns as f64),
        duration_spaced(report.latency.p99_ns as f64)
    ));
    if let Some(text) = report.without_failed_text() {
        html.text(" ").text(&text);
    }
    if report.failed > 0 {
        html.text(&format!(" {} failed: ", counted(report.failed, "request")))
            .markup("<a href=\"/failures\">when this began, where failures start, and which requests they affect</a>.");
    }
    for (at, most) in report.bottlenecks.iter().enumerate() {
        // If latency changed, this sentence covers both periods, and the changed operation may be a
        // different one.
        let when = match (at, &report.step) {
            (0, Some(_)) => " Before and after together, requests",
            (0, None) => " On the critical path, requests",
            _ => "; those",
        };
        let of = most.root.as_ref();
        let of = of.map_or_else(String::new, |root| format!(" of {root}"));
        let root = most.root.as_deref().map(path_segment);
        let root = root.map_or_else(String::new, |root| format!("?root={root}"));
        html.text(&format!("{when}{of} wait most for "))
            .markup("<a href=\"/critical-path")
            .text(&root)
            .markup("\">")
            .text(&most.operation)
            .markup("</a>")
            .text(&format!(", {} of their time", percent(most.share_of_time)));
    }
    html.markup(if report.bottlenecks.is_empty() {
        "</p>\n"
    } else {
        ".</p>\n"
    });
}

/// Lists parts of the store that could not be read, 20 at most.
fn damage(html: &mut Html, notes: &Notes) {
    if notes.damage.is_empty() {
        return;
    }
    html.markup("<div class=\"notice error\" role=\"alert\">");
    for damage in notes.damage.iter().take(20) {
        html.markup("<p>").text(&damage.to_string()).markup("</p>");
    }
    html.markup(
        "<p>The rest of this page covers the readable files; `stroboscope store check` reports details.</p></div>\n",
    );
}

/// Writes the key figures; the median latency is emphasised.
fn figures(html: &mut Html, report: &OverviewReport) {
    let latency = &report.latency;
    html.markup("<dl class=\"figures\"><div class=\"main\"><dt>median latency</dt><dd>")
        .text(&duration_spaced(latency.p50_ns as f64))
        .markup("</dd></div>");
    let mut figure = |name: &str, value: &str, link: Option<&'static str>| {
        html.markup("<div><dt>").text(name).markup("</dt><dd>");
        match link {
            Some(link) => html
                .markup("<a href=\"")
                .markup(link)
                .markup("\">")
                .text(value)
                .markup("</a>"),
            None => html.text(value),
        };
        html.markup("</dd></div>");
    };
    figure(
        "95th percentile",
        &duration_spaced(latency.p95_ns as f64),
        None,
    );
    figure(
        "99th percentile",
        &duration_spaced(latency.p99_ns as f64),
        None,
    );
    figure("complete requests", &count_spaced(report.used_traces), None);
    if report.requests.is_weighted() {
        let (recorded, effective) = (report.requests.recorded(), report.requests.effective());
        figure("recorded requests", &count_spaced(recorded), None);
        figure("effective sample", &format!("{effective:.1}"), None);
    }
    if report.failed > 0 {
        let name = match report.requests.is_weighted() {
            true => "failed, of the recorded",
            false => "failed requests",
        };
        let failed = count_spaced(report.failed);
        figure(name, &failed, Some("/failures"));
    }
    if report.processes > 0 {
        figure("bursts", &count_spaced(report.bursts), None);
        figure("processes", &count_spaced(report.processes), None);
        figure("records lost", &count_spaced(report.lost_records()), None);
    }
    html.markup("</dl>\n");
}

/// Writes links to related pages.
fn ways_on(html: &mut Html, most: &[Bottleneck], has_kernel: bool) {
    html.markup(
        "<p><a href=\"/operations\">All operations</a> · <a href=\"/critical-path\">Critical path by segment</a> · \
         <a href=\"/anomalies\">Differences of slow requests</a>",
    );
    if let Some(most) = most.first() {
        html.markup(" · <a href=\"/what-if?operation=")
            .text(&path_segment(&most.operation))
            .markup("&amp;scale=0.5");
        if let Some(root) = &most.root {
            html.markup("&amp;root=").text(&path_segment(root));
        }
        html.markup("\">What if ")
            .text(&most.operation)
            .markup(" took half as long</a>");
    }
    if has_kernel {
        html.markup(" · <a href=\"/timeline\">Locks and futexes that requests wait for</a>");
    }
    html.markup("</p>\n");
}

fn quality(doc: &mut Doc, report: &OverviewReport) {
    doc.heading("Losses");
    let notes = &report.notes;
    let incomplete = notes.traces - notes.complete_traces;
    let mut said = match incomplete {
        0 => "All requests were recorded completely.".to_owned(),
        some => format!(
            "{} of {} {} incomplete, and not in these figures: {}.",
            count_spaced(some),
            counted(notes.traces, "request"),
            are(some),
            notes.incomplete_text()
        ),
    };
    if report.missing_batches > 0 {
        said += &format!(
            " {} {} missing.",
            counted(report.missing_batches, "batch"),
            are(report.missing_batches)
        );
    }
    if report.losses.is_empty() && report.processes > 0 {
        said += " No process lost a record.";
    }
    for sentence in notes.sampling.sentences() {
        said += &format!(" Sampling: {sentence}.");
    }
    doc.sentence(said);
    doc.table("", &report.losses, ROWS_SHOWN);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_locks_is_there_where_a_kernel_was_recorded() {
        let ways = |has_kernel| {
            let mut html = Html::new();
            ways_on(&mut html, &[], has_kernel);
            html.into_string()
        };
        assert!(ways(true).contains("<a href=\"/timeline\">Locks and futexes"));
        assert!(!ways(false).contains("/timeline"));
    }
}
