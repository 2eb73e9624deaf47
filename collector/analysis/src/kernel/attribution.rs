//! Attributes kernel events to requests, in one pass over the events of the windows. For each
//! thread, the pass tracks the owner and whether the thread is on a processor.

mod calls;
mod owners;
mod switches;

use rustc_hash::{FxHashMap, FxHashSet};

use super::call::Architecture;
use super::event::{Body, Event, Name, Window};
use super::lock::Releases;
use super::marker::RequestId;
use super::thread::{Thread, ThreadState};
use super::timeline::{Gap, Owner, Timeline};

/// Finds the owners of calls and intervals in `events`, which may come in any order.
///
/// `windows` are the recorded intervals, in order of time and without overlap. Events outside them
/// are not attributed. Introductions ([`Body::Thread`]) up to 1 ms before an opening still count:
/// the recorder's own clock may place the opening a little earlier. So do losses: a gap that
/// touches a window counts even if its report is outside. At the start of each window, the owner of
/// every thread is unknown, and so is whether it is on a processor. Introductions and markers then
/// reveal the owners. The result has no intervals on or off a processor for threads that the
/// recorder does not follow, because it recorded only some of their switches.
///
/// Takes O(n log n) time to sort n events. A gap takes O(t log t) time for t threads, and a lock
/// wait takes time proportional to the number of releases during it times the number of their
/// holders. Never panics, whatever the events contain.
#[must_use]
pub fn attribute(events: &[Event], windows: &[Window], architecture: Architecture) -> Timeline {
    let is_switch = |event: &Event| matches!(event.body, Body::Switch { .. });
    let mut attribution = Attribution {
        architecture,
        has_switches: events.iter().any(is_switch),
        threads: FxHashMap::default(),
        followed: FxHashSet::default(),
        losing: FxHashMap::default(),
        releases: Releases::default(),
        result: Timeline {
            windows: windows.to_vec(),
            ..Timeline::default()
        },
        window: Window {
            open_ns: 0,
            close_ns: 0,
        },
    };
    let steps = in_order(events);
    let mut rest = &steps[..];
    for &window in windows {
        let (before, after) =
            rest.split_at(rest.partition_point(|step| step.ts_ns < window.open_ns));
        rest = after;
        let within = rest.partition_point(|step| step.ts_ns < window.close_ns);
        let introduced = introduced_before(before, window.open_ns, architecture);
        attribution.follow_gaps(before);
        attribution.run(window, &introduced, &rest[..within]);
        rest = &rest[within..];
    }
    attribution.follow_gaps(rest);
    attribution.finish()
}

/// Maximum time, in nanoseconds, by which an introduction may precede its window's opening. The
/// recorder and the caller of [`attribute`] each compute the opening from samples of the clocks,
/// and the two results may differ.
const EDGE_NS: u64 = 1_000_000;

/// Returns each thread's last introduction ([`Body::Thread`]) within `EDGE_NS` before an opening,
/// with the opening as its time. Omits threads that called `getpid` after their introduction, and
/// every introduction before a loss.
fn introduced_before(before: &[Step<'_>], open_ns: u64, architecture: Architecture) -> Vec<Event> {
    let early = before.partition_point(|step| step.ts_ns < open_ns.saturating_sub(EDGE_NS));
    let getpid = architecture.getpid();
    let mut introduced: FxHashMap<u32, Event> = FxHashMap::default();
    for step in &before[early..] {
        match step.event.body {
            Body::Thread { .. } => {
                let at_opening = Event {
                    ts_ns: open_ns,
                    ..*step.event
                };
                introduced.insert(step.event.tid, at_opening);
            }
            Body::Enter { call, .. } if call == getpid => {
                introduced.remove(&step.event.tid);
            }
            // Any owner may have changed in the gap.
            Body::Lost { .. } => introduced.clear(),
            _ => {}
        }
    }
    let mut introduced: Vec<Event> = introduced.into_values().collect();
    introduced.sort_unstable_by_key(|event| event.tid);
    introduced
}

/// An event and the time at which to process it. A [`Body::Lost`] event yields two steps, one at
/// the beginning of the gap and one at the event itself.
#[derive(Clone, Copy)]
struct Step<'a> {
    ts_ns: u64,
    event: &'a Event,
    begins_gap: bool,
}

fn in_order(events: &[Event]) -> Vec<Step<'_>> {
    let mut steps = Vec::with_capacity(events.len());
    for event in events {
        if let Body::Lost { first_ns, .. } = event.body {
            steps.push(Step {
                ts_ns: first_ns.min(event.ts_ns),
                event,
                begins_gap: true,
            });
        }
        steps.push(Step {
            ts_ns: event.ts_ns,
            event,
            begins_gap: false,
        });
    }
    // Stable: steps of the same instant keep the order of `events`.
    steps.sort_by_key(|step| step.ts_ns);
    steps
}

struct Attribution {
    architecture: Architecture,
    has_switches: bool,
    /// States of the threads in the current window, by thread id; empty between windows.
    threads: FxHashMap<u32, Thread>,
    /// Threads that the recorder follows, over all windows: it records all their switches.
    followed: FxHashSet<u32>,
    /// Number of open gaps by processor. A gap may continue in the next window.
    losing: FxHashMap<u16, u32>,
    releases: Releases,
    result: Timeline,
    window: Window,
}

