//! Locks and futexes as JSON.

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::kernel::lock_sums::{LockExample, LockHolder, LockSum, WaitSum};
use stroboscope_analysis::kernel::timeline::ReleaseEvidence;

use super::items::{lock_kind, whole_id};

/// A lock, over all requests that waited there. Times are ns.
#[derive(Serialize, JsonSchema)]
pub(super) struct LockJson<'a> {
    /// As `--lock` takes it.
    lock: String,
    /// `marked lock`, or `futex`: that may be something else than a lock.
    kind: &'static str,
    host: &'a str,
    /// The service that waits there longest.
    service: Option<&'a str>,
    /// The kernel's number of the process.
    process: Option<u32>,
    /// The number in the markers, or the futex's address.
    address: Option<String>,
    waits: u64,
    /// Waits whose end was not seen, which are in none of the sums.
    cut: u64,
    total_ns: u64,
    p50_ns: u64,
    p99_ns: u64,
    max_ns: u64,
    requests: u64,
    waiting: Vec<WaitingJson<'a>>,
    /// Who held the lock, or woke those who waited at a futex.
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

/// Whether a request is known to have been in the way.
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
    /// `marker`, `wake`, or `call`: whom that call woke was not seen.
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
