//! The holistic timeline: what every thread did, and for whom.

use std::collections::{BTreeMap, BTreeSet};

use super::event::{LossCounts, Name, Window};
use super::marker::RequestId;

/// For whom something was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Owner {
    /// A request.
    Request(RequestId),
    /// No request: markers say so.
    Nobody,
    /// Not known: no marker of the thread was seen, or it may have been lost.
    Unknown,
}

impl Owner {
    /// The request, `Nobody` for none.
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

    /// The request's trace (low half of its id), if there is one.
    #[must_use]
    pub fn trace(self) -> Option<u64> {
        self.request().map(|request| request.trace)
    }
}

/// A system call. All times are monotonic ns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemCall {
    /// The thread.
    pub tid: u32,
    /// The call's number.
    pub call: u32,
    /// Its arguments; `None` when it began before the window.
    pub args: Option<[u64; 6]>,
    /// When it began; the window's opening when it began earlier.
    pub start_ns: u64,
    /// When it ended; `None`: not within the window.
    pub end_ns: Option<u64>,
    /// What it returned, if it ended.
    pub result: Option<i64>,
    /// For whom.
    pub owner: Owner,
}

/// A thread on a processor, for one owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnCpu {
    /// The thread.
    pub tid: u32,
    /// The processor.
    pub cpu: u16,
    /// From when.
    pub start_ns: u64,
    /// Until when.
    pub end_ns: u64,
    /// For whom.
    pub owner: Owner,
}

/// Why a thread was off the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// It could have gone on; another thread took the processor.
    Preempted,
    /// It waited for a futex.
    Futex {
        /// The futex's address in the process; 0: not recorded.
        address: u64,
    },
    /// It waited in a system call.
    Call {
        /// The call's number.
        call: u32,
    },
    /// It waited outside any system call: for a page, mostly.
    Fault,
    /// It left before the window, or what it was doing is not known.
    Unknown,
}

/// Who made a thread able to run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waker {
    /// The thread that ran when it happened.
    pub tid: u32,
    /// For whom that thread worked.
    pub owner: Owner,
    /// The system call it was in. `None`: in none, so it was an interrupt (a timer, a device) that only happened to run
    /// there.
    pub call: Option<u32>,
    /// When.
    pub ts_ns: u64,
}

/// A thread off the processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffCpu {
    /// The thread.
    pub tid: u32,
    /// From when; the window's opening when it left earlier.
    pub start_ns: u64,
    /// When it could run again and waited for a processor; `None`: always could, or not within the window.
    pub wake_ns: Option<u64>,
    /// When it was back; `None`: not within the window.
    pub end_ns: Option<u64>,
    /// For whom.
    pub owner: Owner,
    /// Why.
    pub reason: Reason,
    /// Who woke it.
    pub waker: Option<Waker>,
    /// It was seen at work while believed away: its switch back was not recorded.
    pub is_end_implied: bool,
}

/// How a lock wait's end is known to be somebody's doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReleaseEvidence {
    /// The holder's own marker.
    Marker,
    /// The kernel saw the holder's futex call wake the waiter. Of a futex that no marker speaks of, who woke the waiter is
    /// all that is known: most probably it held a lock, or brought what was waited for.
    Wake,
    /// The holder called the kernel to wake waiters of that futex; whom it woke was not seen.
    Call,
}

/// Somebody gave up the lock that another waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// The thread that held it.
    pub tid: u32,
    /// The request that held it.
    pub owner: Owner,
    /// When it gave it up.
    pub ts_ns: u64,
    /// How long of the wait it had it, as far as the releases seen say.
    pub held_ns: u64,
}

/// A wait for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockWait {
    /// The thread that waited, or on which the task began to wait.
    pub tid: u32,
    /// For whom.
    pub owner: Owner,
    /// The lock: the number in the markers, or the futex's address; 0: not recorded.
    pub lock: u64,
    /// Did markers say so? Otherwise it is a futex wait, which may be something else than a lock.
    pub is_marked: bool,
    /// From when.
    pub start_ns: u64,
    /// Until when; `None`: not within the window.
    pub end_ns: Option<u64>,
    /// Who released it meanwhile, in order of time, each holder once. Several: others came before; which of them one
    /// waited for longest is not guessed.
    pub releases: Vec<Release>,
    /// How the releases are known; `None` when there are none.
    pub evidence: Option<ReleaseEvidence>,
}

/// An interval of work for a request on a thread, between markers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkInterval {
    /// The thread.
    pub tid: u32,
    /// For whom.
    pub request: RequestId,
    /// From when; the window's opening when it began earlier.
    pub start_ns: u64,
    /// Until when; `None`: not within the window.
    pub end_ns: Option<u64>,
    /// It began before the window.
    pub is_carried: bool,
}

/// A thread that was seen.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ThreadInfo {
    /// Its process; 0: not known.
    pub process: u32,
    /// Its number as its process sees it; 0: not known.
    pub tid_in_process: u32,
    /// Its name.
    pub name: Name,
}

/// Events that are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// On which processor.
    pub cpu: u16,
    /// From when.
    pub start_ns: u64,
    /// Until when.
    pub end_ns: u64,
    /// What.
    pub counts: LossCounts,
}

/// What was found in the events of one or more windows. Lists are in order of their start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// The windows.
    pub windows: Vec<Window>,
    /// System calls.
    pub calls: Vec<SystemCall>,
    /// Intervals on a processor.
    pub on_cpu: Vec<OnCpu>,
    /// Intervals off it.
    pub off_cpu: Vec<OffCpu>,
    /// Waits for locks.
    pub lock_waits: Vec<LockWait>,
    /// Intervals of work for requests.
    pub work_intervals: Vec<WorkInterval>,
    /// Threads by the kernel's number.
    pub threads: BTreeMap<u32, ThreadInfo>,
    /// Where events are missing.
    pub gaps: Vec<Gap>,
    /// Switches that must have happened and were not recorded.
    pub implied_switches: u64,
}

impl Timeline {
    /// Keeps what `touches` says of its begin and its end (`None`: not within its window).
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

    /// Keeps what ended at `from_ns` or later, and before `to_ns` if there is one; then what has not ended is left out.
    ///
    /// Of a long window that is looked at in pieces, each piece with the one before it, so that each thing is counted in
    /// the piece in which it ends, and in full.
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

    /// Is there nothing that any thread did?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
            && self.on_cpu.is_empty()
            && self.off_cpu.is_empty()
            && self.work_intervals.is_empty()
    }

    /// The threads that did something for a request.
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

    /// Intervals and calls of one request only, wherever it ran, and the lock waits in which it waited.
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
