//! Page of one request, readable without scripts.

use stroboscope_query::Request;
use stroboscope_render::humanise::{counted, duration_spaced as duration, instant, percent};
use stroboscope_render::page::{Html, body};
use stroboscope_render::show::{Doc, Figure, Interval, Timeline, TimelineRow};

use super::awaited_path::AwaitedPath;
use super::connection_part::connection_part;
use super::failure_part::failure_part;
use super::link_part::link_part;
use super::links::elsewhere;

use super::diagnostics::{clocks, incomplete, kernel};
use super::lock_table::lock_table;
use super::outline_spans::{called, depth, operation_at, span_at};
use super::path_sums::{PathSum, operation_of, path_sums};
use super::table::{LinkedTable, Set};

/// Maximum number of spans of a request whose timeline the page also draws without scripts.
const SPANS_DRAWN_MAX: usize = 40;
/// Maximum number of spans listed.
const SPANS_LISTED_MAX: usize = 200;
/// Maximum number of operations of the critical path listed.
const OPERATIONS_LISTED_MAX: usize = 12;
/// Maximum number of pieces of the critical path listed.
const PIECES_LISTED_MAX: usize = 100;
/// Minimum share of the latency, 0 to 1, for the headline to name an operation.
const TOLD_SHARE_MIN: f64 = 0.1;

/// Builds the content of a request's page.
pub(super) fn request_page(request: &Request, path: &AwaitedPath) -> Html {
    let mut html = Html::new();
    let sums = path_sums(request);
    headline(&mut html, request, &sums);
    connection_part(&mut html, request);
    awaited(&mut html, request, path);
    let no_model = path.model.as_ref().and_then(|model| model.as_ref().err());
    failure_part(&mut html, request);
    notices(&mut html, request, no_model.map(|why| &**why));
    timeline(&mut html, request);
    link_part(&mut html, request);
    waited_for(&mut html, request, &sums);
    pieces(&mut html, request);
    kernel_part(&mut html, request);
    elsewhere(&mut html, request);
    html
}

fn is_part(request: &Request) -> bool {
    request.spans_in_store > request.recorded.spans.len() as u64
}

fn latency_ns(request: &Request) -> u64 {
    request.trace.latency_ns()
}

/// Writes the request's operation, its latency, and the main contributions to it.
fn headline(html: &mut Html, request: &Request, sums: &[PathSum]) {
    let latency = latency_ns(request);
    html.markup("<p class=\"lede\"><b>")
        .text(&request.aligned.root_name())
        .markup("</b> took <b>")
        .text(&duration(latency as f64))
        .markup("</b>");
    if request
        .failure
        .as_ref()
        .is_some_and(|failure| failure.has_reached_root)
    {
        html.markup(", and <a href=\"#failure\">failed</a>");
    }
    // If the model does not cover some parts, shares of the path would claim too much.
    let told: Vec<String> = sums
        .iter()
        .filter(|_| request.unmodelled.is_empty())
        .map(|sum| (sum, sum.time_ns as f64 / latency.max(1) as f64))
        .take_while(|(_, share)| *share >= TOLD_SHARE_MIN)
        .take(3)
        .map(|(sum, share)| format!("{} of it for {}", percent(share), sum.operation))
        .collect();
    if !told.is_empty() {
        html.text(": ").text(&told.join(", "));
    }
    html.markup(".</p>\n<p class=\"about\">");
    let services = {
        let mut names: Vec<&str> = request
            .recorded
            .spans
            .iter()
            .map(|span| &*span.service)
            .collect();
        names.sort_unstable();
        names.dedup();
        names.len() as u64
    };
    let mut facts = vec![format!("began {} UTC", instant(request.trace.start_ns))];
    let (spans, events) = (request.recorded.spans.len(), request.recorded.events.len());
    if spans > 0 {
        facts.push(format!(
            "{} of {}",
            counted(spans as u64, "span"),
            counted(services, "service")
        ));
    }
    if events > 0 {
        facts.push(counted(events as u64, "logged event"));
    }
    let after_ns = request.trace.after_answer_ns();
    if after_ns > 0 {
        facts.push(format!(
            "continued for {} after its response",
            duration(after_ns as f64)
        ));
    }
    facts.push(format!("trace {}", request.recorded.id));
    if let Some(name) = &request.recorded.name {
        facts.push(format!("called {name} by its source"));
    }
    html.text(&facts.join(" · ")).markup("</p>\n");
}

/// Announces that a model is awaited, and names the parts of the page that are missing until it is
/// known. Writes nothing if the page waits for no model, or lacks no part.
fn awaited(html: &mut Html, request: &Request, path: &AwaitedPath) {
    let lacks = match &request.path {
        None => "its critical path and the slack of its spans",
        // The model covers the whole request, even if it is an older one.
        Some(_) if request.unmodelled.is_empty() => return,
        Some(_) => "the part that the older model does not cover",
    };
    if !path.is_awaited {
        return;
    }
    html.markup("<p class=\"progress\" role=\"status\" data-awaits=\"/traces/")
        .text(&request.recorded.id.to_string())
        .markup("/path\">The model of requests is being read from the store; then ")
        .text(lacks)
        .markup(" is shown. <a href=\"\">Show it again</a></p>\n");
}

