//! Links from a request to the trace from which it was divided, such as that of its connection, and
//! from such a trace to its requests.

use stroboscope_query::Request;
use stroboscope_render::humanise::counted;
use stroboscope_render::page::{Html, path_segment};
use stroboscope_render::show::short_request;

use super::table::{LinkedTable, Set};

pub(super) fn connection_part(html: &mut Html, request: &Request) {
    let connection = &request.connection;
    if let Some(id) = connection.inside {
        let id = id.to_string();
        html.markup("<p class=\"ways\">Inside of the connection <a href=\"/traces/")
            .text(&id)
            .markup("\">")
            .text(short_request(&id))
            .markup("</a></p>\n");
    }
    if connection.requests == 0 && !connection.is_linked_to {
        return;
    }
    html.markup("<h2 id=\"requests\">Requests on this connection</h2>\n");
    if connection.is_linked_to {
        let formula = format!("{{ link:traceID = \"{}\" }}", request.recorded.id);
        let (from_ns, to_ns) = request.recorded_ns();
        html.markup("<p><a href=\"/traces?order=latest&amp;q=")
            .text(&path_segment(&formula))
            .markup("&amp;from=")
            .shown(from_ns)
            .markup("&amp;to=")
            .shown(to_ns.saturating_add(1))
            .markup("\">Requests linked to it</a></p>\n");
    }
    if connection.requests > 0 {
        let shown = connection.first.len() as u64;
        let all = counted(connection.requests, "request");
        let caption = match shown < connection.requests {
            true => format!("The first {shown} of {all}"),
            false => all,
        };
        html.html(&table(&caption, request));
    }
}

fn table(caption: &str, request: &Request) -> Html {
    let heads = [
        ("request", Set::Name),
        ("operation", Set::Name),
        ("after", Set::Number),
        ("takes", Set::Number),
    ];
    let start_ns = request.recorded_ns().0;
    let mut table = LinkedTable::new(caption, &heads);
    for one in &request.connection.first {
        let id = one.id.to_string();
        table.row(|cells| {
            cells
                .link(&format!("/traces/{id}"), short_request(&id))
                .name(&one.root)
                .duration(Some(one.start_ns.abs_diff(start_ns)))
                .duration(Some(one.took_ns));
        });
    }
    table.end()
}
