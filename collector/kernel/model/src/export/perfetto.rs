//! Writes Perfetto's protobuf trace. The trace has a group of tracks for each request. For locks
//! with markers, it has an arrow from each request that releases a lock to the request that waited
//! for the lock. It also has system calls, switches and wake-ups as ftrace bundles, from which
//! Perfetto draws threads, processors and system calls.

mod messages;

use std::collections::{BTreeMap, BTreeSet};

use prost::Message;
use stroboscope_analysis::kernel::event::{Body, Event};
use stroboscope_analysis::kernel::timeline::{Owner, Timeline};

use crate::clock::ClockLog;
use messages::{
    Clock, ClockSnapshot, FtraceEvent, FtraceEventBundle, SchedSwitch, SchedWaking, SysEnter,
    SysExit, ThreadDescriptor, Trace, TracePacket, TrackDescriptor, TrackEvent,
};

/// Perfetto's ids of the clocks for wall time, monotonic time and time since boot.
const REALTIME: u32 = 1;
const MONOTONIC: u32 = 3;
const BOOTTIME: u32 = 6;

const BEGIN: i32 = 1;
const END: i32 = 2;
const INSTANT: i32 = 3;

/// Maximum number of events in one bundle.
const BUNDLE: usize = 512;
/// Priority written for every thread: the kernel's default, as recordings contain no priorities.
const PRIORITY: i32 = 120;

/// Segment of a span's own work, in wall time. The span has a track below the track of its request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedSegment {
    /// Low half of the trace id.
    pub trace: u64,
    /// Id of the span.
    pub span: u64,
    /// The track's name: the operation.
    pub track: String,
    /// The segment's name.
    pub name: String,
    /// Start, ns since the Unix epoch.
    pub start_ns: i64,
    /// End, ns since the Unix epoch.
    pub end_ns: i64,
}

/// Writes a trace of `timeline`, the kernel's `events` of the same recording, and the requests'
/// `segments`.
#[must_use]
pub fn perfetto(
    timeline: &Timeline,
    events: &[Event],
    clocks: &ClockLog,
    segments: &[NamedSegment],
) -> Vec<u8> {
    let mut packet = snapshots(clocks);
    packet.extend(bundles(timeline, events, clocks));
    packet.extend(tracks(timeline, segments));
    packet.extend(work_intervals(timeline));
    packet.extend(locks(timeline));
    packet.extend(segments.iter().flat_map(slice));
    Trace { packet }.encode_to_vec()
}

fn new_packet() -> TracePacket {
    TracePacket {
        trusted_packet_sequence_id: Some(1),
        ..TracePacket::default()
    }
}

fn snapshots(clocks: &ClockLog) -> Vec<TracePacket> {
    let clock = |clock_id: u32, timestamp: i64| Clock {
        clock_id: Some(clock_id),
        timestamp: Some(timestamp.max(0).cast_unsigned()),
    };
    clocks
        .samples()
        .iter()
        .map(|sample| {
            let at_ns = sample.at_ns.cast_signed();
            let clocks = vec![
                clock(MONOTONIC, at_ns),
                clock(BOOTTIME, at_ns + sample.boot_offset_ns),
                clock(REALTIME, at_ns + sample.wall_offset_ns),
            ];
            TracePacket {
                clock_snapshot: Some(ClockSnapshot {
                    clocks,
                    primary_trace_clock: Some(BOOTTIME),
                }),
                ..new_packet()
            }
        })
        .collect()
}

/// Builds the ftrace bundles. Perfetto interprets the times of ftrace events as time since boot.
fn bundles(timeline: &Timeline, events: &[Event], clocks: &ClockLog) -> Vec<TracePacket> {
    let boot_offset_ns = clocks
        .samples()
        .last()
        .map_or(0, |sample| sample.boot_offset_ns);
    let mut by_cpu: BTreeMap<u16, Vec<&Event>> = BTreeMap::new();
    for event in events {
        by_cpu.entry(event.cpu).or_default().push(event);
    }
    let mut packets = Vec::new();
    for (cpu, mut events) in by_cpu {
        events.sort_by_key(|event| event.ts_ns);
        for chunk in events.chunks(BUNDLE) {
            let lost = chunk
                .iter()
                .any(|event| matches!(event.body, Body::Lost { .. }));
            let event = chunk
                .iter()
                .filter_map(|event| {
                    let mut ftrace = ftrace(timeline, event)?;
                    ftrace.timestamp = Some(event.ts_ns.saturating_add_signed(boot_offset_ns));
                    ftrace.pid = Some(event.tid);
                    Some(ftrace)
                })
                .collect();
            let bundle = FtraceEventBundle {
                cpu: Some(u32::from(cpu)),
                event,
                lost_events: lost.then_some(true),
            };
            packets.push(TracePacket {
                ftrace_events: Some(bundle),
                ..new_packet()
            });
        }
    }
    packets
}

