//! Segments of an event log: the interval between two consecutive events of one task (The Mystery
//! Machine, §4.1).
//!
//! Events of a task on one host are ordered by time, and by order of arrival if times are equal. If
//! some of them arrived in an order that contradicts the host's clock, the order of arrival is
//! meaningless, and names order events of equal time instead. Between hosts with inexact clocks,
//! the order of arrival decides, unless timestamps contradict it by more than their error bounds.
//! The events of a task on more than 64 hosts are only ordered by time, then by arrival. Two
//! consecutive events at the same instant make a segment of length zero, so that the same log
//! always has the same segments. A task with one event has no segment. Events that are equal in
//! everything, including the order of arrival, count once. Apart from trailing elements, names are
//! used unchanged, because event logs are expected to have few of them.
//!
//! **Elements.** A segment works on the data element of its first event, if its second event has an
//! equal element or none. Two events of the same name, such as `sent` to `sent`, log completed
//! work. If their elements differ, the segment works on the second event's element. Otherwise, the
//! segment has no element: from `end` to `begin`, or before a task's first element, the task may
//! only have waited.
//!
//! **Trailing elements** serve logs without an element attribute, and only on request. The last
//! token of an event's name, after one of ` /:#=_-.`, names the element if it is all digits or an
//! id by the [rule for names](crate::name_rule). `*` replaces it in the event's name: `pagelet-7`
//! becomes event `pagelet-*` with element `7`.

use super::elements::between;
use super::{ClockId, Pieces, ThreadStep};
use crate::diagnostic::Diagnostic;
use crate::name_rule::normalise;
use crate::record::{EventRecord, RecordOwner};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Number of cached names above which the cache is emptied before the next trace.
const NAMES_MAX: usize = 1 << 16;
/// Maximum number of hosts of a task whose events are ordered by arrival. On more hosts, arrival
/// orders only events of equal time.
const HOSTS_MERGED_MAX: usize = 64;

/// An event's name without its element, and the element.
type SplitName = (Arc<str>, Option<Arc<str>>);

/// Cuts event logs, and caches names between traces.
#[derive(Clone, Debug, Default)]
pub(super) struct EventCutter {
    trailing_elements: bool,
    split_names: FxHashMap<Arc<str>, SplitName>,
}

impl EventCutter {
    pub(super) fn with_trailing_elements() -> EventCutter {
        EventCutter {
            trailing_elements: true,
            ..EventCutter::default()
        }
    }

    /// Cuts the events of one trace into segments.
    pub(super) fn cut(&mut self, events: &[EventRecord], pieces: &mut Pieces<'_>) {
        let order = ordered(events, pieces);
        if self.split_names.len() > NAMES_MAX {
            self.split_names.clear();
        }
        let (mut lone, mut out_of_order) = (0u32, 0u32);
        for (thread, task) in order.chunk_by(|a, b| a.task == b.task).enumerate() {
            lone += u32::from(task.len() == 1);
            let mut before = self.split(task[0], pieces);
            for (step, pair) in task.windows(2).enumerate() {
                let (a, b) = (pair[0], pair[1]);
                out_of_order += u32::from(a.seq > b.seq && a.ts_ns < b.ts_ns && a.host == b.host);
                let after = self.split(b, pieces);
                let id = pieces.labels.intern(&a.task, &before.0, &after.0);
                let element = between((&before.0, before.1.as_ref()), (&after.0, after.1.as_ref()));
                let element = pieces.elements.number(element);
                let (start, end) = (
                    (a.ts_ns, pieces.clock(&a.host)),
                    (b.ts_ns, pieces.clock(&b.host)),
                );
                pieces.push(id, element, ThreadStep::of_task(thread, step), (start, end));
                before = after;
            }
        }
        if out_of_order > 0 {
            pieces.diagnostics.push(Diagnostic::EventsOutOfOrder {
                events: out_of_order,
            });
        }
        if lone > 0 {
            pieces
                .diagnostics
                .push(Diagnostic::LoneEvents { events: lone });
        }
    }

