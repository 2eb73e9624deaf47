//! What is known of one thread while its events pass by.

use super::timeline::{Owner, Waker};

/// The state of a thread, as the scheduler has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThreadState {
    /// Nothing was seen of it in this window, or its events may be missing.
    Unknown,
    /// On a processor since `since_ns`, or since its owner changed.
    On { cpu: u16, since_ns: u64 },
    /// Off it: an index into the intervals off the processor.
    Off(usize),
}

/// The first half of a pair, until the second comes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    pub(super) start: bool,
    /// The first half's own system call.
    pub(super) call: usize,
}

#[derive(Debug)]
pub(super) struct Thread {
    pub(super) owner: Owner,
    pub(super) state: ThreadState,
    /// The system call it is in: an index into the calls.
    pub(super) call: Option<usize>,
    /// A wake-up that came before the switch it belongs to.
    pub(super) early_wake: Option<Waker>,
    pub(super) pair: Option<Pair>,
    /// The open wait for a lock that a marker began: an index into the lock waits.
    pub(super) lock_wait: Option<usize>,
    /// The open work interval: an index into them.
    pub(super) interval: Option<usize>,
    pub(super) unknown: Unknown,
    /// It left the processor while events were being lost: markers may be among them.
    pub(super) is_doubtful: bool,
    /// When the recorder last introduced it.
    pub(super) introduced_ns: Option<u64>,
}

/// Results that wait for the owner of an unknown time to be found: indices into the lists of results.
#[derive(Debug, Default)]
pub(super) struct Unknown {
    /// When that time began.
    pub(super) since_ns: u64,
    pub(super) calls: Vec<usize>,
    pub(super) on_cpu: Vec<usize>,
    pub(super) off_cpu: Vec<usize>,
    /// Intervals off the processor of *other* threads, which this one woke.
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
