//! Links on a request's page to similar requests, and to programs that open it.

use stroboscope_query::Request;
use stroboscope_render::page::Html;
use url::form_urlencoded::byte_serialize;

use super::link_part::followers_address;

const PERFETTO: &str = "https://ui.perfetto.dev";

/// Writes links to other requests of the request's operation: those that took about as long, the
/// typical ones, and the paths of all.
fn beside_others(html: &mut Html, request: &Request, root: &str) {
    // Fragments and event logs have no operation.
    if request.aligned.root_operation().is_none() {
        return;
    }
    let latency = request.trace.latency_ns();
    let (min_ns, max_ns) = (
        latency - latency / 10,
        latency.saturating_add(latency / 10 + 1),
    );
    for (address, said) in [
        (
            format!("/traces?root={root}&min={min_ns}&max={max_ns}"),
            "Requests of its operation that took about as long",
        ),
        (
            format!("/critical-path?root={root}"),
            "The critical path of typical requests of its operation",
        ),
        (
            format!("/flows?root={root}"),
            "The paths of its operation's requests, each with a typical one",
        ),
    ] {
        html.markup("<li><a href=\"")
            .text(&address)
            .markup("\">")
            .markup(said)
            .markup("</a></li>\n");
    }
}

/// Writes the list of links to related pages and other programs.
pub(super) fn elsewhere(html: &mut Html, request: &Request) {
    let id = request.recorded.id.to_string();
    let root: String = byte_serialize(request.aligned.root_name().as_bytes()).collect();
    html.markup(
        "<h2 id=\"elsewhere\">Related pages</h2>\n<ul class=\"links\"><li><a href=\"/traces?root=",
    )
    .text(&root)
    .markup("\">The slowest requests with ")
    .text(&request.aligned.root_name())
    .markup("</a></li>\n");
    beside_others(html, request, &root);
    html.markup("<li><a href=\"")
        .text(&followers_address(request))
        .markup("\">Requests that link to it</a></li>\n");
    let mut hosts: Vec<&str> = request.kernel.iter().map(|part| &*part.host).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let parts: Vec<Option<&str>> = match hosts.as_slice() {
        [] | [_] => vec![None],
        several => several.iter().copied().map(Some).collect(),
    };
    for (what, path) in [
        ("this request", format!("/traces/{id}/perfetto")),
        (
            "the burst that it began in, with all its requests",
            format!("/bursts/{}/perfetto", request.recorded_ns().0),
        ),
    ] {
        for host in &parts {
            let asked = host.map_or_else(String::new, |host| {
                let host: String = byte_serialize(host.as_bytes()).collect();
                format!("?host={host}")
            });
            html.markup("<li><a download=\"\" data-perfetto=\"")
                .markup(PERFETTO)
                .markup("\" href=\"")
                .text(&path)
                .text(&asked)
                .markup("\">Download ")
                .markup(what);
            if let Some(host) = host {
                html.text(&format!(", and the kernel of {host}"));
            }
            html.markup(" (.pftrace)</a></li>\n");
        }
    }
    html.markup(
        "<li>Without scripts, open the file at <a rel=\"noopener noreferrer external\" href=\"",
    )
    .markup(PERFETTO)
    .markup("\">ui.perfetto.dev</a>, which leaves this site.</li></ul>\n");
}
