//! Kernel activity for a request, as rows of its timeline.

use std::sync::Arc;

use stroboscope_analysis::kernel::call::Architecture;
use stroboscope_analysis::kernel::lock_sums::LockKey;
use stroboscope_analysis::kernel::summary::{call_name, reason_name};
use stroboscope_analysis::kernel::timeline::{LockWait, OffCpu, Owner, Reason, ReleaseEvidence};
use stroboscope_query::KernelPart;

/// Kind of a row; its number is part of the format of the request's columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RowKind {
    Call = 0,
    OnCpu = 1,
    Runnable = 2,
    Blocked = 3,
    Lock = 4,
}

/// One kernel activity for a span. Times are wall times of the host's clock, ns since the Unix
/// epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KernelRow {
    pub(super) span: u64,
    pub(super) kind: RowKind,
    pub(super) thread: u32,
    pub(super) start_ns: i64,
    /// End of the activity; `None` if no end was recorded within the window.
    pub(super) end_ns: Option<i64>,
    pub(super) text: String,
    /// Low half of the id of the trace that held the lock longest, or woke the thread; `None` if it
    /// is unknown, no request or this one, and for rows of other kinds.
    pub(super) holder: Option<u64>,
    /// Name of the lock or futex, as in the sums over all requests; `None` for rows of other kinds.
    pub(super) lock: Option<String>,
}

/// Returns the rows of one recording for the request with this low half of the trace id, in order
/// of time, up to `rows_max`. Also returns the number of further rows.
pub(super) fn rows(part: &KernelPart, low: u64, rows_max: usize) -> (Vec<KernelRow>, usize) {
    let mut rows = Vec::new();
    let (timeline, architecture) = (&part.timeline, part.architecture);
    let span = |owner: Owner| {
        let request = owner.request().filter(|request| request.trace == low);
        request.map(|request| request.span)
    };
    let wall = |at_ns: u64| part.clocks.wall_ns(at_ns);
    let mut push = |owner: Owner, kind, thread, times: (u64, Option<u64>), text: String, holder| {
        if let Some(span) = span(owner) {
            let (start_ns, end_ns) = (wall(times.0), times.1.map(wall));
            rows.push(KernelRow {
                span,
                kind,
                thread,
                start_ns,
                end_ns,
                text,
                holder,
                lock: None,
            });
        }
    };
    // Calls of getpid are left out, because this project's markers are such calls.
    let getpid = architecture.call_number("getpid");
    for call in timeline
        .calls
        .iter()
        .filter(|call| Some(call.call) != getpid)
    {
        let text = call_text(call.call, call.args.as_ref(), call.result, architecture);
        let times = (call.start_ns, call.end_ns);
        push(call.owner, RowKind::Call, call.tid, times, text, None);
    }
    for on in &timeline.on_cpu {
        let (times, text) = ((on.start_ns, Some(on.end_ns)), format!("on CPU {}", on.cpu));
        push(on.owner, RowKind::OnCpu, on.tid, times, text, None);
    }
    for off in &timeline.off_cpu {
        let waker = off.waker.and_then(|waker| waker.owner.trace());
        let waker = waker.filter(|waker| *waker != low);
        for (kind, times, text) in off_rows(off, architecture) {
            let waker = waker.filter(|_| kind == RowKind::Blocked);
            push(off.owner, kind, off.tid, times, text, waker);
        }
    }
    for wait in &timeline.lock_waits {
        let Some(span) = span(wait.owner) else {
            continue;
        };
        let (text, holder) = lock_text(wait);
        let thread = timeline.threads.get(&wait.tid);
        let key = LockKey {
            host: Arc::from(&*part.host),
            process: thread.map_or(0, |info| info.process),
            lock: wait.lock,
            is_marked: wait.is_marked,
        };
        rows.push(KernelRow {
            span,
            kind: RowKind::Lock,
            thread: wait.tid,
            start_ns: wall(wait.start_ns),
            end_ns: wait.end_ns.map(wall),
            text,
            holder: holder.filter(|holder| *holder != low),
            lock: Some(key.to_string()),
        });
    }
    rows.sort_by_key(|row| (row.start_ns, row.thread, row.kind));
    let left_out = rows.len().saturating_sub(rows_max);
    rows.truncate(rows_max);
    (rows, left_out)
}

