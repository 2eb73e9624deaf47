//! Waits of requests for locks and futexes, summed by lock, with the waiting operations, the times
//! and the holders.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::marker::RequestId;
use super::timeline::{LockWait, Owner, ReleaseEvidence, Timeline};
use crate::distribution::Distribution;
use crate::statistics::percentile;

/// Maximum number of a lock's longest waits kept as examples.
const EXAMPLES_MAX: usize = 10;
/// Maximum number of waits of a lock for which percentiles are exact. With more waits, they have
/// three significant digits.
const EXACT_MAX: usize = 4_096;

/// Identity of a lock or futex. A futex may be something other than a lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockKey {
    /// Host of the process.
    pub host: Arc<str>,
    /// Process; 0 if unknown.
    pub process: u32,
    /// Lock's number in the markers, or address of the futex; 0 if not recorded.
    pub lock: u64,
    /// True if markers identify the lock.
    pub is_marked: bool,
}

/// Formats the key as users enter it: `PROCESS:LOCK`.
impl fmt::Display for LockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:#x}", self.process, self.lock)
    }
}

/// Number and total time of waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitSum {
    /// Number of waits.
    pub waits: u64,
    /// Total time of the waits, or of a holder's shares of them, ns.
    pub total_ns: u64,
}

impl WaitSum {
    fn add(&mut self, took_ns: u64) {
        self.waits += 1;
        self.total_ns += took_ns;
    }

    fn merge(&mut self, other: Self) {
        self.waits += other.waits;
        self.total_ns += other.total_ns;
    }
}

/// A long wait for a lock, as an example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockExample {
    /// Span that waited.
    pub span: RequestId,
    /// Operation of that span.
    pub operation: String,
    /// Start of the wait in wall time, ns since the Unix epoch.
    pub start_ns: i64,
    /// Length of the wait, ns.
    pub took_ns: u64,
    /// For a marked lock, the holder with the longest share of the wait. For a futex, the thread
    /// that woke the waiter, or that most probably did.
    pub holder: LockHolder,
    /// Low half of the id of the trace that the holder worked for; `None` without a known trace.
    pub holder_trace: Option<u64>,
    /// Evidence for the holder; `None` if no holder was seen.
    pub evidence: Option<ReleaseEvidence>,
}

/// Holder of a lock, or (probable) waker of a thread that waited for a futex.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LockHolder {
    /// A request, while it executed the operation of this name.
    Operation(String),
    /// A thread that worked for no request.
    Nobody,
    /// A thread whose owner is unknown.
    Unknown,
    /// No holder was seen.
    Unseen,
}

impl LockHolder {
    fn of<'a>(owner: Option<Owner>, span_of: &impl Fn(RequestId) -> LockSpan<'a>) -> Self {
        match owner {
            Some(Owner::Request(span)) => Self::Operation(span_of(span).operation.to_owned()),
            Some(Owner::Nobody) => Self::Nobody,
            Some(Owner::Unknown) => Self::Unknown,
            None => Self::Unseen,
        }
    }
}

/// Service and operation of a span that waits for a lock or holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockSpan<'a> {
    /// Service of the span; `None` if the store lacks the span.
    pub service: Option<&'a str>,
    /// Operation as `service:name`, or as the caller names it.
    pub operation: &'a str,
}

/// Waits for one lock, over all requests. A wait whose end was not seen has no known length, so it
/// adds to no time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockSum {
    /// Lock or futex that the requests waited for.
    pub key: LockKey,
    /// Service with the longest total wait; `None` if no waiting span's service is known.
    pub service: Option<String>,
    /// Number and total time of the waits whose end was seen.
    pub sum: WaitSum,
    /// Number of waits whose end was not seen.
    pub cut: u64,
    /// Median wait, ns.
    pub p50_ns: u64,
    /// 99th percentile of the waits, ns.
    pub p99_ns: u64,
    /// Longest wait, ns.
    pub max_ns: u64,
    /// Number of requests that waited, including those of `cut`.
    pub requests: u64,
    /// Operations that waited, the longest total first. An operation has zeros if no end of its
    /// waits was seen.
    pub waiting: Vec<(String, WaitSum)>,
    /// Holders or wakers, the longest total first. Their times add up to `sum.total_ns`. A wait
    /// counts once for each thread and owner that held the lock.
    pub holding: Vec<(LockHolder, WaitSum)>,
    /// Longest waits, the longest first.
    pub longest: Vec<LockExample>,
}

