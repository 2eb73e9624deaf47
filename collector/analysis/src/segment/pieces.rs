//! Accumulates the segments that the cutters of spans and of event logs make of a trace.

use super::elements::Elements;
use super::{ClockBounds, ClockId, ElementId, Segment, ThreadStep};
use crate::diagnostic::Diagnostic;
use crate::label::{Labels, SegmentId};
use crate::record::HostClock;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// Segments and diagnostics of a trace under construction, with the data that both ways of cutting
/// share.
pub(super) struct Pieces<'a> {
    pub(super) labels: &'a mut Labels,
    pub(super) clocks: &'a [HostClock],
    /// Address of the last host looked up, and its clock. Neighbouring records usually share a
    /// host.
    pub(super) last_clock: Cell<Option<(*const u8, ClockId)>>,
    pub(super) elements: Elements<'a>,
    /// Instant at which the request's caller had the answer; `None` if it is unknown.
    pub(super) answer: Option<Instant>,
    /// Error bounds and recorded instants of moved timestamps. Each entry has a clock of its own,
    /// numbered after the clocks of the hosts.
    pub(super) moved: RefCell<Vec<(ClockBounds, Instant)>>,
    pub(super) segments: Vec<Segment>,
    pub(super) refused: u32,
    pub(super) diagnostics: Vec<Diagnostic>,
}

/// A time in nanoseconds since the Unix epoch, and the clock that took it.
pub(super) type Instant = (i64, ClockId);

impl Pieces<'_> {
    /// Returns the clock of a host; [`ClockId::EXACT`] for a host without error bounds.
    pub(super) fn clock(&self, host: &Arc<str>) -> ClockId {
        if self.clocks.is_empty() {
            return ClockId::EXACT;
        }
        if let Some((_, clock)) = self
            .last_clock
            .get()
            .filter(|(last, _)| *last == host.as_ptr())
        {
            return clock;
        }
        let at = self
            .clocks
            .binary_search_by(|clock| clock.host.cmp(host))
            .ok();
        // Hosts beyond the range of clock numbers count as exact. No real request has that many.
        let clock = at
            .and_then(|at| u16::try_from(at).ok())
            .map_or(ClockId::EXACT, ClockId);
        self.last_clock.set(Some((host.as_ptr(), clock)));
        clock
    }

    /// Returns the maximum distance, in nanoseconds, at which a timestamp of clock `a` and one of
    /// clock `b` may be in the wrong order. It is 0 for one clock, which never runs backwards,
    /// whatever its resolution.
    pub(super) fn disorder_ns(&self, a: ClockId, b: ClockId) -> u64 {
        if a == b {
            0
        } else {
            self.bounds(a).tolerance_ns(self.bounds(b), false)
        }
    }

    pub(super) fn bounds(&self, clock: ClockId) -> ClockBounds {
        let at = usize::from(clock.0);
        match self.clocks.get(at) {
            Some(clock) => ClockBounds::of(clock),
            None => self
                .moved
                .borrow()
                .get(at - self.clocks.len())
                .map_or_else(ClockBounds::default, |of| of.0),
        }
    }

    /// Reports whether `late` was certainly after `early`. Between clocks that nothing connects,
    /// the timestamps decide, because there is no better evidence.
    pub(super) fn is_after(&self, late: Instant, early: Instant) -> bool {
        let (of_late, of_early) = (self.bounds(late.1), self.bounds(early.1));
        let tolerance_ns = if of_late.island == of_early.island {
            of_late.tolerance_ns(of_early, late.1 == early.1)
        } else {
            0
        };
        late.0 > early.0.saturating_add_unsigned(tolerance_ns)
    }

    /// Returns the instant. If its timestamp is later than the answer, but not certainly, returns
    /// the answer instead.
    pub(super) fn by_answer(&self, at: Instant) -> Instant {
        self.answer
            .filter(|answer| answer.0 < at.0 && !self.is_after(at, *answer))
            .unwrap_or(at)
    }

    /// Moves an instant to an edge that it is assumed not to lie beyond. By its timestamp, it lies
    /// on the edge, or beyond it but not certainly. The result may be off by the errors of both
    /// clocks.
    pub(super) fn move_to(&self, edge: Instant, from: Instant) -> Instant {
        if from.1 == edge.1 {
            return edge;
        }
        let of_edge = self.bounds(edge.1);
        let error_ns = self.bounds(from.1).tolerance_ns(of_edge, false);
        let mut moved = self.moved.borrow_mut();
        // Beyond the range of clock numbers, and between islands, the result has the edge's clock.
        let clock = u16::try_from(self.clocks.len() + moved.len()).map(ClockId);
        match clock
            .ok()
            .filter(|clock| *clock != ClockId::EXACT && error_ns < u64::MAX)
        {
            Some(clock) => {
                moved.push((
                    ClockBounds {
                        error_ns,
                        tick_ns: 0,
                        island: of_edge.island,
                    },
                    from,
                ));
                (edge.0, clock)
            }
            None => edge,
        }
    }

    pub(super) fn push(
        &mut self,
        id: Option<SegmentId>,
        element: ElementId,
        step: ThreadStep,
        (start, end): (Instant, Instant),
    ) {
        let by_answer = self.by_answer(end);
        let end = if by_answer == end {
            end
        } else {
            self.move_to(by_answer, end)
        };
        let start = if start.0 <= end.0 { start } else { end };
        match id {
            Some(id) => self.segments.push(Segment {
                start_clock: start.1,
                end_clock: end.1,
                element,
                step,
                ..Segment::new(id, start.0, end.0)
            }),
            None => self.refused = self.refused.saturating_add(1),
        }
    }
}
