//! `/`: what there is to say first.

use std::collections::BTreeMap;
use std::time::Instant;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use stroboscope_analysis::by_root::ByRoot;
use stroboscope_present::humanise::{
    are, count_spaced, counted, duration, duration_spaced, percent,
};
use stroboscope_present::page::{Asset, Html, body, path_segment};
use stroboscope_present::roots::headline_is_of;
use stroboscope_present::show::{Bar, Chart, Doc, Figure};
use stroboscope_query::{
    Bottleneck, CategoryRule, HeatmapQuestion, InferSettings, LatencyStep, Notes, OperationTime,
    Paths, PathsQuestion, QueryError, Recorded, Selection, StepQuestion, Study, bottlenecks,
    by_time,
};
use tokio::runtime::Handle;

use crate::heatmap::heatmap;
use crate::progress::Telling;
use crate::respond::{Head, NoPage, content, page};
use crate::site::Site;
use crate::step::step_sentence;
use crate::store_rows::{KindRow, LossRow};

/// Operations in the picture.
const OPERATIONS_SHOWN: usize = 10;
/// Kinds of requests, and causes of losses, in tables.
const ROWS_SHOWN: usize = 15;
pub(crate) async fn overview(State(site): State<Site>) -> Response {
    let mut head = Head::new("Overview", "/");
    head.scripts = &[Asset::Heatmap];
    page(&site, head, "/", |site, runtime, telling| {
        let mut html = Html::new();
        html.markup("<div data-live=\"/fragment/overview\" data-live-seconds=\"5\">")
            .html(&content_of(site, runtime, telling)?)
            .markup("</div>\n");
        Ok(html)
    })
    .await
}

/// What the page refreshes.
pub(crate) async fn fragment(State(site): State<Site>) -> Response {
    if let Some(answer) = site.refreshed().fresh() {
        return answer.alone();
    }
    let began = Instant::now();
    let answer = content(&site, "/fragment/overview", content_of).await;
    site.refreshed().keep(&answer, began.elapsed());
    answer.alone()
}

