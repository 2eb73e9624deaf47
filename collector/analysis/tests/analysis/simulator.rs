//! Discrete-event simulator of services: asynchronous code that runs in virtual time and records
//! spans as a service would. The length of each stretch of work depends only on its request, its
//! operation and its number. Therefore, a request can run again with one operation faster or
//! slower, and with all other lengths unchanged.

use crate::fleet::ORIGIN_NS;
use crate::generator::Random;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use stroboscope_analysis::record::{
    ElementRecord, RecordOwner, SpanFlags, SpanRecord, TraceId, TraceRecords,
};
use stroboscope_analysis::what_if::Change;

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// Distribution of the lengths of work around the middle of the range that a service states.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Law {
    Uniform,
    Exponential,
    /// The logarithm has a standard deviation of 1.
    Lognormal,
    Constant,
}

impl Law {
    /// Returns a length for a range in microseconds, by a draw from 0 to 999,999.
    fn length_ns(self, us: std::ops::Range<u64>, draw: u64) -> u64 {
        let mean_ns = (us.start + us.end) as f64 * 500.0;
        let part = (draw as f64 + 0.5) / 1e6;
        let length_ns = match self {
            Law::Uniform => return us.start * 1000 + (us.end - us.start) * draw / 1000,
            Law::Exponential => -mean_ns * part.ln(),
            // A sum of twelve draws is near enough to a normal value.
            Law::Lognormal => {
                let mut random = Random(draw);
                let sum: f64 = (0..12).map(|_| random.below(1 << 20) as f64).sum();
                mean_ns * (sum / f64::from(1 << 20) - 6.5).exp()
            }
            Law::Constant => mean_ns,
        };
        length_ns.round() as u64
    }
}

/// Requests on their way, and the clock that they share.
pub(crate) struct Simulation {
    now_ns: Cell<u64>,
    /// Earliest instant after now at which a task or an arrival is due.
    next_ns: Cell<u64>,
    progress: Cell<bool>,
    law: Law,
    change: Option<(&'static str, Change)>,
    spawned: RefCell<Vec<Task>>,
}

/// Records of one simulated request.
struct Request {
    seed: u64,
    start_ns: u64,
    /// The process in which servers' spans begin.
    process: Cell<u128>,
    spans: RefCell<Vec<SpanRecord>>,
    elements: RefCell<Vec<ElementRecord>>,
}

/// Handle of one request, for the services' code.
#[derive(Clone)]
pub(crate) struct Run(Rc<Simulation>, Rc<Request>);

/// Runs a request. Returns its records, and the length of its root span in ns.
pub(crate) fn run<F: Future<Output = ()> + 'static>(
    seed: u64,
    law: Law,
    change: Option<(&'static str, Change)>,
    service: impl FnMut(Run) -> F,
) -> (TraceRecords, u64) {
    run_open(&[(seed, 0)], law, change, service)
        .pop()
        .expect("one request ran")
}

/// Runs requests, given by seed and arrival. They arrive even if earlier ones have not ended.
pub(crate) fn run_open<F: Future<Output = ()> + 'static>(
    arrivals: &[(u64, u64)],
    law: Law,
    change: Option<(&'static str, Change)>,
    mut service: impl FnMut(Run) -> F,
) -> Vec<(TraceRecords, u64)> {
    let simulation = Rc::new(Simulation {
        now_ns: Cell::new(0),
        next_ns: Cell::new(u64::MAX),
        progress: Cell::new(false),
        law,
        change,
        spawned: RefCell::default(),
    });
    let mut requests = Vec::new();
    let mut tasks: Vec<Task> = Vec::new();
    let mut to_come = arrivals.iter().peekable();
    let mut context = Context::from_waker(Waker::noop());
    loop {
        let now_ns = simulation.now_ns.get();
        while let Some((seed, start_ns)) = to_come.next_if(|(_, start_ns)| *start_ns <= now_ns) {
            let request = Rc::new(Request {
                seed: *seed,
                start_ns: *start_ns,
                process: Cell::new(1),
                spans: RefCell::default(),
                elements: RefCell::default(),
            });
            requests.push(request.clone());
            tasks.push(Box::pin(service(Run(simulation.clone(), request))));
        }
        // Polls all tasks in order. Time advances only if none of them made progress.
        let next_ns = to_come.peek().map_or(u64::MAX, |(_, start_ns)| *start_ns);
        simulation.next_ns.set(next_ns);
        simulation.progress.set(false);
        tasks.retain_mut(|task| task.as_mut().poll(&mut context).is_pending());
        tasks.append(&mut simulation.spawned.borrow_mut());
        if tasks.is_empty() && next_ns == u64::MAX {
            break;
        }
        if !simulation.progress.get() {
            let next_ns = simulation.next_ns.get();
            assert_ne!(next_ns, u64::MAX, "the simulated service waits for nothing");
            simulation.now_ns.set(next_ns);
        }
    }
    requests.iter().map(|request| request.recorded()).collect()
}

impl Request {
    fn recorded(&self) -> (TraceRecords, u64) {
        let spans = self.spans.take();
        let root = spans
            .iter()
            .find(|span| span.parent_id == 0)
            .expect("a request has a root");
        let latency_ns = (root.end_ns - root.start_ns) as u64;
        let records = TraceRecords {
            id: TraceId(u128::from(Random(self.seed).next())),
            spans,
            elements: self.elements.take(),
            ..TraceRecords::default()
        };
        (records, latency_ns)
    }
}

impl Run {
    /// Places the servers' spans that begin from now on in this process of their services.
    pub(crate) fn go_to(&self, process: u128) {
        self.1.process.set(process);
    }

