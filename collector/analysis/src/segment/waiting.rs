//! Decides which spans wait for which children, and when the request was answered.

use super::{Instant, Pieces};
use crate::record::{SpanFlags, SpanRecord};

/// Returns the end of a span; `None` if the end was not recorded.
pub(super) fn known_end(span: &SpanRecord, pieces: &Pieces<'_>) -> Option<Instant> {
    let is_cut =
        span.flags.contains(SpanFlags::CUT_CLOSE) || span.flags.contains(SpanFlags::UNFINISHED);
    (!is_cut).then(|| (span.end_ns.max(span.start_ns), pieces.clock(&span.host)))
}

/// Reports whether the parent cannot have waited for the child: the child certainly began after the
/// parent's end, or it certainly ended after that and is not a call. See
/// [`from_spans`](super::from_spans).
pub(super) fn is_detached(child: &SpanRecord, parent: &SpanRecord, pieces: &Pieces<'_>) -> bool {
    let child_ends_ns = child.end_ns.max(child.start_ns);
    // Nearly all children are nested, regardless of the clocks.
    if child_ends_ns <= parent.end_ns {
        return false;
    }
    let Some(parent_end) = known_end(parent, pieces) else {
        return false;
    };
    let is_after = |at_ns: i64| pieces.is_after((at_ns, pieces.clock(&child.host)), parent_end);
    let is_call =
        parent.flags.contains(SpanFlags::CLIENT) || child.flags.contains(SpanFlags::SERVER);
    is_after(child.start_ns) || (!is_call && is_after(child_ends_ns))
}

/// Returns the instant at which the request's caller has the answer: the end of the root, or the
/// last end of several roots. Returns `None` without a root, or if the end of a root was not
/// recorded.
pub(super) fn answer(spans: &[SpanRecord], pieces: &Pieces<'_>) -> Option<Instant> {
    let roots = spans.iter().filter(|span| span.parent_id == 0);
    let ends = roots.map(|root| known_end(root, pieces));
    ends.reduce(|a, b| Some(a?).max(Some(b?))).flatten()
}
