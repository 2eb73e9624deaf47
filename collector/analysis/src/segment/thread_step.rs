//! Order of segments within a thread of control, independent of clocks.

/// First thread number of spans; tasks of event logs have lower numbers.
const FIRST_SPAN: u16 = 1 << 15;

/// A segment's position in a thread of control. The segments of one span, or of one task of an
/// event log, follow each other, even if the clock is too coarse to show their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadStep {
    thread: u16,
    step: u16,
}

impl ThreadStep {
    /// Position of a segment in no thread, or beyond the range of numbers. Only timestamps order
    /// such a segment.
    pub const NONE: ThreadStep = ThreadStep {
        thread: u16::MAX,
        step: 0,
    };

    /// Returns position `step` in the event log's task with this number; `NONE` beyond the range.
    pub fn of_task(task: usize, step: usize) -> ThreadStep {
        ThreadStep::new(task, step)
            .filter(|at| at.thread < FIRST_SPAN)
            .unwrap_or(ThreadStep::NONE)
    }

    /// Returns position `step` in the span with this number; `NONE` beyond the range.
    pub fn of_span(span: usize, step: usize) -> ThreadStep {
        let thread = span.saturating_add(usize::from(FIRST_SPAN));
        ThreadStep::new(thread, step).unwrap_or(ThreadStep::NONE)
    }

    fn new(thread: usize, step: usize) -> Option<ThreadStep> {
        let thread = u16::try_from(thread)
            .ok()
            .filter(|thread| *thread < u16::MAX)?;
        Some(ThreadStep {
            thread,
            step: u16::try_from(step).ok()?,
        })
    }

    /// Reports whether both positions are known to be in one thread.
    pub fn is_with(self, other: ThreadStep) -> bool {
        self.thread == other.thread && self.thread != u16::MAX
    }

    /// Reports whether both positions are in one thread, and `self` comes first.
    pub fn is_before(self, other: ThreadStep) -> bool {
        self.is_with(other) && self.step < other.step
    }
}
