//! A week of bursts, as six services on twelve hosts record them. A burst's number and the store's
//! size determine its content.

use stroboscope_store::record::{BatchRow, Rows, SpanRow, StringId, WindowRow};

/// 2026-01-02T03:00:00Z.
pub(crate) const EPOCH_NS: u64 = 1_767_322_800_000_000_000;
/// Time between the openings of two bursts.
pub(crate) const PERIOD_NS: u64 = 16_384_000_000;
/// Length of a burst.
const BURST_NS: u64 = 16_000_000;
/// Number of bursts in one file: those of about a minute.
pub(crate) const BURSTS_PER_FLUSH: u64 = 4;
/// Number of requests per rare event: a block that the cache evicted.
const RARE: u64 = 100_000;
/// Number of the first request with the rare event, so that every store has one.
const RARE_FIRST: u64 = 500;
const WEEK_NS: u64 = 7 * 24 * 3_600_000_000_000;
/// Time before a burst opens from which requests reach into the burst.
const BEFORE_NS: u64 = 1_000_000;
/// Number of recorded spans of a request, without those outside the burst; measured.
const SPANS_PER_REQUEST: u64 = 47;

const SERVICES: [&str; 6] = ["edge", "web", "auth", "ranker", "store", "disk"];
const REPLICAS: usize = 2;
const PROCESSES: usize = SERVICES.len() * REPLICAS;
const CUT_OPEN: u32 = 1;
const CUT_CLOSE: u32 = 2;
const CLIENT: u32 = 64;
const SERVER: u32 = 128;

/// Number of bursts of a store, and of requests in all of them.
pub(crate) struct Size {
    pub(crate) bursts: u64,
    pub(crate) requests: u64,
}

impl Size {
    /// Computes the size for `spans` spans, at the density of `week_spans` in a week.
    pub(crate) fn of(spans: u64, week_spans: u64) -> Self {
        let requests = (spans / SPANS_PER_REQUEST).max(RARE_FIRST + 1);
        let a_week = u128::from(WEEK_NS / PERIOD_NS);
        let bursts = u128::from(requests * SPANS_PER_REQUEST) * a_week / u128::from(week_spans);
        Self {
            bursts: u64::try_from(bursts).unwrap_or(u64::MAX).max(1),
            requests,
        }
    }

    pub(crate) fn flushes(&self) -> u64 {
        self.bursts.div_ceil(BURSTS_PER_FLUSH)
    }

    /// Returns the number of the first request of a burst.
    fn first(&self, burst: u64) -> u64 {
        let first = u128::from(burst) * u128::from(self.requests) / u128::from(self.bursts);
        u64::try_from(first).unwrap_or(u64::MAX)
    }
}

/// SplitMix64.
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

/// Spans of one request. Times are in ns since [`EPOCH_NS`].
struct Request<'a> {
    random: Random,
    rows: &'a mut Rows,
    trace_id: u128,
    replicas: u64,
    /// `[open, close)` of the burst.
    burst: (u64, u64),
    next_id: u64,
}

/// Id of a span.
type Id = u64;

