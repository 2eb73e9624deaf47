//! Simulates requests of six kinds to a shop. Requests of a later period may have an injected
//! change. The workload and the request's number determine everything.

use std::borrow::Cow;

use stroboscope_fixtures::random::Random;
use stroboscope_store::record::{Rows, SpanRow};

use crate::fault::Fault;
use crate::service::Service;

const CLIENT: u32 = 64;
const SERVER: u32 = 128;
/// 2026-01-02T03:00:00Z.
pub(crate) const EPOCH_NS: u64 = 1_767_322_800_000_000_000;
/// Mean time between the starts of successive requests.
const INTERVAL_NS: u64 = 5_000_000;
/// Time whose requests are in one file.
pub(crate) const FLUSH_NS: u64 = 10_000_000_000;
/// Lookups per thousand that miss the cache: usually, and with the fault `CacheMiss`.
const MISSES: [usize; 2] = [50, 600];
/// Steps per thousand that take the less usual form.
const OTHER_WAY: usize = 20;

/// Simulated requests of one period.
#[derive(Clone, Copy)]
pub(crate) struct Workload {
    pub(crate) seed: u64,
    pub(crate) fault: Fault,
    pub(crate) requests: u64,
    pub(crate) epoch_ns: u64,
    /// Minimum number of segments: further steps are added to each request until it has this many.
    /// Some steps take another form, so that there are many categories. `None` adds no steps.
    pub(crate) segments: Option<usize>,
}

/// One span. It may be in a later file than its request.
struct Span {
    trace_id: u128,
    service: Service,
    replica: u64,
    name: Cow<'static, str>,
    span_id: u64,
    parent_id: u64,
    flags: u32,
    start_ns: u64,
    end_ns: u64,
}

impl Span {
    fn put(self, rows: &mut Rows) {
        let service = self.service.names().0;
        let host = format!("{service}-{}", self.replica);
        rows.spans.push(SpanRow {
            trace_id: self.trace_id,
            trace_name: None,
            span_id: self.span_id,
            parent_id: self.parent_id,
            service: rows.strings.intern(service),
            name: rows.strings.intern(&self.name),
            host: rows.strings.intern(&host),
            process: u128::from(self.service as u64 * 2 + self.replica + 1),
            start_ns: self.start_ns as i64,
            end_ns: self.end_ns as i64,
            flags: self.flags,
            attributes: None,
        });
    }
}

/// Facts about a request that its spans do not show.
pub(crate) struct Made {
    pub(crate) trace_id: u128,
    /// True if the request has the injected change.
    pub(crate) is_touched: bool,
    pub(crate) segments: usize,
}

impl Workload {
    fn request(&self, number: u64) -> (Made, Vec<Span>) {
        let mut random = Random(self.seed ^ number.wrapping_mul(0xd134_2543_de82_ef95));
        let trace_id = u128::from(random.next_u64()) << 64 | u128::from(random.next_u64() | 1);
        let replicas = random.next_u64();
        let start_ns = self.epoch_ns + number * INTERVAL_NS + random.next_u64() % INTERVAL_NS;
        let mut builder = Builder {
            random,
            trace_id,
            replicas,
            fault: self.fault,
            is_touched: false,
            segments: 0,
            spans: Vec::with_capacity(32),
        };
        builder.any(start_ns, self.segments);
        let made = Made {
            trace_id,
            is_touched: builder.is_touched,
            segments: builder.segments,
        };
        (made, builder.spans)
    }

    /// Passes each request to `see`. Passes the rows of each file to `write`, with the file's
    /// number and start.
    pub(crate) fn files<E>(
        &self,
        mut see: impl FnMut(&Made),
        mut write: impl FnMut(u64, i64, Rows) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut file, mut next) = (0, 0);
        let mut waiting: Vec<Span> = Vec::new();
        while next < self.requests || !waiting.is_empty() {
            let end_ns = self.epoch_ns + (file + 1) * FLUSH_NS;
            while next < self.requests.min((file + 1) * (FLUSH_NS / INTERVAL_NS)) {
                let (made, spans) = self.request(next);
                see(&made);
                waiting.extend(spans);
                next += 1;
            }
            let mut rows = Rows::default();
            let (now, later) = std::mem::take(&mut waiting)
                .into_iter()
                .partition(|span| span.end_ns < end_ns);
            waiting = later;
            let now: Vec<Span> = now;
            now.into_iter().for_each(|span| span.put(&mut rows));
            write(file, (end_ns - FLUSH_NS) as i64, rows)?;
            file += 1;
        }
        Ok(())
    }
}

