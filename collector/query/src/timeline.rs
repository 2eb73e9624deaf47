//! Holistic timelines: segments from the store, and under them what the kernel recorded (paper 004 §3.3.2).

mod spans;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use stroboscope_analysis::kernel::by_operation::{OperationSum, SpanSums};
use stroboscope_analysis::kernel::call::Architecture;
use stroboscope_analysis::kernel::event::LossCounts;
use stroboscope_analysis::kernel::lock_sums::{LockSum, LockSums, WaitSum};
use stroboscope_analysis::kernel::summary::{
    CallPerRequest, RequestSummary, calls_per_request, requests,
};
use stroboscope_analysis::record::TraceRecords;

use super::kernel::{ChunkView, KernelPart, between, each_chunk};
use super::query_error::QueryError;
use super::reading_memory::Room;
use super::source::Source;
use super::stored_request::RequestWanted;
use super::time_range::TimeRange;
use stroboscope_store::tables::{
    ANALYSED_RECORD_BYTES, AttributeKeys, Damage, IdRange, KernelFile, TraceFiles, TraceReader,
    list_kernel, read_batches,
};

/// A burst that never closes is shown for so long from the moment asked for.
const ALWAYS_ON_SHOWN_NS: i64 = 1_000_000_000;

/// Requests with their segments, and the kernel's windows that touch them.
#[derive(Debug, Default)]
pub struct TimelineView {
    /// The requests, in order of their begin.
    pub requests: Vec<TraceRecords>,
    /// One part for each recording.
    pub kernel: Vec<KernelPart>,
    /// Which part of a burst it is, if it is one.
    pub burst: Option<BurstPart>,
    /// Files that could not be read in full.
    pub damage: Vec<Damage>,
    /// Number of requests that are missing because they are too large for the memory.
    pub large_traces: u64,
}

/// What is shown of a burst: all of it, unless it is long, as that of a recording that is always on. Wall time, ns since
/// the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BurstPart {
    /// When it opened, and when it closed.
    pub burst_ns: (i64, i64),
    /// From when, and until when, it is shown.
    pub shown_ns: (i64, i64),
}

impl BurstPart {
    /// Is more of the burst recorded than is shown?
    #[must_use]
    pub fn is_a_part(&self) -> bool {
        self.burst_ns != self.shown_ns
    }
}

/// Sums over everything the kernel recorded. Times in ns.
#[derive(Debug, Default)]
pub struct KernelOverview {
    /// Recordings read.
    pub recordings: usize,
    /// Windows that opened.
    pub windows: u64,
    /// Events read.
    pub events: u64,
    /// Events lost, of all recordings.
    pub lost: u64,
    /// Each request by its trace's low half: its parts in several windows and on several hosts are added up.
    pub requests: Vec<RequestSummary>,
    /// Requests that lie in one window from begin to end: those that the sums below are of, unless there is none.
    pub whole: u64,
    /// Which calls requests make, how many and for how long.
    pub calls: Vec<CallPerRequest>,
    /// The same by operation.
    pub operations: Vec<OperationSum>,
    /// Locks and futexes that any request waited at, that with the longest waits together first; of all requests, whole
    /// or not.
    pub locks: Vec<LockSum>,
    /// Waits of threads that worked for no request that is known.
    pub other_waits: WaitSum,
    /// Ids of the store's requests, by their low half.
    pub ids: HashMap<u64, u128>,
    /// Whose system calls these are.
    pub architecture: Architecture,
    /// Files that could not be read in full.
    pub damage: Vec<Damage>,
    /// Number of requests without names because they are too large for the memory.
    pub large_traces: u64,
}

fn bounds(records: &TraceRecords) -> Option<(i64, i64)> {
    let of_spans = records
        .spans
        .iter()
        .map(|span| (span.start_ns, span.end_ns));
    let of_events = records
        .events
        .iter()
        .map(|event| (event.ts_ns, event.ts_ns));
    of_spans
        .chain(of_events)
        .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
}