fn notices(html: &mut Html, request: &Request, no_model: Option<&str>) {
    let mut notice = |title: &'static str, said: &[String]| {
        if said.is_empty() {
            return;
        }
        html.markup("<div class=\"notice\"><p><b>")
            .markup(title)
            .markup("</b></p><ul>");
        for one in said {
            html.markup("<li>").text(one).markup("</li>");
        }
        html.markup("</ul></div>\n");
    };
    if is_part(request) {
        let shown = request.recorded.spans.len();
        let spans = counted(request.spans_in_store, "span");
        let said = format!("This page covers only the first {shown} of its {spans}.");
        notice("This is a part of the request", &[said]);
    }
    notice("This request is not complete", &incomplete(request));
    notice("Clocks", &clocks(request));
    let damage: Vec<String> = request.damage.iter().map(ToString::to_string).collect();
    notice(
        "Files that could not be read in full, so more of it may be missing",
        &damage,
    );
    if !request.unmodelled.is_empty() && request.path.is_some() {
        notice(
            "A part of it is not in the model",
            &[format!(
                "{} exceed the kinds that the model can hold: they are drawn, but their slack and their part in \
                 the critical path are unknown.",
                counted(request.unmodelled.len() as u64, "segment")
            )],
        );
    }
    if let Some(why) = no_model {
        notice(
            "Its critical path is not known",
            &[format!(
                "There is no model of the store's requests to find it by: {why}."
            )],
        );
    }
}

/// Writes the element in which the script draws the timeline. Without scripts, the element shows a
/// list of spans, and a picture if they are few.
fn timeline(html: &mut Html, request: &Request) {
    html.markup(
        "<h2 id=\"timeline\">Timeline</h2>\n<div class=\"timeline\" data-source=\"/traces/",
    )
    .text(&request.recorded.id.to_string())
    .markup("/columns");
    if is_part(request) {
        html.markup("?spans=").shown(request.recorded.spans.len());
    }
    html.markup("\">\n");
    let count = request.outline.len();
    if (1..=SPANS_DRAWN_MAX).contains(&count) {
        let mut doc = Doc::new();
        doc.figures([figure(request)]);
        html.html(&body(&doc));
    }
    if count > 0 {
        let title = match count.saturating_sub(SPANS_LISTED_MAX) {
            0 => format!("Its {}", counted(count as u64, "span")),
            more => format!(
                "The first {SPANS_LISTED_MAX} of its {count} spans; {more} more are in the timeline, and in \
                 `stroboscope timeline --trace {}`",
                request.recorded.id
            ),
        };
        html.markup("<p>").text(&title).markup("</p>\n");
        html.html(&spans(request));
    }
    html.markup("</div>\n");
}

fn figure(request: &Request) -> Figure {
    let since = |ns: i64| {
        ns.saturating_sub(request.trace.start_ns)
            .max(0)
            .cast_unsigned()
    };
    let mut rows: Vec<TimelineRow> = (0..request.outline.len())
        .map(|place| TimelineRow {
            name: format!("{}{}", mark(request, place), operation_at(request, place)),
            depth: depth(request, place),
            intervals: Vec::new(),
        })
        .collect();
    for (at, segment) in request.trace.segments.iter().enumerate() {
        let timing = request.path.as_ref().map(|path| path.segments[at]);
        let Some(row) = request.owners[at].and_then(|place| rows.get_mut(place)) else {
            continue;
        };
        row.intervals.push(Interval {
            from_ns: since(segment.start_ns),
            to_ns: since(segment.end_ns),
            is_critical: timing.is_some_and(|timing| timing.critical),
            waited_ns: timing.map_or(0, |timing| timing.wait_ns),
            slack_ns: timing.map_or(0, |timing| timing.slack_ns),
        });
    }
    let critical = request.path.iter().flat_map(|path| path.critical()).count();
    let timeline = Timeline {
        length_ns: since(request.trace.end_ns),
        marks: Vec::new(),
        rows,
    };
    let alternative = format!(
        "{} on the critical path; the table has the spans.",
        counted(critical as u64, "segment")
    );
    Figure::new(
        "Spans, and when they were active themselves",
        alternative,
        timeline,
    )
}

/// Returns the mark of a failed span, as in the timeline; empty for other spans.
fn mark(request: &Request, place: usize) -> &'static str {
    match &request.failure {
        Some(failure) if failure.failed.contains(&place) => "✕ ",
        _ => "",
    }
}

