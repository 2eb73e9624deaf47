//! Locks and futexes as JSON.

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::kernel::lock_sums::{LockExample, LockHolder, LockSum, WaitSum};
use stroboscope_analysis::kernel::timeline::ReleaseEvidence;

use super::items::{lock_kind, whole_id};

/// Waits of all requests at one lock. Times are in ns.
#[derive(Serialize, JsonSchema)]
pub(super) struct LockJson<'a> {
    /// Name in the format of `--lock`.
    lock: String,
    /// `marked lock`, or `futex`, which may be something other than a lock.
    kind: &'static str,
    host: &'a str,
    /// Service that waits longest at the lock.
    service: Option<&'a str>,
    /// Process id in the kernel.
    process: Option<u32>,
    /// Number in the markers, or address of the futex.
    address: Option<String>,
    waits: u64,
    /// Number of waits whose end was not recorded; no sum includes them.
    cut: u64,
    total_ns: u64,
    p50_ns: u64,
    p99_ns: u64,
    max_ns: u64,
    requests: u64,
    waiting: Vec<WaitingJson<'a>>,
    /// Holders of the lock, or wakers of the waiters of a futex, by operation.
    holding: Vec<HoldingJson<'a>>,
    longest: Vec<LongestJson<'a>>,
}

#[derive(Serialize, JsonSchema)]
struct WaitingJson<'a> {
    operation: &'a str,
    waits: u64,
    total_ns: u64,
}

#[derive(Serialize, JsonSchema)]
struct HoldingJson<'a> {
    who: Who,
    operation: Option<&'a str>,
    waits: u64,
    total_ns: u64,
}

/// Kind of the lock's holder, or of the futex's waker.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Who {
    Operation,
    NoRequest,
    UnknownRequest,
    NotSeen,
}

#[derive(Serialize, JsonSchema)]
struct LongestJson<'a> {
    trace_id: String,
    span: String,
    operation: &'a str,
    start_ns: i64,
    took_ns: u64,
    who: Who,
    holder_operation: Option<&'a str>,
    holder_trace_id: Option<String>,
    /// `marker`, `wake` or `call`; for `call`, the woken thread was not recorded.
    evidence: Option<&'static str>,
}

impl Who {
    fn of(holder: &LockHolder) -> (Self, Option<&str>) {
        match holder {
            LockHolder::Operation(operation) => (Self::Operation, Some(operation)),
            LockHolder::Nobody => (Self::NoRequest, None),
            LockHolder::Unknown => (Self::UnknownRequest, None),
            LockHolder::Unseen => (Self::NotSeen, None),
        }
    }
}

impl<'a> LockJson<'a> {
    pub(super) fn of(row: &'a LockSum, ids: &HashMap<u64, u128>) -> Self {
        let key = &row.key;
        let waiting = |(operation, sum): &'a (String, WaitSum)| WaitingJson {
            operation,
            waits: sum.waits,
            total_ns: sum.total_ns,
        };
        let holding = |(holder, sum): &'a (LockHolder, WaitSum)| {
            let (who, operation) = Who::of(holder);
            HoldingJson {
                who,
                operation,
                waits: sum.waits,
                total_ns: sum.total_ns,
            }
        };
        let longest = |example: &'a LockExample| {
            let (who, holder_operation) = Who::of(&example.holder);
            LongestJson {
                trace_id: whole_id(ids, example.span.trace),
                span: format!("{:016x}", example.span.span),
                operation: &example.operation,
                start_ns: example.start_ns,
                took_ns: example.took_ns,
                who,
                holder_operation,
                holder_trace_id: example.holder_trace.map(|low| whole_id(ids, low)),
                evidence: example.evidence.map(|evidence| match evidence {
                    ReleaseEvidence::Marker => "marker",
                    ReleaseEvidence::Wake => "wake",
                    ReleaseEvidence::Call => "call",
                }),
            }
        };
        Self {
            lock: key.to_string(),
            kind: lock_kind(key),
            host: &key.host,
            service: row.service.as_deref(),
            process: (key.process != 0).then_some(key.process),
            address: (key.lock != 0).then(|| format!("{:#x}", key.lock)),
            waits: row.sum.waits,
            cut: row.cut,
            total_ns: row.sum.total_ns,
            p50_ns: row.p50_ns,
            p99_ns: row.p99_ns,
            max_ns: row.max_ns,
            requests: row.requests,
            waiting: row.waiting.iter().map(waiting).collect(),
            holding: row.holding.iter().map(holding).collect(),
            longest: row.longest.iter().map(longest).collect(),
        }
    }
}
