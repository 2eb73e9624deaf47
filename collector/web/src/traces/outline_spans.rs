//! Spans of a request by their places in its outline.

use stroboscope_analysis::record::SpanRecord;
use stroboscope_query::Request;

pub(super) fn span_at(request: &Request, place: usize) -> &SpanRecord {
    &request.aligned.spans[request.outline[place].record]
}

/// Returns the fragment for links to a span. The timeline finds the span by it; without scripts, it
/// is the id of the row in the table.
pub(super) fn called(request: &Request, place: usize) -> String {
    format!("span={:016x}", span_at(request, place).span_id)
}

pub(super) fn operation_at(request: &Request, place: usize) -> String {
    let span = span_at(request, place);
    format!("{}:{}", span.service, span.name)
}

pub(super) fn depth(request: &Request, place: usize) -> usize {
    let above = |place: &usize| request.outline[*place].parent;
    std::iter::successors(above(&place), above).count()
}