fn ftrace(timeline: &Timeline, event: &Event) -> Option<FtraceEvent> {
    let mut ftrace = FtraceEvent::default();
    match event.body {
        Body::Enter { call, args } => {
            ftrace.sys_enter = Some(SysEnter {
                id: Some(i64::from(call)),
                args: args.to_vec(),
            });
        }
        Body::Exit { call, result } => {
            ftrace.sys_exit = Some(SysExit {
                id: Some(i64::from(call)),
                ret: Some(result),
            });
        }
        Body::Switch {
            state,
            name,
            next,
            next_name,
            ..
        } => {
            ftrace.sched_switch = Some(SchedSwitch {
                prev_comm: Some(name.to_string()),
                prev_pid: Some(event.tid.cast_signed()),
                prev_prio: Some(PRIORITY),
                prev_state: Some(i64::from(state)),
                next_comm: Some(next_name.to_string()),
                next_pid: Some(next.cast_signed()),
                next_prio: Some(PRIORITY),
            });
        }
        Body::Waking { woken, .. } => {
            let name = timeline
                .threads
                .get(&woken)
                .map(|info| info.name.to_string());
            ftrace.sched_waking = Some(SchedWaking {
                comm: name,
                pid: Some(woken.cast_signed()),
                prio: Some(PRIORITY),
                success: Some(1),
            });
        }
        _ => return None,
    }
    Some(ftrace)
}

/// Returns the number of a track. It is the track of a request if `tid` is 0, of a thread outside
/// requests if `trace` is 0, and otherwise of a thread, lock waits or a span in a request.
fn uuid(trace: u64, tid: u32) -> u64 {
    // Collisions are unlikely, because the ids of traces and spans are random.
    trace ^ (u64::from(tid) << 32 | u64::from(tid)).rotate_left(17) ^ 0x5354_524f_4245
}

/// Returns the number of the track for a thread's lock waits. Waits have tracks of their own,
/// because a wait may outlast the work interval in which it begins.
fn lock_uuid(trace: u64, tid: u32) -> u64 {
    uuid(trace, tid | 1 << 31)
}

/// Returns the number of a span's track.
fn span_uuid(segment: &NamedSegment) -> u64 {
    uuid(segment.trace ^ segment.span.rotate_left(32), 1 << 30)
}

fn slice(segment: &NamedSegment) -> [TracePacket; 2] {
    let packet = |ns: i64, event| TracePacket {
        timestamp: Some(ns.max(0).cast_unsigned()),
        timestamp_clock_id: Some(REALTIME),
        track_event: Some(event),
        ..new_packet()
    };
    let track = span_uuid(segment);
    [
        packet(
            segment.start_ns,
            track_event(BEGIN, track, Some(segment.name.clone()), "segment"),
        ),
        packet(segment.end_ns, track_event(END, track, None, "segment")),
    ]
}

fn tracks(timeline: &Timeline, segments: &[NamedSegment]) -> Vec<TracePacket> {
    let mut pairs: BTreeSet<(u64, u32)> = timeline
        .work_intervals
        .iter()
        .map(|interval| (interval.request.trace, interval.tid))
        .collect();
    for wait in &timeline.lock_waits {
        pairs.extend(wait.owner.trace().map(|trace| (trace, wait.tid)));
        pairs.extend(
            wait.releases
                .iter()
                .filter_map(|release| Some((release.owner.trace()?, release.tid))),
        );
    }
    let traces: BTreeSet<u64> = pairs
        .iter()
        .map(|&(trace, _)| trace)
        .chain(segments.iter().map(|segment| segment.trace))
        .collect();
    let spans: BTreeMap<u64, &NamedSegment> = segments
        .iter()
        .map(|segment| (span_uuid(segment), segment))
        .collect();
    let descriptor = |descriptor: TrackDescriptor| TracePacket {
        track_descriptor: Some(descriptor),
        ..new_packet()
    };
    let threads = timeline
        .threads
        .iter()
        .filter(|(_, info)| info.process != 0)
        .map(|(&tid, info)| {
            descriptor(TrackDescriptor {
                uuid: Some(uuid(0, tid)),
                thread: Some(ThreadDescriptor {
                    pid: Some(info.process.cast_signed()),
                    tid: Some(tid.cast_signed()),
                    thread_name: Some(info.name.to_string()),
                }),
                ..TrackDescriptor::default()
            })
        });
    let requests = traces.iter().map(|&trace| {
        descriptor(TrackDescriptor {
            uuid: Some(uuid(trace, 0)),
            name: Some(format!("request {trace:016x}")),
            ..TrackDescriptor::default()
        })
    });
    let parts = pairs.iter().map(|&(trace, tid)| {
        let name = timeline
            .threads
            .get(&tid)
            .map(|info| info.name.to_string())
            .unwrap_or_default();
        descriptor(TrackDescriptor {
            uuid: Some(uuid(trace, tid)),
            parent_uuid: Some(uuid(trace, 0)),
            name: Some(format!("{name} {tid}")),
            ..TrackDescriptor::default()
        })
    });
    let waits: BTreeSet<(u64, u32)> = timeline
        .lock_waits
        .iter()
        .filter_map(|wait| Some((wait.owner.trace()?, wait.tid)))
        .collect();
    let waits = waits.iter().map(|&(trace, tid)| {
        descriptor(TrackDescriptor {
            uuid: Some(lock_uuid(trace, tid)),
            parent_uuid: Some(uuid(trace, 0)),
            name: Some(format!("locks, thread {tid}")),
            ..TrackDescriptor::default()
        })
    });
    let spans = spans.iter().map(|(&own, segment)| {
        descriptor(TrackDescriptor {
            uuid: Some(own),
            parent_uuid: Some(uuid(segment.trace, 0)),
            name: Some(segment.track.clone()),
            ..TrackDescriptor::default()
        })
    });
    threads
        .chain(requests)
        .chain(parts)
        .chain(waits)
        .chain(spans)
        .collect()
}

