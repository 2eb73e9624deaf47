//! Interface between the readers of formats and their sink.

use stroboscope_otlp::{BadSpan, ForeignSpan, TakeSpans};

use super::BadLine;
use super::line::LogEvent;

/// Receives the records of a source, and notices of parts that are not stored.
pub(super) trait Take {
    /// Receives a span of line (or message) `line`, or the reason for rejecting it.
    fn span(&mut self, line: u64, span: Result<ForeignSpan, BadLine>);

    /// Receives an event of a task.
    fn event(&mut self, event: &LogEvent<'_>);

    /// Receives notice of a record that is left out because of a defect.
    fn bad(&mut self, line: u64, reason: &BadLine);

    /// Receives notice of `count` valid items that have no place in the store.
    fn not_taken(&mut self, line: u64, name: &str, count: u64);
}

/// Adapter for readers that produce only spans.
pub(super) struct Spans<'a>(pub(super) &'a mut dyn Take);

impl TakeSpans for Spans<'_> {
    fn span(&mut self, line: u64, span: Result<ForeignSpan, BadSpan>) {
        self.0.span(line, span.map_err(BadLine::Span));
    }

    fn not_taken(&mut self, line: u64, name: &str, count: u64) {
        self.0.not_taken(line, name, count);
    }
}
