//! Order of segments within a thread of control, independent of clocks.

/// First thread number of spans; tasks have the numbers below.
const FIRST_SPAN: u16 = 1 << 15;

/// A segment's place in a thread of control. The segments of one span, or of one task of an event
/// log, follow each other, even if the clock is too coarse to show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadStep {
    thread: u16,
    step: u16,
}

impl ThreadStep {
    /// Place in no thread, or in one beyond the range of numbers: only timestamps decide.
    pub const NONE: ThreadStep = ThreadStep {
        thread: u16::MAX,
        step: 0,
    };

    /// Returns the place in the task of this number of an event log.
    pub fn of_task(task: usize, step: usize) -> ThreadStep {
        ThreadStep::new(task, step)
            .filter(|at| at.thread < FIRST_SPAN)
            .unwrap_or(ThreadStep::NONE)
    }

    /// Returns the place in the span of this number.
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

    /// Reports whether both are known to be in one thread.
    pub fn is_with(self, other: ThreadStep) -> bool {
        self.thread == other.thread && self.thread != u16::MAX
    }

    /// Reports whether this comes before the other one in their thread.
    pub fn is_before(self, other: ThreadStep) -> bool {
        self.is_with(other) && self.step < other.step
    }
}
