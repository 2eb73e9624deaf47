//! Sums over timelines: the times of each request on a processor, runnable, asleep and waiting for
//! locks, and its system calls.

use std::collections::BTreeMap;

use super::call::Architecture;
use super::timeline::{Owner, Reason, SystemCall, Timeline};

/// Kernel work for one request: its times in nanoseconds and its system calls. The sums cover all
/// threads that worked for the request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestSummary {
    /// Low half of the request's trace id.
    pub trace: u64,
    /// Start, by the events' clock, of the request's first interval of work or on a processor.
    /// Without an interval of work, its first call counts, too. Without any of these, it is the
    /// start of its first ended interval off a processor, or else of its first marked wait for a
    /// lock. If a long window is read in pieces, calls and waits of a piece may begin earlier.
    pub first_ns: u64,
    /// Latest end of an interval of work or on a processor, by the events' clock. An interval of
    /// work without an end counts by its start. So does the first call, interval off a processor or
    /// wait if `first_ns` considers it.
    pub last_ns: u64,
    /// Number of threads with an interval of work for the request; after a merge, see
    /// [`merge`](Self::merge).
    pub threads: usize,
    /// Time on a processor.
    pub on_cpu_ns: u64,
    /// Time in which a thread could run but waited for a processor.
    pub runnable_ns: u64,
    /// Time asleep, by reason. Without a recorded wake-up, it includes the wait for a processor.
    pub blocked_ns: BTreeMap<Reason, u64>,
    /// Time waiting for locks that markers identify, by the low half of the holder's trace id. The
    /// key is 0 if the lock was held for no request, and `None` if the holder is unknown.
    pub lock_ns: BTreeMap<Option<u64>, u64>,
    /// System calls by number, without `getpid`, which carries the markers.
    pub calls: BTreeMap<u32, CallSum>,
    /// True if parts of the request are missing: it was active when a window opened or closed, or
    /// continued after a loss of events.
    pub is_cut: bool,
}

/// Number and times of the calls of one system call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallSum {
    /// Number of calls. A call during which events were lost may count twice.
    pub count: u64,
    /// Total time of the calls inside the windows, ns. Calls count as 0 if no end was recorded
    /// within the window, or if their beginning may have been lost.
    pub total_ns: u64,
    /// Longest call, ns.
    pub max_ns: u64,
    /// Number of failed calls.
    pub failed: u64,
}

impl CallSum {
    pub(super) fn add(&mut self, call: &SystemCall) {
        let took_ns = call
            .end_ns
            .map_or(0, |end_ns| end_ns.saturating_sub(call.start_ns));
        self.count += 1;
        self.total_ns += took_ns;
        self.max_ns = self.max_ns.max(took_ns);
        self.failed += u64::from(call.result.is_some_and(|result| result < 0));
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.total_ns += other.total_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
        self.failed += other.failed;
    }
}

/// Statistics of one system call over many requests. Rows have the highest mean count per request
/// first, so that calls that could be batched come first.
#[derive(Clone, Debug, PartialEq)]
pub struct CallPerRequest {
    /// Number of the system call.
    pub call: u32,
    /// Number of requests that make the call.
    pub requests: u64,
    /// Mean number of calls, over requests that make the call.
    pub mean_count: f64,
    /// Maximum number of calls in one request.
    pub max_count: u64,
    /// Mean total time of the calls in nanoseconds, over requests that make the call.
    pub mean_ns: f64,
    /// Number and times of the calls of all requests together.
    pub sum: CallSum,
}

