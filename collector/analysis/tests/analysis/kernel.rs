//! Compares attribution with a simulated machine, whose true owners are known.

use std::collections::BTreeMap;

use proptest::prelude::*;
use stroboscope_analysis::kernel::attribute;
use stroboscope_analysis::kernel::call::Architecture;
use stroboscope_analysis::kernel::event::{Body, Event, LossCounts, Name, Window};
use stroboscope_analysis::kernel::marker::MARK;
use stroboscope_analysis::kernel::timeline::{Owner, Reason, ReleaseEvidence, Timeline};

const GETPID: u32 = 39;
const READ: u32 = 0;
const FUTEX: u32 = 202;
const THREADS: u32 = 4;
const LOCK: u64 = 0x1000;

/// One thread of the simulated machine.
#[derive(Clone, Debug, Default)]
struct Sim {
    trace: u64,
    cpu: Option<u16>,
    since_ns: u64,
    /// Call inside which the thread left the processor.
    asleep_in: Option<u32>,
    introduced_in: Option<usize>,
    off_since: Option<(u64, Reason)>,
}

/// Simulated machine: its state, its actions, and the events that a recorder would have seen.
#[derive(Debug, Default)]
struct Machine {
    now_ns: u64,
    threads: Vec<Sim>,
    /// Thread on each processor; 0: none.
    on: [u32; 2],
    windows: Vec<Window>,
    events: Vec<Event>,
    /// (tid, start) → (call, owner).
    calls: BTreeMap<(u32, u64), (u32, u64)>,
    /// (tid, start, end, owner), within the windows.
    on_cpu: Vec<(u32, u64, u64, u64)>,
    off_cpu: Vec<(u32, u64, u64, u64, Reason)>,
}

impl Machine {
    fn new(windows: Vec<Window>) -> Self {
        Self {
            threads: vec![Sim::default(); THREADS as usize + 1],
            windows,
            ..Self::default()
        }
    }

    fn window(&self) -> Option<usize> {
        self.windows
            .iter()
            .position(|window| window.open_ns <= self.now_ns && self.now_ns < window.close_ns)
    }

    /// Records an event as the eBPF programs do: each thread is introduced before its first event
    /// of a window.
    fn see(&mut self, cpu: u16, tid: u32, others: &[u32], body: Body) {
        let Some(window) = self.window() else { return };
        for &of in [&[tid], others].concat().iter().filter(|&&of| of != 0) {
            let sim = &mut self.threads[of as usize];
            if sim.introduced_in.replace(window) != Some(window) {
                let (trace, process) = (sim.trace, 1);
                let name = Name::new("sim");
                let body = Body::Thread {
                    trace,
                    span: trace,
                    known: true,
                    process,
                    tid_in_process: of,
                    name,
                };
                self.events.push(Event {
                    ts_ns: self.now_ns,
                    cpu,
                    tid: of,
                    body,
                });
            }
        }
        self.events.push(Event {
            ts_ns: self.now_ns,
            cpu,
            tid,
            body,
        });
    }

    fn close_on(&mut self, tid: u32) {
        let sim = &mut self.threads[tid as usize];
        let span = (tid, sim.since_ns, self.now_ns, sim.trace);
        sim.since_ns = self.now_ns;
        self.on_cpu.push(span);
    }

    fn enter(&mut self, cpu: u16, tid: u32, call: u32, args: [u64; 6], owner: u64) {
        self.calls.insert((tid, self.now_ns), (call, owner));
        self.see(cpu, tid, &[], Body::Enter { call, args });
    }

    fn switch(&mut self, cpu: u16, next: u32, state: u8, reason: Reason) {
        let prev = self.on[cpu as usize];
        if prev == next {
            return;
        }
        let name = Name::new("sim");
        self.see(
            cpu,
            prev,
            &[next],
            Body::Switch {
                state,
                process: 1,
                name,
                next,
                next_process: 1,
                next_name: name,
            },
        );
        if prev != 0 {
            self.close_on(prev);
            self.threads[prev as usize].cpu = None;
            self.threads[prev as usize].off_since = Some((self.now_ns, reason));
        }
        if next != 0 {
            let now_ns = self.now_ns;
            let sim = &mut self.threads[next as usize];
            sim.cpu = Some(cpu);
            sim.since_ns = now_ns;
            if let Some((from_ns, reason)) = sim.off_since.take() {
                self.off_cpu
                    .push((next, from_ns, now_ns, sim.trace, reason));
            }
        }
        self.on[cpu as usize] = next;
    }

