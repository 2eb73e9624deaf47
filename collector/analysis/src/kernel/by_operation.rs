//! Kernel work for requests, by the operation (service and name of the span) that caused it.
//!
//! Work that is done item by item but could be batched stands out here: each request has many spans
//! of one operation, and each span makes the same few system calls. Ardelean et al. (NSDI 2018,
//! §3.3.2) found one remote call per property that way.

use std::collections::BTreeMap;

use super::call::Architecture;
use super::marker::RequestId;
use super::summary::CallSum;
use super::timeline::{Owner, Reason, Timeline};

/// Kernel work for one or more spans. Times are in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpanSum {
    /// Time on a processor.
    pub on_cpu_ns: u64,
    /// Time in which a thread could run but waited for a processor.
    pub runnable_ns: u64,
    /// Time asleep.
    pub blocked_ns: u64,
    /// System calls by number, without `getpid`, which carries the markers.
    pub calls: BTreeMap<u32, CallSum>,
}

/// Kernel work by span, summed over any number of timelines.
#[derive(Clone, Debug, Default)]
pub struct SpanSums {
    sums: foldhash::HashMap<RequestId, SpanSum>,
}

/// Kernel work for one operation, summed over many requests.
#[derive(Clone, Debug, PartialEq)]
pub struct OperationSum {
    /// Label of the spans, usually `service:name`.
    pub operation: String,
    /// Number of requests in which the kernel worked for the operation.
    pub requests: u64,
    /// Number of the operation's spans, over all requests, for which the kernel worked.
    pub spans: u64,
    /// Maximum number of these spans in one request.
    pub spans_max: u64,
    /// Number of requests with several spans of the operation that ran one by one: no span began
    /// before the previous one had ended. Requests in which the times of a span are unknown, or in
    /// which the spans' hosts have no common time, do not count.
    pub one_by_one: u64,
    /// Kernel work for all spans together.
    pub sum: SpanSum,
}

impl OperationSum {
    /// Mean number of [`spans`](Self::spans) per request.
    #[must_use]
    pub fn spans_per_request(&self) -> f64 {
        self.spans as f64 / self.requests.max(1) as f64
    }

    /// Mean number of calls per request in which the kernel worked for the operation. `call` is the
    /// sum of one system call over the operation's spans.
    #[must_use]
    pub fn calls_per_request(&self, call: &CallSum) -> f64 {
        call.count as f64 / self.requests.max(1) as f64
    }
}

impl SpanSums {
    /// Adds the work of a timeline. Ignores work without an owning request, and intervals off a
    /// processor without an end.
    pub fn observe(&mut self, timeline: &Timeline, architecture: Architecture) {
        let getpid = architecture.getpid();
        let mut of = |owner: Owner, each: &mut dyn FnMut(&mut SpanSum)| {
            if let Some(request) = owner.request() {
                each(self.sums.entry(request).or_default());
            }
        };
        for call in timeline.calls.iter().filter(|call| call.call != getpid) {
            of(call.owner, &mut |sum| {
                sum.calls.entry(call.call).or_default().add(call);
            });
        }
        for on in &timeline.on_cpu {
            of(on.owner, &mut |sum| {
                sum.on_cpu_ns += on.end_ns.saturating_sub(on.start_ns);
            });
        }
        for off in &timeline.off_cpu {
            let Some(end_ns) = off.end_ns else { continue };
            let is_preempted = off.reason == Reason::Preempted;
            let awake_ns = if is_preempted {
                off.start_ns
            } else {
                off.wake_ns.unwrap_or(end_ns)
            };
            of(off.owner, &mut |sum| {
                sum.runnable_ns += end_ns.saturating_sub(awake_ns);
                sum.blocked_ns += awake_ns.saturating_sub(off.start_ns);
            });
        }
    }

    /// Keeps the spans that `keep` accepts.
    pub fn retain(&mut self, keep: impl Fn(RequestId) -> bool) {
        self.sums.retain(|&span, _| keep(span));
    }

    /// Number of spans for which the kernel worked.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sums.len()
    }

    /// Reports whether there are no spans.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sums.is_empty()
    }

    /// Reports whether the kernel worked for this span.
    #[must_use]
    pub fn contains(&self, span: RequestId) -> bool {
        self.sums.contains_key(&span)
    }

    /// Returns the sums by operation, the most spans per request first. `span_of` returns the
    /// operation and the times of a span.
    #[must_use]
    pub fn by_operation<'a>(&self, span_of: impl Fn(RequestId) -> SpanOf<'a>) -> Vec<OperationSum> {
        // Sorting makes the result independent of the order of the map.
        let mut spans: Vec<(RequestId, &SpanSum)> =
            self.sums.iter().map(|(&span, sum)| (span, sum)).collect();
        spans.sort_unstable_by_key(|&(span, _)| span);
        let mut found: BTreeMap<&str, PartialSum> = BTreeMap::new();
        for (span, sum) in spans {
            let SpanOf {
                operation,
                island,
                interval_ns,
            } = span_of(span);
            let interval = interval_ns.map(|interval_ns| (island, interval_ns));
            found
                .entry(operation)
                .or_insert_with(|| PartialSum::of(operation))
                .add(span.trace, interval, sum);
        }
        let mut rows: Vec<OperationSum> = found.into_values().map(PartialSum::finish).collect();
        rows.sort_by(|a, b| {
            let most = b.spans_per_request().total_cmp(&a.spans_per_request());
            most.then_with(|| a.operation.cmp(&b.operation))
        });
        rows
    }
}

