//! Segments of an event log: the interval between two consecutive events of one task (The Mystery Machine, §4.1).
//!
//! Events of a task are ordered by time, and by order of arrival where times are equal. Two events at the same
//! instant make a segment of length zero, so that the same log always has the same segments. A task with one event
//! has no segment. Names are taken as they are: an event log's names are chosen to be few.

use super::Pieces;
use crate::record::EventRecord;

/// Cuts the events of one trace.
pub(super) fn cut(events: &[EventRecord], pieces: &mut Pieces<'_>) {
    let mut order: Vec<&EventRecord> = events.iter().collect();
    // The names come last only to make the order total: the result must not depend on how the records lie.
    order.sort_unstable_by(|a, b| {
        (&a.task, a.ts_ns, a.seq, &a.event, &a.host).cmp(&(&b.task, b.ts_ns, b.seq, &b.event, &b.host))
    });
    for pair in order.windows(2) {
        let (a, b) = (pair[0], pair[1]);
        if a.task == b.task {
            let id = pieces.labels.intern(&a.task, &a.event, &b.event);
            pieces.push(id, a.ts_ns, b.ts_ns);
        }
    }
}
