//! Spans that fail.

use super::Span;
use super::fields::{add_fields, current_recorded};
use crate::callsite::Callsite;
use crate::context::SpanContext;
use crate::record;

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
    if let Some(current) = current_recorded() {
        mark_failed(current, &message);
    }
}

impl Span {
    /// Marks the span as failed, as [`error`](crate::error()) does the current one.
    pub fn error(&self, message: impl std::fmt::Display) {
        if self.is_recorded() {
            mark_failed(self.context(), &message);
        }
    }
}

/// Marks a span that is recorded as failed.
fn mark_failed(span: SpanContext, message: &dyn std::fmt::Display) {
    static FAILED: Callsite =
        Callsite::new("", &["error", "otel.status_description"], file!(), line!());
    add_fields(span, &FAILED, |writer| {
        writer.scalar(0, record::ValueKind::Bool, 1);
        writer.formatted(1, format_args!("{message}"));
    });
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