/// Operation and times of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanOf<'a> {
    /// Label by which spans are grouped, usually `service:name`.
    pub operation: &'a str,
    /// Number of the host's island. The order of times from different islands is unknown.
    pub island: u32,
    /// Start and end in nanoseconds, by the common time of the island; `None` if unknown.
    pub interval_ns: Option<(i64, i64)>,
}

/// An operation's sum under construction.
struct PartialSum {
    row: OperationSum,
    /// Trace of the current request. The fields below describe the operation's spans in it.
    trace: u64,
    spans: u64,
    /// Known start and end of each span, with the island.
    intervals: Vec<(u32, (i64, i64))>,
}

impl PartialSum {
    fn of(operation: &str) -> Self {
        let row = OperationSum {
            operation: operation.to_owned(),
            requests: 0,
            spans: 0,
            spans_max: 0,
            one_by_one: 0,
            sum: SpanSum::default(),
        };
        Self {
            row,
            trace: 0,
            spans: 0,
            intervals: Vec::new(),
        }
    }

    /// Adds a span. The spans of one request must be added one right after another.
    fn add(&mut self, trace: u64, interval: Option<(u32, (i64, i64))>, sum: &SpanSum) {
        if self.spans == 0 || self.trace != trace {
            self.end_request();
            self.trace = trace;
            self.row.requests += 1;
        }
        self.spans += 1;
        self.intervals.extend(interval);
        self.row.spans += 1;
        self.row.spans_max = self.row.spans_max.max(self.spans);
        self.row.sum.merge(sum);
    }

    fn end_request(&mut self) {
        self.intervals.sort_unstable();
        let follow_each_other = self.intervals.windows(2).all(|pair| {
            let [(island, before_ns), (next_island, after_ns)] = [pair[0], pair[1]];
            island == next_island && before_ns.1 <= after_ns.0
        });
        let all_known = self.intervals.len() as u64 == self.spans;
        self.row.one_by_one += u64::from(self.spans > 1 && all_known && follow_each_other);
        self.intervals.clear();
        self.spans = 0;
    }

    fn finish(mut self) -> OperationSum {
        self.end_request();
        self.row
    }
}

impl SpanSum {
    fn merge(&mut self, other: &Self) {
        self.on_cpu_ns += other.on_cpu_ns;
        self.runnable_ns += other.runnable_ns;
        self.blocked_ns += other.blocked_ns;
        for (&call, sum) in &other.calls {
            self.calls.entry(call).or_default().merge(sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::timeline::SystemCall;

    #[test]
    fn one_call_per_property_stands_out() {
        let call = |trace, span, call, start_ns: u64| SystemCall {
            tid: 1,
            call,
            args: None,
            start_ns,
            end_ns: Some(start_ns + 10),
            result: Some(if call == 0 { -4 } else { 1 }),
            owner: Owner::Request(RequestId { trace, span }),
        };
        let mut sums = SpanSums::default();
        for trace in 1..=2 {
            // Five reads of a property, each a span with one send, and one page around them;
            // markers do not count.
            let mut calls: Vec<SystemCall> =
                (10..15).map(|span| call(trace, span, 44, span)).collect();
            calls.extend([call(trace, 1, 0, 5), call(trace, 1, 39, 6)]);
            sums.observe(
                &Timeline {
                    calls,
                    ..Timeline::default()
                },
                Architecture::X86_64,
            );
        }
        assert_eq!(
            (sums.len(), sums.contains(RequestId { trace: 2, span: 14 })),
            (12, true)
        );
        // In the second request two of the reads overlap.
        let rows = sums.by_operation(|request| {
            let start_ns = request.span as i64 * 100;
            let took_ns = if request == (RequestId { trace: 2, span: 13 }) {
                101
            } else {
                100
            };
            let operation = if request.span == 1 {
                "web:page"
            } else {
                "web:read"
            };
            SpanOf {
                operation,
                island: 0,
                interval_ns: Some((start_ns, start_ns + took_ns)),
            }
        });
        let [read, page] = rows.as_slice() else {
            panic!("{rows:?}")
        };
        assert_eq!(
            (
                read.operation.as_str(),
                read.requests,
                read.spans,
                read.spans_max
            ),
            ("web:read", 2, 10, 5)
        );
        assert_eq!((read.one_by_one, page.one_by_one), (1, 0));
        // Without a common time, no order is known.
        let apart = sums.by_operation(|request| SpanOf {
            operation: "web:read",
            island: u32::from(request.span == 12),
            interval_ns: Some((request.span as i64, request.span as i64)),
        });
        assert_eq!((apart[0].requests, apart[0].one_by_one), (2, 0));
        assert!((read.spans_per_request() - 5.0).abs() < 1e-9);
        assert!((read.calls_per_request(&read.sum.calls[&44]) - 5.0).abs() < 1e-9);
        assert_eq!(
            page.sum.calls,
            BTreeMap::from([(
                0,
                CallSum {
                    count: 2,
                    total_ns: 20,
                    max_ns: 10,
                    failed: 2
                }
            )])
        );
    }
}