/// What is wrong with the store, in words, and with the status that fits.
fn unreadable(error: &QueryError) -> NoPage {
    match error {
        QueryError::Empty { .. } | QueryError::NoneInRange(_) => NoPage {
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

fn content_of(site: &Site, runtime: &Handle, telling: &Telling) -> Result<Html, NoPage> {
    let source = site
        .source(runtime, telling.observer())
        .map_err(|error| unreadable(&error))?;
    let study = Study::new(source, Selection::default(), InferSettings::default());
    let asked = (
        (HeatmapQuestion, StepQuestion),
        PathsQuestion(CategoryRule::default()),
    );
    let ((map, step), paths) = study.ask(&asked).map_err(|error| unreadable(&error))?;
    let inference = study.inference().map_err(|error| unreadable(&error))?;
    let recorded = study
        .source()
        .recorded()
        .map_err(|error| unreadable(&error))?;
    let bursts = study
        .source()
        .bursts()
        .map_err(|error| unreadable(&error))?;
    let operations = by_time(&paths.aggregate, inference.model.labels());
    let mut html = Html::new();
    let sure = step.as_ref().filter(|step| step.requests_needed.is_none());
    let most = bottlenecks(&paths, inference.model.labels());
    for sentence in paths.circumstances() {
        html.markup("<p class=\"notice\">")
            .text(&sentence)
            .markup("</p>\n");
    }
    headline(&mut html, &inference.roots, &most, step.as_ref());
    damage(&mut html, &paths.notes);
    figures(&mut html, &inference.roots, &paths, &recorded);
    html.html(&heatmap(&map, &bursts, sure.map(|step| step.at_ns)));
    let mut doc = Doc::new();
    waits(&mut doc, &operations);
    html.html(&body(&doc));
    ways_on(&mut html, &most, site.has_kernel(runtime));
    let mut doc = Doc::new();
    doc.table("", &KindRow::all(&inference.roots), ROWS_SHOWN);
    quality(&mut doc, &paths.notes, &recorded);
    html.html(&body(&doc));
    Ok(html)
}

/// The sentence that matters.
fn headline(html: &mut Html, roots: &ByRoot, most: &[Bottleneck], step: Option<&LatencyStep>) {
    let latency = roots.headline();
    if latency.count() == 0 {
        return;
    }
    let of = latency.percentiles();
    let who = if roots.is_mixed() {
        format!("Half of the {}", headline_is_of(roots))
    } else {
        "Half of the requests".to_owned()
    };
    html.markup("<p class=\"lede\">");
    if let Some(step) = step {
        step_sentence(html, step);
    }
    html.text(&format!(
        "{who} take up to {}, one in a hundred more than {}.",
        duration_spaced(of.p50_ns as f64),
        duration_spaced(of.p99_ns as f64)
    ));
    for most in most {
        // What is said of all hides what changed: it may be another one.
        let when = if step.is_some() {
            " Before and after together, "
        } else {
            " On the critical path, "
        };
        let who = most.root.as_ref();
        let who = who.map_or_else(
            || "requests".to_owned(),
            |root| format!("requests of {root}"),
        );
        html.text(&format!("{when}{who} wait most for "))
            .markup("<a href=\"/operations\">")
            .text(&most.operation)
            .markup("</a>")
            .text(&format!(": {} of their time.", percent(most.share_of_time)));
    }
    html.markup("</p>\n");
}

/// What could not be read.
fn damage(html: &mut Html, notes: &Notes) {
    if notes.damage.is_empty() {
        return;
    }
    html.markup("<div class=\"notice error\" role=\"alert\">");
    for damage in notes.damage.iter().take(20) {
        html.markup("<p>").text(&damage.to_string()).markup("</p>");
    }
    html.markup("<p>All else is of what could be read; `stroboscope check` says more.</p></div>\n");
}

/// A few numbers, of which one weighs most.
fn figures(html: &mut Html, roots: &ByRoot, paths: &Paths, recorded: &Recorded) {
    let latency = roots.headline().percentiles();
    html.markup("<dl class=\"figures\">");
    let mut figure = |is_main: bool, name: &str, value: &str| {
        html.markup(if is_main {
            "<div class=\"main\"><dt>"
        } else {
            "<div><dt>"
        })
        .text(name)
        .markup("</dt><dd>")
        .text(value)
        .markup("</dd></div>");
    };
    figure(
        true,
        "median latency",
        &duration_spaced(latency.p50_ns as f64),
    );
    figure(
        false,
        "95th percentile",
        &duration_spaced(latency.p95_ns as f64),
    );
    figure(
        false,
        "99th percentile",
        &duration_spaced(latency.p99_ns as f64),
    );
    figure(
        false,
        "complete requests",
        &count_spaced(paths.aggregate.traces().rounded()),
    );
    let requests = paths.aggregate.traces();
    if requests.is_weighted() {
        figure(
            false,
            "of them recorded",
            &count_spaced(requests.recorded()),
        );
        let effective = format!("{:.1}", requests.effective());
        figure(false, "effective sample", &effective);
    }
    if recorded.batches > 0 {
        figure(false, "bursts", &count_spaced(recorded.bursts));
        figure(false, "processes", &count_spaced(recorded.processes));
        figure(
            false,
            "records lost",
            &count_spaced(recorded.lost_records()),
        );
    }
    html.markup("</dl>\n");
}

fn waits(doc: &mut Doc, operations: &[OperationTime]) {
    let bars: Vec<Bar> = operations
        .iter()
        .take(OPERATIONS_SHOWN)
        .map(|one| Bar {
            name: one.operation.clone(),
            share: one.share_of_time,
            beside: format!("({})", duration(one.mean_ns)),
        })
        .collect();
    if bars.is_empty() {
        return;
    }
    let list: Vec<String> = bars
        .iter()
        .map(|bar| format!("{} {}", bar.name, percent(bar.share)))
        .collect();
    let title = "What requests wait for: operations by their part of all time on critical paths";
    doc.figure(Figure::new(title, list.join(", "), Chart::Bars(bars)));
}

/// Where to go on from here.
fn ways_on(html: &mut Html, most: &[Bottleneck], has_kernel: bool) {
    html.markup(
        "<p><a href=\"/operations\">All operations</a> · <a href=\"/critical-path\">Critical path by segment</a> · \
         <a href=\"/anomalies\">What is different about slow requests</a>",
    );
    if let Some(most) = most.first() {
        html.markup(" · <a href=\"/what-if?operation=")
            .text(&path_segment(&most.operation))
            .markup("&amp;scale=0.5\">What if ")
            .text(&most.operation)
            .markup(" took half as long</a>");
    }
    if has_kernel {
        html.markup(" · <a href=\"/timeline\">At which locks and futexes requests wait</a>");
    }
    html.markup("</p>\n");
}

fn quality(doc: &mut Doc, notes: &Notes, recorded: &Recorded) {
    doc.heading("Losses");
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
    if recorded.missing_batches > 0 {
        said += &format!(
            " {} {} missing.",
            counted(recorded.missing_batches, "batch"),
            are(recorded.missing_batches)
        );
    }
    if recorded.lost.is_empty() && recorded.batches > 0 {
        said += " No process lost a record.";
    }
    for sentence in notes.sampling.sentences() {
        said += &format!(" Sampling: {sentence}.");
    }
    doc.sentence(said);
    let lost: BTreeMap<&(String, String), &u64> = recorded.lost.iter().collect();
    let rows = lost.into_iter().map(|((service, cause), records)| LossRow {
        service,
        cause,
        records: *records,
    });
    doc.table("", &rows.collect::<Vec<_>>(), ROWS_SHOWN);
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
        assert!(ways(true).contains("<a href=\"/timeline\">At which locks"));
        assert!(!ways(false).contains("/timeline"));
    }
}