fn at(ts_ns: u64, track_event: TrackEvent) -> TracePacket {
    TracePacket {
        timestamp: Some(ts_ns),
        timestamp_clock_id: Some(MONOTONIC),
        track_event: Some(track_event),
        ..new_packet()
    }
}

fn track_event(kind: i32, track: u64, name: Option<String>, category: &str) -> TrackEvent {
    TrackEvent {
        r#type: Some(kind),
        track_uuid: Some(track),
        categories: vec![category.to_owned()],
        name,
        ..TrackEvent::default()
    }
}

/// Returns the end of the window that contains `ts_ns`, or the end of the last interval on a
/// processor if that is earlier, but at least `ts_ns`. Returns `ts_ns` if no window contains it, or
/// if no such interval exists.
fn end_of(timeline: &Timeline, ts_ns: u64) -> u64 {
    let window = timeline
        .windows
        .iter()
        .find(|window| window.open_ns <= ts_ns && ts_ns < window.close_ns);
    let last_ns = timeline
        .on_cpu
        .iter()
        .map(|on| on.end_ns)
        .max()
        .unwrap_or(ts_ns);
    window
        .map_or(ts_ns, |window| window.close_ns.min(last_ns))
        .max(ts_ns)
}

fn work_intervals(timeline: &Timeline) -> Vec<TracePacket> {
    let mut packets = Vec::new();
    for interval in &timeline.work_intervals {
        let track = uuid(interval.request.trace, interval.tid);
        let cut = if interval.is_carried {
            " (began earlier)"
        } else {
            ""
        };
        let name = format!("span {:016x}{cut}", interval.request.span);
        let end_ns = interval
            .end_ns
            .unwrap_or_else(|| end_of(timeline, interval.start_ns));
        packets.push(at(
            interval.start_ns,
            track_event(BEGIN, track, Some(name), "request"),
        ));
        packets.push(at(end_ns, track_event(END, track, None, "request")));
    }
    packets
}

fn locks(timeline: &Timeline) -> Vec<TracePacket> {
    let mut packets = Vec::new();
    let mut flow = 0;
    for wait in timeline.lock_waits.iter().filter(|wait| wait.is_marked) {
        let (Some(trace), Some(end_ns)) = (wait.owner.trace(), wait.end_ns) else {
            continue;
        };
        let track = lock_uuid(trace, wait.tid);
        let holders: Vec<String> = wait
            .releases
            .iter()
            .map(|release| match release.owner {
                Owner::Request(request) => format!("{:016x}", request.trace),
                Owner::Nobody => "no request".to_owned(),
                Owner::Unknown => "not known".to_owned(),
            })
            .collect();
        let name = format!("waits for lock, held by {}", holders.join(", "));
        packets.push(at(
            wait.start_ns,
            track_event(BEGIN, track, Some(name), "lock"),
        ));
        packets.push(at(end_ns, track_event(END, track, None, "lock")));
        let mut acquired = track_event(INSTANT, track, Some("has the lock".to_owned()), "lock");
        for release in &wait.releases {
            if let Owner::Request(request) = release.owner {
                flow += 1;
                let its = uuid(request.trace, release.tid);
                let mut released =
                    track_event(INSTANT, its, Some("releases the lock".to_owned()), "lock");
                released.flow_ids.push(flow);
                acquired.terminating_flow_ids.push(flow);
                packets.push(at(release.ts_ns, released));
            }
        }
        packets.push(at(end_ns, acquired));
    }
    packets
}
