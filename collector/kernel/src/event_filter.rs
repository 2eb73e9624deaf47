//! Applies the gate in user space, for a source that records all the time. It keeps the events
//! within windows and the reports of losses. Like the eBPF programs, it introduces each thread at
//! its first event of a window, but regards windows without an event in between as one.

use std::collections::{HashMap, VecDeque};

use stroboscope_analysis::kernel::call::Architecture;
use stroboscope_analysis::kernel::event::{Body, Event, Name};
use stroboscope_analysis::kernel::marker::{HELLO, Marker, RequestId};

/// Kernel's task states of a thread that has ended.
const ENDED: u8 = 0x30;

/// State of a thread that the filter carries from event to event.
#[derive(Debug, Default)]
struct CarriedThread {
    request: Option<RequestId>,
    known: bool,
    pair: Option<bool>,
    process: u32,
    tid_in_process: u32,
    /// Value of [`EventFilter::window`] when the thread was introduced last.
    introduced: u64,
    name: Name,
}

#[derive(Debug)]
pub(crate) struct EventFilter {
    getpid: u32,
    threads: HashMap<u32, CarriedThread>,
    window: u64,
    was_open: bool,
    /// Instants from which all threads are introduced again, in monotonic ns, in order.
    again_ns: VecDeque<u64>,
}

impl EventFilter {
    pub(crate) fn new() -> Self {
        let getpid = Architecture::native()
            .call_number("getpid")
            .unwrap_or_default();
        Self {
            getpid,
            threads: HashMap::new(),
            window: 0,
            was_open: false,
            again_ns: VecDeque::new(),
        }
    }

    /// Introduces each thread again at its first event from `from_ns` on (monotonic ns).
    pub(crate) fn introduce_again(&mut self, from_ns: u64) {
        self.again_ns.push_back(from_ns);
    }

    /// Processes the next event in order of time. If the gate is open, or if the event reports
    /// losses, adds it to `events`, after introductions of its threads that are due. Calls
    /// `process_of` to find the process of a thread that has no state yet.
    pub(crate) fn push(
        &mut self,
        event: Event,
        is_open: bool,
        process_of: impl Fn(u32) -> u32,
        events: &mut Vec<Event>,
    ) {
        // A gap hides markers, so every thread is introduced again after it. The request of a
        // thread is unknown until its next marker.
        if is_open && !self.was_open || matches!(event.body, Body::Lost { .. }) {
            self.window += 1;
        }
        let is_due = |again_ns: &u64| *again_ns <= event.ts_ns;
        while self.again_ns.front().is_some_and(is_due) {
            self.again_ns.pop_front();
            self.window += 1;
        }
        self.was_open = is_open;
        let (mut event, mut second) = (event, None);
        if !matches!(event.body, Body::Lost { .. }) {
            self.process(event.tid, &process_of, None);
        }
        match &mut event.body {
            Body::Lost { .. } => {
                for thread in self.threads.values_mut() {
                    thread.known = false;
                    // The second call of the pair may be lost.
                    thread.pair = None;
                }
            }
            Body::Switch {
                next,
                process,
                next_process,
                name,
                next_name,
                ..
            } => {
                *process = self.process(event.tid, &process_of, Some(*name));
                *next_process = self.process(*next, &process_of, Some(*next_name));
                second = Some(*next);
            }
            Body::Waking {
                woken,
                woken_process,
            } => {
                *woken_process = self.process(*woken, &process_of, None);
                second = Some(*woken);
            }
            Body::NewTask {
                child,
                child_process,
                name,
            } if *child_process != 0 => {
                let new = CarriedThread {
                    process: *child_process,
                    name: *name,
                    ..CarriedThread::default()
                };
                self.threads.insert(*child, new);
            }
            Body::Named { name, .. } => _ = self.process(event.tid, &process_of, Some(*name)),
            _ => {}
        }
        if is_open && !matches!(event.body, Body::Lost { .. }) {
            for tid in [Some(event.tid), second]
                .into_iter()
                .flatten()
                .filter(|&tid| tid != 0)
            {
                self.introduce(&event, tid, events);
            }
        }
        if is_open || matches!(event.body, Body::Lost { .. }) {
            events.push(event);
        }
        self.follow(&event);
    }

    fn process(&mut self, tid: u32, process_of: &impl Fn(u32) -> u32, name: Option<Name>) -> u32 {
        let thread = self.threads.entry(tid).or_insert_with(|| CarriedThread {
            process: if tid == 0 { 0 } else { process_of(tid) },
            ..CarriedThread::default()
        });
        thread.name = name.unwrap_or(thread.name);
        thread.process
    }

    fn introduce(&mut self, event: &Event, tid: u32, events: &mut Vec<Event>) {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        if thread.introduced == self.window {
            return;
        }
        thread.introduced = self.window;
        let (trace, span) = thread
            .request
            .map_or((0, 0), |request| (request.trace, request.span));
        let CarriedThread {
            known,
            process,
            tid_in_process,
            name,
            ..
        } = *thread;
        let body = Body::Thread {
            trace,
            span,
            known,
            process,
            tid_in_process,
            name,
        };
        events.push(Event {
            tid,
            body,
            ..*event
        });
    }

