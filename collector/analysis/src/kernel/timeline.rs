//! Holistic timeline: the activity of every thread, and the request that it was for.

use std::collections::{BTreeMap, BTreeSet};

use super::event::{LossCounts, Name, Window};
use super::marker::RequestId;

/// Beneficiary of an activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Owner {
    /// A request.
    Request(RequestId),
    /// No request, according to markers.
    Nobody,
    /// Unknown: no marker of the thread was seen, or it may have been lost.
    Unknown,
}

impl Owner {
    /// Owner for an optional request; `Nobody` for none.
    #[must_use]
    pub fn of(request: Option<RequestId>) -> Self {
        request.map_or(Self::Nobody, Self::Request)
    }

    /// The request, if there is one.
    #[must_use]
    pub fn request(self) -> Option<RequestId> {
        match self {
            Self::Request(request) => Some(request),
            Self::Nobody | Self::Unknown => None,
        }
    }

    /// Trace of the request (low half of its id), if there is one.
    #[must_use]
    pub fn trace(self) -> Option<u64> {
        self.request().map(|request| request.trace)
    }
}

/// A system call. All times are monotonic nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemCall {
    /// Thread.
    pub tid: u32,
    /// Number of the call.
    pub call: u32,
    /// Arguments; `None` if the call began before the window.
    pub args: Option<[u64; 6]>,
    /// Start; the window's opening if the call began earlier.
    pub start_ns: u64,
    /// End; `None` if it is not within the window.
    pub end_ns: Option<u64>,
    /// Return value, if the call ended.
    pub result: Option<i64>,
    /// Owner of the call.
    pub owner: Owner,
}

/// An interval of a thread on a processor, for one owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnCpu {
    /// Thread.
    pub tid: u32,
    /// Processor.
    pub cpu: u16,
    /// Start, monotonic ns.
    pub start_ns: u64,
    /// End, monotonic ns.
    pub end_ns: u64,
    /// Owner of the interval.
    pub owner: Owner,
}

/// Reason for a thread being off the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// The thread could have continued; another thread took the processor.
    Preempted,
    /// The thread waited for a futex.
    Futex {
        /// Address of the futex in the process; 0 if not recorded.
        address: u64,
    },
    /// The thread waited in a system call.
    Call {
        /// Number of the call.
        call: u32,
    },
    /// The thread waited outside any system call, usually for a page.
    Fault,
    /// The thread left before the window, or its activity is unknown.
    Unknown,
}

/// Cause of a thread's being able to run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waker {
    /// Thread that ran at that time.
    pub tid: u32,
    /// Owner of that thread.
    pub owner: Owner,
    /// System call that it was in. `None` if in none: then it was an interrupt (a timer, a device)
    /// that only happened to run there.
    pub call: Option<u32>,
    /// Time, monotonic ns.
    pub ts_ns: u64,
}

/// An interval of a thread off the processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffCpu {
    /// Thread.
    pub tid: u32,
    /// Start; the window's opening if the thread left earlier.
    pub start_ns: u64,
    /// Time from which it could run and waited for a processor; `None` if it always could, or if
    /// that is not within the window.
    pub wake_ns: Option<u64>,
    /// End; `None` if it is not within the window.
    pub end_ns: Option<u64>,
    /// Owner of the interval.
    pub owner: Owner,
    /// Reason for being off.
    pub reason: Reason,
    /// Cause of the wake-up.
    pub waker: Option<Waker>,
    /// True if the thread was seen working while believed off: its switch back was not recorded.
    pub is_end_implied: bool,
}

/// Evidence for the release that ended a lock wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReleaseEvidence {
    /// The holder's own marker.
    Marker,
    /// The kernel saw the holder's futex call wake the waiter. For a futex without markers, the
    /// waker is all that is known: most probably it held a lock, or supplied what the waiter waited
    /// for.
    Wake,
    /// The holder called the kernel to wake waiters of that futex; the thread that it woke was not
    /// seen.
    Call,
}

/// Release of a lock that another thread waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// Thread that held it.
    pub tid: u32,
    /// Request that held it.
    pub owner: Owner,
    /// Time of the release.
    pub ts_ns: u64,
    /// Part of the wait during which it held the lock, as far as the seen releases show.
    pub held_ns: u64,
}

/// A wait for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockWait {
    /// Thread that waited, or on which the task began to wait.
    pub tid: u32,
    /// Owner of the wait.
    pub owner: Owner,
    /// Lock: the number in the markers, or the address of the futex; 0 if not recorded.
    pub lock: u64,
    /// True if markers report the wait. Otherwise it is a futex wait, which may be something other
    /// than a lock.
    pub is_marked: bool,
    /// Start, monotonic ns.
    pub start_ns: u64,
    /// End; `None` if it is not within the window.
    pub end_ns: Option<u64>,
    /// Releases during the wait, in order of time, each holder once. With several holders, others
    /// came first; which of them caused most of the wait is not guessed.
    pub releases: Vec<Release>,
    /// Evidence for the releases; `None` if there are none.
    pub evidence: Option<ReleaseEvidence>,
}