    /// Simulates the next action of the thread on a processor, or of the idle processor.
    fn step(&mut self, cpu: u16, action: u8, number: u64) {
        self.now_ns += 10 + number % 7;
        let tid = self.on[cpu as usize];
        if tid == 0 {
            let ready = (1..=THREADS).find(|&tid| self.is_ready(tid));
            return ready.map_or((), |next| self.switch(cpu, next, 0, Reason::Preempted));
        }
        if let Some(call) = self.threads[tid as usize].asleep_in.take() {
            return self.see(cpu, tid, &[], Body::Exit { call, result: 0 });
        }
        let trace = self.threads[tid as usize].trace;
        match action {
            0 | 1 if trace == 0 => self.mark(cpu, tid, 1, number + 1),
            0 => self.mark(cpu, tid, 2, 0),
            2 | 3 => self.quick_call(cpu, tid, trace),
            4 | 5 => {
                let (call, args, reason) = if action == 4 {
                    (READ, [0; 6], Reason::Call { call: READ })
                } else {
                    (
                        FUTEX,
                        [LOCK, 128, 0, 0, 0, 0],
                        Reason::Futex { address: LOCK },
                    )
                };
                self.enter(cpu, tid, call, args, trace);
                self.now_ns += 3;
                self.threads[tid as usize].asleep_in = Some(call);
                self.switch(cpu, 0, 1, reason);
            }
            _ => {
                let next = (1..=THREADS)
                    .rev()
                    .find(|&tid| self.is_ready(tid))
                    .unwrap_or(0);
                self.switch(cpu, next, 0, Reason::Preempted);
            }
        }
    }

    fn is_ready(&self, tid: u32) -> bool {
        self.threads[tid as usize].cpu.is_none()
    }

    fn quick_call(&mut self, cpu: u16, tid: u32, trace: u64) {
        self.enter(cpu, tid, READ, [0; 6], trace);
        self.now_ns += 2;
        self.see(
            cpu,
            tid,
            &[],
            Body::Exit {
                call: READ,
                result: 1,
            },
        );
    }

    /// Records a marker of a start (1) or an end (2). The call itself belongs to the request.
    fn mark(&mut self, cpu: u16, tid: u32, kind: u64, trace: u64) {
        let old = self.threads[tid as usize].trace;
        let named = if kind == 1 { trace } else { old };
        self.enter(
            cpu,
            tid,
            GETPID,
            [MARK | kind, named, named, u64::from(tid), 0, 0],
            named,
        );
        self.close_on(tid);
        self.threads[tid as usize].trace = if kind == 1 { trace } else { 0 };
        self.now_ns += 1;
        self.see(
            cpu,
            tid,
            &[],
            Body::Exit {
                call: GETPID,
                result: 1,
            },
        );
    }

    fn finish(&mut self) {
        for tid in 1..=THREADS {
            if self.threads[tid as usize].cpu.is_some() {
                self.close_on(tid);
            }
        }
    }
}

fn run(windows: Vec<Window>, script: &[(u8, u8, u64)]) -> Machine {
    let mut machine = Machine::new(windows);
    for &(cpu, action, number) in script {
        machine.step(u16::from(cpu % 2), action % 8, number);
    }
    machine.finish();
    machine
}

/// Returns the time that each thread was on a processor within the windows, by owner.
fn totals(
    spans: impl Iterator<Item = (u32, u64, u64, u64)>,
    windows: &[Window],
) -> BTreeMap<(u32, u64), u64> {
    let mut sums = BTreeMap::new();
    for (tid, from_ns, to_ns, owner) in spans {
        for window in windows {
            let (from_ns, to_ns) = (from_ns.max(window.open_ns), to_ns.min(window.close_ns));
            if from_ns < to_ns {
                *sums.entry((tid, owner)).or_default() += to_ns - from_ns;
            }
        }
    }
    sums
}

fn trace(owner: Owner) -> u64 {
    owner.trace().unwrap_or(0)
}

