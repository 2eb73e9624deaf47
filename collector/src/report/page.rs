//! The page.

use stroboscope_analysis::breakdown::{Breakdown, CategoryTime};
use stroboscope_analysis::by_root::{ByRoot, RootStatistics};
use stroboscope_analysis::clock::Verdict;

use super::graph::{self, SEGMENTS_MAX};
use super::timeline::{self, TASKS_MAX};
use stroboscope_present::humanise::{duration, percent};
use stroboscope_present::picture::chart::{
    BarPart, changes, convergence, duration_cdf, share_bars, share_cdfs, stacked_bars,
};
use stroboscope_present::picture::{HEAD, Html, PictureError, STYLE, write_parts};
use stroboscope_present::roots::headline_is_of;
use stroboscope_present::show::{Doc, Names};
use stroboscope_query::{BreakdownReport, CategoryTotals, Example, Inference, Notes, Overview, Recorded};

/// Operations in the bar chart.
const OPERATIONS_MAX: usize = 15;
/// Categories that a stacked bar tells apart.
const PARTS_MAX: usize = 6;
/// Strata in a bar chart.
const STRATA_MAX: usize = 12;
/// Segments in the table.
const ROWS_MAX: usize = 50;

/// What a report is made of.
#[derive(Debug)]
pub struct ReportInput<'a> {
    /// What it is about: the data folder.
    pub title: String,
    /// When it was made, for people.
    pub made_at: String,
    /// The model.
    pub inference: &'a Inference,
    /// What requests spend their time on.
    pub overview: &'a Overview,
    /// Requests by stratum, with the attributes' names.
    pub strata: &'a [(String, BreakdownReport)],
    /// What is different about slow requests.
    pub anomalies: &'a Doc,
    /// What processes recorded; nothing, if all was imported.
    pub recorded: &'a Recorded,
}

/// The whole page.
///
/// # Errors
/// When a picture cannot be drawn.
pub fn render(input: &ReportInput<'_>) -> Result<String, PictureError> {
    let mut html = Html::default();
    html.markup(HEAD).text(&format!("Stroboscope: {}", input.title)).markup(STYLE);
    summary(&mut html, input);
    latency(&mut html, input)?;
    critical_path(&mut html, input)?;
    examples(&mut html, input)?;
    html.markup("<section id=\"anomalies\">");
    write_parts(&mut html, input.anomalies);
    html.end_section();
    model(&mut html, input)?;
    segments(&mut html, input);
    quality(&mut html, input);
    html.markup("</body></html>\n");
    Ok(html.into_string())
}

fn summary(html: &mut Html, input: &ReportInput<'_>) {
    let (inference, overview) = (input.inference, input.overview);
    html.markup("<h1>What requests wait for</h1><p class=\"meta\">").text(&input.title);
    html.markup(" · made ").text(&input.made_at).markup(" by stroboscope ").text(env!("CARGO_PKG_VERSION"));
    html.markup("</p><dl class=\"figures\">");
    let latency = inference.roots.headline().percentiles();
    let figures = [
        ("requests", overview.aggregate.traces().to_string()),
        ("latency p50", duration(latency.p50_ns as f64)),
        ("p95", duration(latency.p95_ns as f64)),
        ("p99", duration(latency.p99_ns as f64)),
        ("segments", inference.segments().count().to_string()),
        ("happens-before relations", inference.relations.all_happens_before().len().to_string()),
        ("mutual exclusions", inference.relations.all_mutual_exclusion().len().to_string()),
        ("pipelines", inference.relations.all_pipelines().len().to_string()),
        ("records lost", input.recorded.lost_records().to_string()),
    ];
    for (name, figure) in figures {
        html.markup("<div><dt>").text(name).markup("</dt><dd>").text(&figure).markup("</dd></div>");
    }
    html.markup("</dl>");
    roots(html, &inference.roots);
    if let Some((operation, share, _)) = operations(overview, inference).first() {
        html.markup("<p><b>").text(operation).markup("</b>");
        html.text(&format!(" is on average {} of what a request waits for.", percent(*share)))
            .markup("</p>\n");
    }
}