    /// Returns the request's seed, which distinguishes it from others in a queue.
    pub(crate) fn seed(&self) -> u64 {
        self.1.seed
    }

    /// Waits until `check` returns a value.
    async fn until<T>(&self, mut check: impl FnMut() -> Option<T>) -> T {
        std::future::poll_fn(|_| match check() {
            Some(value) => {
                self.0.progress.set(true);
                Poll::Ready(value)
            }
            None => Poll::Pending,
        })
        .await
    }

    /// Waits until this instant, counted from the request's start.
    pub(crate) async fn sleep_until(&self, due_ns: u64) {
        let due_ns = self.1.start_ns.saturating_add(due_ns);
        self.until(|| {
            let is_due = self.0.now_ns.get() >= due_ns;
            if !is_due {
                self.0.next_ns.set(self.0.next_ns.get().min(due_ns));
            }
            is_due.then_some(())
        })
        .await;
    }

    /// Works for the operation, for a time that the law draws for this range of microseconds.
    pub(crate) async fn work(
        &self,
        operation: &'static str,
        number: u64,
        us: std::ops::Range<u64>,
    ) {
        let hash = operation.bytes().fold(self.1.seed, |hash, byte| {
            Random(hash ^ u64::from(byte)).next()
        });
        let part = Random(hash ^ number.wrapping_mul(0x9e37)).next() % 1_000_000;
        let recorded_ns = self.0.law.length_ns(us, part);
        let changed = self.0.change.filter(|(changed, _)| *changed == operation);
        let length_ns = changed.map_or(recorded_ns, |(_, change)| change.of(recorded_ns));
        self.sleep_until(self.0.now_ns.get() - self.1.start_ns + length_ns)
            .await;
    }

    /// Reports whether the request's draw with this number is below `percent` of 100.
    pub(crate) fn chance(&self, number: u64, percent: u64) -> bool {
        Random(self.1.seed ^ number.wrapping_mul(0xabcd_1234)).next() % 100 < percent
    }

    /// Runs `inside` in a span of `service:name`, and returns its result.
    pub(crate) async fn span<T, F: Future<Output = T>>(
        &self,
        parent_id: u64,
        operation: &'static str,
        inside: impl FnOnce(u64) -> F,
    ) -> T {
        self.flagged(parent_id, operation, SpanFlags(0), inside)
            .await
    }