/// Summarises each request of a timeline, in order of trace id.
#[must_use]
pub fn requests(timeline: &Timeline, architecture: Architecture) -> Vec<RequestSummary> {
    let mut found: BTreeMap<u64, RequestSummary> = BTreeMap::new();
    let mut threads: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    for interval in &timeline.work_intervals {
        let trace = interval.request.trace;
        let summary = found.entry(trace).or_insert_with(|| RequestSummary {
            trace,
            first_ns: interval.start_ns,
            ..RequestSummary::default()
        });
        summary.see(
            interval.start_ns,
            interval.end_ns.unwrap_or(interval.start_ns),
        );
        summary.is_cut |= interval.is_carried || interval.end_ns.is_none();
        threads.entry(trace).or_default().push(interval.tid);
    }
    // Includes requests without a work interval: if a long window is read in pieces, a piece may
    // contain only a call of the request.
    let mut of = |owner: Owner, at_ns: u64, each: &mut dyn FnMut(&mut RequestSummary)| {
        if let Some(trace) = owner.trace() {
            each(found.entry(trace).or_insert_with(|| RequestSummary {
                trace,
                first_ns: at_ns,
                last_ns: at_ns,
                ..RequestSummary::default()
            }));
        }
    };
    let getpid = architecture.call_number("getpid");
    for call in timeline
        .calls
        .iter()
        .filter(|call| Some(call.call) != getpid)
    {
        of(call.owner, call.start_ns, &mut |summary| {
            summary.calls.entry(call.call).or_default().add(call);
        });
    }
    for on in &timeline.on_cpu {
        of(on.owner, on.start_ns, &mut |summary| {
            summary.on_cpu_ns += on.end_ns - on.start_ns;
            summary.see(on.start_ns, on.end_ns);
        });
    }
    for off in &timeline.off_cpu {
        let Some(end_ns) = off.end_ns else { continue };
        of(off.owner, off.start_ns, &mut |summary| {
            let awake_ns = if off.reason == Reason::Preempted {
                off.start_ns
            } else {
                off.wake_ns.unwrap_or(end_ns)
            };
            summary.runnable_ns += end_ns.saturating_sub(awake_ns);
            let slept_ns = awake_ns.saturating_sub(off.start_ns);
            if slept_ns > 0 {
                *summary.blocked_ns.entry(off.reason).or_default() += slept_ns;
            }
        });
    }
    for wait in timeline.lock_waits.iter().filter(|wait| wait.is_marked) {
        let took_ns = wait
            .end_ns
            .map_or(0, |end_ns| end_ns.saturating_sub(wait.start_ns));
        of(wait.owner, wait.start_ns, &mut |summary| {
            let mut held_ns = |holder, ns| *summary.lock_ns.entry(holder).or_default() += ns;
            for release in &wait.releases {
                let is_known = release.owner != Owner::Unknown;
                held_ns(
                    is_known.then(|| release.owner.trace().unwrap_or(0)),
                    release.held_ns,
                );
            }
            if wait.releases.is_empty() {
                held_ns(None, took_ns);
            }
        });
    }
    for (trace, mut tids) in threads {
        tids.sort_unstable();
        tids.dedup();
        if let Some(summary) = found.get_mut(&trace) {
            summary.threads = tids.len();
        }
    }
    found.into_values().collect()
}

impl RequestSummary {
    /// Adds another part of the same request: another window or piece of one, or another host. With
    /// `is_same_host`, `threads` becomes the maximum of the two numbers, otherwise their sum.
    pub fn merge(&mut self, other: &Self, is_same_host: bool) {
        self.see(other.first_ns, other.last_ns);
        self.threads = if is_same_host {
            self.threads.max(other.threads)
        } else {
            self.threads + other.threads
        };
        self.on_cpu_ns += other.on_cpu_ns;
        self.runnable_ns += other.runnable_ns;
        for (&reason, ns) in &other.blocked_ns {
            *self.blocked_ns.entry(reason).or_default() += ns;
        }
        for (&holder, ns) in &other.lock_ns {
            *self.lock_ns.entry(holder).or_default() += ns;
        }
        for (&call, sum) in &other.calls {
            self.calls.entry(call).or_default().merge(sum);
        }
        self.is_cut |= other.is_cut;
    }

    fn see(&mut self, from_ns: u64, to_ns: u64) {
        self.first_ns = self.first_ns.min(from_ns);
        self.last_ns = self.last_ns.max(to_ns);
    }
}

/// Returns a row for each system call that the requests make, the highest mean count first.
#[must_use]
pub fn calls_per_request(requests: &[RequestSummary]) -> Vec<CallPerRequest> {
    let mut all: BTreeMap<u32, (u64, u64, CallSum)> = BTreeMap::new();
    for (&call, sum) in requests.iter().flat_map(|request| &request.calls) {
        let (count, most, total) = all.entry(call).or_default();
        *count += 1;
        *most = (*most).max(sum.count);
        total.merge(sum);
    }
    let mut rows: Vec<CallPerRequest> = all
        .into_iter()
        .map(|(call, (requests, max_count, sum))| CallPerRequest {
            call,
            requests,
            mean_count: sum.count as f64 / requests as f64,
            max_count,
            mean_ns: sum.total_ns as f64 / requests as f64,
            sum,
        })
        .collect();
    rows.sort_by(|a, b| {
        b.mean_count
            .total_cmp(&a.mean_count)
            .then(a.call.cmp(&b.call))
    });
    rows
}