    fn split(&mut self, event: &EventRecord, pieces: &Pieces<'_>) -> SplitName {
        let named = pieces.elements.named(RecordOwner::Event(event.seq));
        if named.is_some() || !self.trailing_elements {
            return (event.event.clone(), named.cloned());
        }
        if let Some(split) = self.split_names.get(&event.event) {
            return split.clone();
        }
        let split = split_trailing(&event.event);
        self.split_names.insert(event.event.clone(), split.clone());
        split
    }
}

/// Returns the events of a trace by task, each task in the order of its thread of control.
fn ordered<'a>(events: &'a [EventRecord], pieces: &Pieces<'_>) -> Vec<&'a EventRecord> {
    let mut order: Vec<&EventRecord> = events.iter().collect();
    // The names only make the order total, so that the order of records does not matter.
    order.sort_unstable_by(|a, b| {
        (&a.task, a.ts_ns, a.seq, &a.event, &a.host)
            .cmp(&(&b.task, b.ts_ns, b.seq, &b.event, &b.host))
    });
    // Events that are equal in everything were sent and stored twice.
    order.dedup_by(|b, a| (a.ts_ns, a.seq) == (b.ts_ns, b.seq) && a == b);
    for task in order.chunk_by_mut(|a, b| a.task == b.task) {
        if !task.is_sorted_by_key(|event| event.seq) {
            take_order_of_arrival(task, pieces);
        }
    }
    order
}

fn split_trailing(name: &Arc<str>) -> SplitName {
    let start = name
        .rfind([' ', '/', ':', '#', '=', '_', '-', '.'])
        .map_or(0, |at| at + 1);
    let (stem, token) = name.split_at(start);
    let is_id = !stem.is_empty() && normalise(token) == "*";
    if is_id {
        (format!("{stem}*").into(), Some(token.into()))
    } else {
        (name.clone(), None)
    }
}

/// Sorts a task's events from the order of time into the order of arrival, unless timestamps
/// certainly contradict the arrival. Each next event is the first to arrive among the events that
/// no other event certainly precedes. Events of one host stay in the order of its clock. If some of
/// them arrived in an order that contradicts this clock, names order the host's events of equal
/// time. Does nothing on more than [`HOSTS_MERGED_MAX`] hosts.
fn take_order_of_arrival(task: &mut [&EventRecord], pieces: &Pieces<'_>) {
    let mut by_host: Vec<(ClockId, Vec<&EventRecord>)> = Vec::new();
    for &event in task.iter().rev() {
        let known = by_host.iter().position(|(_, of)| of[0].host == event.host);
        match known {
            Some(at) => by_host[at].1.push(event),
            None if by_host.len() < HOSTS_MERGED_MAX => {
                by_host.push((pieces.clock(&event.host), vec![event]));
            }
            None => return,
        }
    }
    let is_against = |pair: &[&EventRecord]| {
        let (late, early) = (pair[0], pair[1]);
        early.seq > late.seq && early.ts_ns < late.ts_ns
    };
    let mut is_in_order = true;
    for (_, of) in &mut by_host {
        if of.windows(2).any(is_against) {
            of.sort_by(|late, early| (early.ts_ns, &early.event).cmp(&(late.ts_ns, &late.event)));
            is_in_order = false;
        }
    }
    if is_in_order && pieces.clocks.is_empty() {
        return;
    }
    for place in task {
        let heads = || {
            by_host
                .iter()
                .filter_map(|(clock, of)| Some((*clock, *of.last()?)))
        };
        let is_free = |(clock, event): &(ClockId, &EventRecord)| {
            heads().all(|(other_clock, other)| {
                let tolerance_ns = pieces.disorder_ns(*clock, other_clock);
                event.ts_ns <= other.ts_ns.saturating_add_unsigned(tolerance_ns)
            })
        };
        // The earliest event is always free.
        let next = heads().filter(is_free).min_by_key(|(_, event)| event.seq);
        let Some((_, next)) = next else {
            return;
        };
        if let Some((_, of)) = by_host.iter_mut().find(|(_, of)| of.last() == Some(&next)) {
            of.pop();
        }
        *place = next;
    }
}