/// Requests by root operation.
fn roots(html: &mut Html, roots: &ByRoot) {
    let row = |(root, of): &(&str, &RootStatistics)| {
        let latency = of.latency.percentiles();
        let after = match of.after_answer.count() {
            0 => String::new(),
            count => format!("{} in {count}", duration(of.after_answer.mean_ns())),
        };
        vec![
            of.requests().to_string(),
            of.complete.to_string(),
            of.incomplete.to_string(),
            duration(latency.p50_ns as f64),
            duration(latency.p95_ns as f64),
            duration(latency.p99_ns as f64),
            percent(roots.share(root)),
            after,
            if of.with_caller > 0 { "yes" } else { "unknown" }.to_owned(),
            (*root).to_owned(),
        ]
    };
    let ranked = roots.ranked();
    let rows: Vec<Vec<String>> = ranked.iter().take(ROWS_MAX).map(row).collect();
    html.markup("<h2>Requests by root operation</h2><p>");
    html.text(&format!(
        "{} of {} root operations. Latency ends when the root span does: the caller has its answer; what goes on after \
         that is counted apart. A root that is a server's or a client's span has a caller; of others, such as jobs and \
         workers, that is not known. Latency on this page, where no root is named, is of {}.",
        rows.len(),
        ranked.len(),
        headline_is_of(roots)
    ));
    html.markup("</p>");
    let heads = [
        "requests",
        "complete",
        "incomplete",
        "p50",
        "p95",
        "p99",
        "of all time",
        "after the answer",
        "caller",
        "root operation",
    ];
    html.table(&heads, &rows);
}

fn latency(html: &mut Html, input: &ReportInput<'_>) -> Result<(), PictureError> {
    let latency = &input.inference.roots.headline();
    html.section(
        "latency",
        "Latency and slack",
        "Latency is from a request's first event to its answer. Slack is by how much the last segment of the server could \
         have ended later without making its request slower. The highest 1 % lie beyond the right edge.",
    );
    html.markup("<div class=\"pictures\">");
    let picture = duration_cdf("the latencies", "latency", latency)?;
    let alternative =
        format!("Half of the requests take up to {}.", duration(latency.percentiles().p50_ns as f64));
    html.picture(&picture, "Latency of requests, cumulative", &alternative);
    slack(html, input)?;
    html.markup("</div>");
    html.end_section();
    Ok(())
}

/// Operations with their mean share of the critical path and their mean time on it, ns; the largest first.
fn operations(overview: &Overview, inference: &Inference) -> Vec<(String, f64, f64)> {
    let traces = overview.aggregate.traces();
    let mut operations: Vec<(String, f64, f64)> = overview
        .aggregate
        .by_operation(inference.model.labels())
        .into_iter()
        .map(|operation| {
            let sum_ns = operation.critical_duration_ns + operation.critical_wait_ns;
            let share = (operation.duration_shares + operation.wait_shares).mean(traces);
            (operation.operation, share, sum_ns as f64 / traces.max(1) as f64)
        })
        .collect();
    // A stable sort: equals stay in order of name.
    operations.sort_by(|a, b| b.1.total_cmp(&a.1));
    operations
}

