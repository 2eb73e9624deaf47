//! Tests of recordings that share one process, with real spans.

mod asynchronous;
mod isolation;
mod messages;
mod requests;

use stroboscope::span;

/// Service under test: queries a database, and renders the result.
#[stroboscope::trace]
fn checkout(queries: usize) {
    for row in 0..queries {
        let _query = span!("db.query", row).entered();
        stroboscope::event!("found", row);
    }
    let _render = span!("render").entered();
}