fn check_calls(machine: &Machine, timeline: &Timeline) {
    let is_in = |at: u64| {
        machine
            .windows
            .iter()
            .any(|window| window.open_ns <= at && at < window.close_ns)
    };
    let expected: BTreeMap<_, _> = machine
        .calls
        .iter()
        .filter(|((_, at), _)| is_in(*at))
        .collect();
    let got: BTreeMap<_, _> = timeline
        .calls
        .iter()
        .filter(|call| call.args.is_some())
        .map(|call| ((call.tid, call.start_ns), (call.call, trace(call.owner))))
        .collect();
    assert_eq!(
        got.iter().collect::<Vec<_>>(),
        expected.into_iter().collect::<Vec<_>>()
    );
}

proptest! {
    #[test]
    fn everything_is_known_of_one_long_window(script in prop::collection::vec((any::<u8>(), any::<u8>(), 0u64..1000), 1..300)) {
        let machine = run(vec![Window::ALWAYS], &script);
        let timeline = attribute(&machine.events, &machine.windows, Architecture::X86_64);
        check_calls(&machine, &timeline);
        prop_assert_eq!(timeline.implied_switches, 0);
        // Intervals that never ended are cut at the last event, so only complete ones are compared.
        let mut off: Vec<_> = timeline.off_cpu.iter().filter(|off| off.reason != Reason::Unknown)
            .filter_map(|off| Some((off.tid, off.start_ns, off.end_ns?, trace(off.owner), off.reason))).collect();
        let mut expected = machine.off_cpu.clone();
        off.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(off, expected);
        let last_ns = machine.events.last().map_or(0, |event| event.ts_ns);
        let upto = [Window { open_ns: 0, close_ns: last_ns }];
        let got = totals(timeline.on_cpu.iter().map(|on| (on.tid, on.start_ns, on.end_ns, trace(on.owner))), &upto);
        prop_assert_eq!(got, totals(machine.on_cpu.iter().copied(), &upto));
    }

    #[test]
    fn windows_are_joined_by_what_is_carried(script in prop::collection::vec((any::<u8>(), any::<u8>(), 0u64..1000), 1..400)) {
        let windows = (0..20).map(|n| Window { open_ns: n * 320 + 280, close_ns: n * 320 + 320 }).collect();
        let machine = run(windows, &script);
        let timeline = attribute(&machine.events, &machine.windows, Architecture::X86_64);
        check_calls(&machine, &timeline);
        // Every attributed interval on a processor lies within a true one of the same owner.
        for on in timeline.on_cpu.iter().filter(|on| on.owner != Owner::Unknown) {
            let is_true = machine.on_cpu.iter().any(|&(tid, from_ns, to_ns, owner)| {
                tid == on.tid && owner == trace(on.owner) && from_ns <= on.start_ns && on.end_ns <= to_ns
            });
            prop_assert!(is_true, "{:?}", on);
        }
    }

    #[test]
    fn any_events_at_all_are_survived(
        events in prop::collection::vec((0u64..500, 0u16..3, 0u32..4, 0u8..9, any::<[u64; 6]>()), 0..200),
        open_ns in 0u64..300,
    ) {
        let events: Vec<Event> = events.into_iter().map(|(ts_ns, cpu, tid, kind, d)| {
            let (small, name) = ((d[0] % 4) as u32, Name::new("x"));
            let body = match kind {
                0 | 1 => Body::Enter { call: [GETPID, FUTEX, READ][(d[1] % 3) as usize], args: [MARK | (d[2] % 9), d[3] % 3, 1, 0, d[4] % 3, 1] },
                2 => Body::Exit { call: [GETPID, FUTEX, READ][(d[1] % 3) as usize], result: 0 },
                3 => Body::Switch { state: (d[1] % 3) as u8, process: 1, name, next: small, next_process: 1, next_name: name },
                4 => Body::Waking { woken: small, woken_process: 1 },
                5 => Body::Thread { trace: d[1] % 3, span: 1, known: d[2] % 2 == 0, process: 1, tid_in_process: 0, name },
                6 => Body::Lost { first_ns: d[1] % 500, counts: LossCounts { enters: 1, ..LossCounts::default() } },
                7 => Body::TaskExit { process: 1 },
                _ => Body::NewTask { child: small, child_process: 1, name },
            };
            Event { ts_ns, cpu, tid, body }
        }).collect();
        let windows = [Window { open_ns, close_ns: open_ns + 50 }, Window { open_ns: open_ns + 100, close_ns: 450.max(open_ns + 100) }];
        let timeline = attribute(&events, &windows, Architecture::X86_64);
        for on in &timeline.on_cpu {
            prop_assert!(on.start_ns < on.end_ns);
        }
    }
}