/// An interval of work for a request on a thread, between markers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkInterval {
    /// Thread.
    pub tid: u32,
    /// Request that the thread worked for.
    pub request: RequestId,
    /// Start; the window's opening if the work began earlier.
    pub start_ns: u64,
    /// End; `None` if it is not within the window.
    pub end_ns: Option<u64>,
    /// True if the work began before the window.
    pub is_carried: bool,
}

/// A thread that was seen.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ThreadInfo {
    /// Process; 0 if unknown.
    pub process: u32,
    /// Number in its process's pid namespace; 0 if unknown.
    pub tid_in_process: u32,
    /// Name.
    pub name: Name,
}

/// A gap: events of a processor are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Processor.
    pub cpu: u16,
    /// Start, monotonic ns.
    pub start_ns: u64,
    /// End, monotonic ns.
    pub end_ns: u64,
    /// Numbers of missing events.
    pub counts: LossCounts,
}

/// Activity found in the events of one or more windows. Lists are in order of their start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// Windows.
    pub windows: Vec<Window>,
    /// System calls.
    pub calls: Vec<SystemCall>,
    /// Intervals on a processor.
    pub on_cpu: Vec<OnCpu>,
    /// Intervals off the processor.
    pub off_cpu: Vec<OffCpu>,
    /// Waits for locks.
    pub lock_waits: Vec<LockWait>,
    /// Intervals of work for requests.
    pub work_intervals: Vec<WorkInterval>,
    /// Threads by the kernel's number.
    pub threads: BTreeMap<u32, ThreadInfo>,
    /// Gaps in the events.
    pub gaps: Vec<Gap>,
    /// Number of switches that must have happened but were not recorded.
    pub implied_switches: u64,
}

impl Timeline {
    /// Keeps the items whose start and end `touches` accepts (the end is `None` if it is not within
    /// the window).
    pub fn retain(&mut self, touches: impl Fn(u64, Option<u64>) -> bool) {
        self.windows
            .retain(|window| touches(window.open_ns, Some(window.close_ns)));
        self.calls
            .retain(|call| touches(call.start_ns, call.end_ns));
        self.on_cpu
            .retain(|on| touches(on.start_ns, Some(on.end_ns)));
        self.off_cpu.retain(|off| touches(off.start_ns, off.end_ns));
        self.lock_waits
            .retain(|wait| touches(wait.start_ns, wait.end_ns));
        self.work_intervals
            .retain(|interval| touches(interval.start_ns, interval.end_ns));
        self.gaps
            .retain(|gap| touches(gap.start_ns, Some(gap.end_ns)));
    }

    /// Keeps the items that ended at `from_ns` or later, and before `to_ns` if it is given; with
    /// `to_ns`, items without an end are dropped.
    ///
    /// For a long window that is processed in pieces: each piece is combined with the previous one,
    /// so that an item counts in full, in the piece in which it ends.
    pub fn retain_ended(&mut self, from_ns: u64, to_ns: Option<u64>) {
        let keep = |end_ns: Option<u64>| match end_ns {
            Some(end_ns) => end_ns >= from_ns && to_ns.is_none_or(|to_ns| end_ns < to_ns),
            None => to_ns.is_none(),
        };
        self.calls.retain(|call| keep(call.end_ns));
        self.on_cpu.retain(|on| keep(Some(on.end_ns)));
        self.off_cpu.retain(|off| keep(off.end_ns));
        self.lock_waits.retain(|wait| keep(wait.end_ns));
        self.work_intervals.retain(|interval| keep(interval.end_ns));
        self.gaps.retain(|gap| keep(Some(gap.end_ns)));
    }

    /// Reports whether no thread did anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
            && self.on_cpu.is_empty()
            && self.off_cpu.is_empty()
            && self.work_intervals.is_empty()
    }

    /// Threads that worked for a request.
    #[must_use]
    pub fn threads_of(&self, trace: u64) -> BTreeSet<u32> {
        let is = |owner: Owner| owner.trace() == Some(trace);
        let calls = self
            .calls
            .iter()
            .filter(|call| is(call.owner))
            .map(|call| call.tid);
        let on = self
            .on_cpu
            .iter()
            .filter(|on| is(on.owner))
            .map(|on| on.tid);
        let off = self
            .off_cpu
            .iter()
            .filter(|off| is(off.owner))
            .map(|off| off.tid);
        calls.chain(on).chain(off).collect()
    }

    /// Intervals and calls of one request only, wherever it ran, and the lock waits in which it
    /// waited.
    #[must_use]
    pub fn of_trace(&self, trace: u64) -> Self {
        let is = |owner: Owner| owner.trace() == Some(trace);
        let mut timeline = self.clone();
        timeline.calls.retain(|call| is(call.owner));
        timeline.on_cpu.retain(|on| is(on.owner));
        timeline.off_cpu.retain(|off| is(off.owner));
        timeline.lock_waits.retain(|wait| is(wait.owner));
        timeline
            .work_intervals
            .retain(|interval| interval.request.trace == trace);
        timeline
    }
}