    async fn flagged<T, F: Future<Output = T>>(
        &self,
        parent_id: u64,
        operation: &'static str,
        flags: SpanFlags,
        inside: impl FnOnce(u64) -> F,
    ) -> T {
        let (service, name) = operation
            .split_once(':')
            .expect("an operation is service:name");
        let at_ns = || ORIGIN_NS + self.0.now_ns.get() as i64;
        let index = self.1.spans.borrow().len();
        self.1.spans.borrow_mut().push(SpanRecord {
            span_id: index as u64 + 1,
            parent_id,
            service: service.into(),
            name: name.into(),
            host: service.into(),
            process: if flags == SpanFlags::SERVER {
                self.1.process.get()
            } else {
                1
            },
            start_ns: at_ns(),
            end_ns: at_ns(),
            flags,
            events: Vec::new(),
        });
        let result = inside(index as u64 + 1).await;
        self.1.spans.borrow_mut()[index].end_ns = at_ns();
        result
    }

    /// Records that a span processes a data element.
    pub(crate) fn about(&self, span_id: u64, element: u64) {
        let element = format!("e{element}").into();
        self.1.elements.borrow_mut().push(ElementRecord {
            owner: RecordOwner::Span(span_id),
            element,
        });
    }

    /// Makes a remote call: a client's span, the network in both directions, and a server's span
    /// around `serve`.
    pub(crate) async fn call<F: Future<Output = ()>>(
        &self,
        parent_id: u64,
        (client, server): (&'static str, &'static str),
        number: u64,
        serve: impl FnOnce(u64) -> F,
    ) {
        self.flagged(
            parent_id,
            client,
            SpanFlags::CLIENT,
            |client_id| async move {
                self.work(client, number * 2, 80..240).await;
                self.flagged(client_id, server, SpanFlags::SERVER, serve)
                    .await;
                self.work(client, number * 2 + 1, 80..240).await;
            },
        )
        .await;
    }

    /// Makes a remote call that is served once the room has a place. The server's span begins then.
    pub(crate) async fn call_in<F: Future<Output = ()>>(
        &self,
        parent_id: u64,
        (client, server): (&'static str, &'static str),
        number: u64,
        room: &Room,
        serve: impl FnOnce(u64) -> F,
    ) {
        self.flagged(
            parent_id,
            client,
            SpanFlags::CLIENT,
            |client_id| async move {
                self.work(client, number * 2, 80..240).await;
                room.inside(
                    self,
                    self.seed() ^ (number << 32),
                    self.flagged(client_id, server, SpanFlags::SERVER, serve),
                )
                .await;
                self.work(client, number * 2 + 1, 80..240).await;
            },
        )
        .await;
    }

    /// Starts a task. The returned signal is set when the task ends.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + 'static) -> Signal {
        let done = Signal::default();
        let (run, told) = (self.clone(), done.clone());
        self.0.spawned.borrow_mut().push(Box::pin(async move {
            task.await;
            told.set(&run);
        }));
        self.0.progress.set(true);
        done
    }

    /// Waits for all signals.
    pub(crate) async fn join(&self, all: Vec<Signal>) {
        for one in all {
            one.wait(self).await;
        }
    }
}

/// Signal for which tasks wait.
#[derive(Clone, Default)]
pub(crate) struct Signal(Rc<Cell<bool>>);

impl Signal {
    pub(crate) fn set(&self, run: &Run) {
        self.0.set(true);
        run.0.progress.set(true);
    }

    pub(crate) async fn wait(&self, run: &Run) {
        run.until(|| self.0.get().then_some(())).await;
    }
}

/// Limit on concurrent tasks, which admits them in order of arrival. With one place, it is a lock.
#[derive(Clone)]
pub(crate) struct Room(Rc<RefCell<(u64, VecDeque<u64>)>>);

impl Room {
    pub(crate) fn of(places: u64) -> Room {
        Room(Rc::new(RefCell::new((places, VecDeque::new()))))
    }

    /// Runs `inside` once there is a place.
    pub(crate) async fn inside<F: Future<Output = ()>>(&self, run: &Run, who: u64, inside: F) {
        self.0.borrow_mut().1.push_back(who);
        run.until(|| {
            let mut room = self.0.borrow_mut();
            let is_next = room.0 > 0 && room.1.front() == Some(&who);
            is_next.then(|| {
                room.0 -= 1;
                room.1.pop_front();
            })
        })
        .await;
        inside.await;
        self.0.borrow_mut().0 += 1;
        run.0.progress.set(true);
    }
}
