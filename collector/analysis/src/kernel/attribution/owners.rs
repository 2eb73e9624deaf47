//! Sets the owners of threads from introductions and markers. Either can also reveal a thread's
//! owner in an earlier interval.

use super::Attribution;
use crate::kernel::marker::RequestId;
use crate::kernel::thread::{ThreadState, Unknown};
use crate::kernel::timeline::{OnCpu, Owner, WorkInterval};

impl Attribution {
    /// Handles an introduction by the recorder. If the thread's owner was unknown, the stated owner
    /// also applies to the time since it became unknown or the window opened. Otherwise, it applies
    /// from `ts_ns` on. [`Owner::Unknown`] leaves the owner as it is.
    pub(super) fn introduce(&mut self, ts_ns: u64, tid: u32, owner: Owner) {
        self.followed.insert(tid);
        let losing = self.is_losing();
        let thread = self.thread(tid);
        // A thread that is off may run on a processor that is losing events before it is seen
        // again.
        thread.is_doubtful = losing && !matches!(thread.state, ThreadState::On { .. });
        thread.introduced_ns = Some(ts_ns);
        match (thread.owner, owner) {
            (_, Owner::Unknown) => {}
            (Owner::Unknown, _) => self.was(tid, owner),
            // If the owners differ, a marker was lost without a report of lost events; the
            // recorder's statement wins.
            _ => self.set_owner(tid, ts_ns, owner),
        }
    }

    /// Sets the thread's owner for the time since the owner became unknown, and from now on.
    pub(super) fn was(&mut self, tid: u32, owner: Owner) {
        let thread = self.thread(tid);
        thread.owner = owner;
        let Unknown {
            since_ns,
            calls,
            on_cpu,
            off_cpu,
            woken,
            lock_waits,
            releases,
        } = std::mem::take(&mut thread.unknown);
        let result = &mut self.result;
        for index in calls {
            result.calls[index].owner = owner;
        }
        for index in on_cpu {
            result.on_cpu[index].owner = owner;
        }
        for index in off_cpu {
            result.off_cpu[index].owner = owner;
        }
        for index in woken {
            if let Some(waker) = &mut result.off_cpu[index].waker {
                waker.owner = owner;
            }
        }
        for index in lock_waits {
            result.lock_waits[index].owner = owner;
        }
        for index in releases {
            self.releases.set_owner(index, owner);
        }
        self.begin_stretch(tid, since_ns, owner, true);
    }

    /// Sets the thread's owner from `ts_ns` on.
    pub(super) fn set_owner(&mut self, tid: u32, ts_ns: u64, owner: Owner) {
        let thread = self.thread(tid);
        if thread.owner == owner {
            return;
        }
        let state = thread.state;
        if let ThreadState::On { cpu, since_ns } = state {
            self.push_on_cpu(tid, cpu, since_ns, ts_ns);
            self.thread(tid).state = ThreadState::On {
                cpu,
                since_ns: ts_ns.max(since_ns),
            };
        }
        let thread = self.thread(tid);
        thread.owner = owner;
        thread.unknown = Unknown::since(ts_ns);
        if let Some(index) = thread.interval.take() {
            self.result.work_intervals[index].end_ns = Some(ts_ns);
        }
        self.begin_stretch(tid, ts_ns, owner, false);
    }

    /// Makes the thread's owner unknown from `ts_ns` on. If the owner was unknown before, that
    /// earlier time stays unknown, even when a later event reveals the owner.
    pub(super) fn forget_owner(&mut self, tid: u32, ts_ns: u64) {
        self.set_owner(tid, ts_ns, Owner::Unknown);
        self.thread(tid).unknown = Unknown::since(ts_ns);
    }

    fn begin_stretch(&mut self, tid: u32, start_ns: u64, owner: Owner, is_carried: bool) {
        if let Owner::Request(request) = owner {
            let index = self.result.work_intervals.len();
            self.result.work_intervals.push(WorkInterval {
                tid,
                request,
                start_ns,
                end_ns: None,
                is_carried,
            });
            self.thread(tid).interval = Some(index);
        }
    }

    pub(super) fn push_on_cpu(&mut self, tid: u32, cpu: u16, start_ns: u64, end_ns: u64) {
        if end_ns <= start_ns {
            return;
        }
        let index = self.result.on_cpu.len();
        let thread = self.thread(tid);
        let owner = thread.owner;
        if owner == Owner::Unknown {
            thread.unknown.on_cpu.push(index);
        }
        self.result.on_cpu.push(OnCpu {
            tid,
            cpu,
            start_ns,
            end_ns,
            owner,
        });
    }

    /// Handles a marker that begins the thread's work for `request`; `None` means that the thread
    /// works for no request. The marker's own call gets the new owner.
    pub(super) fn begin(&mut self, ts_ns: u64, tid: u32, call: usize, request: Option<RequestId>) {
        self.set_owner(tid, ts_ns, Owner::of(request));
        self.result.calls[call].owner = Owner::of(request);
    }

    /// Handles a marker that ends the thread's work for `request`. The thread continues with
    /// `outer`, or with no request if `outer` is `None`. If the thread's owner was unknown, it was
    /// `request`, unless that is `None`.
    pub(super) fn end(
        &mut self,
        ts_ns: u64,
        tid: u32,
        call: usize,
        request: Option<RequestId>,
        outer: Option<RequestId>,
    ) {
        // A thread of unknown owner worked for the request that it ends.
        if self.thread(tid).owner == Owner::Unknown && request.is_some() {
            self.was(tid, Owner::of(request));
        }
        self.result.calls[call].owner = self.thread(tid).owner;
        self.set_owner(tid, ts_ns, Owner::of(outer));
    }
}
