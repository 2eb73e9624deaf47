//! Handles system calls, including the `getpid` calls that carry markers.

use super::Attribution;
use crate::kernel::marker::{HELLO, Marker, RequestId};
use crate::kernel::thread::{Pair, ThreadState};
use crate::kernel::timeline::{LockWait, Owner, SystemCall};

impl Attribution {
    /// Records that the thread runs on this processor, as one of its system calls has just shown.
    /// If the recorded switches contradict this, counts a switch that was not recorded.
    fn seen_running(&mut self, ts_ns: u64, cpu: u16, tid: u32) {
        self.followed.insert(tid);
        let (open_ns, losing) = (self.window.open_ns, self.is_losing());
        let thread = self.thread(tid);
        match thread.state {
            ThreadState::On { cpu: on, .. } if on == cpu => {}
            ThreadState::On { .. } => {
                self.imply_switch(ts_ns, tid);
                self.close_on_cpu(tid, ts_ns);
                self.thread(tid).state = ThreadState::On {
                    cpu,
                    since_ns: ts_ns,
                };
            }
            ThreadState::Off(index) => {
                thread.state = ThreadState::On {
                    cpu,
                    since_ns: ts_ns,
                };
                self.imply_switch(ts_ns, tid);
                self.result.off_cpu[index].end_ns = Some(ts_ns);
                self.result.off_cpu[index].is_end_implied = true;
            }
            // No event in the window, or since a gap, has shown where the thread was. Unless events
            // are missing, it counts as on this processor since the window's opening.
            ThreadState::Unknown => {
                let since_ns = if losing || thread.is_doubtful {
                    ts_ns
                } else {
                    open_ns
                };
                thread.state = ThreadState::On { cpu, since_ns };
            }
        }
    }

    fn push_call(&mut self, call: SystemCall) -> usize {
        let index = self.result.calls.len();
        let thread = self.thread(call.tid);
        if thread.owner == Owner::Unknown {
            thread.unknown.calls.push(index);
        }
        self.result.calls.push(call);
        index
    }

    pub(super) fn enter(&mut self, ts_ns: u64, cpu: u16, tid: u32, call: u32, args: [u64; 6]) {
        self.seen_running(ts_ns, cpu, tid);
        let owner = self.thread(tid).owner;
        let (end_ns, result) = (None, None);
        let index = self.push_call(SystemCall {
            tid,
            call,
            args: Some(args),
            start_ns: ts_ns,
            end_ns,
            result,
            owner,
        });
        let thread = self.thread(tid);
        thread.call = Some(index);
        thread.early_wake = None;
        if call == self.architecture.getpid() {
            self.getpid(ts_ns, tid, index, &args);
        } else if let Some((operation, address)) = self.architecture.futex(call, &args) {
            let process = self.process(tid);
            let release = self
                .releases
                .futex_call(operation, address, process, tid, owner, ts_ns);
            self.await_owner_of_release(tid, release);
        }
    }

    pub(super) fn await_owner_of_release(&mut self, tid: u32, release: Option<usize>) {
        let thread = self.thread(tid);
        if thread.owner == Owner::Unknown {
            thread.unknown.releases.extend(release);
        }
    }

    pub(super) fn exit(&mut self, ts_ns: u64, cpu: u16, tid: u32, call: u32, result: i64) {
        self.seen_running(ts_ns, cpu, tid);
        let is_doubtful = self.thread(tid).is_doubtful || self.is_losing();
        let thread = self.thread(tid);
        let owner = thread.owner;
        match thread.call.take() {
            Some(index) if self.result.calls[index].call == call => {
                self.result.calls[index].end_ns = Some(ts_ns);
                self.result.calls[index].result = Some(result);
            }
            // Without a recorded beginning, the call counts from the window's opening. If the
            // beginning may have been lost, the duration is unknown.
            _ => {
                let start_ns = if is_doubtful {
                    ts_ns
                } else {
                    self.window.open_ns
                };
                let end_ns = Some(ts_ns);
                self.push_call(SystemCall {
                    tid,
                    call,
                    args: None,
                    start_ns,
                    end_ns,
                    result: Some(result),
                    owner,
                });
            }
        }
    }

    fn getpid(&mut self, ts_ns: u64, tid: u32, index: usize, args: &[u64; 6]) {
        let marker = Marker::decode(args);
        let pair = self.thread(tid).pair.take();
        match (marker, pair) {
            (None, Some(pair)) => {
                let request = RequestId::new(args[0], 0);
                if pair.start {
                    self.begin(ts_ns, tid, index, request);
                } else {
                    self.end(ts_ns, tid, index, request, None);
                }
                self.result.calls[pair.call].owner = self.result.calls[index].owner;
            }
            (None, None) => {}
            (Some(Marker::Begin { request, .. }), _) => self.begin(ts_ns, tid, index, request),
            (Some(Marker::End { request, outer, .. }), _) => {
                self.end(ts_ns, tid, index, request, outer);
            }
            (Some(Marker::LockWait { lock }), _) => self.begin_lock_wait(ts_ns, tid, lock),
            (Some(Marker::LockAcquired { lock }), _) => self.end_lock_wait(ts_ns, tid, lock),
            (Some(Marker::LockReleased { lock }), _) => {
                let (process, owner) = (self.process(tid), self.thread(tid).owner);
                let release = self.releases.marker(lock, process, tid, owner, ts_ns);
                self.await_owner_of_release(tid, Some(release));
            }
            (Some(Marker::PairFirst { start }), _) => {
                self.thread(tid).pair = Some(Pair { start, call: index });
            }
            (Some(Marker::Other { kind }), _) => {
                self.result.unknown_markers += u64::from(kind != HELLO);
            }
        }
    }

    fn begin_lock_wait(&mut self, ts_ns: u64, tid: u32, lock: u64) {
        let index = self.result.lock_waits.len();
        let process = self.process(tid);
        let thread = self.thread(tid);
        thread.lock_wait = Some(index);
        let owner = thread.owner;
        if owner == Owner::Unknown {
            thread.unknown.lock_waits.push(index);
        }
        self.result.lock_waits.push(LockWait {
            tid,
            owner,
            lock,
            is_marked: true,
            start_ns: ts_ns,
            end_ns: None,
            releases: Vec::new(),
            evidence: None,
        });
        self.releases.waits(index, process, lock, owner);
    }

    /// Ends a lock wait. A task may acquire its lock on a thread other than the one where it began
    /// to wait. The wait is then found by process, lock and owner.
    fn end_lock_wait(&mut self, ts_ns: u64, tid: u32, lock: u64) {
        let process = self.process(tid);
        let thread = self.thread(tid);
        let owner = thread.owner;
        let own = thread.lock_wait.take();
        let is_it = |index: &usize| {
            let wait = &self.result.lock_waits[*index];
            wait.lock == lock && wait.owner == owner && wait.end_ns.is_none()
        };
        let index = own
            .filter(is_it)
            .or_else(|| self.releases.open_wait(process, lock, owner));
        if let Some(index) = index {
            self.result.lock_waits[index].end_ns.get_or_insert(ts_ns);
        }
    }
}