    /// Updates the carried state from a marker or the end of a thread, even while the gate is
    /// closed.
    fn follow(&mut self, event: &Event) {
        match event.body {
            Body::Enter { call, args } if call == self.getpid => {
                let thread = self.threads.entry(event.tid).or_default();
                match (Marker::decode(&args), thread.pair.take()) {
                    (None, Some(start)) => {
                        thread.request = RequestId::new(args[0], 0).filter(|_| start);
                        thread.known = true;
                    }
                    (None, None) => {}
                    (Some(Marker::PairFirst { start }), _) => thread.pair = Some(start),
                    (
                        Some(Marker::Begin { request, .. } | Marker::End { outer: request, .. }),
                        _,
                    ) => {
                        thread.request = request;
                        thread.known = true;
                        thread.tid_in_process = args[3] as u32;
                    }
                    (Some(Marker::Other { kind }), _) if kind >= HELLO => {}
                    (Some(_), _) => thread.tid_in_process = args[3] as u32,
                }
            }
            // The kernel may reuse the thread's number. The last event of a thread is a switch,
            // after the end.
            Body::TaskExit { .. } => _ = self.threads.remove(&event.tid),
            Body::Switch { state, .. } if state & ENDED != 0 => {
                self.threads.remove(&event.tid);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stroboscope_analysis::kernel::event::LossCounts;
    use stroboscope_analysis::kernel::marker::MARK;

    #[test]
    fn carries_a_request_into_the_next_window_and_introduces_once() {
        let mut sieve = EventFilter::new();
        let getpid = sieve.getpid;
        let mut events = Vec::new();
        let mut push = |ts_ns, is_open, call, args| {
            let event = Event {
                ts_ns,
                cpu: 0,
                tid: 5,
                body: Body::Enter { call, args },
            };
            sieve.push(event, is_open, |_| 4, &mut events);
        };
        push(1, false, getpid, [MARK | 1, 0xa, 0xb, 9, 0, 0]);
        push(2, false, 0, [0; 6]);
        push(3, true, 0, [0; 6]);
        push(4, true, 0, [0; 6]);
        push(5, false, getpid, [MARK | 2, 0xa, 0xb, 9, 0, 0]);
        push(6, true, 0, [0; 6]);
        let said: Vec<(u64, Option<(u64, bool)>)> = events
            .iter()
            .map(|event| match event.body {
                Body::Thread {
                    trace,
                    known,
                    process: 4,
                    tid_in_process: 9,
                    ..
                } => (event.ts_ns, Some((trace, known))),
                _ => (event.ts_ns, None),
            })
            .collect();
        assert_eq!(
            said,
            [
                (3, Some((0xa, true))),
                (3, None),
                (4, None),
                (6, Some((0, true))),
                (6, None)
            ]
        );
    }

    fn enter(ts_ns: u64, call: u32, args: [u64; 6]) -> Event {
        Event {
            ts_ns,
            cpu: 0,
            tid: 5,
            body: Body::Enter { call, args },
        }
    }

    #[test]
    fn a_marker_of_an_unknown_kind_is_not_the_second_call_of_a_pair() {
        let mut filter = EventFilter::new();
        let getpid = filter.getpid;
        let mut events = Vec::new();
        for (ts_ns, args) in [
            (1, [MARK | 1, 0xa, 0xb, 9, 0, 0]),
            (2, [MARK | 0x8001, 0, 0, 0, 0, 0]),
            (3, [MARK | 0x7e, 7, 7, 8, 7, 7]),
            (4, [MARK | 0x80, 7, 7, 7, 7, 7]),
            (5, [0xc, 0, 0, 0, 0, 0]),
        ] {
            filter.push(enter(ts_ns, getpid, args), false, |_| 4, &mut events);
        }
        let thread = &filter.threads[&5];
        let state = (thread.request, thread.tid_in_process);
        assert_eq!(state, (RequestId::new(0xa, 0xb), 8));
    }

    #[test]
    fn introduces_again_from_each_instant_on() {
        let mut filter = EventFilter::new();
        let mut events = Vec::new();
        filter.push(enter(1, 0, [0; 6]), true, |_| 4, &mut events);
        filter.introduce_again(2);
        filter.introduce_again(4);
        for ts_ns in [3, 5, 6] {
            filter.push(enter(ts_ns, 0, [0; 6]), true, |_| 4, &mut events);
        }
        let is_introduction = |event: &&Event| matches!(event.body, Body::Thread { .. });
        let introduced = events.iter().filter(is_introduction);
        let introduced: Vec<u64> = introduced.map(|event| event.ts_ns).collect();
        assert_eq!(introduced, [1, 3, 5]);
    }

    #[test]
    fn a_reused_number_is_a_new_thread() {
        let mut filter = EventFilter::new();
        let mut events = Vec::new();
        let end = |ts_ns, body| Event {
            body,
            ..enter(ts_ns, 0, [0; 6])
        };
        let switch = Body::Switch {
            state: 0x20,
            process: 0,
            name: Name::default(),
            next: 6,
            next_process: 0,
            next_name: Name::default(),
        };
        filter.push(enter(1, 0, [0; 6]), true, |_| 4, &mut events);
        let exit = end(2, Body::TaskExit { process: 0 });
        filter.push(exit, true, |_| 0, &mut events);
        filter.push(end(3, switch), true, |_| 0, &mut events);
        assert!(!filter.threads.contains_key(&5));
        events.clear();
        filter.push(enter(4, 0, [0; 6]), true, |_| 8, &mut events);
        let Some(Body::Thread { process, .. }) = events.first().map(|event| event.body) else {
            panic!("no introduction: {events:?}");
        };
        assert_eq!(process, 8);
    }

    #[test]
    fn a_pair_does_not_span_a_gap() {
        let mut filter = EventFilter::new();
        let (getpid, mut events) = (filter.getpid, Vec::new());
        let lost = Event {
            body: Body::Lost {
                first_ns: 1,
                counts: LossCounts::default(),
            },
            ..enter(2, 0, [0; 6])
        };
        let first = enter(1, getpid, [MARK | 0x8001, 0, 0, 0, 0, 0]);
        for event in [first, lost, enter(3, getpid, [0xbad; 6])] {
            filter.push(event, true, |_| 4, &mut events);
        }
        assert_eq!(filter.threads[&5].request, None);
    }
}
