//! State of one thread during the pass over its events.

use super::timeline::{Owner, Waker};

/// Scheduling state of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThreadState {
    /// The thread was not seen on or off a processor in this window, or its events may be missing.
    Unknown,
    /// On processor `cpu`, with its present owner, since `since_ns`.
    On { cpu: u16, since_ns: u64 },
    /// Off the processor, with the index of the open interval in the off-processor intervals.
    Off(usize),
}

/// First marker of a pair, kept at most until the thread's next `getpid`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    pub(super) start: bool,
    /// Index of the first `getpid` in the list of calls.
    pub(super) call: usize,
}

#[derive(Debug)]
pub(super) struct Thread {
    pub(super) owner: Owner,
    pub(super) state: ThreadState,
    /// System call that the thread is in: an index into the timeline's calls.
    pub(super) call: Option<usize>,
    /// Wake-up of the thread that was recorded before the thread was known to be off its processor.
    pub(super) early_wake: Option<Waker>,
    pub(super) pair: Option<Pair>,
    /// Latest lock wait that a marker began on this thread, as an index into the timeline's lock
    /// waits. It may have ended on another thread. `None` after a marker of an acquired lock.
    pub(super) lock_wait: Option<usize>,
    /// Open work interval: an index into the timeline's work intervals.
    pub(super) interval: Option<usize>,
    pub(super) unknown: Unknown,
    /// True if the thread may have run unseen while events were being lost. The lost events may
    /// include its markers.
    pub(super) is_doubtful: bool,
    /// Time of the recorder's last introduction of the thread.
    pub(super) introduced_ns: Option<u64>,
}

/// Items whose unknown owner a later event may reveal, as indices into their lists.
#[derive(Debug, Default)]
pub(super) struct Unknown {
    /// Time since which the owner is unknown, ns by the events' clock.
    pub(super) since_ns: u64,
    pub(super) calls: Vec<usize>,
    pub(super) on_cpu: Vec<usize>,
    pub(super) off_cpu: Vec<usize>,
    /// Off-processor intervals, usually other threads', whose sleep a wake-up on this thread ended.
    pub(super) woken: Vec<usize>,
    pub(super) lock_waits: Vec<usize>,
    pub(super) releases: Vec<usize>,
}

impl Unknown {
    pub(super) fn since(since_ns: u64) -> Self {
        Self {
            since_ns,
            ..Self::default()
        }
    }
}

impl Thread {
    pub(super) fn new(since_ns: u64, is_doubtful: bool) -> Self {
        Self {
            owner: Owner::Unknown,
            state: ThreadState::Unknown,
            call: None,
            early_wake: None,
            pair: None,
            lock_wait: None,
            interval: None,
            unknown: Unknown::since(since_ns),
            is_doubtful,
            introduced_ns: None,
        }
    }
}
