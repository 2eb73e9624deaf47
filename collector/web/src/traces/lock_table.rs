//! Table of the locks and futexes at which one request waited.

use std::collections::HashMap;
use std::sync::Arc;

use stroboscope_analysis::kernel::lock_sums::{
    LockExample, LockHolder, LockSpan, LockSum, LockSums,
};
use stroboscope_analysis::kernel::timeline::ReleaseEvidence;
use stroboscope_query::Request;
use stroboscope_render::page::{Html, path_segment};

use super::table::{LinkedTable, Set};

/// Maximum number of locks and futexes listed.
const LOCKS_LISTED_MAX: usize = 12;

/// Sums the waits by lock, the longest total wait first.
fn locks(request: &Request) -> Vec<LockSum> {
    let mut sums = LockSums::default();
    for part in &request.kernel {
        let host = Arc::from(&*part.host);
        sums.observe(&host, &part.timeline, |ns| part.clocks.wall_ns(ns));
    }
    let spans = request.recorded.spans.iter();
    let names: HashMap<u64, (&str, String)> = spans
        .map(|span| {
            let operation = format!("{}:{}", span.service, span.name);
            (span.span_id, (&*span.service, operation))
        })
        .collect();
    sums.rows(|span| {
        let known = names.get(&span.span);
        LockSpan {
            service: known.map(|known| known.0),
            operation: known.map_or("", |known| &known.1),
        }
    })
}

/// Returns the name of the holder or waker in the longest wait; if it is another request, also
/// returns the address of that request's page.
fn holder(example: &LockExample, own: u64) -> (String, Option<String>) {
    match (&example.holder, example.holder_trace) {
        (_, Some(low)) if low == own => ("this request".to_owned(), None),
        (_, Some(low)) => {
            // A link to a waker has the end of the wait, when it woke the thread. A link to a
            // holder named by a marker has the beginning: by the end, it may have moved on.
            let woke = !matches!(example.evidence, Some(ReleaseEvidence::Marker) | None);
            let after_ns = if woke { example.took_ns } else { 0 };
            let at_ns = example.start_ns.saturating_add_unsigned(after_ns);
            (
                format!("request {low:016x}"),
                Some(format!("/traces/{low:016x}?at={at_ns}")),
            )
        }
        (LockHolder::Nobody, _) => ("no request".to_owned(), None),
        (LockHolder::Unseen, _) => ("not seen".to_owned(), None),
        _ => ("an unknown request".to_owned(), None),
    }
}

/// Writes the table; nothing if the request waited at no lock or futex.
pub(super) fn lock_table(html: &mut Html, request: &Request) {
    let locks = locks(request);
    if locks.is_empty() {
        return;
    }
    html.markup("<h3 id=\"locks\">Locks and futexes it waited at</h3>\n<p>")
        .text(
            "Each lock links to all requests that waited there. A futex need not be a lock: its waker is known, \
             its holder is not.",
        )
        .markup("</p>\n");
    let heads = [
        ("lock", Set::Name),
        ("kind", Set::Name),
        ("waiter", Set::Name),
        ("waited", Set::Number),
        ("waits", Set::Number),
        ("longest", Set::Number),
        ("longest held by / woken by", Set::Name),
    ];
    let mut table = LinkedTable::new("Locks and futexes", &heads);
    for row in locks.iter().take(LOCKS_LISTED_MAX) {
        let name = row.key.to_string();
        let waiting = row.waiting.first().map_or("", |(what, _)| what);
        table.row(|cells| {
            cells
                .link(&format!("/timeline?lock={}", path_segment(&name)), &name)
                .name(if row.key.is_marked {
                    "marked lock"
                } else {
                    "futex"
                })
                .name(waiting)
                .duration((row.sum.waits > 0).then_some(row.sum.total_ns))
                .count(row.sum.waits + row.cut)
                .duration((row.sum.waits > 0).then_some(row.max_ns));
            match row
                .longest
                .first()
                .map(|example| holder(example, request.recorded.stored_id().0 as u64))
            {
                Some((text, Some(address))) => cells.link(&address, &text),
                Some((text, None)) => cells.name(&text),
                None => cells.name("its end was not seen"),
            };
        });
    }
    html.html(&table.end());
    if let Some(rest) = locks
        .get(LOCKS_LISTED_MAX..)
        .filter(|rest| !rest.is_empty())
    {
        let total_ns: u64 = rest.iter().map(|row| row.sum.total_ns).sum();
        html.markup("<p>")
            .text(&format!(
                "{} more, at which it waited {} together.",
                rest.len(),
                stroboscope_render::humanise::duration_spaced(total_ns as f64)
            ))
            .markup("</p>\n");
    }
}
