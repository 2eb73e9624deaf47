//! Simulated requests for a page that eight services on sixteen hosts build. Each request has 100
//! segments on 53 spans and 2 events, with calls into other processes, seven parallel branches that
//! take turns at a lock, and occasionally a retry. The seed and the request's number determine
//! everything.

use stroboscope_store::record::{BatchRow, EventRow, Rows, SpanRow, StringId};

/// Interval between the begins of requests, in ns: a thousand begin in a second.
pub const INTERVAL_NS: u64 = 1_000_000;
/// Interval at which every process sends its records, in ns; all records of an interval become one
/// file.
pub const FLUSH_NS: u64 = 10_000_000_000;
/// Beginning of the simulated time: 2026-01-02T03:00:00Z, in ns.
pub const EPOCH_NS: u64 = 1_767_322_800_000_000_000;

const SERVICES: [&str; 8] = [
    "edge", "web", "auth", "ranker", "index", "store", "log", "ads",
];
const REPLICAS: usize = 2;
pub const PROCESSES: usize = SERVICES.len() * REPLICAS;
/// Process of the service `store` that sends late: its records are one file later than those of
/// other processes.
const LATE_PROCESS: usize = Service::Store as usize * REPLICAS;
const NAMES: [&str; 20] = [
    "GET /home",
    "call web",
    "render",
    "call auth",
    "authenticate",
    "read session",
    "get",
    "call feed",
    "call ads",
    "call photos",
    "call friends",
    "call events",
    "call groups",
    "call news",
    "rank",
    "read",
    "locked index",
    "score",
    "assemble",
    "count",
];
const EVENTS: [&str; 2] = ["html written", "first byte"];
const CLIENT: u32 = 64;
const SERVER: u32 = 128;

#[derive(Clone, Copy)]
enum Service {
    Edge,
    Web,
    Auth,
    Ranker,
    Store = 5,
    Log,
}

pub struct Span {
    pub process: usize,
    pub name: usize,
    pub span_id: u64,
    pub parent_id: u64,
    pub flags: u32,
    pub start_ns: u64,
    pub end_ns: u64,
    /// Number of an event in the span (see [`event_name`]), and its time in ns since the Unix
    /// epoch; `None` if there is no event.
    pub event: Option<(usize, u64)>,
}

pub struct Request {
    pub trace_id: u128,
    pub spans: Vec<Span>,
}

impl Span {
    /// Returns the number of the file that contains the span.
    fn file(&self) -> u64 {
        (self.end_ns - EPOCH_NS) / FLUSH_NS + u64::from(self.process == LATE_PROCESS)
    }
}

/// Random number generator (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

struct Builder {
    random: Random,
    /// Replica of each service, one bit per service.
    replicas: u64,
    spans: Vec<Span>,
}

impl Builder {
    /// Draws a duration between half and three halves of a mean in µs, and returns it in ns; one in
    /// 64 takes eight times as long.
    fn took_ns(&mut self, mean_us: u64) -> u64 {
        let slow = if self.random.below(64) == 0 { 8 } else { 1 };
        slow * (mean_us * 500 + self.random.below(mean_us * 1_000) + 1)
    }

    fn span(
        &mut self,
        parent: Option<usize>,
        service: Service,
        name: usize,
        flags: u32,
        start_ns: u64,
    ) -> usize {
        let process =
            service as usize * REPLICAS + (self.replicas >> service as usize & 1) as usize;
        let parent_id = parent.map_or(0, |parent| self.spans[parent].span_id);
        let span_id = self.random.next() | 1;
        self.spans.push(Span {
            process,
            name,
            span_id,
            parent_id,
            flags,
            start_ns,
            end_ns: start_ns,
            event: None,
        });
        self.spans.len() - 1
    }

    /// Adds a span without children, and returns its end in ns since the Unix epoch.
    fn work(
        &mut self,
        parent: usize,
        service: Service,
        name: usize,
        start_ns: u64,
        mean_us: u64,
    ) -> u64 {
        let span = self.span(Some(parent), service, name, 0, start_ns);
        self.spans[span].end_ns = start_ns + self.took_ns(mean_us);
        self.spans[span].end_ns
    }