struct Builder {
    random: Random,
    trace_id: u128,
    /// Bits that select the replica of each service.
    replicas: u64,
    fault: Fault,
    is_touched: bool,
    segments: usize,
    spans: Vec<Span>,
}

impl Builder {
    /// Returns a random time between half of the mean and three halves of it, in ns; one in 64
    /// takes eight times as long.
    fn took_ns(&mut self, mean_us: u64) -> u64 {
        let slow = if self.random.below(64) == 0 { 8 } else { 1 };
        slow * (mean_us * 500 + self.random.next_u64() % (mean_us * 1_000) + 1)
    }

    fn span(
        &mut self,
        parent: Option<usize>,
        service: Service,
        name: impl Into<Cow<'static, str>>,
        flags: u32,
        start_ns: u64,
    ) -> usize {
        self.spans.push(Span {
            trace_id: self.trace_id,
            service,
            replica: self.replicas >> service as u64 & 1,
            name: name.into(),
            span_id: self.random.next_u64() | 1,
            parent_id: parent.map_or(0, |parent| self.spans[parent].span_id),
            flags,
            start_ns,
            end_ns: start_ns,
        });
        // Counts the span's own segment. A parent has another one after each child that it waits
        // for: see `joined`.
        self.segments += 1;
        self.spans.len() - 1
    }

    /// Counts the segment of a parent after children that it waited for.
    fn joined(&mut self) {
        self.segments += 1;
    }

    /// Simulates work without calls. Returns its end.
    fn work(
        &mut self,
        parent: usize,
        service: Service,
        name: impl Into<Cow<'static, str>>,
        start_ns: u64,
        mean_us: u64,
    ) -> u64 {
        let span = self.span(Some(parent), service, name, 0, start_ns);
        self.spans[span].end_ns = start_ns + self.took_ns(mean_us);
        self.joined();
        self.spans[span].end_ns
    }

    /// Simulates a call that may overlap with others: the spans of the caller and of the server.
    /// `body` returns the end of the server's work. Returns the end of the caller's span.
    fn call_beside(
        &mut self,
        parent: usize,
        (from, to): (Service, Service),
        name: &'static str,
        start_ns: u64,
        body: impl FnOnce(&mut Self, usize, u64) -> u64,
    ) -> u64 {
        let client = self.span(Some(parent), from, to.names().1, CLIENT, start_ns);
        let mut arrives_ns = start_ns + self.took_ns(150);
        if matches!((self.fault, to), (Fault::SlowLink, Service::Feed)) {
            arrives_ns += 1_000_000;
            self.is_touched = true;
        }
        let server = self.span(Some(client), to, name, SERVER, arrives_ns);
        let sent_ns = body(self, server, arrives_ns);
        self.joined();
        self.spans[server].end_ns = sent_ns;
        self.spans[client].end_ns = sent_ns + self.took_ns(150);
        self.spans[client].end_ns
    }

    /// Simulates a call that the caller waits for.
    fn call(
        &mut self,
        parent: usize,
        ends: (Service, Service),
        name: &'static str,
        start_ns: u64,
        body: impl FnOnce(&mut Self, usize, u64) -> u64,
    ) -> u64 {
        let ended_ns = self.call_beside(parent, ends, name, start_ns, body);
        self.joined();
        ended_ns
    }

    /// Simulates a call to a server that does one thing.
    fn simple_call(
        &mut self,
        parent: usize,
        ends: (Service, Service),
        name: &'static str,
        start_ns: u64,
        mean_us: u64,
    ) -> u64 {
        self.call(parent, ends, name, start_ns, |builder, _, at_ns| {
            at_ns + builder.took_ns(mean_us)
        })
    }

