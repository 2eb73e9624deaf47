//! Timeline of the activity of every thread, with the request that each activity served.

use std::collections::{BTreeMap, BTreeSet};

use super::event::{LossCounts, Name, Window};
use super::marker::RequestId;

/// Request that a thread's activity served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Owner {
    /// The activity served this request.
    Request(RequestId),
    /// The activity served no request, according to markers.
    Nobody,
    /// The request is unknown: the thread had no marker yet, or its marker may have been lost.
    Unknown,
}

impl Owner {
    /// Owner for an optional request; `Nobody` for `None`.
    #[must_use]
    pub fn of(request: Option<RequestId>) -> Self {
        request.map_or(Self::Nobody, Self::Request)
    }

    /// Returns the request; `None` for `Nobody` and `Unknown`.
    #[must_use]
    pub fn request(self) -> Option<RequestId> {
        match self {
            Self::Request(request) => Some(request),
            Self::Nobody | Self::Unknown => None,
        }
    }

    /// Returns the low half of the request's trace id; `None` for `Nobody` and `Unknown`.
    #[must_use]
    pub fn trace(self) -> Option<u64> {
        self.request().map(|request| request.trace)
    }
}

/// A system call. All times are ns by the events' clock. If events were lost during a call, its
/// beginning and its end may be two entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemCall {
    /// Id of the thread that made the call.
    pub tid: u32,
    /// Number of the system call.
    pub call: u32,
    /// Arguments; `None` if the call's beginning was not recorded within the window, or is another
    /// entry.
    pub args: Option<[u64; 6]>,
    /// Start of the call. Without a recorded beginning, it is the window's opening or, if events
    /// may have been lost, the call's end.
    pub start_ns: u64,
    /// End of the call; `None` if no end was recorded within the window, or if it is another entry.
    pub end_ns: Option<u64>,
    /// Return value; `None` if `end_ns` is `None`.
    pub result: Option<i64>,
    /// Request that the call served.
    pub owner: Owner,
}

/// An interval of a thread on a processor, for one owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnCpu {
    /// Id of the thread.
    pub tid: u32,
    /// Number of the processor.
    pub cpu: u16,
    /// Start, ns by the events' clock.
    pub start_ns: u64,
    /// End, ns by the events' clock.
    pub end_ns: u64,
    /// Request that the interval served.
    pub owner: Owner,
}

/// Reason for a thread being off the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// The thread could have continued, or its task state is unknown.
    Preempted,
    /// The thread waited for a futex.
    Futex {
        /// Address of the futex in the process; 0 if not recorded.
        address: u64,
    },
    /// The thread slept or ended in a system call.
    Call {
        /// Number of the system call.
        call: u32,
    },
    /// The thread waited outside any recorded system call, usually for a page.
    Fault,
    /// The thread left before the window, or its activity is unknown.
    Unknown,
}

/// Wake-up that made a thread able to run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waker {
    /// Thread that was running on the processor when the wake-up happened there.
    pub tid: u32,
    /// Request that the running thread worked for.
    pub owner: Owner,
    /// Number of the system call that the running thread was in. `None` if it was in none, or in
    /// one whose beginning was not recorded. If it was in none, an interrupt (a timer, a device)
    /// that happened to run on this thread usually caused the wake-up.
    pub call: Option<u32>,
    /// Time of the wake-up, ns by the events' clock.
    pub ts_ns: u64,
}

/// An interval of a thread off the processor. All times are ns by the events' clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffCpu {
    /// Id of the thread.
    pub tid: u32,
    /// Start; the window's opening if the window has no earlier switch of the thread.
    pub start_ns: u64,
    /// Time at which the thread became able to run and began to wait for a processor. `None` if the
    /// thread was preempted, or if no wake-up was recorded.
    pub wake_ns: Option<u64>,
    /// Time at which the thread returned to a processor, or at which a system call showed that it
    /// had returned. `None` if neither was recorded within the window, or if a loss of events came
    /// first.
    pub end_ns: Option<u64>,
    /// Request that the interval counts for.
    pub owner: Owner,
    /// Reason why the thread left its processor.
    pub reason: Reason,
    /// Wake-up that ended the sleep; `None` if none was recorded.
    pub waker: Option<Waker>,
    /// True if the thread's switch back to a processor was not recorded. A later event showed that
    /// the thread was running.
    pub is_end_implied: bool,
}

/// Evidence for the releases of a lock during a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReleaseEvidence {
    /// A marker of the holder reports the release.
    Marker,
    /// The kernel saw the holder's futex call wake the waiter. For a futex without markers, only
    /// the waker is known. Most probably, it held a lock, or produced data that the waiter needed.
    Wake,
    /// The holder made a system call that wakes waiters of the futex. The recording does not show
    /// which thread it woke.
    Call,
}