/// One request. `trace` is its id, or the id's low half, which is all that the kernel knows of it: what the kernel did
/// for a request that the store does not have is shown without its segments.
///
/// # Errors
/// When there is no such trace, or the store cannot be read.
pub fn of_trace(source: &Source, trace: u128, name: &str) -> Result<TimelineView, QueryError> {
    let keys = AttributeKeys::none();
    let wanted = RequestWanted {
        id: trace,
        keys: &keys,
        spans_max: usize::MAX,
        reserved: 1,
    };
    let by_id = source.find_request(wanted, i64::MIN..=i64::MAX)?;
    let (mut found, mut damage) = (by_id.request.map(|found| found.records), by_id.damage);
    // Who knows the lower half of an id only has to look at all.
    if found.is_none() && trace >> 64 == 0 {
        let files = TraceFiles::open(source.store(), &keys)?;
        let mut reader = files.read(&IdRange::ALL, 1);
        let mut progress = source
            .observer()
            .begin("looking for the trace", "traces", None);
        let mut records = TraceRecords::default();
        while found.is_none()
            && let Some(id) = reader.next_id()
        {
            progress.add(1);
            let mut room = Room::new(source.share());
            let read = reader.first_of(id, usize::MAX, &mut records, |bytes| room.grow(bytes));
            if id as u64 == trace as u64 {
                room.check(id, read)?;
                found = Some(std::mem::take(&mut records));
            }
        }
        damage = [files.damage(), &reader.damage()].concat();
    }
    let no_such = || QueryError::NoSuchTrace {
        trace: name.to_owned(),
        data: source.name(),
    };
    let low = found
        .as_ref()
        .map_or(trace as u64, |records| records.stored_id().0 as u64);
    let seen_ns = match &found {
        Some(records) => bounds(records),
        None => seen_by_kernel(source, low)?,
    };
    let (from_ns, to_ns) = seen_ns.ok_or_else(no_such)?;
    let (kernel, damaged) = kernel_of(source, low, from_ns, to_ns)?;
    damage.extend(damaged);
    Ok(TimelineView {
        requests: found.into_iter().collect(),
        kernel,
        damage,
        large_traces: 0,
        burst: None,
    })
}

/// What the kernel did for a trace, of which it knows the low half, from a moment to another (wall time, ns): one part for
/// each recording; and what is damaged.
///
/// # Errors
/// When the store cannot be listed.
pub fn kernel_of(
    source: &Source,
    low: u64,
    from_ns: i64,
    to_ns: i64,
) -> Result<(Vec<KernelPart>, Vec<Damage>), QueryError> {
    let (mut kernel, damage) = between(source.store(), from_ns, to_ns.saturating_add(1))?;
    for part in &mut kernel {
        let threads: BTreeSet<u32> = part.timeline.threads_of(low);
        part.events.retain(|event| threads.contains(&event.tid));
        part.timeline = part.timeline.of_trace(low);
    }
    kernel.retain(|part| !part.timeline.is_empty());
    compare_configs(source, &mut kernel, from_ns, to_ns.saturating_add(1))?;
    Ok((kernel, damage))
}

/// Finds the burst-configs by which services recorded in the batches of an interval of wall time, where a recorder of their
/// host had another: it keeps the one that it began with.
fn compare_configs(
    source: &Source,
    kernel: &mut [KernelPart],
    from_ns: i64,
    to_ns: i64,
) -> Result<(), QueryError> {
    if kernel.is_empty() {
        return Ok(());
    }
    for batch in read_batches(source.store())? {
        if batch.from_ns >= to_ns || batch.to_ns <= from_ns {
            continue;
        }
        for part in kernel.iter_mut().filter(|part| *part.host == *batch.host) {
            let configs = batch.windows.iter().map(|window| window.burst_config);
            let others = configs.filter(|config| *config != part.burst_config);
            part.services_configs.extend(others);
        }
    }
    for part in kernel {
        part.services_configs.sort_unstable();
        part.services_configs.dedup();
    }
    Ok(())
}

/// From when to when the kernel worked for a trace that it knows by its low half.
fn seen_by_kernel(source: &Source, low: u64) -> Result<Option<(i64, i64)>, QueryError> {
    let mut seen_ns: Option<(i64, i64)> = None;
    let mut progress =
        source
            .observer()
            .begin("looking for it in the kernel's events", "chunks", None);
    let _ = each_chunk(source.store(), |ChunkView { part, .. }| {
        progress.add(1);
        for summary in requests(&part.timeline, part.architecture)
            .iter()
            .filter(|one| one.trace == low)
        {
            let (first_ns, last_ns) = (
                part.clocks.wall_ns(summary.first_ns),
                part.clocks.wall_ns(summary.last_ns),
            );
            let known = seen_ns.unwrap_or((first_ns, last_ns));
            seen_ns = Some((known.0.min(first_ns), known.1.max(last_ns)));
        }
    })?;
    Ok(seen_ns)
}

