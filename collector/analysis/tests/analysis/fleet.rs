//! Simulated requests over hosts whose clocks are wrong: each is ahead or behind, and gains or
//! loses time.

use crate::generator::Random;
use stroboscope_analysis::record::{EventRecord, SpanFlags, SpanRecord, TraceId, TraceRecords};

/// 2023-11-14, in nanoseconds.
pub(crate) const ORIGIN_NS: i64 = 1_700_000_000_000_000_000;

/// Clock of a host: its lead at the origin, and the nanoseconds that it gains per second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SkewedClock {
    pub(crate) ahead_ns: i64,
    pub(crate) gain_ppb: i64,
}

impl SkewedClock {
    /// Returns the clock's time at a true instant.
    pub(crate) fn read(self, true_ns: i64) -> i64 {
        let gained = i128::from(true_ns - ORIGIN_NS) * i128::from(self.gain_ppb) / 1_000_000_000;
        true_ns + self.ahead_ns + gained as i64
    }
}

/// Hosts `h0`, `h1` …, with clocks that are up to 100 ms off at the origin and drift by up to 45
/// ppm.
pub(crate) struct Fleet {
    pub(crate) clocks: Vec<SkewedClock>,
    spans: Vec<SpanRecord>,
}

impl Fleet {
    pub(crate) fn random(random: &mut Random, hosts: usize) -> Fleet {
        let mut signed = |most: i64| random.below(2 * most as usize + 1) as i64 - most;
        let clock = |_| SkewedClock {
            ahead_ns: signed(100_000_000),
            gain_ppb: signed(45_000),
        };
        Fleet {
            clocks: (0..hosts).map(clock).collect(),
            spans: Vec::new(),
        }
    }

    pub(crate) fn host(&self, name: &str) -> Option<SkewedClock> {
        self.clocks
            .get(name.strip_prefix('h')?.parse::<usize>().ok()?)
            .copied()
    }

    /// Returns a request at this second, in true time. Hosts call each other two levels deep,
    /// sequentially or in parallel.
    pub(crate) fn request(&mut self, random: &mut Random, second: i64) -> TraceRecords {
        let start_ns = ORIGIN_NS + second * 1_000_000_000;
        self.spans.clear();
        let end_ns = self.serve(random, 0, 0, "home", start_ns, 0);
        debug_assert!(end_ns > start_ns);
        let spans = std::mem::take(&mut self.spans);
        TraceRecords {
            id: TraceId(u128::from(random.next())),
            spans,
            ..TraceRecords::default()
        }
    }

    fn span(
        &mut self,
        parent_id: u64,
        host: usize,
        name: &str,
        start_ns: i64,
        flags: SpanFlags,
    ) -> usize {
        self.spans.push(SpanRecord {
            span_id: self.spans.len() as u64 + 1,
            parent_id,
            service: "s".into(),
            name: name.into(),
            host: format!("h{host}").into(),
            process: 1,
            start_ns,
            end_ns: start_ns,
            flags,
            events: Vec::new(),
        });
        self.spans.len() - 1
    }

    fn serve(
        &mut self,
        random: &mut Random,
        parent: u64,
        host: usize,
        name: &str,
        at_ns: i64,
        deep: usize,
    ) -> i64 {
        let work_ns = |random: &mut Random| {
            let magnitude = 17 + random.below(6);
            300_000 + random.below(1 << magnitude) as i64
        };
        let span = self.span(parent, host, name, at_ns, SpanFlags::SERVER);
        let id = self.spans[span].span_id;
        let mut now_ns = at_ns + work_ns(random);
        let calls = if deep < 2 { 1 + (host + deep) % 3 } else { 0 };
        let at_once = host.is_multiple_of(2);
        let began_ns = now_ns;
        for call in 0..calls {
            let from_ns = if at_once {
                began_ns + call as i64 * 1000
            } else {
                now_ns
            };
            let callee = (host + call + 1) % self.clocks.len();
            let client = self.span(id, host, &format!("call{call}"), from_ns, SpanFlags::CLIENT);
            let way_ns = |random: &mut Random| 200_000 + random.below(20_000) as i64;
            let served = format!("serve{call}");
            let client_id = self.spans[client].span_id;
            let arrives_ns = from_ns + way_ns(random);
            let done_ns = self.serve(random, client_id, callee, &served, arrives_ns, deep + 1)
                + way_ns(random);
            self.spans[client].end_ns = done_ns;
            now_ns = now_ns.max(done_ns) + if at_once { 0 } else { work_ns(random) };
        }
        now_ns += work_ns(random);
        self.spans[span].end_ns = now_ns;
        now_ns
    }

    /// Returns the records as an event log, with a task for each branch of control and lines in
    /// order of time.
    pub(crate) fn as_event_log(records: &TraceRecords) -> TraceRecords {
        let mut events: Vec<EventRecord> = Vec::new();
        for span in &records.spans {
            // Each call is a branch of its own. The calls down to a span name its task.
            let mut task = String::new();
            let mut at = Some(span);
            while let Some(here) = at {
                let next = records
                    .spans
                    .iter()
                    .find(|other| other.span_id == here.parent_id);
                if here.flags.contains(SpanFlags::CLIENT) {
                    task = format!("{}.{task}", here.name);
                }
                at = next;
            }
            for (time_ns, edge) in [(span.start_ns, "begin"), (span.end_ns, "end")] {
                let event = format!("{}-{}-{edge}", span.name, span.flags.0);
                events.push(EventRecord {
                    host: span.host.clone(),
                    ts_ns: time_ns,
                    seq: 0,
                    event: event.into(),
                    task: task.as_str().into(),
                });
            }
        }
        events.sort_by_key(|event| event.ts_ns);
        events
            .iter_mut()
            .zip(0..)
            .for_each(|(event, seq)| event.seq = seq);
        TraceRecords {
            id: records.id,
            events,
            ..TraceRecords::default()
        }
    }

    /// Returns the request as these hosts would have recorded it.
    pub(crate) fn skew(&self, records: &TraceRecords) -> TraceRecords {
        let mut skewed = records.clone();
        for span in &mut skewed.spans {
            let clock = self.host(&span.host).expect("a host of the fleet");
            (span.start_ns, span.end_ns) = (clock.read(span.start_ns), clock.read(span.end_ns));
        }
        for event in &mut skewed.events {
            event.ts_ns = self
                .host(&event.host)
                .expect("a host of the fleet")
                .read(event.ts_ns);
        }
        skewed
    }
}