/// Lengths of waits: exact values up to `EXACT_MAX` waits, a histogram beyond.
#[derive(Debug, Default)]
struct Lengths {
    few: Vec<u64>,
    many: Option<Box<Distribution>>,
}

/// A long wait, before spans have been mapped to operations.
#[derive(Clone, Copy, Debug)]
struct LongWait {
    span: RequestId,
    start_ns: i64,
    took_ns: u64,
    holder: Option<Owner>,
    evidence: Option<ReleaseEvidence>,
}

impl Lengths {
    fn add(&mut self, took_ns: u64) {
        if let Some(many) = &mut self.many {
            many.record(took_ns);
            return;
        }
        self.few.push(took_ns);
        if self.few.len() > EXACT_MAX {
            let mut many = Distribution::default();
            std::mem::take(&mut self.few)
                .into_iter()
                .for_each(|ns| many.record(ns));
            self.many = Some(Box::new(many));
        }
    }

    /// Returns the given percentiles of the lengths, and the longest length, in nanoseconds. All
    /// are 0 without waits.
    fn percentiles<const N: usize>(&self, percents: [usize; N]) -> ([u64; N], u64) {
        if let Some(many) = &self.many {
            let of = |percent: usize| many.quantile_ns(percent as f64 / 100.0);
            return (percents.map(of), many.max_ns());
        }
        let mut sorted = self.few.clone();
        sorted.sort_unstable();
        let of = |percent: usize| percentile(&sorted, percent as f64 / 100.0).unwrap_or(0);
        (percents.map(of), sorted.last().copied().unwrap_or(0))
    }
}

/// Waits for one lock, as they are summed up.
#[derive(Debug, Default)]
struct Waits {
    sum: WaitSum,
    cut: u64,
    lengths: Lengths,
    by_span: foldhash::HashMap<RequestId, WaitSum>,
    /// Waits by holder; `None` if no holder was seen.
    by_holder: foldhash::HashMap<Option<Owner>, WaitSum>,
    longest: Vec<LongWait>,
}

/// Waits by lock, summed over any number of timelines.
#[derive(Debug, Default)]
pub struct LockSums {
    locks: BTreeMap<LockKey, Waits>,
    of_no_request: WaitSum,
}

impl LockSums {
    /// Adds the lock waits of a host's timeline; `wall_ns` converts its times to wall time.
    pub fn observe(&mut self, host: &Arc<str>, timeline: &Timeline, wall_ns: impl Fn(u64) -> i64) {
        for wait in &timeline.lock_waits {
            let took_ns = wait
                .end_ns
                .map(|end_ns| end_ns.saturating_sub(wait.start_ns));
            let Some(span) = wait.owner.request() else {
                self.of_no_request.add(took_ns.unwrap_or(0));
                continue;
            };
            let thread = timeline.threads.get(&wait.tid);
            let key = LockKey {
                host: host.clone(),
                process: thread.map_or(0, |info| info.process),
                lock: wait.lock,
                is_marked: wait.is_marked,
            };
            self.locks
                .entry(key)
                .or_default()
                .add(wait, span, took_ns, wall_ns(wait.start_ns));
        }
    }

    /// Sum of the waits of threads that worked for no request, or for an unknown request. Idle
    /// threads usually account for most of it.
    #[must_use]
    pub fn of_no_request(&self) -> WaitSum {
        self.of_no_request
    }

    /// Returns the spans that waited for a lock, and the holders in waits whose end was seen.
    #[must_use]
    pub fn spans(&self) -> foldhash::HashSet<RequestId> {
        let of = |waits: &Waits| {
            let waiting = waits.by_span.keys().copied();
            let holding = waits
                .by_holder
                .keys()
                .filter_map(|holder| holder.and_then(Owner::request));
            waiting.chain(holding).collect::<Vec<_>>()
        };
        self.locks.values().flat_map(of).collect()
    }

