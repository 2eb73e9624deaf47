//! Links between the spans of a request and those of other requests.

use stroboscope_query::{LinkOrder, Request};
use stroboscope_render::humanise::counted;
use stroboscope_render::page::{Html, path_segment};
use stroboscope_render::show::short_request;

use super::table::{LinkedTable, Set};

/// Lists the spans of other requests that a request links to.
pub(super) fn link_part(html: &mut Html, request: &Request) {
    let follows = &request.follows;
    if follows.links == 0 {
        return;
    }
    html.markup("<h2 id=\"follows\">Spans that it links to</h2>\n");
    let mut said = vec![counted(follows.links, "link")];
    for (count, what) in [
        (follows.missing(), "to spans that are not in the store"),
        (follows.unread, "not read"),
        (
            follows.unknown,
            "in an unknown order, by the clocks or a cut span",
        ),
    ] {
        if count > 0 {
            said.push(format!("{count} {what}"));
        }
    }
    html.markup("<p>").text(&said.join(" · ")).markup("</p>\n");
    if follows.first.is_empty() {
        return;
    }
    let caption = match follows.found > follows.first.len() as u64 {
        true => format!("The first {} of {}", follows.first.len(), follows.found),
        false => counted(follows.found, "span"),
    };
    let heads = [
        ("request", Set::Name),
        ("span", Set::Name),
        ("linked from", Set::Name),
        ("ended before", Set::Number),
        ("", Set::Name),
    ];
    let mut table = LinkedTable::new(&caption, &heads);
    for follow in &follows.first {
        let id = follow.producer.request.to_string();
        table.row(|cells| {
            cells
                .link(&format!("/traces/{id}"), short_request(&id))
                .name(&follow.producer.operation)
                .name(&follow.consumer.operation)
                .duration(follow.waited_ns())
                .name(match follow.order {
                    LinkOrder::Before => "",
                    LinkOrder::Overlaps => "ended later",
                    LinkOrder::Unknown => "order unknown",
                });
        });
    }
    html.html(&table.end());
}

/// Returns the address of the list of requests that link to a request's trace, from the request's
/// start on.
pub(super) fn followers_address(request: &Request) -> String {
    let formula = format!("{{ link:traceID = \"{}\" }}", request.recorded.stored_id());
    let (formula, from_ns) = (path_segment(&formula), request.recorded_ns().0);
    format!("/traces?order=latest&q={formula}&from={from_ns}")
}
