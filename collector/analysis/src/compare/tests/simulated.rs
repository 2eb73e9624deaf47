//! Simulates requests of a shop, and faults of a period.

use crate::record::{AttributeRecord, RecordOwner, SpanFlags, SpanRecord, TraceId, TraceRecords};

/// Parameters of a simulated period, which a fault changes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::compare) struct Fault {
    /// Additional time of each read of the store, in nanoseconds.
    pub(super) read_ns: i64,
    /// Additional time on the link to the bank, each way, in nanoseconds.
    pub(super) bank_link_ns: i64,
    /// True if pages call the advertisement service.
    pub(super) asks_for_ads: bool,
    /// Percentage of reads that miss the cache.
    pub(super) misses: u64,
    /// Number of reads per request.
    pub(super) reads: u64,
    /// True if the bank fails.
    pub(super) bank_fails: bool,
    /// Percentage of requests that are orders.
    pub(super) orders: u64,
}

pub(in crate::compare) const USUAL: Fault = Fault {
    read_ns: 0,
    bank_link_ns: 0,
    asks_for_ads: false,
    misses: 5,
    reads: 3,
    bank_fails: false,
    orders: 20,
};

/// Returns parameters with this percentage of reads that miss the cache, one read per page, and no
/// orders.
pub(in crate::compare) fn with_misses(misses: u64) -> Fault {
    Fault {
        misses,
        reads: 1,
        orders: 0,
        ..USUAL
    }
}

pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    /// Draws a time with this mean, from a distribution with a tail.
    fn about_ns(&mut self, mean_ns: i64) -> i64 {
        let unit = (self.below(1 << 20) + 1) as f64 / f64::from(1 << 20);
        (mean_ns as f64 * (0.7 - 0.3 * unit.ln())) as i64
    }
}

/// A request under construction.
struct Making<'a> {
    records: TraceRecords,
    random: &'a mut Random,
}

impl Making<'_> {
    /// Adds a span whose own work takes about `own_ns`, and that runs `inner` in the middle of it.
    /// Returns the end of the span.
    fn span(
        &mut self,
        (parent_id, name): (u64, &str),
        flags: SpanFlags,
        start_ns: i64,
        own_ns: i64,
        inner: &mut dyn FnMut(&mut Self, u64, i64) -> i64,
    ) -> i64 {
        let span_id = self.records.spans.len() as u64 + 1;
        let at = self.records.spans.len();
        let (service, operation) = name.split_once(':').expect("service:name");
        self.records.spans.push(SpanRecord {
            span_id,
            parent_id,
            service: service.into(),
            name: operation.into(),
            host: "".into(),
            process: 1,
            start_ns,
            end_ns: start_ns,
            flags,
            events: Vec::new(),
        });
        let own_ns = self.random.about_ns(own_ns);
        let end_ns = inner(self, span_id, start_ns + own_ns / 2) + own_ns / 2;
        self.records.spans[at].end_ns = end_ns;
        end_ns
    }

    /// Adds a call to another service, over a link that takes about `link_ns` each way. Returns the
    /// end of the call.
    fn call(
        &mut self,
        (parent_id, client, server): (u64, &str, &str),
        start_ns: i64,
        (link_ns, own_ns): (i64, i64),
        inner: &mut dyn FnMut(&mut Self, u64, i64) -> i64,
    ) -> i64 {
        self.span(
            (parent_id, client),
            SpanFlags::CLIENT,
            start_ns,
            2 * link_ns,
            &mut |made, client_id, at_ns| {
                made.span((client_id, server), SpanFlags::SERVER, at_ns, own_ns, inner)
            },
        )
    }
}

fn nothing(_: &mut Making<'_>, _: u64, at_ns: i64) -> i64 {
    at_ns
}

pub(super) fn request(random: &mut Random, id: u128, start_ns: i64, fault: Fault) -> TraceRecords {
    let mut made = Making {
        records: TraceRecords {
            id: TraceId(id),
            ..TraceRecords::default()
        },
        random,
    };
    let is_order = made.random.below(100) < fault.orders;
    let mut bank = None;
    made.span(
        (0, if is_order { "web:order" } else { "web:page" }),
        SpanFlags::SERVER,
        start_ns,
        2_000_000,
        &mut |made, web, at_ns| {
            let mut at_ns = at_ns;
            for _ in 0..fault.reads {
                let misses = made.random.below(100) < fault.misses;
                at_ns = made.call(
                    (web, "web:get", "store:read"),
                    at_ns,
                    (200_000, 400_000),
                    &mut |made, read, at_ns| {
                        let at_ns = at_ns + fault.read_ns;
                        if misses {
                            made.span(
                                (read, "store:disk"),
                                SpanFlags::default(),
                                at_ns,
                                1_500_000,
                                &mut nothing,
                            )
                        } else {
                            at_ns
                        }
                    },
                );
            }
            if fault.asks_for_ads && !is_order {
                at_ns = made.call(
                    (web, "web:ads", "ads:pick"),
                    at_ns,
                    (200_000, 600_000),
                    &mut nothing,
                );
            }
            if is_order {
                let link_ns = 300_000 + fault.bank_link_ns;
                at_ns = made.call(
                    (web, "web:pay", "bank:charge"),
                    at_ns,
                    (link_ns, 900_000),
                    &mut |_, charge, at_ns| {
                        bank = Some(charge);
                        at_ns
                    },
                );
                if !fault.bank_fails {
                    at_ns = made.call(
                        (web, "web:mail", "mail:send"),
                        at_ns,
                        (200_000, 500_000),
                        &mut nothing,
                    );
                }
            }
            at_ns
        },
    );
    if let Some(bank) = bank.filter(|_| fault.bank_fails) {
        made.records.attributes.push(AttributeRecord {
            owner: RecordOwner::Span(bank),
            key: crate::flow::ERROR.into(),
            value: "true".into(),
        });
    }
    made.records
}

/// Simulates a period with one request every 10 ms.
pub(in crate::compare) fn period(seed: u64, requests: usize, fault: Fault) -> Vec<TraceRecords> {
    let mut random = Random(seed);
    (0..requests)
        .map(|at| {
            let id = u128::from(seed) << 64 | (at as u128 * 0x9e37_79b9_7f4a_7c15);
            request(&mut random, id, at as i64 * 10_000_000, fault)
        })
        .collect()
}