    /// Returns a row for each lock, the longest total wait first. `span_of` returns the service and
    /// operation of a span.
    #[must_use]
    pub fn rows<'a>(&self, span_of: impl Fn(RequestId) -> LockSpan<'a>) -> Vec<LockSum> {
        let row = |(key, waits): (&LockKey, &Waits)| waits.row(key, &span_of);
        let mut rows: Vec<LockSum> = self.locks.iter().map(row).collect();
        rows.sort_by(|a, b| {
            let longest = b.sum.total_ns.cmp(&a.sum.total_ns);
            longest.then_with(|| a.key.cmp(&b.key))
        });
        rows
    }
}

impl Waits {
    fn add(&mut self, wait: &LockWait, span: RequestId, took_ns: Option<u64>, start_ns: i64) {
        let of_span = self.by_span.entry(span).or_default();
        let Some(took_ns) = took_ns else {
            self.cut += 1;
            return;
        };
        of_span.add(took_ns);
        self.sum.add(took_ns);
        self.lengths.add(took_ns);
        for release in &wait.releases {
            self.by_holder
                .entry(Some(release.owner))
                .or_default()
                .add(release.held_ns);
        }
        if wait.releases.is_empty() {
            self.by_holder.entry(None).or_default().add(took_ns);
        }
        let place = self
            .longest
            .partition_point(|other| other.took_ns >= took_ns);
        if place < EXAMPLES_MAX {
            let holder = wait.releases.iter().max_by_key(|release| release.held_ns);
            let long = LongWait {
                span,
                start_ns,
                took_ns,
                holder: holder.map(|release| release.owner),
                evidence: wait.evidence,
            };
            self.longest.insert(place, long);
            self.longest.truncate(EXAMPLES_MAX);
        }
    }

    fn row<'a>(&self, key: &LockKey, span_of: &impl Fn(RequestId) -> LockSpan<'a>) -> LockSum {
        let mut waiting: BTreeMap<&str, WaitSum> = BTreeMap::new();
        let mut services: BTreeMap<&str, u64> = BTreeMap::new();
        for (&span, &sum) in &self.by_span {
            let of = span_of(span);
            waiting.entry(of.operation).or_default().merge(sum);
            if let Some(service) = of.service {
                *services.entry(service).or_default() += sum.total_ns;
            }
        }
        let mut holding: BTreeMap<LockHolder, WaitSum> = BTreeMap::new();
        for (&holder, &sum) in &self.by_holder {
            holding
                .entry(LockHolder::of(holder, span_of))
                .or_default()
                .merge(sum);
        }
        let example = |long: &LongWait| LockExample {
            span: long.span,
            operation: span_of(long.span).operation.to_owned(),
            start_ns: long.start_ns,
            took_ns: long.took_ns,
            holder: LockHolder::of(long.holder, span_of),
            holder_trace: long.holder.and_then(Owner::trace),
            evidence: long.evidence,
        };
        let requests: foldhash::HashSet<u64> = self.by_span.keys().map(|span| span.trace).collect();
        let ([p50_ns, p99_ns], max_ns) = self.lengths.percentiles([50, 99]);
        let waiting = waiting
            .into_iter()
            .map(|(operation, sum)| (operation.to_owned(), sum));
        LockSum {
            key: key.clone(),
            service: services
                .into_iter()
                .rev()
                .max_by_key(|&(_, total_ns)| total_ns)
                .map(|(service, _)| service.to_owned()),
            sum: self.sum,
            cut: self.cut,
            p50_ns,
            p99_ns,
            max_ns,
            requests: requests.len() as u64,
            waiting: longest_first(waiting),
            holding: longest_first(holding),
            longest: self.longest.iter().map(example).collect(),
        }
    }
}

fn longest_first<T: Ord>(sums: impl IntoIterator<Item = (T, WaitSum)>) -> Vec<(T, WaitSum)> {
    let mut sums: Vec<(T, WaitSum)> = sums.into_iter().collect();
    sums.sort_by(|a, b| {
        let longest = b.1.total_ns.cmp(&a.1.total_ns);
        longest.then_with(|| a.0.cmp(&b.0))
    });
    sums
}