/// The burst that holds a moment (ns since the Unix epoch), or begins next after it, with all requests in it.
///
/// # Errors
/// When nothing of the kernel was recorded from that moment on, or the store cannot be read.
pub fn of_burst(source: &Source, at_ns: i64) -> Result<TimelineView, QueryError> {
    let files = list_kernel(source.store())?;
    if files.is_empty() {
        return Err(QueryError::NoKernel(source.name()));
    }
    // The next window is in the chunk that covers the moment, or in one after it.
    let mut later: Vec<i64> = files
        .iter()
        .map(|file| file.covers_ns.1)
        .filter(|&end_ns| end_ns > at_ns)
        .collect();
    later.sort_unstable();
    for to_ns in later {
        // A burst without an end goes on in the next chunk.
        let read_to_ns = to_ns.max(at_ns.saturating_add(ALWAYS_ON_SHOWN_NS));
        let (mut kernel, damage) = between(source.store(), at_ns, read_to_ns)?;
        let open = |part: &KernelPart| {
            let wall = |window: &stroboscope_analysis::kernel::event::Window| {
                (
                    part.clocks.wall_ns(window.open_ns),
                    part.clocks.wall_ns(window.close_ns),
                )
            };
            part.timeline
                .windows
                .iter()
                .map(wall)
                .find(|&(_, close_ns)| close_ns > at_ns)
        };
        let Some((open_ns, close_ns)) = kernel.iter().filter_map(open).min() else {
            continue;
        };
        let from_ns = open_ns.max(at_ns.min(close_ns - ALWAYS_ON_SHOWN_NS).max(open_ns));
        let to_ns = close_ns.min(from_ns.saturating_add(ALWAYS_ON_SHOWN_NS));
        for part in &mut kernel {
            part.show(from_ns, to_ns);
        }
        kernel.retain(|part| !part.timeline.is_empty());
        compare_configs(source, &mut kernel, from_ns, to_ns)?;
        let shown_ns = (from_ns, to_ns);
        let burst_ns = whole_burst(&files, (open_ns, close_ns));
        let (requests, damaged, large_traces) = requests_between(source, from_ns, to_ns)?;
        return Ok(TimelineView {
            requests,
            kernel,
            damage: [damage, damaged].concat(),
            large_traces,
            burst: Some(BurstPart { burst_ns, shown_ns }),
        });
    }
    Err(QueryError::NoBurst {
        at_ns,
        data: source.name(),
    })
}

/// The burst in which services recorded at a moment (ns since the Unix epoch), or next after it, with all requests in it and
/// what their kernels did, if those were recorded.
///
/// # Errors
/// When nothing was recorded in bursts from that moment on, or the store cannot be read.
pub fn of_recorded_burst(source: &Source, at_ns: i64) -> Result<TimelineView, QueryError> {
    let bursts = source.bursts()?;
    let holds_or_follows = bursts.iter().find(|(_, close_ns)| *close_ns > at_ns);
    let &(open_ns, close_ns) = holds_or_follows.ok_or_else(|| QueryError::NoBurst {
        at_ns,
        data: source.name(),
    })?;
    let from_ns = at_ns.clamp(open_ns, (close_ns - ALWAYS_ON_SHOWN_NS).max(open_ns));
    let to_ns = close_ns.min(from_ns.saturating_add(ALWAYS_ON_SHOWN_NS));
    let (mut kernel, damage) = between(source.store(), from_ns, to_ns)?;
    for part in &mut kernel {
        part.show(from_ns, to_ns);
    }
    kernel.retain(|part| !part.timeline.is_empty());
    compare_configs(source, &mut kernel, from_ns, to_ns)?;
    let (requests, damaged, large_traces) = requests_between(source, from_ns, to_ns)?;
    Ok(TimelineView {
        requests,
        kernel,
        damage: [damage, damaged].concat(),
        large_traces,
        burst: Some(BurstPart {
            burst_ns: (open_ns, close_ns),
            shown_ns: (from_ns, to_ns),
        }),
    })
}

/// The burst of which a window was read: where it reaches a chunk's edge it goes on in the chunk beside it.
fn whole_burst(files: &[KernelFile], (mut open_ns, mut close_ns): (i64, i64)) -> (i64, i64) {
    let touches =
        |edge_ns: i64, other_ns: i64| edge_ns.abs_diff(other_ns) <= CLOCKS_DIFFER_NS.unsigned_abs();
    for file in files {
        if touches(close_ns, file.covers_ns.0) {
            close_ns = file.covers_ns.1;
        }
    }
    for file in files.iter().rev() {
        if touches(open_ns, file.covers_ns.1) {
            open_ns = file.covers_ns.0;
        }
    }
    (open_ns, close_ns)
}