fn enter(ts_ns: u64, tid: u32, call: u32, args: [u64; 6]) -> Event {
    Event {
        ts_ns,
        cpu: (tid % 2) as u16,
        tid,
        body: Body::Enter { call, args },
    }
}

fn mark(ts_ns: u64, tid: u32, kind: u64, trace: u64, object: u64) -> Event {
    enter(
        ts_ns,
        tid,
        GETPID,
        [MARK | kind, trace, trace, u64::from(tid), object, 0],
    )
}

fn waking(ts_ns: u64, by: u32, woken: u32) -> Event {
    Event {
        ts_ns,
        cpu: (by % 2) as u16,
        tid: by,
        body: Body::Waking {
            woken,
            woken_process: 0,
        },
    }
}

/// Checks the holders of the one marked wait in the timeline, and the evidence for them.
fn check_wait(events: &[Event], expected: &[u64], evidence: Option<ReleaseEvidence>) {
    let timeline = attribute(events, &[Window::ALWAYS], Architecture::X86_64);
    let waits: Vec<_> = timeline
        .lock_waits
        .iter()
        .filter(|wait| wait.is_marked)
        .collect();
    assert_eq!(waits.len(), 1, "{waits:?}");
    let holders: Vec<u64> = waits[0]
        .releases
        .iter()
        .map(|release| trace(release.owner))
        .collect();
    assert_eq!(
        (holders.as_slice(), waits[0].evidence),
        (expected, evidence),
        "{waits:?}"
    );
}

#[test]
fn a_lock_wait_is_joined_with_who_released_it() {
    let starts = [
        mark(1, 1, 1, 0xa, 0),
        mark(2, 2, 1, 0xb, 0),
        mark(3, 3, 1, 0xc, 0),
    ];
    let waits = [
        mark(10, 1, 5, 0xa, 77),
        enter(11, 1, FUTEX, [LOCK, 128, 2, 0, 0, 0]),
    ];
    let wake = |ts_ns: u64, by: u32| {
        [
            enter(ts_ns, by, FUTEX, [LOCK, 129, 1, 0, 0, 0]),
            waking(ts_ns + 1, by, 1),
        ]
    };
    let has_it = [mark(50, 1, 6, 0xa, 77)];
    check_wait(&[&starts[..], &waits, &has_it].concat(), &[], None);
    check_wait(
        &[&starts[..], &waits, &wake(20, 2), &has_it].concat(),
        &[0xb],
        Some(ReleaseEvidence::Wake),
    );
    // Woken repeatedly, because another thread was quicker. Each waker is named once, in order.
    let twice = [
        &starts[..],
        &waits,
        &wake(20, 2),
        &wake(30, 3),
        &wake(35, 3),
        &has_it,
    ]
    .concat();
    check_wait(&twice, &[0xb, 0xc], Some(ReleaseEvidence::Wake));
    // A wake-up after the wait is not its reason.
    check_wait(
        &[&starts[..], &waits, &has_it, &wake(60, 2)].concat(),
        &[],
        None,
    );
    // The call was recorded, but not the wake-up.
    let call_only = [&starts[..], &waits, &wake(20, 3)[..1], &has_it].concat();
    check_wait(&call_only, &[0xc], Some(ReleaseEvidence::Call));
    // The holder's own marker takes precedence.
    let marked = [
        &starts[..],
        &waits,
        &[mark(19, 3, 7, 0xc, 77)],
        &wake(20, 2),
        &has_it,
    ]
    .concat();
    check_wait(&marked, &[0xc], Some(ReleaseEvidence::Marker));
    // The release of another lock is no evidence.
    check_wait(
        &[&starts[..], &waits, &[mark(19, 3, 7, 0xc, 78)], &has_it].concat(),
        &[],
        None,
    );
}