/// Returns a thread's name and number.
pub(super) fn thread_name(part: &KernelPart, tid: u32) -> String {
    let name = part.timeline.threads.get(&tid);
    name.map_or_else(
        || format!("thread {tid}"),
        |info| format!("{} {tid}", info.name),
    )
}

fn call_text(
    call: u32,
    args: Option<&[u64; 6]>,
    result: Option<i64>,
    architecture: Architecture,
) -> String {
    let shown = |&arg: &u64| {
        // Small numbers are shown in decimal, large ones as addresses.
        if arg < 1 << 20 {
            arg.to_string()
        } else {
            format!("{arg:#x}")
        }
    };
    let args = args.map_or_else(
        || "…".to_owned(),
        |args| {
            let used = args
                .iter()
                .rposition(|&arg| arg != 0)
                .map_or(0, |last| last + 1);
            args[..used]
                .iter()
                .map(shown)
                .collect::<Vec<_>>()
                .join(", ")
        },
    );
    let result = result.map_or_else(|| "…".to_owned(), |result| result.to_string());
    format!("{}({args}) = {result}", call_name(call, architecture))
}

type OffRow = (RowKind, (u64, Option<u64>), String);

/// Splits a time off the processor at the wakeup, if any; after it, the thread is in the run queue.
fn off_rows(off: &OffCpu, architecture: Architecture) -> Vec<OffRow> {
    if off.reason == Reason::Preempted {
        let text = "preempted: another thread took the processor".to_owned();
        return vec![(RowKind::Runnable, (off.start_ns, off.end_ns), text)];
    }
    let by = match off.waker.map(|waker| (waker.call, waker.owner)) {
        Some((None, _)) => ", woken by an interrupt".to_owned(),
        Some((Some(call), owner)) => {
            format!(
                ", woken by {} in {}",
                owner_name(owner),
                call_name(call, architecture)
            )
        }
        None => String::new(),
    };
    let why = format!("blocked in {}{by}", reason_name(off.reason, architecture));
    let mut rows = vec![(
        RowKind::Blocked,
        (off.start_ns, off.wake_ns.or(off.end_ns)),
        why,
    )];
    if let Some(wake_ns) = off.wake_ns {
        let text = "ready, and no processor was free".to_owned();
        rows.push((RowKind::Runnable, (wake_ns, off.end_ns), text));
    }
    rows
}

fn lock_text(wait: &LockWait) -> (String, Option<u64>) {
    let longest = wait.releases.iter().max_by_key(|release| release.held_ns);
    let holder = longest.and_then(|release| release.owner.trace());
    if !wait.is_marked {
        let by = match (longest, wait.evidence) {
            (None, _) => "its waker was not seen".to_owned(),
            (Some(one), Some(ReleaseEvidence::Call)) => {
                format!("most probably woken by {}", owner_name(one.owner))
            }
            (Some(one), _) => format!("woken by {}", owner_name(one.owner)),
        };
        return (format!("futex wait at {:#x}, {by}", wait.lock), holder);
    }
    let by = match (wait.releases.as_slice(), longest) {
        ([], _) | (_, None) => "its holder was not seen".to_owned(),
        ([_], Some(one)) => format!("held by {}", owner_name(one.owner)),
        (all, Some(longest)) => {
            let others = all.len() - 1;
            format!(
                "held longest by {}, and by {others} more",
                owner_name(longest.owner)
            )
        }
    };
    (format!("waits for lock {:#x}, {by}", wait.lock), holder)
}

fn owner_name(owner: Owner) -> String {
    match owner {
        Owner::Request(request) => format!("request {:016x}", request.trace),
        Owner::Nobody => "no request".to_owned(),
        Owner::Unknown => "an unknown request".to_owned(),
    }
}
