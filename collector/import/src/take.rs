//! What readers of formats hand on.

use stroboscope_foreign::{BadSpan, ForeignSpan, TakeSpans};

use super::BadLine;
use super::line::LogEvent;

/// Takes what is found in a source, and hears of what is not.
pub(super) trait Take {
    /// A span, or why it is none, of line (or message) `line`.
    fn span(&mut self, line: u64, span: Result<ForeignSpan, BadLine>);

    /// An event of a task.
    fn event(&mut self, event: &LogEvent<'_>);

    /// Something that is left out because it is wrong.
    fn bad(&mut self, line: u64, reason: &BadLine);

    /// `count` of something that is right and has no place here.
    fn not_taken(&mut self, line: u64, name: &str, count: u64);
}

/// One that takes everything, for a reader of nothing but spans.
pub(super) struct Spans<'a>(pub(super) &'a mut dyn Take);

impl TakeSpans for Spans<'_> {
    fn span(&mut self, line: u64, span: Result<ForeignSpan, BadSpan>) {
        self.0.span(line, span.map_err(BadLine::Span));
    }

    fn not_taken(&mut self, line: u64, name: &str, count: u64) {
        self.0.not_taken(line, name, count);
    }
}
