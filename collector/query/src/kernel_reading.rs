//! Reads the kernel events of requests from the store.

use std::collections::BTreeMap;
use std::sync::Arc;

use stroboscope_analysis::clock::Alignment;
use stroboscope_analysis::kernel::marker::RequestId;
use stroboscope_analysis::kernel::timeline::{LockWait, OffCpu, Reason, SystemCall};
use stroboscope_search::{KernelEvent, KernelKind};

use super::kernel::{ChunkView, KernelPart, each_chunk};
use super::kernel_events::KernelEvents;
use super::query_error::QueryError;
use super::source::Source;
use super::time_range::TimeRange;
use super::timeline::joined;

/// Maximum memory for the kernel events of one search or filter, in bytes. Events are counted after
/// they are read, so one chunk may exceed it.
const EVENTS_BYTES_MAX: u64 = 256 << 20;

impl KernelEvents {
    /// Reads the kernel events of requests. Keeps those that begin in a time range or within an
    /// hour of it. `clocks` corrects their times. Fails if the store cannot be listed or has no
    /// kernel recording, or if the events exceed [`EVENTS_BYTES_MAX`].
    pub(super) fn read(
        source: &Source,
        range: TimeRange,
        clocks: Option<&Alignment>,
    ) -> Result<Self, QueryError> {
        let mut events = Self::default();
        let times_ns = range.records_ns();
        let mut gaps: BTreeMap<String, Vec<(i64, i64)>> = BTreeMap::new();
        let what = "reading the kernel's events";
        let mut progress = source.observer.begin(what, "chunks", None);
        let damage = each_chunk(source.store(), |ChunkView { part, .. }| {
            progress.add(1);
            let host: Arc<str> = part.host.as_str().into();
            let wall = |ns: u64| {
                let at_ns = part.clocks.wall_ns(ns);
                let converted = clocks.and_then(|clocks| clocks.convert(&host, at_ns));
                converted.map_or(at_ns, |(at_ns, _)| at_ns)
            };
            let windows = part.timeline.windows.iter();
            let seen = events.seen.entry(part.host.clone()).or_default();
            seen.extend(windows.map(|window| (wall(window.open_ns), wall(window.close_ns))));
            let lost = part.timeline.gaps.iter();
            let of_host = gaps.entry(part.host.clone()).or_default();
            of_host.extend(lost.map(|gap| (wall(gap.start_ns), wall(gap.end_ns))));
            if events.bytes > EVENTS_BYTES_MAX {
                return;
            }
            for (request, event) in of_part(&part, &host, &wall) {
                if times_ns.contains(&event.start_ns) {
                    events.bytes += event.bytes();
                    let known = events.of_trace.entry(request.trace);
                    known.or_default().push(event);
                }
            }
        })?;
        if events.seen.is_empty() {
            return Err(QueryError::NoKernel(source.name()));
        }
        if events.bytes > EVENTS_BYTES_MAX {
            return Err(QueryError::MuchOfKernel {
                held_mib: EVENTS_BYTES_MAX >> 20,
            });
        }
        for (host, windows) in &mut events.seen {
            let gaps = gaps.remove(host).unwrap_or_default();
            *windows = without(joined(std::mem::take(windows)), &gaps);
        }
        events.damage = damage;
        Ok(events)
    }
}

/// Returns the windows without the gaps, in which events were lost.
fn without(mut left: Vec<(i64, i64)>, gaps: &[(i64, i64)]) -> Vec<(i64, i64)> {
    for gap in gaps {
        let cut = |(open, close): (i64, i64)| {
            let parts = [(open, close.min(gap.0)), (open.max(gap.1), close)];
            parts.into_iter().filter(|(from, to)| from < to)
        };
        left = left.into_iter().flat_map(cut).collect();
    }
    left
}

type OwnedEvent = (RequestId, KernelEvent);