    /// Simulates a read from the store, which several services do.
    fn read(&mut self, parent: usize, from: Service, at_ns: u64) -> u64 {
        let ends = (from, Service::Store);
        self.call(parent, ends, "read", at_ns, |builder, _, at_ns| {
            let mut ends_ns = at_ns + builder.took_ns(300);
            let longer_ns = match builder.fault {
                Fault::SlightlySlow => 100_000,
                Fault::SlowOperation => 500_000,
                _ => 0,
            };
            ends_ns += longer_ns;
            builder.is_touched |= longer_ns > 0;
            ends_ns
        })
    }

    fn any(&mut self, start_ns: u64, segments: Option<usize>) {
        let kind = self.random.below(100);
        let name = match kind {
            0..30 => "GET /item",
            30..50 => "GET /list",
            50..70 => "GET /home",
            70..80 => "POST /order",
            80..95 => "GET /search",
            _ => "GET /profile",
        };
        let root = self.span(None, Service::Gateway, name, SERVER, start_ns);
        let at_ns = start_ns + self.took_ns(100);
        let mut at_ns = match kind {
            0..30 => self.item(root, at_ns),
            30..50 => self.list(root, at_ns),
            50..70 => self.home(root, at_ns),
            70..80 => self.order(root, at_ns),
            80..95 => self.search(root, at_ns),
            _ => self.profile(root, at_ns),
        };
        for step in 1.. {
            at_ns += self.took_ns(100);
            if segments.is_none_or(|wanted| self.segments >= wanted) {
                break;
            }
            let way = if self.random.happens(OTHER_WAY) {
                "b"
            } else {
                "a"
            };
            at_ns = self.work(
                root,
                Service::Gateway,
                format!("step {step}{way}"),
                at_ns,
                50,
            );
        }
        self.spans[root].end_ns = at_ns;
    }

    fn item(&mut self, root: usize, at_ns: u64) -> u64 {
        let ends = (Service::Gateway, Service::Catalog);
        self.call(root, ends, "get item", at_ns, |builder, catalog, at_ns| {
            let to_cache = (Service::Catalog, Service::Cache);
            let at_ns = at_ns + builder.took_ns(100);
            let mut at_ns = builder.simple_call(catalog, to_cache, "look up", at_ns, 60);
            at_ns += builder.took_ns(40);
            let drawn = builder.random.below(1_000);
            let [usually, now] = MISSES;
            let is_injected = builder.fault == Fault::CacheMiss && (usually..now).contains(&drawn);
            if drawn < usually || is_injected {
                builder.is_touched |= is_injected;
                let ends = (Service::Catalog, Service::Store);
                at_ns = builder.simple_call(catalog, ends, "read item", at_ns, 1_200);
                at_ns += builder.took_ns(40);
                at_ns = builder.simple_call(catalog, to_cache, "fill", at_ns, 60);
            }
            at_ns + builder.took_ns(200)
        })
    }

    fn list(&mut self, root: usize, at_ns: u64) -> u64 {
        let ends = (Service::Gateway, Service::Catalog);
        self.call(
            root,
            ends,
            "list items",
            at_ns,
            |builder, catalog, at_ns| {
                let rows = if builder.fault == Fault::LongerLoop {
                    builder.is_touched = true;
                    6 + builder.random.below(7)
                } else {
                    3 + builder.random.below(4)
                };
                let mut at_ns = at_ns + builder.took_ns(150);
                for _ in 0..rows {
                    let ends = (Service::Catalog, Service::Store);
                    at_ns = builder.simple_call(catalog, ends, "read row", at_ns, 250);
                    at_ns += builder.took_ns(30);
                }
                at_ns + builder.took_ns(150)
            },
        )
    }