/// Readable name of a reason: `read`, `futex wait`, `preempted` and so on.
#[must_use]
pub fn reason_name(reason: Reason, architecture: Architecture) -> String {
    match reason {
        Reason::Preempted => "preempted".to_owned(),
        Reason::Futex { .. } => "futex wait".to_owned(),
        Reason::Call { call } => call_name(call, architecture),
        Reason::Fault => "page fault".to_owned(),
        Reason::Unknown => "not known".to_owned(),
    }
}

/// Name of a system call, or `call` and its number if the number has no name.
#[must_use]
pub fn call_name(call: u32, architecture: Architecture) -> String {
    architecture
        .call_name(call)
        .map_or_else(|| format!("call {call}"), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::event::Window;
    use crate::kernel::marker::RequestId;
    use crate::kernel::timeline::{LockWait, OffCpu, OnCpu, Release, WorkInterval};

    #[test]
    fn adds_up_by_request() {
        let owner = |trace| Owner::Request(RequestId { trace, span: 1 });
        let call = |call, start_ns, end_ns, trace| SystemCall {
            tid: 1,
            call,
            args: Some([0; 6]),
            start_ns,
            end_ns: Some(end_ns),
            result: Some(0),
            owner: owner(trace),
        };
        let off = |start_ns, wake_ns, end_ns, reason| OffCpu {
            tid: 1,
            start_ns,
            wake_ns,
            end_ns: Some(end_ns),
            owner: owner(7),
            reason,
            waker: None,
            is_end_implied: false,
        };
        let interval = |trace, end_ns| WorkInterval {
            tid: 1,
            request: RequestId { trace, span: 1 },
            start_ns: 10,
            end_ns,
            is_carried: false,
        };
        let timeline = Timeline {
            windows: vec![Window::ALWAYS],
            calls: vec![
                call(0, 20, 30, 7),
                call(0, 40, 45, 7),
                call(0, 50, 51, 8),
                call(39, 10, 11, 7),
            ],
            on_cpu: vec![OnCpu {
                tid: 1,
                cpu: 0,
                start_ns: 10,
                end_ns: 60,
                owner: owner(7),
            }],
            off_cpu: vec![
                off(60, Some(80), 85, Reason::Call { call: 0 }),
                off(90, None, 97, Reason::Preempted),
            ],
            lock_waits: vec![LockWait {
                tid: 1,
                owner: owner(7),
                lock: 1,
                is_marked: true,
                start_ns: 60,
                end_ns: Some(86),
                releases: vec![
                    Release {
                        tid: 2,
                        owner: owner(8),
                        ts_ns: 64,
                        held_ns: 4,
                    },
                    Release {
                        tid: 3,
                        owner: Owner::Unknown,
                        ts_ns: 65,
                        held_ns: 1,
                    },
                    Release {
                        tid: 4,
                        owner: Owner::Nobody,
                        ts_ns: 79,
                        held_ns: 21,
                    },
                ],
                evidence: None,
            }],
            work_intervals: vec![interval(7, Some(100)), interval(8, None)],
            ..Timeline::default()
        };
        let all = requests(&timeline, Architecture::X86_64);
        assert_eq!(all.len(), 2);
        let first = &all[0];
        assert_eq!(
            (first.on_cpu_ns, first.runnable_ns, first.threads),
            (50, 12, 1)
        );
        assert_eq!(
            first.blocked_ns,
            BTreeMap::from([(Reason::Call { call: 0 }, 20)])
        );
        assert_eq!(
            first.lock_ns,
            BTreeMap::from([(Some(8), 4), (None, 1), (Some(0), 21)])
        );
        assert_eq!(
            first.calls[&0],
            CallSum {
                count: 2,
                total_ns: 15,
                max_ns: 10,
                failed: 0
            }
        );
        assert!(!first.calls.contains_key(&39) && !first.is_cut && all[1].is_cut);
        let rows = calls_per_request(&all);
        assert_eq!(
            (rows[0].requests, rows[0].mean_count, rows[0].max_count),
            (2, 1.5, 2)
        );
    }
}