fn of_part<'a>(
    part: &'a KernelPart,
    host: &'a Arc<str>,
    wall: &'a impl Fn(u64) -> i64,
) -> impl Iterator<Item = OwnedEvent> + 'a {
    let close_ns = |at_ns: u64| {
        let windows = part.timeline.windows.iter();
        let found = windows
            .map(|window| window.close_ns)
            .find(|close| *close >= at_ns);
        found.unwrap_or(at_ns)
    };
    let is_open = |at_ns: u64| {
        let mut windows = part.timeline.windows.iter();
        windows.any(|window| window.open_ns == at_ns)
    };
    let event = move |kind, name: Arc<str>, request: RequestId, start_ns: u64, end: Option<u64>| {
        KernelEvent {
            kind,
            name,
            host: host.clone(),
            span_id: request.span,
            start_ns: wall(start_ns),
            end_ns: wall(end.unwrap_or_else(|| close_ns(start_ns))),
            // An event that starts exactly at the opening of a window counts as begun earlier.
            is_cut_open: is_open(start_ns),
            is_cut_close: end.is_none(),
            attributes: Vec::new(),
        }
    };
    let calls = part.timeline.calls.iter().filter_map(move |call| {
        let request = call.owner.request()?;
        let (kind, name) = (KernelKind::SystemCall, call_name(part, call.call));
        let mut event = event(kind, name, request, call.start_ns, call.end_ns);
        event.attributes = said_of_call(call);
        Some((request, event))
    });
    let away = part.timeline.off_cpu.iter().filter_map(move |off| {
        let request = off.owner.request()?;
        let name = reason(part, off);
        let mut event = event(KernelKind::OffCpu, name, request, off.start_ns, off.end_ns);
        event.attributes = said_of_absence(part, off);
        Some((request, event))
    });
    let waits = part.timeline.lock_waits.iter().filter_map(move |wait| {
        let request = wait.owner.request()?;
        let name = if wait.is_marked { "lock" } else { "futex" };
        let kind = KernelKind::LockWait;
        let mut event = event(kind, name.into(), request, wait.start_ns, wait.end_ns);
        event.attributes = said_of_wait(wait);
        Some((request, event))
    });
    calls.chain(away).chain(waits)
}

fn call_name(part: &KernelPart, call: u32) -> Arc<str> {
    match part.architecture.call_name(call) {
        Some(name) => name.into(),
        None => format!("call {call}").into(),
    }
}

fn said_of_call(call: &SystemCall) -> Vec<(&'static str, Arc<str>)> {
    let result = call
        .result
        .map(|result| ("result", result.to_string().into()));
    let tid = ("tid", call.tid.to_string().into());
    result.into_iter().chain([tid]).collect()
}

fn reason(part: &KernelPart, off: &OffCpu) -> Arc<str> {
    match off.reason {
        Reason::Preempted => "preempted".into(),
        Reason::Futex { .. } => "futex".into(),
        Reason::Call { call } => call_name(part, call),
        Reason::Fault => "fault".into(),
        Reason::Unknown => "unknown".into(),
    }
}

fn said_of_absence(part: &KernelPart, off: &OffCpu) -> Vec<(&'static str, Arc<str>)> {
    let mut said: Vec<(&'static str, Arc<str>)> = vec![("tid", off.tid.to_string().into())];
    if let Some(waker) = &off.waker {
        let trace = waker.owner.trace();
        said.extend(trace.map(|trace| ("waker_trace", low_half(trace))));
        said.extend(waker.call.map(|call| ("waker_call", call_name(part, call))));
    }
    let runnable = off.wake_ns.zip(off.end_ns);
    let runnable_ns = runnable.map(|(wake, end)| end.saturating_sub(wake));
    said.extend(runnable_ns.map(|ns| ("runnable_ns", ns.to_string().into())));
    said
}

/// Formats the low half of a trace id like the last 16 digits of the whole id.
fn low_half(trace: u64) -> Arc<str> {
    format!("{trace:016x}").into()
}

fn said_of_wait(wait: &LockWait) -> Vec<(&'static str, Arc<str>)> {
    let mut said: Vec<(&'static str, Arc<str>)> = vec![
        ("tid", wait.tid.to_string().into()),
        ("lock", format!("{:x}", wait.lock).into()),
        ("holders", wait.releases.len().to_string().into()),
    ];
    // If there are several holders, this is the one that held the lock longest during the wait.
    let longest = wait.releases.iter().max_by_key(|release| release.held_ns);
    if let Some(request) = longest.and_then(|release| release.owner.request()) {
        said.push(("holder_trace", low_half(request.trace)));
        said.push(("holder_span", format!("{:016x}", request.span).into()));
    }
    said.extend(longest.map(|release| ("held_ns", release.held_ns.to_string().into())));
    said
}