fn critical_path(html: &mut Html, input: &ReportInput<'_>) -> Result<(), PictureError> {
    let overview = input.overview;
    html.section(
        "critical-path",
        "Critical path",
        "The chain of segments that a request's latency is made of. Summed delay adds up all segments, whatever ran at \
         once, and so overstates what is done beside the critical path.",
    );
    let bars = operations(overview, input.inference);
    let bar = |(name, share, mean_ns): &(String, f64, f64)| {
        (name.clone(), *share, format!("({})", duration(*mean_ns)))
    };
    let shown: Vec<(String, f64, String)> = bars.iter().take(OPERATIONS_MAX).map(bar).collect();
    let title = "Operations by their mean share of the critical path (mean time per request)";
    html.picture(&share_bars("the operations", &shown)?, title, &list(&shown));
    html.markup("<div class=\"pictures\">");
    let (critical, summed) = parts(overview);
    let stacked = [("Critical path", critical), ("Summed delay", summed)];
    let picture = stacked_bars("the breakdown", "mean time per request", &stacked)?;
    let title = "Critical path and summed delay by category";
    html.picture(&picture, title, "Two stacked bars; the table of categories has their figures.");
    let names = overview.categories.names();
    let picture = share_cdfs(names, &overview.breakdown)?;
    let title = "Categories' shares of the critical path, cumulative";
    html.picture(&picture, title, &format!("One line each for {}.", names.join(", ")));
    html.markup("</div>");
    categories_table(html, overview);
    for (attribute, report) in input.strata {
        strata(html, attribute, report)?;
    }
    html.end_section();
    Ok(())
}

/// The largest strata of an attribute as stacked bars (The Mystery Machine, figure 7).
fn strata(html: &mut Html, attribute: &str, report: &BreakdownReport) -> Result<(), PictureError> {
    let mut strata: Vec<(usize, &String, &Breakdown)> =
        report.strata.strata().iter().enumerate().map(|(number, (name, one))| (number, name, one)).collect();
    // The largest, in their own order.
    strata.sort_by_key(|(_, _, one)| std::cmp::Reverse(one.requests));
    let left_out = strata.len().saturating_sub(STRATA_MAX);
    strata.truncate(STRATA_MAX);
    strata.sort_by_key(|(number, _, _)| *number);
    let bar = |(number, name, one): &(usize, &String, &Breakdown)| {
        let mean = |time: Option<&CategoryTime>| {
            let sum_ns = time.map_or(0, |time| time.critical_duration_ns + time.critical_wait_ns);
            sum_ns as f64 / one.requests.max(1) as f64
        };
        let names = report.categories.names().iter().enumerate();
        let parts = names
            .map(|(color, name)| BarPart { name: name.clone(), ns: mean(one.categories.get(&color)), color })
            .collect();
        let edge = report.edges.as_ref().and_then(|edges| edges.get(*number));
        let name = edge.map_or_else(|| (*name).clone(), |edge| format!("{name} ≤ {edge}"));
        let share = one.requests as f64 / report.whole.requests.max(1) as f64;
        (format!("{name} ({})", percent(share)), parts)
    };
    let bars: Vec<(String, Vec<BarPart>)> = strata.iter().map(bar).collect();
    let bars: Vec<(&str, Vec<BarPart>)> = bars.iter().map(|(name, parts)| (&**name, parts.clone())).collect();
    let title = format!("Mean critical path by {attribute}, with the part of all requests");
    let names: Vec<&str> = bars.iter().map(|(name, _)| *name).collect();
    let picture = stacked_bars("the strata", "mean time per request", &bars)?;
    html.picture(&picture, &title, &format!("Stacked bars of {}.", names.join(", ")));
    if left_out > 0 {
        html.markup("<p>")
            .text(&format!("{left_out} more values, of fewer requests, are not shown."))
            .markup("</p>");
    }
    Ok(())
}

fn list(bars: &[(String, f64, String)]) -> String {
    let items: Vec<String> =
        bars.iter().map(|(name, share, _)| format!("{name} {}", percent(*share))).collect();
    items.join(", ")
}

