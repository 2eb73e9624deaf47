//! Handles context switches and wake-ups, and builds the intervals of threads on and off
//! processors.

use super::Attribution;
use crate::kernel::call::FutexOperation;
use crate::kernel::thread::ThreadState;
use crate::kernel::timeline::{OffCpu, Owner, Reason, Waker};

impl Attribution {
    pub(super) fn close_on_cpu(&mut self, tid: u32, ts_ns: u64) {
        let thread = self.thread(tid);
        if let ThreadState::On { cpu, since_ns } = thread.state {
            thread.state = ThreadState::Unknown;
            self.push_on_cpu(tid, cpu, since_ns, ts_ns);
        }
    }

    /// Handles a switch that happened but was not recorded: the kernel drops some switches, even
    /// without a report. Counts it only for followed threads, because the recorder misses many
    /// switches of other threads anyway. While events are being lost, the thread's owner becomes
    /// unknown, too.
    pub(super) fn imply_switch(&mut self, ts_ns: u64, tid: u32) {
        self.result.implied_switches += u64::from(self.followed.contains(&tid));
        if self.is_losing() {
            // Meanwhile, the thread may have run on a processor that is losing events.
            self.forget_owner(tid, ts_ns);
        }
    }

    fn push_off_cpu(&mut self, off: OffCpu) -> usize {
        let index = self.result.off_cpu.len();
        let thread = self.thread(off.tid);
        if thread.owner == Owner::Unknown {
            thread.unknown.off_cpu.push(index);
        }
        if let Some(waker) = off.waker.filter(|waker| waker.owner == Owner::Unknown) {
            self.thread(waker.tid).unknown.woken.push(index);
        }
        self.result.off_cpu.push(off);
        index
    }

    pub(super) fn switch_out(&mut self, ts_ns: u64, cpu: u16, tid: u32, state: u8) {
        if tid == 0 {
            return;
        }
        let (open_ns, losing) = (self.window.open_ns, self.is_losing());
        let thread = self.thread(tid);
        match thread.state {
            ThreadState::On { .. } => {}
            // The thread returned to a processor at an unknown time, without a recorded switch.
            ThreadState::Off(_) => self.imply_switch(ts_ns, tid),
            ThreadState::Unknown => {
                let since_ns = if losing || thread.is_doubtful {
                    ts_ns
                } else {
                    open_ns
                };
                thread.state = ThreadState::On { cpu, since_ns };
            }
        }
        self.close_on_cpu(tid, ts_ns);
        let reason = self.reason(tid, state);
        let thread = self.thread(tid);
        thread.is_doubtful |= losing;
        let owner = thread.owner;
        // The kernel may wake a thread before the thread has left its processor.
        let waker = thread
            .early_wake
            .take()
            .filter(|_| reason != Reason::Preempted);
        let index = self.push_off_cpu(OffCpu {
            tid,
            start_ns: ts_ns,
            wake_ns: waker.map(|_| ts_ns),
            end_ns: None,
            owner,
            reason,
            waker,
            is_end_implied: false,
        });
        self.thread(tid).state = ThreadState::Off(index);
        if losing {
            // The thread may run on a processor that is losing events, and return with another
            // owner.
            self.forget_owner(tid, ts_ns);
        }
    }

    fn reason(&mut self, tid: u32, state: u8) -> Reason {
        if state == 0 {
            return Reason::Preempted;
        }
        let is_followed = self.followed.contains(&tid);
        match self.thread(tid).call.map(|index| &self.result.calls[index]) {
            Some(call) => match call
                .args
                .and_then(|args| self.architecture.futex(call.call, &args))
            {
                Some((FutexOperation::Wait, address)) => Reason::Futex { address },
                _ => Reason::Call { call: call.call },
            },
            None if is_followed => Reason::Fault,
            None => Reason::Unknown,
        }
    }

    pub(super) fn switch_in(&mut self, ts_ns: u64, cpu: u16, tid: u32) {
        if tid == 0 {
            return;
        }
        let open_ns = self.window.open_ns;
        let thread = self.thread(tid);
        // An introduction at the same instant ends the doubt.
        thread.is_doubtful &= thread.introduced_ns != Some(ts_ns);
        let (is_doubtful, owner) = (thread.is_doubtful, thread.owner);
        match thread.state {
            ThreadState::Off(index) => self.result.off_cpu[index].end_ns = Some(ts_ns),
            ThreadState::On { .. } => {
                // The thread left without a recorded switch, at an unknown time.
                self.close_on_cpu(tid, ts_ns);
                self.imply_switch(ts_ns, tid);
            }
            ThreadState::Unknown if !is_doubtful && ts_ns > open_ns => {
                let waker = thread.early_wake.take();
                self.push_off_cpu(OffCpu {
                    tid,
                    start_ns: open_ns,
                    wake_ns: waker.map(|waker| waker.ts_ns),
                    end_ns: Some(ts_ns),
                    owner,
                    reason: Reason::Unknown,
                    waker,
                    is_end_implied: false,
                });
            }
            ThreadState::Unknown => {}
        }
        self.thread(tid).state = ThreadState::On {
            cpu,
            since_ns: ts_ns,
        };
        if is_doubtful {
            self.forget_owner(tid, ts_ns);
        }
    }

    pub(super) fn wake(&mut self, ts_ns: u64, by: u32, woken: u32) {
        let thread = self.thread(by);
        let (owner, call) = (thread.owner, thread.call);
        let call = call.map(|index| &self.result.calls[index]);
        let waker = Waker {
            tid: by,
            owner,
            call: call.map(|call| call.call),
            ts_ns,
        };
        let futex = call.and_then(|call| self.architecture.futex(call.call, call.args.as_ref()?));
        let sleeper = self.thread(woken);
        match sleeper.state {
            ThreadState::Off(index) => {
                let off = &mut self.result.off_cpu[index];
                if off.waker.is_none() && off.reason != Reason::Preempted {
                    off.waker = Some(waker);
                    off.wake_ns = Some(ts_ns);
                    if owner == Owner::Unknown {
                        self.thread(by).unknown.woken.push(index);
                    }
                }
            }
            ThreadState::On { .. } | ThreadState::Unknown => sleeper.early_wake = Some(waker),
        }
        if let Some((FutexOperation::Wake, address)) = futex {
            let release = self.releases.woke(address, by, owner, woken, ts_ns);
            self.await_owner_of_release(by, Some(release));
        }
    }
}