fn requests_between(
    source: &Source,
    from_ns: i64,
    to_ns: i64,
) -> Result<(Vec<TraceRecords>, Vec<Damage>, u64), QueryError> {
    let mut progress = source
        .observer()
        .begin("looking for requests", "traces", None);
    let touches = |records: &TraceRecords| {
        bounds(records).is_some_and(|(start_ns, end_ns)| start_ns < to_ns && end_ns > from_ns)
    };
    // A request that touches the interval began, or has spans, not long before it: files far from it are not read.
    let range = TimeRange {
        since_ns: Some(from_ns),
        until_ns: Some(to_ns),
    };
    let keys = AttributeKeys::none();
    let files = TraceFiles::open_between(source.store(), &keys, range.records_ns())?;
    let mut traces = TraceReader::of(&files);
    let mut requests: Vec<TraceRecords> = Vec::new();
    let (mut records, mut share) = (TraceRecords::default(), source.share());
    while traces.next_within(&mut records, |bytes| bytes <= source.memory().trace_max()) {
        progress.add(1);
        if touches(&records) {
            let count = records.spans.len() + records.events.len();
            let room = share.take(ANALYSED_RECORD_BYTES * count);
            room.map_err(QueryError::lack_of_requests)?;
            requests.push(std::mem::take(&mut records));
        }
    }
    requests.sort_by_key(|records| (bounds(records), records.id));
    Ok((requests, traces.damage(), traces.left_out().large_traces))
}

/// Sums over everything.
///
/// # Errors
/// When nothing of the kernel was recorded, or the store cannot be read.
pub fn overview(source: &Source) -> Result<KernelOverview, QueryError> {
    let mut overview = KernelOverview::default();
    let mut lost: BTreeMap<u128, LossCounts> = BTreeMap::new();
    let mut of_request: BTreeMap<u64, (String, RequestSummary)> = BTreeMap::new();
    let mut windows: Vec<(i64, i64)> = Vec::new();
    let (mut sums, mut locks) = (SpanSums::default(), LockSums::default());
    let mut progress = source
        .observer()
        .begin("reading the kernel's events", "chunks", None);
    overview.damage = each_chunk(
        source.store(),
        |ChunkView {
             part,
             events,
             windows: opened,
         }| {
            progress.add(1);
            lost.insert(part.recording, part.lost);
            overview.windows += opened;
            overview.events += events;
            let wall = |at_ns| part.clocks.wall_ns(at_ns);
            windows.extend(
                part.timeline
                    .windows
                    .iter()
                    .map(|window| (wall(window.open_ns), wall(window.close_ns))),
            );
            overview.architecture = part.architecture;
            sums.observe(&part.timeline, part.architecture);
            locks.observe(&Arc::from(&*part.host), &part.timeline, wall);
            for summary in requests(&part.timeline, part.architecture) {
                match of_request.get_mut(&summary.trace) {
                    Some((host, known)) => known.merge(&summary, *host == part.host),
                    None => _ = of_request.insert(summary.trace, (part.host.clone(), summary)),
                }
            }
        },
    )?;
    if lost.is_empty() {
        return Err(QueryError::NoKernel(source.name()));
    }
    overview.recordings = lost.len();
    overview.lost = lost.values().map(LossCounts::total).sum();
    overview.requests = of_request
        .into_values()
        .map(|(_, summary)| summary)
        .collect();
    let at_locks = locks.spans();
    let requests = overview.requests.iter().map(|request| request.trace);
    let requests = requests.chain(at_locks.iter().map(|span| span.trace));
    let is_wanted = |span| sums.contains(span) || at_locks.contains(&span);
    let spans = spans::spans(source, &requests.collect(), is_wanted)?;
    overview.large_traces = spans.large_traces;
    overview.locks = locks.rows(|span| spans.at_lock(span));
    overview.other_waits = locks.of_no_request();
    let whole = spans.whole(&joined(windows));
    overview.whole = whole.len() as u64;
    // "How many per request" means something for whole requests only.
    let is_counted = |trace: u64| whole.is_empty() || whole.contains(&trace);
    let counted: Vec<RequestSummary> = overview
        .requests
        .iter()
        .filter(|request| is_counted(request.trace))
        .cloned()
        .collect();
    overview.calls = calls_per_request(&counted);
    sums.retain(|span| is_counted(span.trace));
    overview.operations = sums.by_operation(|span| spans.of(span));
    overview.ids = spans.ids;
    Ok(overview)
}

/// Windows in order of time, those that touch made one: several hosts', and parts of one that chunks divide.
pub(super) fn joined(mut windows: Vec<(i64, i64)>) -> Vec<(i64, i64)> {
    windows.sort_unstable();
    let mut joined: Vec<(i64, i64)> = Vec::new();
    for (open_ns, close_ns) in windows {
        match joined.last_mut() {
            // A clock that was corrected meanwhile leaves a little gap where a chunk ends.
            Some(last) if open_ns <= last.1.saturating_add(CLOCKS_DIFFER_NS) => {
                last.1 = last.1.max(close_ns);
            }
            _ => joined.push((open_ns, close_ns)),
        }
    }
    joined
}

const CLOCKS_DIFFER_NS: i64 = 10_000;