fn spans(request: &Request) -> Html {
    let start_ns = request.trace.start_ns;
    let mut critical_ns = vec![0u64; request.outline.len()];
    if let Some(path) = &request.path {
        for at in path.critical() {
            if let Some(place) = request.owners[at] {
                critical_ns[place] += path.segments[at].weight_ns();
            }
        }
    }
    let heads = [
        ("span", Set::Name),
        ("from", Set::Number),
        ("takes", Set::Number),
        ("of the critical path", Set::Number),
        ("host", Set::Name),
    ];
    let mut table = LinkedTable::new("Spans", &heads);
    let shown = request.outline.len().min(SPANS_LISTED_MAX);
    for (place, critical_ns) in critical_ns.iter().enumerate().take(shown) {
        let span = span_at(request, place);
        let id = called(request, place);
        table.row_called(Some(&id), |cells| {
            cells
                .nested(
                    depth(request, place),
                    &format!("{}{}", mark(request, place), operation_at(request, place)),
                )
                .duration(Some(
                    span.start_ns
                        .saturating_sub(start_ns)
                        .max(0)
                        .cast_unsigned(),
                ))
                .duration(Some(
                    span.end_ns
                        .saturating_sub(span.start_ns)
                        .max(0)
                        .cast_unsigned(),
                ))
                .duration((*critical_ns > 0).then_some(*critical_ns))
                .name(&span.host);
        });
    }
    table.end()
}

fn waited_for(html: &mut Html, request: &Request, sums: &[PathSum]) {
    let Some(path) = &request.path else {
        return;
    };
    html.markup("<h2 id=\"path\">Critical path</h2>\n<p>");
    html.text(&format!(
        "The critical path by operation; with the times waited, it is as long as the request: {}.",
        duration(path.critical_path_ns as f64)
    ));
    if path.tail_wait_ns > 0 {
        html.text(&format!(
            " Nothing was recorded in the last {} before the answer.",
            duration(path.tail_wait_ns as f64)
        ));
    }
    html.markup("</p>\n");
    let heads = [
        ("operation", Set::Name),
        ("share", Set::Number),
        ("time", Set::Number),
        ("of that waited", Set::Number),
        ("pieces", Set::Number),
    ];
    let mut table = LinkedTable::new("Critical path by operation", &heads);
    for sum in sums.iter().take(OPERATIONS_LISTED_MAX) {
        table.row(|cells| {
            match sum.longest {
                Some(place) => cells.link(&format!("#{}", called(request, place)), &sum.operation),
                None => cells.name(&sum.operation),
            };
            cells
                .share(sum.time_ns as f64 / path.latency_ns.max(1) as f64)
                .duration(Some(sum.time_ns))
                .duration((sum.waited_ns > 0).then_some(sum.waited_ns))
                .count(sum.pieces);
        });
    }
    html.html(&table.end());
    if sums.len() > OPERATIONS_LISTED_MAX {
        let more = sums.len() - OPERATIONS_LISTED_MAX;
        html.markup("<p>")
            .text(&format!(
                "Smaller parts have {}.",
                counted(more as u64, "operation")
            ))
            .markup("</p>\n");
    }
}

/// Lists the critical path in order of time.
fn pieces(html: &mut Html, request: &Request) {
    let Some(path) = &request.path else {
        return;
    };
    let critical: Vec<usize> = path.critical().collect();
    html.markup("<details><summary>").text(&format!(
        "The critical path piece by piece: {}",
        counted(critical.len() as u64, "piece")
    ));
    html.markup("</summary>\n");
    let heads = [
        ("operation", Set::Name),
        ("between", Set::Name),
        ("from", Set::Number),
        ("takes", Set::Number),
        ("after waiting", Set::Number),
    ];
    let mut table = LinkedTable::new("Pieces of the critical path", &heads);
    for &at in critical.iter().take(PIECES_LISTED_MAX) {
        let timing = &path.segments[at];
        let label = request.labels.get(timing.segment);
        let between = label.map_or_else(String::new, |label| {
            format!("{} … {}", label.start, label.end)
        });
        let from_ns = timing.start_ns.saturating_sub(request.trace.start_ns);
        table.row(|cells| {
            match request.owners[at] {
                Some(place) => cells.link(
                    &format!("#{}", called(request, place)),
                    &operation_of(request, at),
                ),
                None => cells.name(&operation_of(request, at)),
            };
            cells
                .name(&between)
                .duration(Some(from_ns.max(0).cast_unsigned()))
                .duration(Some(timing.duration_ns()))
                .duration((timing.wait_ns > 0).then_some(timing.wait_ns));
        });
    }
    html.html(&table.end());
    if critical.len() > PIECES_LISTED_MAX {
        let more = critical.len() - PIECES_LISTED_MAX;
        let all = format!(
            "{more} more pieces follow; `stroboscope critical-path --trace {}` lists all.",
            request.recorded.id
        );
        html.markup("<p>").text(&all).markup("</p>\n");
    }
    html.markup("</details>\n");
}

fn kernel_part(html: &mut Html, request: &Request) {
    let said = kernel(request);
    if said.is_empty() {
        return;
    }
    html.markup("<h2 id=\"kernel\">Kernel activity</h2>\n");
    for one in said {
        html.markup("<p>").text(&one).markup("</p>\n");
    }
    lock_table(html, request);
}
