//! A store that is hard to read: it has many services and operations, a request with very many
//! spans, and one with very deep calls.

use stroboscope_store::record::{BatchRow, Rows, SpanRow};

/// Trace id of the request with very many spans.
pub const LARGE: u128 = 0x1a46e << 64 | 1;
/// Trace id of the request with very deep calls.
pub const DEEP: u128 = 0xdee9 << 64 | 2;

const EPOCH_NS: i64 = 1_767_322_800_000_000_000;
/// Number of spans of an ordinary request.
const SPANS: usize = 4;

/// Dimensions of a store that is hard to read.
#[derive(Clone, Copy, Debug)]
pub struct Poison {
    pub services: usize,
    /// Number of operations of all requests except the two large ones; each request has four.
    pub operations: usize,
    pub spans_of_large: usize,
    pub depth: usize,
}

impl Poison {
    /// Small store, for short trial runs of a benchmark.
    pub const SMALL: Self = Self {
        services: 2_000,
        operations: 8_000,
        spans_of_large: 60_000,
        depth: 20_000,
    };
    /// Size of an actual attack.
    pub const WHOLE: Self = Self {
        services: 28_600,
        operations: 114_400,
        spans_of_large: 1_000_000,
        depth: 100_000,
    };

    /// Builds all rows of the store.
    #[must_use]
    pub fn rows(self) -> Rows {
        let mut rows = Rows::default();
        let version = rows.strings.intern("0.1.0");
        let mut counts = vec![0; self.services];
        for request in 0..self.operations.div_ceil(SPANS) {
            let first = request * SPANS;
            let start_ns = EPOCH_NS + 1_000_000 * request as i64;
            for part in 0..SPANS {
                let parent = if part == 0 { 0 } else { 1 };
                let times_ns = (
                    start_ns + 1_000 * part as i64,
                    start_ns + 100_000 - part as i64,
                );
                let span = (part as u64 + 1, parent);
                self.add(
                    &mut rows,
                    &mut counts,
                    request as u128 + 16,
                    span,
                    first + part,
                    times_ns,
                );
            }
        }
        for number in 0..self.spans_of_large as u64 {
            let parent = u64::from(number > 0);
            let start_ns = EPOCH_NS + 2_000 * number as i64;
            let length_ns = if number == 0 {
                2_000 * self.spans_of_large as i64
            } else {
                1_500
            };
            let times_ns = (start_ns, start_ns + length_ns);
            let span = (number + 1, parent);
            self.add(
                &mut rows,
                &mut counts,
                LARGE,
                span,
                number as usize,
                times_ns,
            );
        }
        for level in 0..self.depth as u64 {
            let from_ns = EPOCH_NS + 10 * level as i64;
            let to_ns = EPOCH_NS + 30 * self.depth as i64 - 10 * level as i64;
            let span = (level + 1, level);
            self.add(
                &mut rows,
                &mut counts,
                DEEP,
                span,
                level as usize,
                (from_ns, to_ns),
            );
        }
        for (number, spans) in counts.into_iter().enumerate() {
            let service = rows.strings.intern(&service(number));
            let host = rows.strings.intern(&host(number));
            rows.batches.push(BatchRow {
                process: process(number),
                sequence: 0,
                service,
                host,
                pid: number as u32 + 1,
                started_ns: EPOCH_NS,
                sdk_version: version,
                from_ns: EPOCH_NS,
                to_ns: EPOCH_NS + 1_000_000_000,
                received_ns: EPOCH_NS + 1_000_000_000,
                burst_config: 0,
                spans,
                events: 0,
                windows: Vec::new(),
                losses: Vec::new(),
                clock_steps: Vec::new(),
                kernel_clock: None,
                loads: Vec::new(),
            });
        }
        rows
    }

    fn add(
        self,
        rows: &mut Rows,
        counts: &mut [u32],
        trace_id: u128,
        (span_id, parent_id): (u64, u64),
        operation: usize,
        (start_ns, end_ns): (i64, i64),
    ) {
        let number = operation % self.services;
        counts[number] += 1;
        // A span inside another one is not a root.
        let kind = if parent_id == 0 {
            "request"
        } else {
            "operation"
        };
        let text = format!("{kind} {}", operation % self.operations);
        rows.spans.push(SpanRow {
            trace_id,
            trace_name: None,
            span_id,
            parent_id,
            service: rows.strings.intern(&service(number)),
            name: rows.strings.intern(&text),
            host: rows.strings.intern(&host(number)),
            process: process(number),
            start_ns,
            end_ns,
            flags: 0,
            attributes: None,
        });
    }
}

fn service(number: usize) -> String {
    format!("service-{number:05}")
}

/// Returns the host of a service. Ten services share each, because clocks are compared by host.
fn host(number: usize) -> String {
    format!("host-{:04}", number / 10)
}

fn process(number: usize) -> u128 {
    number as u128 + 1
}