impl Attribution {
    fn run(&mut self, window: Window, introduced: &[Event], steps: &[Step<'_>]) {
        self.window = window;
        for event in introduced {
            self.step(&Step {
                ts_ns: event.ts_ns,
                event,
                begins_gap: false,
            });
        }
        for step in steps {
            self.step(step);
        }
        // The interval of a thread that is still on a processor ends with the window's last step.
        let end_ns = steps.last().map_or(window.open_ns, |last| last.ts_ns);
        let mut open: Vec<u32> = self.threads.keys().copied().collect();
        open.sort_unstable();
        for tid in open {
            self.close_on_cpu(tid, end_ns);
        }
        self.threads.clear();
        self.releases
            .join(&mut self.result, self.architecture, self.has_switches);
    }

    /// Handles the losses among steps outside the windows, where a gap may begin or end.
    fn follow_gaps(&mut self, steps: &[Step<'_>]) {
        let is_loss = |step: &&Step<'_>| matches!(step.event.body, Body::Lost { .. });
        for step in steps.iter().filter(is_loss) {
            self.step(step);
        }
    }

    fn thread(&mut self, tid: u32) -> &mut Thread {
        let (since_ns, losing) = (self.window.open_ns, self.is_losing());
        self.threads
            .entry(tid)
            .or_insert_with(|| Thread::new(since_ns, losing))
    }

    fn process(&self, tid: u32) -> u32 {
        self.result.threads.get(&tid).map_or(0, |info| info.process)
    }

    fn is_losing(&self) -> bool {
        self.losing.values().any(|&gaps| gaps > 0)
    }

    fn learn(&mut self, tid: u32, process: u32, name: Option<Name>) {
        if tid == 0 {
            return;
        }
        let info = self.result.threads.entry(tid).or_default();
        if process != 0 {
            info.process = process;
        }
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            info.name = name;
        }
    }

    fn step(&mut self, step: &Step<'_>) {
        let Event {
            ts_ns,
            cpu,
            tid,
            body,
        } = *step.event;
        match body {
            Body::Enter { call, args } => self.enter(ts_ns, cpu, tid, call, args),
            Body::Exit { call, result } => self.exit(ts_ns, cpu, tid, call, result),
            Body::Switch {
                state,
                process,
                name,
                next,
                next_process,
                next_name,
            } => {
                self.learn(tid, process, Some(name));
                self.learn(next, next_process, Some(next_name));
                self.switch_out(ts_ns, cpu, tid, state);
                self.switch_in(ts_ns, cpu, next);
            }
            Body::Waking {
                woken,
                woken_process,
            } => {
                self.learn(woken, woken_process, None);
                self.wake(ts_ns, tid, woken);
            }
            Body::NewTask {
                child,
                child_process,
                name,
            } => self.learn(child, child_process, Some(name)),
            Body::Named { process, name } => self.learn(tid, process, Some(name)),
            Body::TaskExit { process } => self.learn(tid, process, None),
            Body::Thread {
                trace,
                span,
                known,
                process,
                tid_in_process,
                name,
            } => {
                self.learn(tid, process, Some(name));
                if tid_in_process != 0 {
                    self.result.threads.entry(tid).or_default().tid_in_process = tid_in_process;
                }
                let owner = if known {
                    Owner::of(RequestId::new(trace, span))
                } else {
                    Owner::Unknown
                };
                self.introduce(ts_ns, tid, owner);
            }
            Body::Lost { .. } if step.begins_gap => self.begin_gap(step.ts_ns, cpu),
            Body::Lost { first_ns, counts } => {
                let gaps = self.losing.entry(cpu).or_default();
                *gaps = gaps.saturating_sub(1);
                // A gap outside the windows hides nothing.
                if first_ns.min(ts_ns) < self.window.close_ns {
                    self.result.gaps.push(Gap {
                        cpu,
                        start_ns: first_ns,
                        end_ns: ts_ns,
                        counts,
                    });
                }
            }
        }
    }

    /// Handles the beginning of a gap. Unless a thread runs on another processor, its owner becomes
    /// unknown, and so does whether it is on a processor.
    fn begin_gap(&mut self, ts_ns: u64, cpu: u16) {
        *self.losing.entry(cpu).or_default() += 1;
        let is_elsewhere =
            |state: ThreadState| matches!(state, ThreadState::On { cpu: on, .. } if on != cpu);
        let mut doubtful: Vec<u32> = self
            .threads
            .iter()
            .filter(|(_, thread)| !is_elsewhere(thread.state))
            .map(|(&tid, _)| tid)
            .collect();
        doubtful.sort_unstable();
        for tid in doubtful {
            self.close_on_cpu(tid, ts_ns);
            self.forget_owner(tid, ts_ns);
            let thread = self.thread(tid);
            thread.state = ThreadState::Unknown;
            thread.call = None;
            thread.early_wake = None;
            thread.pair = None;
            thread.is_doubtful = true;
        }
    }

    fn finish(mut self) -> Timeline {
        let followed = &self.followed;
        let result = &mut self.result;
        result.on_cpu.retain(|on| followed.contains(&on.tid));
        result.off_cpu.retain(|off| followed.contains(&off.tid));
        result.calls.sort_by_key(|call| call.start_ns);
        result.on_cpu.sort_by_key(|on| on.start_ns);
        result.off_cpu.sort_by_key(|off| off.start_ns);
        result.lock_waits.sort_by_key(|wait| wait.start_ns);
        result
            .work_intervals
            .sort_by_key(|interval| interval.start_ns);
        self.result
    }
}