#[test]
fn a_task_may_get_its_lock_on_another_thread() {
    let events = [
        mark(1, 1, 3, 0xa, 0),
        mark(5, 1, 5, 0xa, 77),
        mark(6, 1, 4, 0xa, 0),
        mark(7, 2, 3, 0xb, 0),
        mark(8, 2, 7, 0xb, 77),
        mark(9, 3, 3, 0xa, 0),
        mark(12, 3, 6, 0xa, 77),
    ];
    check_wait(&events, &[0xb], Some(ReleaseEvidence::Marker));
    let timeline = attribute(&events, &[Window::ALWAYS], Architecture::X86_64);
    assert_eq!(timeline.lock_waits[0].end_ns, Some(12));
}

#[test]
fn an_end_tells_what_the_thread_worked_for_before_anything_was_known() {
    let events = [
        enter(5, 1, READ, [0; 6]),
        mark(9, 1, 2, 0xa, 0),
        enter(12, 1, READ, [0; 6]),
    ];
    let timeline = attribute(&events, &[Window::ALWAYS], Architecture::X86_64);
    let owners: Vec<Owner> = timeline.calls.iter().map(|call| call.owner).collect();
    assert_eq!(
        owners.iter().map(|&owner| trace(owner)).collect::<Vec<_>>(),
        [0xa, 0xa, 0]
    );
    assert_eq!(owners[2], Owner::Nobody);
    assert!(timeline.work_intervals[0].is_carried);
}

#[test]
fn the_papers_pair_of_calls_is_understood() {
    let half = |ts_ns, kind| enter(ts_ns, 1, GETPID, [MARK | 0x8000 | kind, 9, 9, 9, 9, 9]);
    let id = |ts_ns, id| enter(ts_ns, 1, GETPID, [id, 9, 9, 9, 9, 9]);
    let events = [
        half(1, 1),
        id(2, 0xa),
        enter(3, 1, READ, [0; 6]),
        half(4, 2),
        id(5, 0xa),
        id(6, 0xb),
    ];
    let timeline = attribute(&events, &[Window::ALWAYS], Architecture::X86_64);
    let owners: Vec<u64> = timeline
        .calls
        .iter()
        .map(|call| trace(call.owner))
        .collect();
    assert_eq!(owners, [0xa, 0xa, 0xa, 0xa, 0xa, 0]);
}

#[test]
fn who_is_introduced_while_away_may_still_run_where_events_are_lost() {
    let name = Name::new("t");
    let on = |cpu, ts_ns, tid, body| Event {
        ts_ns,
        cpu,
        tid,
        body,
    };
    let thread = |ts_ns| {
        let body = Body::Thread {
            trace: 0xa,
            span: 1,
            known: true,
            process: 1,
            tid_in_process: 0,
            name,
        };
        on(1, ts_ns, 5, body)
    };
    let switch = |ts_ns, prev, next| {
        let (process, next_process, next_name) = (1, 1, name);
        on(
            1,
            ts_ns,
            prev,
            Body::Switch {
                state: 1,
                process,
                name,
                next,
                next_process,
                next_name,
            },
        )
    };
    let read = |ts_ns| {
        on(
            1,
            ts_ns,
            5,
            Body::Enter {
                call: READ,
                args: [0; 6],
            },
        )
    };
    let lost = |first_ns| {
        let counts = LossCounts {
            enters: 9,
            ..LossCounts::default()
        };
        on(0, 90, 0, Body::Lost { first_ns, counts })
    };
    // Thread 5 is off the processor, and returns after it may have run on processor 0.
    let events = [
        thread(1),
        read(2),
        switch(10, 5, 6),
        thread(30),
        waking(30, 7, 5),
        switch(50, 6, 5),
        read(60),
    ];
    let owner = |lost: Option<Event>| {
        let events: Vec<Event> = events.iter().copied().chain(lost).collect();
        attribute(&events, &[Window::ALWAYS], Architecture::X86_64).calls[1].owner
    };
    assert_eq!(trace(owner(None)), 0xa);
    assert_eq!(owner(Some(lost(20))), Owner::Unknown);
    assert_eq!(
        trace(owner(Some(lost(70)))),
        0xa,
        "before anything was lost"
    );
}
