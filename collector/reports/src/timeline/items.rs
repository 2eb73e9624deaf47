//! Describes the kernel's activity for a request.

use std::collections::{BTreeMap, HashMap};

use stroboscope_analysis::kernel::call::Architecture;
use stroboscope_analysis::kernel::lock_sums::LockKey;
use stroboscope_analysis::kernel::summary::{RequestSummary, call_name, reason_name};
use stroboscope_analysis::kernel::timeline::{LockWait, Owner, Reason, ReleaseEvidence, Waker};
use stroboscope_analysis::record::TraceId;

use stroboscope_query::KernelPart;
use stroboscope_render::humanise::duration;

/// An activity of the kernel for a request. Times are wall time, in ns since the Unix epoch.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub span: u64,
    pub start_ns: i64,
    pub end_ns: Option<i64>,
    pub thread: String,
    pub what: String,
    /// Processor on which the thread ran; `None` for other activities.
    pub on_processor: Option<u16>,
}

fn owner_name(owner: Owner) -> String {
    match owner {
        Owner::Request(request) => format!("request {:016x}", request.trace),
        Owner::Nobody => "no request".to_owned(),
        Owner::Unknown => "a request that is not known".to_owned(),
    }
}

pub(super) fn took(ns: u64) -> String {
    duration(ns as f64)
}

pub(super) fn lock_kind(key: &LockKey) -> &'static str {
    if key.is_marked {
        "marked lock"
    } else {
        "futex"
    }
}

/// Returns the full id of a request if `ids` has it, else the low half of the id.
pub(super) fn whole_id(ids: &HashMap<u64, u128>, low: u64) -> String {
    ids.get(&low)
        .map_or_else(|| format!("{low:016x}"), |&id| TraceId(id).to_string())
}

pub(super) fn summary_text(summary: &RequestSummary, architecture: Architecture) -> String {
    let mut parts = vec![
        format!(
            "{} on CPU by {} threads",
            took(summary.on_cpu_ns),
            summary.threads
        ),
        format!("{} runnable but waiting", took(summary.runnable_ns)),
    ];
    let mut blocked: BTreeMap<String, u64> = BTreeMap::new();
    for (&reason, ns) in &summary.blocked_ns {
        *blocked
            .entry(reason_name(reason, architecture))
            .or_default() += ns;
    }
    parts.extend(
        blocked
            .iter()
            .map(|(reason, &ns)| format!("{} blocked in {reason}", took(ns))),
    );
    parts.extend(summary.lock_ns.iter().map(|(holder, &ns)| {
        let holder = match holder {
            Some(0) => "no request".to_owned(),
            Some(trace) => format!("request {trace:016x}"),
            None => "an unknown holder".to_owned(),
        };
        format!("{} waiting for locks held by {holder}", took(ns))
    }));
    let calls: u64 = summary.calls.values().map(|sum| sum.count).sum();
    parts.push(format!("{calls} system calls"));
    if summary.is_cut {
        parts.push("a window's edge cuts it".to_owned());
    }
    parts.join(", ")
}