impl Request<'_> {
    /// Returns a random time between half of the mean and three halves of it; one in 128 takes
    /// eight times as long.
    fn took_ns(&mut self, mean_us: u64) -> u64 {
        let slow = if self.random.below(128) == 0 { 8 } else { 1 };
        slow * (mean_us * 500 + self.random.below(mean_us * 1_000) + 1)
    }

    fn id(&mut self) -> Id {
        self.next_id += 1;
        self.next_id
    }

    /// Records the part of a span that lies in the burst.
    fn record(
        &mut self,
        (id, parent_id): (Id, Id),
        (service, name): (usize, &str),
        mut flags: u32,
        (start_ns, end_ns): (u64, u64),
        attributes: Option<String>,
    ) {
        let (open_ns, close_ns) = self.burst;
        if start_ns >= close_ns || end_ns <= open_ns {
            return;
        }
        if start_ns < open_ns {
            flags |= CUT_OPEN;
        }
        if end_ns > close_ns {
            flags |= CUT_CLOSE;
        }
        let replica = (self.replicas >> service & 1) as usize;
        let number = service * REPLICAS + replica;
        let host = self.rows.strings.intern(&host(number));
        let service = self.rows.strings.intern(SERVICES[service]);
        let name = self.rows.strings.intern(name);
        self.rows.spans.push(SpanRow {
            trace_id: self.trace_id,
            trace_name: None,
            span_id: id,
            parent_id,
            service,
            name,
            host,
            process: process(number),
            start_ns: (EPOCH_NS + start_ns.max(open_ns)) as i64,
            end_ns: (EPOCH_NS + end_ns.min(close_ns)) as i64,
            flags,
            attributes: attributes.map(String::into_boxed_str),
        });
    }

    /// Simulates a call between two services. Returns its end.
    fn call(
        &mut self,
        parent: Id,
        (from, to): (usize, usize),
        names: (&str, &str),
        start_ns: u64,
        body: impl FnOnce(&mut Self, Id, u64) -> (u64, Option<String>),
    ) -> u64 {
        let (client, server) = (self.id(), self.id());
        let arrives_ns = start_ns + self.took_ns(20);
        let (sent_ns, attributes) = body(self, server, arrives_ns);
        let back_ns = sent_ns + self.took_ns(20);
        self.record(
            (client, parent),
            (from, names.0),
            CLIENT,
            (start_ns, back_ns),
            None,
        );
        self.record(
            (server, client),
            (to, names.1),
            SERVER,
            (arrives_ns, sent_ns),
            attributes,
        );
        back_ns
    }

    /// Simulates work without calls. Returns its end.
    fn work(
        &mut self,
        parent: Id,
        service: usize,
        name: &str,
        start_ns: u64,
        mean_us: u64,
        attributes: Option<String>,
    ) -> u64 {
        let (id, end_ns) = (self.id(), start_ns + self.took_ns(mean_us));
        self.record(
            (id, parent),
            (service, name),
            0,
            (start_ns, end_ns),
            attributes,
        );
        end_ns
    }

    /// Simulates the store's part of a read, which waits for a shard and reads a key.
    fn read(&mut self, parent: Id, at_ns: u64) -> (u64, Option<String>) {
        let (shard, key) = (self.random.below(16), self.random.below(20_000));
        let bytes = 1 << self.random.below(18);
        let shard_said = format!("{{\"shard\":{shard}}}");
        let waited_ns = self.work(parent, 4, "wait", at_ns, 30, Some(shard_said));
        let done_ns = self.work(parent, 4, "copy", waited_ns, 40, None);
        let said = format!("{{\"bytes\":{bytes},\"key\":\"k{key}\",\"shard\":{shard}}}");
        (done_ns + self.took_ns(5), Some(said))
    }

    /// Simulates one of the six parallel parts of a page.
    fn branch(&mut self, web: Id, start_ns: u64, is_rare: bool) -> u64 {
        self.call(
            web,
            (1, 3),
            ("call ranker", "rank"),
            start_ns,
            |own, rank, at_ns| {
                let at_ns = at_ns + own.took_ns(10);
                let read_ns = own.call(rank, (3, 4), ("call read", "read"), at_ns, Self::read);
                let locked_ns = own.work(rank, 3, "lock", read_ns + 1_000, 30, None);
                let rare = is_rare.then(|| "{\"reason\":\"full\"}".to_owned());
                if rare.is_some() {
                    own.work(rank, 3, "evict", locked_ns, 10, rare);
                }
                (locked_ns + own.took_ns(10), None)
            },
        )
    }

    fn page(&mut self, start_ns: u64, number: u64) {
        let rare_in = (number % RARE == RARE_FIRST).then(|| self.random.below(6));
        let page = self.id();
        let at_ns = start_ns + self.took_ns(20);
        let end_ns = self.call(
            page,
            (0, 1),
            ("call web", "render"),
            at_ns,
            |own, web, at_ns| {
                let at_ns = own.call(
                    web,
                    (1, 2),
                    ("call auth", "auth"),
                    at_ns,
                    |own, auth, at_ns| (own.work(auth, 2, "verify", at_ns, 60, None) + 1_000, None),
                );
                let joined_ns = (0..6)
                    .map(|branch| {
                        let is_rare = rare_in == Some(branch);
                        own.branch(web, at_ns + branch * 5_000, is_rare)
                    })
                    .max()
                    .unwrap_or(at_ns);
                let failed = own.random.below(400) == 0;
                let said = failed.then(|| "{\"error\":true}".to_owned());
                let mut at_ns = own.work(web, 1, "attempt", joined_ns, 40, said);
                if failed {
                    at_ns = own.work(web, 1, "attempt", at_ns + 200_000, 40, None);
                }
                (own.work(web, 1, "assemble", at_ns, 80, None), None)
            },
        ) + self.took_ns(20);
        self.record((page, 0), (0, "page"), SERVER, (start_ns, end_ns), None);
    }
}

