//! Spans that fail.

use super::add_fields;
use crate::callsite::Callsite;
use crate::gate::{self, Now};
use crate::{context, record};

/// Marks the current span as failed: it gets the attribute `error`, and the message as `otel.status_description`. The last
/// message counts. Outside of spans, and in requests of which nothing is recorded, it does nothing, and formats no message.
///
/// ```
/// # fn work() -> Result<(), std::io::Error> { Ok(()) }
/// let _span = stroboscope::span!("work").entered();
/// if let Err(error) = work() {
///     stroboscope::error(error);
/// }
/// ```
pub fn error(message: impl std::fmt::Display) {
    static FAILED: Callsite =
        Callsite::new("", &["error", "otel.status_description"], file!(), line!());
    if gate::is_idle() {
        return;
    }
    let current = context::current();
    // The contexts of requests that are not recorded have these marks; no span of ours has them.
    let is_span = current.is_valid() && !current.is_cut() && !current.is_unseen();
    if is_span && (current.is_sampled() || Now::read().is_open()) {
        add_fields(current, &FAILED, |writer| {
            writer.scalar(0, record::ValueKind::Bool, 1);
            writer.formatted(1, format_args!("{message}"));
        });
    }
}

/// For `#[trace(err)]`: calls a function's body, which the compiler then knows to run once.
#[doc(hidden)]
#[inline(always)]
pub fn once<T>(body: impl FnOnce() -> T) -> T {
    body()
}

/// For `#[trace(err)]`: marks the current span as failed, if the function gives an error.
#[doc(hidden)]
#[inline]
pub fn note_failure<T, E: std::fmt::Display>(result: &Result<T, E>) {
    if let Err(failed) = result {
        error(failed);
    }
}