/// Mean time per request of each category, on the critical path and summed; what is past [`PARTS_MAX`] is one part.
fn parts(overview: &Overview) -> (Vec<BarPart>, Vec<BarPart>) {
    let mean = |sum_ns: u128| sum_ns as f64 / overview.aggregate.traces().max(1) as f64;
    let (mut critical, mut summed): (Vec<BarPart>, Vec<BarPart>) = (Vec::new(), Vec::new());
    for (place, totals) in overview.totals.iter().enumerate() {
        let known = overview.categories.names().iter().position(|name| *name == totals.category);
        let sums = [(&mut critical, totals.critical_ns()), (&mut summed, totals.summed_delay_ns)];
        for (parts, sum_ns) in sums {
            match parts.last_mut().filter(|_| place >= PARTS_MAX) {
                Some(others) => {
                    others.name = "others".to_owned();
                    others.ns += mean(sum_ns);
                }
                None => {
                    let (name, color) = (totals.category.clone(), known.unwrap_or_default());
                    parts.push(BarPart { name, ns: mean(sum_ns), color });
                }
            }
        }
    }
    (critical, summed)
}

fn categories_table(html: &mut Html, overview: &Overview) {
    let traces = overview.aggregate.traces();
    let mean = |sum_ns: u128| duration(sum_ns as f64 / traces.max(1) as f64);
    let row = |totals: &CategoryTotals| {
        vec![
            percent(totals.shares.mean(traces)),
            mean(totals.critical_ns()),
            mean(totals.critical_wait_ns),
            mean(totals.summed_delay_ns),
            totals.category.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = overview.totals.iter().map(row).collect();
    html.table(&["mean share", "critical", "of it waiting", "summed delay", "category"], &rows);
}

fn slack(html: &mut Html, input: &ReportInput<'_>) -> Result<(), PictureError> {
    let slack = &input.overview.server_slack;
    if slack.count() == 0 {
        return Ok(());
    }
    let picture = duration_cdf("the slack", "slack", slack)?;
    let alternative =
        format!("Half of the requests have up to {}.", duration(slack.percentiles().p50_ns as f64));
    html.picture(&picture, "Slack of a request's last server segment, cumulative", &alternative);
    Ok(())
}

fn examples(html: &mut Html, input: &ReportInput<'_>) -> Result<(), PictureError> {
    html.section(
        "examples",
        "Example requests",
        "A row for each task, in order of start. Orange-red with a dark edge: on the critical path; a line before it is \
         time that was waited and nobody logged. Blue: beside it; the thin line after it is its slack.",
    );
    for Example { quantile, answer } in &input.overview.examples {
        let (picture, left_out) = timeline::draw(&answer.path, input.inference.model.labels())?;
        let title = format!(
            "Request {} of {}, at p{:.0} of latency",
            answer.label(),
            duration(answer.path.latency_ns as f64),
            quantile * 100.0
        );
        let critical = answer.path.critical().count();
        html.picture(&picture, &title, &format!("{critical} segments are on its critical path."));
        if left_out > 0 {
            html.markup("<p>")
                .text(&format!("{left_out} more tasks than the {TASKS_MAX} shown had less part in it."));
            html.markup("</p>");
        }
    }
    html.end_section();
    Ok(())
}

fn model(html: &mut Html, input: &ReportInput<'_>) -> Result<(), PictureError> {
    let inference = input.inference;
    html.section(
        "model",
        "Causal model",
        "An arrow: the one segment always ended before the other one started. Relations that follow from others are not \
         drawn. The bar at a box's lower edge is its mean share of the critical path; its edge is in the colour of its \
         category, as above.",
    );
    let (shown, others) = graph::most_important(&input.overview.aggregate);
    if !shown.is_empty() {
        let labels = inference.model.labels();
        let picture = graph::draw(&shown, &inference.relations, labels, &input.overview.categories)?;
        let title = format!("The {} segments with the largest shares of the critical path", shown.len());
        let alternative =
            format!("{} happens-before relations in all.", inference.relations.all_happens_before().len());
        html.picture(&picture, &title, &alternative);
    }
    if others > 0 {
        html.markup("<p>")
            .text(&format!("{others} more segments than the {SEGMENTS_MAX} drawn have smaller shares."));
        html.markup("</p>");
    }
    if inference.convergence.len() > 1 {
        html.markup("<div class=\"pictures\">");
        let points = &inference.convergence;
        let alternative = points.last().map_or_else(String::new, |point| {
            format!("{} and {} at the end.", point.happens_before, point.mutual_exclusion)
        });
        html.picture(&convergence(points)?, "Relations of the model as requests came in", &alternative);
        html.picture(
            &changes(points)?,
            "New and removed relations as requests came in",
            "They become fewer.",
        );
        html.markup("</div>");
    }
    html.end_section();
    Ok(())
}

fn segments(html: &mut Html, input: &ReportInput<'_>) {
    let overview = input.overview;
    let names = Names::of(input.inference.model.labels());
    let traces = overview.aggregate.traces();
    let mut segments: Vec<_> = overview.aggregate.segments().collect();
    segments.sort_by(|a, b| b.1.shares().mean(traces).total_cmp(&a.1.shares().mean(traces)));
    let (all, rows): (usize, Vec<Vec<String>>) = (
        segments.len(),
        segments
            .into_iter()
            .take(ROWS_MAX)
            .map(|(id, statistics)| {
                let (took, slack) = (statistics.duration.percentiles(), statistics.slack.percentiles());
                vec![
                    percent(statistics.shares().mean(traces)),
                    percent(statistics.critical_traces as f64 / traces.max(1) as f64),
                    duration(took.p50_ns as f64),
                    duration(took.p99_ns as f64),
                    duration(slack.p50_ns as f64),
                    names.get(id).short(),
                ]
            })
            .collect(),
    );
    let explanation = format!("{} of {all}, by their mean share of the critical path.", rows.len());
    html.section("segments", "Segments", &explanation);
    html.table(&["mean share", "critical in", "takes p50", "p99", "slack p50", "segment"], &rows);
    html.end_section();
}

/// What was lost, left out and doubtful.
fn quality(html: &mut Html, input: &ReportInput<'_>) {
    let notes: &Notes = &input.overview.notes;
    let recorded = input.recorded;
    html.section("quality", "Losses and diagnostics", "");
    let mut rows = vec![
        vec![notes.traces.to_string(), "traces read".to_owned()],
        vec![notes.complete_traces.to_string(), "complete traces".to_owned()],
        vec![recorded.records.to_string(), "records of processes that shipped them".to_owned()],
        vec![recorded.missing_batches.to_string(), "batches missing".to_owned()],
        vec![notes.damage.len().to_string(), "damaged files".to_owned()],
    ];
    let mut more = |count: u64, what: String| rows.push(vec![count.to_string(), what]);
    for ((service, cause), records) in &recorded.lost {
        more(*records, format!("lost by {service}: {cause}"));
    }
    notes.incomplete.iter().for_each(|(cause, traces)| more(*traces, format!("traces incomplete: {cause}")));
    let diagnostics = &input.inference.notes.diagnostics;
    diagnostics.iter().for_each(|(cause, count)| more(*count, format!("flaws in traces used: {cause}")));
    let left = notes.left_out;
    let left_out = [
        (left.over_trace_limit, "records left out: beyond the largest trace allowed"),
        (left.span_missing, "events left out: their span is not in the store"),
        (left.no_span_no_task, "events left out: of no span and no task"),
        (notes.excluded_segments, "segments left out: excluded"),
        (input.inference.model.labels().refused(), "segments left out: no room for more labels"),
    ];
    left_out
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .for_each(|(count, what)| more(count, what.to_owned()));
    if let Some(alignment) = &input.inference.alignment {
        let unaligned = alignment.unaligned().len() as u64;
        let differ = alignment.pairs().iter().filter(|pair| pair.verdict == Verdict::Differ);
        more(differ.count() as u64, "pairs of hosts whose clocks differ and were aligned".to_owned());
        more(
            unaligned,
            "hosts whose clocks nothing ties to the others: orders between them are unknown".to_owned(),
        );
    }
    html.table(&["count", "what"], &rows);
    html.end_section();
}