fn host(process: usize) -> String {
    format!("host-{process:02}")
}

/// Returns the incarnation of a process.
fn process(number: usize) -> u128 {
    (number as u128 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
}

fn new_request(rows: &mut Rows, seed: u64, burst: (u64, u64)) -> Request<'_> {
    let mut random = Random(seed.wrapping_mul(0xd134_2543_de82_ef95));
    let trace_id = u128::from(random.next()) << 64 | u128::from(random.next() | 1);
    Request {
        replicas: random.next(),
        random,
        rows,
        trace_id,
        burst,
        next_id: 0,
    }
}

/// Returns the rows of one flush, and the end of the flush.
pub(crate) fn rows(size: &Size, flush: u64) -> (Rows, u64) {
    let mut rows = Rows::default();
    let first = flush * BURSTS_PER_FLUSH;
    let end = size.bursts.min(first + BURSTS_PER_FLUSH);
    for burst in first..end {
        let open_ns = burst * PERIOD_NS + PERIOD_NS / 2;
        let window = (open_ns, open_ns + BURST_NS);
        for number in size.first(burst)..size.first(burst + 1) {
            let mut request = new_request(&mut rows, number + 1, window);
            // The burst must contain the whole request with the rare event.
            let at_ns = match number % RARE == RARE_FIRST {
                true => open_ns + BEFORE_NS,
                false => open_ns - BEFORE_NS + request.random.below(BEFORE_NS + BURST_NS),
            };
            request.page(at_ns, number);
        }
        if burst.is_multiple_of(100) {
            let mut compaction = new_request(&mut rows, u64::MAX - burst, window);
            let id = compaction.id();
            let from_ns = open_ns + compaction.random.below(BURST_NS / 2);
            let took_ns = (from_ns, from_ns + BURST_NS / 4);
            compaction.record((id, 0), (4, "compact"), 0, took_ns, None);
        }
    }
    let (from_ns, to_ns) = (EPOCH_NS + first * PERIOD_NS, EPOCH_NS + end * PERIOD_NS);
    for number in 0..PROCESSES {
        let own = rows
            .spans
            .iter()
            .filter(|span| span.process == process(number));
        let spans = own.count() as u32;
        let windows = (first..end).map(|burst| {
            let open_ns = EPOCH_NS + burst * PERIOD_NS + PERIOD_NS / 2;
            WindowRow {
                open_ns: open_ns as i64,
                close_ns: (open_ns + BURST_NS) as i64,
                burst_config: 1,
            }
        });
        let windows = windows.collect();
        let mut text = |text: &str| -> StringId { rows.strings.intern(text) };
        let (service, host) = (text(SERVICES[number / REPLICAS]), text(&host(number)));
        let sdk_version = text("0.1.0");
        rows.batches.push(BatchRow {
            process: process(number),
            sequence: flush,
            service,
            host,
            pid: number as u32 + 1,
            started_ns: EPOCH_NS as i64,
            sdk_version,
            from_ns: from_ns as i64,
            to_ns: to_ns as i64,
            received_ns: to_ns as i64,
            burst_config: 1,
            spans,
            events: 0,
            windows,
            losses: Vec::new(),
            clock_steps: Vec::new(),
            kernel_clock: None,
            loads: Vec::new(),
        });
    }
    (rows, to_ns)
}