    /// Adds a call: the client's span with the first of `names`, and the server's span with the
    /// second. `body` adds the server's work and returns its end. Returns the end of the client's
    /// span.
    fn call(
        &mut self,
        parent: usize,
        (from, to): (Service, Service),
        names: (usize, usize),
        start_ns: u64,
        body: impl FnOnce(&mut Self, usize, u64) -> u64,
    ) -> u64 {
        let client = self.span(Some(parent), from, names.0, CLIENT, start_ns);
        let arrives_ns = start_ns + self.took_ns(150);
        let server = self.span(Some(client), to, names.1, SERVER, arrives_ns);
        let sent_ns = body(self, server, arrives_ns);
        self.spans[server].end_ns = sent_ns;
        self.spans[client].end_ns = sent_ns + self.took_ns(150);
        self.spans[client].end_ns
    }

    /// Adds a call whose server span has no children, and returns the end of the client's span.
    fn simple_call(
        &mut self,
        parent: usize,
        ends: (Service, Service),
        names: (usize, usize),
        start_ns: u64,
    ) -> u64 {
        self.call(parent, ends, names, start_ns, |builder, _, at_ns| {
            at_ns + builder.took_ns(300)
        })
    }

    fn authenticate(&mut self, web: usize, at_ns: u64) -> u64 {
        self.call(
            web,
            (Service::Web, Service::Auth),
            (3, 4),
            at_ns,
            |builder, auth, at_ns| {
                let at_ns = at_ns + builder.took_ns(40);
                let read_ns =
                    builder.simple_call(auth, (Service::Auth, Service::Store), (5, 6), at_ns);
                read_ns + builder.took_ns(60)
            },
        )
    }

    /// Adds one of the parallel branches, and returns its end. The lock is free from `free_ns` on;
    /// this is updated to the time at which the branch releases the lock.
    fn branch(&mut self, web: usize, number: usize, at_ns: u64, free_ns: &mut u64) -> u64 {
        self.call(
            web,
            (Service::Web, Service::Ranker),
            (7 + number, 14),
            at_ns,
            |builder, ranker, at_ns| {
                let mut at_ns = at_ns + builder.took_ns(50);
                // A retry is another call of the same name.
                let reads = if number == 0 && builder.random.below(50) == 0 {
                    2
                } else {
                    1
                };
                for _ in 0..reads {
                    at_ns = builder.simple_call(
                        ranker,
                        (Service::Ranker, Service::Store),
                        (15, 6),
                        at_ns,
                    );
                    at_ns += builder.took_ns(30);
                }
                let locked_ns = at_ns.max(*free_ns);
                *free_ns = builder.work(ranker, Service::Ranker, 16, locked_ns, 80);
                let at_ns = *free_ns + builder.took_ns(20);
                let scored_ns = builder.work(ranker, Service::Ranker, 17, at_ns, 400);
                scored_ns + builder.took_ns(30)
            },
        )
    }

    fn render(&mut self, web: usize, at_ns: u64) -> u64 {
        let at_ns = at_ns + self.took_ns(100);
        let at_ns = self.authenticate(web, at_ns) + self.took_ns(100);
        let (mut free_ns, mut joined_ns) = (0, 0);
        // The order in which branches get the lock varies; the order of the calls does not.
        let first = self.random.below(7) as usize;
        for number in (0..7).map(|turn| (first + turn) % 7) {
            joined_ns = self
                .branch(web, number, at_ns + number as u64 * 5_000, &mut free_ns)
                .max(joined_ns);
        }
        let at_ns = joined_ns + self.took_ns(50);
        let assemble = self.span(Some(web), Service::Web, 18, 0, at_ns);
        let written_ns = at_ns + self.took_ns(300);
        let at_ns = written_ns + self.took_ns(100);
        (self.spans[assemble].end_ns, self.spans[assemble].event) = (at_ns, Some((0, written_ns)));
        let at_ns = at_ns + self.took_ns(20);
        let logged_ns = self.simple_call(web, (Service::Web, Service::Log), (5, 19), at_ns);
        let counted_ns = self.work(web, Service::Web, 19, at_ns + 1_000, 200);
        logged_ns.max(counted_ns) + self.took_ns(100)
    }
}

/// Builds the request with this number.
pub fn request(seed: u64, number: u64) -> Request {
    request_every(INTERVAL_NS, seed, number)
}