/// Release of a lock, or a futex wake-up or wake call that probably was one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// Thread that released the lock, or that called to wake waiters of the futex.
    pub tid: u32,
    /// Request that the thread worked for when it released the lock.
    pub owner: Owner,
    /// Time of the release, ns by the events' clock.
    pub ts_ns: u64,
    /// Part of the wait, in nanoseconds, during which this thread and owner held the lock, as far
    /// as the recorded releases show.
    pub held_ns: u64,
}

/// A wait for a lock. All times are ns by the events' clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockWait {
    /// Thread that waited, or on which the task began to wait.
    pub tid: u32,
    /// Request that waited.
    pub owner: Owner,
    /// Lock: the number in the markers, or the address of the futex; 0 if not recorded.
    pub lock: u64,
    /// True if markers report the wait. Otherwise it is a futex wait, which may be something other
    /// than a lock.
    pub is_marked: bool,
    /// Start, ns by the events' clock.
    pub start_ns: u64,
    /// End; `None` if no end was recorded within the window, or if a loss of events hid it.
    pub end_ns: Option<u64>,
    /// Releases during the wait, one for each holder, in order of its first release. Its `held_ns`
    /// is the holder's share of the wait. A wait without markers has at most one.
    pub releases: Vec<Release>,
    /// Evidence for the releases; `None` if there are none.
    pub evidence: Option<ReleaseEvidence>,
}

/// An interval of work for a request on a thread, between markers. All times are ns by the events'
/// clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkInterval {
    /// Id of the thread.
    pub tid: u32,
    /// Request that the thread worked for.
    pub request: RequestId,
    /// Start. If the work began earlier, this is the window's opening, or the time from which a
    /// loss of events hid the thread's owner.
    pub start_ns: u64,
    /// End, or the time from which a loss of events hid the thread's owner; `None` if the work did
    /// not end within the window.
    pub end_ns: Option<u64>,
    /// True if the work may have begun before `start_ns`: before the window or a loss of events.
    pub is_carried: bool,
}

/// Process and name of a thread.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ThreadInfo {
    /// Process; 0 if unknown.
    pub process: u32,
    /// Thread id in the process's pid namespace; 0 if unknown.
    pub tid_in_process: u32,
    /// Name of the thread; empty if unknown.
    pub name: Name,
}

/// Interval in which events of a processor are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Number of the processor.
    pub cpu: u16,
    /// Start, ns by the events' clock.
    pub start_ns: u64,
    /// End, ns by the events' clock.
    pub end_ns: u64,
    /// Numbers of missing events by kind.
    pub counts: LossCounts,
}

/// Activity of all threads in some windows. Calls, waits and threads' intervals are in order of
/// their start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// Recorded intervals.
    pub windows: Vec<Window>,
    /// System calls of all threads.
    pub calls: Vec<SystemCall>,
    /// Intervals in which a thread was on a processor.
    pub on_cpu: Vec<OnCpu>,
    /// Intervals in which a thread was off the processor.
    pub off_cpu: Vec<OffCpu>,
    /// Waits of threads for locks and futexes.
    pub lock_waits: Vec<LockWait>,
    /// Intervals in which a thread worked for a request.
    pub work_intervals: Vec<WorkInterval>,
    /// Threads by the kernel's global thread id.
    pub threads: BTreeMap<u32, ThreadInfo>,
    /// Intervals in which events are missing.
    pub gaps: Vec<Gap>,
    /// Number of times that an event of a followed thread showed an unrecorded switch. Callers of
    /// [`attribute`](super::attribute()) reset it to 0 if the recording has no switches at all.
    pub implied_switches: u64,
    /// Number of markers of unknown kinds, as of a newer SDK. They are in `calls`.
    pub unknown_markers: u64,
}

impl Timeline {
    /// Keeps the items whose start and end `touches` accepts. The end is `None` if the item did not
    /// end within its window.
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

    /// Keeps the calls, intervals, waits and gaps that ended at `from_ns` or later and, if `to_ns`
    /// is given, before `to_ns`. With `to_ns`, items without an end are dropped. Windows are kept.
    ///
    /// Callers process a long window in pieces and combine each piece with the previous one. An
    /// item then counts once, in the piece in which it ends.
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

    /// Reports whether the timeline has no system call, no work interval, and no interval on or off
    /// a processor.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
            && self.on_cpu.is_empty()
            && self.off_cpu.is_empty()
            && self.work_intervals.is_empty()
    }

    /// Returns the threads that have a system call, or an interval on or off a processor, for a
    /// request. `trace` is the low half of its trace id.
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

    /// Returns a copy that has only the system calls, intervals and lock waits of one request.
    /// Windows, threads and gaps are kept. `trace` is the low half of the request's trace id.
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
