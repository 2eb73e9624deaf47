//! Outputs and sources of a request, in which its services tracked bytes.

use stroboscope_render::page::{Html, body};
use stroboscope_reports::failure::FailureCode;
use stroboscope_store::progress::silent;

use crate::site::Site;

/// Maximum number of items on the page of a request.
const ROWS: usize = 8;

/// Adds the items whose bytes the request tracked, if there are any, or the error if memory does
/// not suffice to read them.
pub(super) fn provenance_part(html: &mut Html, site: &Site, id: u128) {
    let trace = format!("{id:032x}");
    let rows = ROWS.to_string();
    let arguments = [("trace", trace.clone()), ("top", rows)];
    let arguments = arguments.map(|(name, value)| (name.to_owned(), value));
    let answer = site.verbs().answer("provenance", &arguments, silent());
    let heading = "<h2 id=\"provenance\">Bytes that it tracked</h2>\n";
    match answer {
        Ok(answer) => {
            html.markup(heading).html(&body(&answer.doc));
            html.markup("<p><a href=\"/provenance?trace=")
                .text(&trace)
                .markup("\">All of its outputs and sources</a></p>\n");
        }
        Err(error) if matches!(error.code, FailureCode::Busy | FailureCode::TooLarge) => {
            html.markup(heading).markup("<p>");
            html.text(&error.to_string()).markup("</p>\n");
        }
        // Most requests track no bytes, which is one of these failures.
        Err(_) => {}
    }
}
