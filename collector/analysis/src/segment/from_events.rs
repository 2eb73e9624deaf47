//! Segments of an event log: the interval between two consecutive events of one task (The Mystery Machine, §4.1).
//!
//! Events of a task are ordered by time, and by order of arrival where times are equal. Where the task's hosts have
//! inexact clocks, the order of arrival is taken if no timestamps contradict it by more than their error bounds. Two
//! events at the same instant make a segment of length zero, so that the same log always has the same segments. A
//! task with one event has no segment. Names are taken as they are: an event log's names are chosen to be few.

use super::{ClockId, Pieces};
use crate::record::EventRecord;

/// Cuts the events of one trace.
pub(super) fn cut(events: &[EventRecord], pieces: &mut Pieces<'_>) {
    let mut order: Vec<&EventRecord> = events.iter().collect();
    // The names come last only to make the order total: the result must not depend on how the records lie.
    order.sort_unstable_by(|a, b| {
        (&a.task, a.ts_ns, a.seq, &a.event, &a.host).cmp(&(&b.task, b.ts_ns, b.seq, &b.event, &b.host))
    });
    if !pieces.clocks.is_empty() {
        for task in order.chunk_by_mut(|a, b| a.task == b.task) {
            take_order_of_arrival(task, pieces);
        }
    }
    for pair in order.windows(2) {
        let (a, b) = (pair[0], pair[1]);
        if a.task == b.task {
            let id = pieces.labels.intern(&a.task, &a.event, &b.event);
            let (start, end) = ((a.ts_ns, pieces.clock(&a.host)), (b.ts_ns, pieces.clock(&b.host)));
            pieces.push(id, start, end);
        }
    }
}

/// Sorts a task's events by arrival, if no two neighbours in that order contradict it for sure.
fn take_order_of_arrival(task: &mut [&EventRecord], pieces: &Pieces<'_>) {
    let mut arrived: Vec<(&EventRecord, ClockId)> =
        task.iter().map(|e| (*e, pieces.clock(&e.host))).collect();
    arrived.sort_by_key(|(event, _)| event.seq);
    let possible = |pair: &[(&EventRecord, ClockId)]| {
        let tolerance_ns = pieces.tolerance_ns(pair[0].1, pair[1].1);
        pair[0].0.ts_ns <= pair[1].0.ts_ns.saturating_add_unsigned(tolerance_ns)
    };
    if arrived.windows(2).all(possible) {
        task.iter_mut().zip(arrived).for_each(|(place, (event, _))| *place = event);
    }
}