/// Returns the activities for the request whose id has this low half, in order of start. Omits
/// calls of `getpid`, because markers are such calls.
pub(super) fn items_of(part: &KernelPart, low: u64) -> Vec<Item> {
    let (timeline, clocks, architecture) = (&part.timeline, &part.clocks, part.architecture);
    let thread = |tid: u32| {
        let info = timeline.threads.get(&tid);
        let name = info.map(|info| info.name.to_string());
        format!("{} {tid}", name.unwrap_or_default())
    };
    let item = |owner: Owner, tid: u32, start_ns: u64, end_ns: Option<u64>, what: String| {
        let span = owner.request().filter(|request| request.trace == low)?.span;
        let end_ns = end_ns.map(|end_ns| clocks.wall_ns(end_ns));
        let start_ns = clocks.wall_ns(start_ns);
        Some(Item {
            span,
            start_ns,
            end_ns,
            thread: thread(tid),
            what,
            on_processor: None,
        })
    };
    let getpid = architecture.call_number("getpid");
    let calls = timeline
        .calls
        .iter()
        .filter(|call| Some(call.call) != getpid)
        .filter_map(|call| {
            let args = call
                .args
                .map_or_else(|| "…".to_owned(), |args| arguments(&args));
            let result = call
                .result
                .map_or_else(|| "…".to_owned(), |result| result.to_string());
            let name = call_name(call.call, architecture);
            item(
                call.owner,
                call.tid,
                call.start_ns,
                call.end_ns,
                format!("{name}({args}) = {result}"),
            )
        });
    let on = timeline.on_cpu.iter().filter_map(|on| {
        let all = item(
            on.owner,
            on.tid,
            on.start_ns,
            Some(on.end_ns),
            format!("on CPU {}", on.cpu),
        )?;
        Some(Item {
            on_processor: Some(on.cpu),
            ..all
        })
    });
    let off = timeline.off_cpu.iter().filter_map(|off| {
        let why = match off.reason {
            Reason::Preempted => "preempted".to_owned(),
            Reason::Futex { address } if address != 0 => {
                format!("futex wait at {address:#x}")
            }
            reason => format!("blocked in {}", reason_name(reason, architecture)),
        };
        let waited = match (off.wake_ns, off.end_ns) {
            (Some(wake_ns), Some(end_ns)) => {
                format!(
                    ", then {} until a CPU was free",
                    took(end_ns.saturating_sub(wake_ns))
                )
            }
            _ => String::new(),
        };
        let by = off.waker.map_or_else(String::new, |waker| {
            waker_text(&waker, &thread, architecture)
        });
        item(
            off.owner,
            off.tid,
            off.start_ns,
            off.end_ns,
            format!("off CPU: {why}{by}{waited}"),
        )
    });
    // With recorded switches, off-CPU times already show the waits for futexes.
    let has_switches = !timeline.off_cpu.is_empty();
    let waits = timeline
        .lock_waits
        .iter()
        .filter(|wait| wait.is_marked || !has_switches)
        .filter_map(|wait| {
            item(
                wait.owner,
                wait.tid,
                wait.start_ns,
                wait.end_ns,
                wait_text(wait, &thread),
            )
        });
    let mut items: Vec<Item> = calls.chain(on).chain(off).chain(waits).collect();
    items.sort_by_key(|item| item.start_ns);
    items
}

fn waker_text(
    waker: &Waker,
    thread: &impl Fn(u32) -> String,
    architecture: Architecture,
) -> String {
    match waker.call {
        Some(call) => format!(
            ", woken by {} in {} (thread {})",
            owner_name(waker.owner),
            call_name(call, architecture),
            thread(waker.tid)
        ),
        None => ", woken by an interrupt".to_owned(),
    }
}

fn wait_text(wait: &LockWait, thread: &impl Fn(u32) -> String) -> String {
    let holders: Vec<String> = wait
        .releases
        .iter()
        .map(|release| {
            format!(
                "{} (thread {})",
                owner_name(release.owner),
                thread(release.tid)
            )
        })
        .collect();
    if !wait.is_marked {
        let by = match (holders.first(), wait.evidence) {
            (None, _) => "its waker was not seen".to_owned(),
            (Some(one), Some(ReleaseEvidence::Call)) => {
                format!("most probably woken by {one}: the woken thread was not seen")
            }
            (Some(one), _) => format!("woken by {one}"),
        };
        return format!("futex wait at {:#x}, {by}", wait.lock);
    }
    match holders.as_slice() {
        [] => format!("waits for lock {:#x}; its holder was not seen", wait.lock),
        [one] => format!("waits for lock {:#x}, held by {one}", wait.lock),
        _ => format!(
            "waits for lock {:#x}, held in turn by {}",
            wait.lock,
            holders.join(", ")
        ),
    }
}

/// Formats arguments: numbers below 2^20 in decimal, others in hexadecimal. Drops trailing
/// arguments that are 0.
fn arguments(args: &[u64; 6]) -> String {
    let last = args.iter().rposition(|&arg| arg != 0);
    let used = last.map_or(0, |last| last + 1);
    let one = |&arg: &u64| {
        if arg < 1 << 20 {
            arg.to_string()
        } else {
            format!("{arg:#x}")
        }
    };
    args[..used].iter().map(one).collect::<Vec<_>>().join(", ")
}
