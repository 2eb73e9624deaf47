//! Explains a request's failure: its start, its path, the errors of failed spans, and the stacks of
//! exceptions.

use stroboscope_query::{FailedSpan, Request, RequestFailure};
use stroboscope_render::page::Html;

use super::outline_spans::{called, operation_at};
use super::table::{LinkedTable, Set};

/// Maximum length of a message or stack, in characters.
const TEXT_CHARS_MAX: usize = 20_000;

pub(super) fn failure_part(html: &mut Html, request: &Request) {
    let Some(failure) = &request.failure else {
        return;
    };
    html.markup(match failure.has_reached_root {
        true => "<h2 id=\"failure\">Why it failed</h2>\n",
        false => "<h2 id=\"failure\">Failures it recovered from</h2>\n",
    });
    way(html, request, failure);
    let heads = [
        ("failed span", Set::Name),
        ("with", Set::Name),
        ("message", Set::Name),
    ];
    let mut table = LinkedTable::new("Failed spans", &heads);
    for one in &failure.described {
        table.row(|cells| {
            cells
                .link(
                    &address(request, one.place),
                    &operation_at(request, one.place),
                )
                .name(&one.stated.kind)
                .name(&cut(&one.stated.message));
        });
    }
    html.html(&table.end());
    let more = failure.failed.len() - failure.described.len();
    if more > 0 {
        html.markup("<p>")
            .shown(more)
            .markup(" more spans failed.</p>\n");
    }
    for one in &failure.described {
        exceptions(html, request, one);
    }
}

/// Writes the failure's path from its start to its end.
fn way(html: &mut Html, request: &Request, failure: &RequestFailure) {
    html.markup("<p>The failure starts at ");
    for (at, place) in failure.trail.iter().enumerate() {
        if at == 1 {
            html.markup(", and travels to ");
        } else if at > 1 {
            html.markup(" → ");
        }
        html.markup("<a href=\"")
            .text(&address(request, *place))
            .markup("\">")
            .text(&operation_at(request, *place))
            .markup("</a>");
    }
    html.markup(".</p>\n");
}

fn exceptions(html: &mut Html, request: &Request, failed: &FailedSpan) {
    for exception in failed.exceptions.iter().filter(|of| !of.stack.is_empty()) {
        html.markup("<details><summary>").text(&format!(
            "Stack of {} in {}",
            exception.kind,
            operation_at(request, failed.place)
        ));
        html.markup("</summary><pre>")
            .text(&cut(&exception.stack))
            .markup("</pre></details>\n");
    }
}

fn address(request: &Request, place: usize) -> String {
    format!("#{}", called(request, place))
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(TEXT_CHARS_MAX) {
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()),
        None => text.to_owned(),
    }
}