    fn home(&mut self, root: usize, at_ns: u64) -> u64 {
        let ends = (Service::Gateway, Service::Web);
        self.call(root, ends, "home", at_ns, |builder, web, at_ns| {
            let at_ns = at_ns + builder.took_ns(150);
            let to = |service| (Service::Web, service);
            let mut ends_ns = [0; 3];
            ends_ns[0] = builder.call_beside(
                web,
                to(Service::Feed),
                "assemble",
                at_ns,
                |builder, feed, at_ns| {
                    let at_ns = at_ns + builder.took_ns(100);
                    let ends = (Service::Feed, Service::Store);
                    let at_ns = builder.simple_call(feed, ends, "scan", at_ns, 1_500);
                    let at_ns = builder.work(feed, Service::Feed, "rank", at_ns + 20_000, 800);
                    at_ns + builder.took_ns(50)
                },
            );
            ends_ns[1] = builder.call_beside(
                web,
                to(Service::Profile),
                "load",
                at_ns + 4_000,
                |builder, profile, at_ns| {
                    let at_ns = at_ns + builder.took_ns(50);
                    builder.read(profile, Service::Profile, at_ns) + builder.took_ns(50)
                },
            );
            ends_ns[2] = builder.call_beside(
                web,
                to(Service::Ads),
                "choose",
                at_ns + 8_000,
                |builder, _, at_ns| at_ns + builder.took_ns(700),
            );
            builder.joined();
            ends_ns.into_iter().max().unwrap_or(at_ns) + builder.took_ns(300)
        })
    }

    fn order(&mut self, root: usize, at_ns: u64) -> u64 {
        let ends = (Service::Gateway, Service::Orders);
        self.call(root, ends, "place", at_ns, |builder, orders, at_ns| {
            let at_ns = at_ns + builder.took_ns(200);
            let ends = (Service::Orders, Service::Inventory);
            let at_ns = builder.call(
                orders,
                ends,
                "reserve",
                at_ns,
                |builder, inventory, at_ns| {
                    let at_ns = at_ns + builder.took_ns(50);
                    builder.read(inventory, Service::Inventory, at_ns) + builder.took_ns(100)
                },
            );
            let at_ns = at_ns + builder.took_ns(40);
            let ends = (Service::Orders, Service::Payment);
            let at_ns = builder.call(orders, ends, "charge", at_ns, |builder, payment, at_ns| {
                let mut at_ns = at_ns + builder.took_ns(400);
                if builder.fault == Fault::ExtraCall {
                    builder.is_touched = true;
                    let ends = (Service::Payment, Service::Fraud);
                    at_ns = builder.simple_call(payment, ends, "check", at_ns, 900);
                }
                at_ns + builder.took_ns(200)
            });
            let at_ns = at_ns + builder.took_ns(40);
            let ends = (Service::Orders, Service::Store);
            builder.simple_call(orders, ends, "write", at_ns, 900) + builder.took_ns(100)
        })
    }

    fn search(&mut self, root: usize, at_ns: u64) -> u64 {
        let ends = (Service::Gateway, Service::Search);
        self.call(root, ends, "query", at_ns, |builder, search, at_ns| {
            let at_ns = builder.work(search, Service::Search, "parse", at_ns + 30_000, 100);
            let mut joined_ns = at_ns;
            for shard in 0..4 {
                let ends = (Service::Search, Service::Index);
                let start_ns = at_ns + 10_000 + shard * 4_000;
                let shard_ns = builder.call_beside(
                    search,
                    ends,
                    "look up",
                    start_ns,
                    |builder, index, at_ns| {
                        let at_ns =
                            builder.work(index, Service::Index, "postings", at_ns + 20_000, 500);
                        builder.work(index, Service::Index, "score", at_ns + 10_000, 400) + 20_000
                    },
                );
                joined_ns = joined_ns.max(shard_ns);
            }
            builder.joined();
            let at_ns = joined_ns + builder.took_ns(50);
            let at_ns = builder.work(search, Service::Search, "merge", at_ns, 250) + 20_000;
            builder.read(search, Service::Search, at_ns) + builder.took_ns(100)
        })
    }

    fn profile(&mut self, root: usize, at_ns: u64) -> u64 {
        let ends = (Service::Gateway, Service::Profile);
        self.call(root, ends, "show", at_ns, |builder, profile, at_ns| {
            let at_ns = at_ns + builder.took_ns(50);
            let ends = (Service::Profile, Service::Auth);
            let at_ns = builder.call(profile, ends, "check", at_ns, |builder, auth, at_ns| {
                let at_ns = at_ns + builder.took_ns(40);
                builder.read(auth, Service::Auth, at_ns) + builder.took_ns(60)
            });
            let at_ns = at_ns + builder.took_ns(60);
            let at_ns = builder.read(profile, Service::Profile, at_ns);
            let at_ns = builder.work(profile, Service::Profile, "render", at_ns + 20_000, 500);
            at_ns + builder.took_ns(50)
        })
    }
}