fn request_every(interval_ns: u64, seed: u64, number: u64) -> Request {
    let mut random = Random(seed ^ number.wrapping_mul(0xd134_2543_de82_ef95));
    let trace_id = u128::from(random.next()) << 64 | u128::from(random.next() | 1);
    let replicas = random.next();
    let mut builder = Builder {
        random,
        replicas,
        spans: Vec::with_capacity(56),
    };
    let start_ns = EPOCH_NS + number * interval_ns + builder.random.below(interval_ns);
    let edge = builder.span(None, Service::Edge, 0, SERVER, start_ns);
    let at_ns = start_ns + builder.took_ns(100);
    let ends = (Service::Edge, Service::Web);
    let at_ns = builder.call(edge, ends, (1, 2), at_ns, |builder, web, at_ns| {
        builder.render(web, at_ns)
    });
    let byte_ns = at_ns + builder.took_ns(100);
    builder.spans[edge].event = Some((1, byte_ns));
    builder.spans[edge].end_ns = byte_ns + builder.took_ns(200);
    Request {
        trace_id,
        spans: builder.spans,
    }
}

/// Returns the number of files that the requests may need.
pub fn files(requests: u64) -> u64 {
    // A request takes less than a second, and late records are one file later.
    (requests * INTERVAL_NS + 1_000_000_000) / FLUSH_NS + 2
}

/// Builds the rows of the file with number `file`, if there are `requests` requests in total.
pub fn rows(seed: u64, requests: u64, file: u64) -> Rows {
    rows_every(INTERVAL_NS, seed, requests, file)
}

/// Builds the rows of one file like [`rows`], with a request every `interval_ns`, which must divide
/// [`FLUSH_NS`].
pub fn rows_every(interval_ns: u64, seed: u64, requests: u64, file: u64) -> Rows {
    let mut rows = Rows::default();
    let mut ids = |texts: &[&str]| {
        texts
            .iter()
            .map(|text| rows.strings.intern(text))
            .collect::<Vec<StringId>>()
    };
    let (services, names, events) = (ids(&SERVICES), ids(&NAMES), ids(&EVENTS));
    let hosts: Vec<String> = (0..PROCESSES)
        .map(|process| format!("host-{process:02}"))
        .collect();
    let hosts = ids(&hosts.iter().map(String::as_str).collect::<Vec<_>>());
    let version = ids(&["0.1.0"])[0];
    let per_file = FLUSH_NS / interval_ns;
    let mut counts = [(0u32, 0u32); PROCESSES];
    for number in (file.saturating_sub(2) * per_file..(file + 1) * per_file)
        .take_while(|number| *number < requests)
    {
        let request = request_every(interval_ns, seed, number);
        for span in request.spans.into_iter().filter(|span| span.file() == file) {
            let service = services[span.process / REPLICAS];
            counts[span.process].0 += 1;
            rows.spans.push(SpanRow {
                trace_id: request.trace_id,
                trace_name: None,
                span_id: span.span_id,
                parent_id: span.parent_id,
                service,
                name: names[span.name],
                host: hosts[span.process],
                process: process(span.process),
                start_ns: span.start_ns as i64,
                end_ns: span.end_ns as i64,
                flags: span.flags,
                attributes: None,
            });
            let Some((event, time_ns)) = span.event else {
                continue;
            };
            counts[span.process].1 += 1;
            rows.events.push(EventRow {
                trace_id: request.trace_id,
                trace_name: None,
                span_id: span.span_id,
                time_ns: time_ns as i64,
                seq: 0,
                host: hosts[span.process],
                service,
                task: None,
                name: events[event],
                attributes: None,
            });
        }
    }
    let (from_ns, to_ns) = (EPOCH_NS + file * FLUSH_NS, EPOCH_NS + (file + 1) * FLUSH_NS);
    rows.batches.extend(
        counts
            .iter()
            .enumerate()
            .map(|(number, (spans, events))| BatchRow {
                process: process(number),
                sequence: file,
                service: services[number / REPLICAS],
                host: hosts[number],
                pid: number as u32 + 1,
                started_ns: EPOCH_NS as i64,
                sdk_version: version,
                from_ns: from_ns as i64,
                to_ns: to_ns as i64,
                received_ns: to_ns as i64,
                burst_config: 0,
                spans: *spans,
                events: *events,
                windows: Vec::new(),
                losses: Vec::new(),
                clock_steps: Vec::new(),
                kernel_clock: None,
                loads: Vec::new(),
            }),
    );
    rows
}

/// Returns the incarnation of a process.
fn process(number: usize) -> u128 {
    (number as u128 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
}

/// Returns the texts of a span (service, name, host), and its process.
pub fn texts(span: &Span) -> (&'static str, &'static str, String, u128) {
    let host = format!("host-{:02}", span.process);
    (
        SERVICES[span.process / REPLICAS],
        NAMES[span.name],
        host,
        process(span.process),
    )
}

/// Returns the name of an event.
pub fn event_name(event: usize) -> &'static str {
    EVENTS[event]
}
