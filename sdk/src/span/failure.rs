//! Marks spans as failed.

use super::Span;
use super::fields::{add_fields, current_recorded};
use crate::callsite::Callsite;
use crate::context::SpanContext;
use crate::record;

/// Marks the current span as failed: adds the attribute `error`, and the message as
/// `otel.status_description`. A later message replaces an earlier one. Outside of spans, and while
/// the request is not recorded, it has no effect. It formats the message only if the current span
/// may be recorded.
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
    /// Marks the span as failed, like [`error`](crate::error()) for the current span.
    pub fn error(&self, message: impl std::fmt::Display) {
        if self.is_recorded() {
            mark_failed(self.context(), &message);
        }
    }
}

/// Marks a span as failed. If the span is not recorded, the drain discards the mark.
fn mark_failed(span: SpanContext, message: &dyn std::fmt::Display) {
    static FAILED: Callsite =
        Callsite::new("", &["error", "otel.status_description"], file!(), line!());
    add_fields(span, &FAILED, |writer| {
        writer.scalar(0, record::ValueKind::Bool, 1);
        writer.formatted(1, format_args!("{message}"));
    });
}

/// Calls a function's body, so that the compiler knows that it runs once; used by `#[trace(err)]`.
#[doc(hidden)]
#[inline(always)]
pub fn once<T>(body: impl FnOnce() -> T) -> T {
    body()
}

/// Marks the current span as failed if the function returns an error; used by `#[trace(err)]`.
#[doc(hidden)]
#[inline]
pub fn note_failure<T, E: std::fmt::Display>(result: &Result<T, E>) {
    if let Err(failed) = result {
        error(failed);
    }
}
