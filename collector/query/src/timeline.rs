//! Holistic timelines: segments of requests, together with the kernel activity for them (Ardelean
//! et al., NSDI 2018, §3.3.2).

mod spans;
mod summaries;

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
use super::time_range::{TimeRange, recorded_ns};
use stroboscope_store::query_memory::QueryShare;
use stroboscope_store::tables::{
    ANALYSED_RECORD_BYTES, AttributeKeys, Damage, IdRange, KernelFile, TraceFiles, TraceReader,
    list_kernel, read_batches,
};
use summaries::HostSummaries;

/// Maximum part of a burst that is shown, in ns.
const ALWAYS_ON_SHOWN_NS: i64 = 1_000_000_000;

/// Requests and kernel activity of one request or one burst.
#[derive(Debug, Default)]
pub struct TimelineView {
    /// Requests, in order of their starts.
    pub requests: Vec<TraceRecords>,
    /// Kernel activity, one part per recording.
    pub kernel: Vec<KernelPart>,
    /// Part of the burst that is shown; `None` if the view is of a single request.
    pub burst: Option<BurstPart>,
    /// Files that could not be read in full.
    pub damage: Vec<Damage>,
    /// Number of traces that were not read because they are too large for the memory.
    pub large_traces: u64,
    /// Memory reserved for the requests of a burst.
    _share: Option<QueryShare>,
}

/// Burst, and the part of it that is shown, which takes at most a second. Times are in ns since the
/// Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BurstPart {
    /// Opening and closing of the burst.
    pub burst_ns: (i64, i64),
    /// Start and end of the shown part.
    pub shown_ns: (i64, i64),
}

impl BurstPart {
    /// Reports whether the burst is longer than the shown part.
    #[must_use]
    pub fn is_a_part(&self) -> bool {
        self.burst_ns != self.shown_ns
    }
}

/// Sums over the kernel recordings of a store that have windows. Times are in ns.
#[derive(Debug, Default)]
pub struct KernelOverview {
    /// Number of recordings.
    pub recordings: usize,
    /// Number of windows that opened.
    pub windows: u64,
    /// Number of events in the chunks that have windows.
    pub events: u64,
    /// Number of events lost from the start of each recording to its last chunk with windows.
    pub lost: u64,
    /// Kernel activity by request, in order of the low half of the trace id. The parts of a request
    /// in several windows and on several hosts are added up.
    pub requests: Vec<RequestSummary>,
    /// Number of stored requests with kernel activity, wholly in one window, and without cut or
    /// unfinished spans. Windows at most 10 µs apart count as one, even on different hosts. `calls`
    /// and `operations` cover only these requests, or all requests if there are none.
    pub whole: u64,
    /// System calls per request, with their numbers and durations.
    pub calls: Vec<CallPerRequest>,
    /// System calls and waits by operation.
    pub operations: Vec<OperationSum>,
    /// Locks and futexes at which requests waited, including requests not wholly in a window. The
    /// one with the longest total wait comes first.
    pub locks: Vec<LockSum>,
    /// Waits at locks by threads that worked for no known request.
    pub other_waits: WaitSum,
    /// Trace ids of the stored requests that the kernel worked for, by the low half of the id.
    pub ids: HashMap<u64, u128>,
    /// Architecture of the recording read last, which defines the numbers of system calls.
    pub architecture: Architecture,
    /// Files of kernel events that could not be read in full.
    pub damage: Vec<Damage>,
    /// Number of stored traces that were not read because they are too large for the memory.
    pub large_traces: u64,
}

/// Returns the timeline of one request. `trace` is its id, or the low half, which is what the
/// kernel knows. `name` is the id in errors. A request that only the kernel recorded has no
/// segments.
///
/// # Errors
/// Fails if there is no such trace, if the store cannot be read, or if there is too little memory.
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
    // If `trace` is only the low half of the id, every trace of the store has to be checked.
    if found.is_none() && trace >> 64 == 0 {
        let files = TraceFiles::open(source.store(), &keys)?;
        let mut reader = files.read(&IdRange::ALL, 1);
        let mut progress = source
            .observer
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
    let no_such = || {
        let (trace, data) = (name.to_owned(), source.name());
        QueryError::NoSuchTrace { trace, data }.with_damage(&damage)
    };
    let low = found
        .as_ref()
        .map_or(trace as u64, |records| records.stored_id().0 as u64);
    let seen_ns = match &found {
        Some(records) => recorded_ns(records),
        None => seen_by_kernel(source, low)?,
    };
    let (from_ns, to_ns) = seen_ns.ok_or_else(no_such)?;
    let (kernel, damaged) = kernel_of(source, low, from_ns, to_ns)?;
    damage.extend(damaged);
    Ok(TimelineView {
        requests: found.into_iter().collect(),
        kernel,
        damage,
        ..TimelineView::default()
    })
}

/// Returns the kernel activity for a trace, one part per recording, and the damage found. Covers
/// the windows that touch an interval of wall time (ns since the Unix epoch, inclusive). `low` is
/// the low half of the trace id.
///
/// # Errors
/// Fails if the store cannot be listed, or if its batches cannot be merged.
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

/// Adds to each part the burst-configs of its host's batches that touch an interval of wall time,
/// except those that the recorder used.
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
            let others = configs.filter(|config| !part.burst_configs.contains(config));
            part.services_configs.extend(others);
        }
    }
    for part in kernel {
        part.services_configs.sort_unstable();
        part.services_configs.dedup();
    }
    Ok(())
}

/// Returns the first and the last instant at which the kernel worked for a trace, in ns since the
/// Unix epoch; `None` if it never did. `low` is the low half of the trace id.
fn seen_by_kernel(source: &Source, low: u64) -> Result<Option<(i64, i64)>, QueryError> {
    let mut seen_ns: Option<(i64, i64)> = None;
    let what = "looking for it in the kernel's events";
    let mut progress = source.observer.begin(what, "chunks", None);
    let _ = each_chunk(source.store(), |ChunkView { part, .. }| {
        progress.add(1);
        let summaries = requests(&part.timeline, part.architecture);
        for summary in summaries.iter().filter(|one| one.trace == low) {
            let first_ns = part.clocks.wall_ns(summary.first_ns);
            let last_ns = part.clocks.wall_ns(summary.last_ns);
            let known = seen_ns.unwrap_or((first_ns, last_ns));
            seen_ns = Some((known.0.min(first_ns), known.1.max(last_ns)));
        }
    })?;
    Ok(seen_ns)
}

/// Returns the timeline of the kernel's burst that contains `at_ns` (ns since the Unix epoch), or
/// of the next one: at most a second of it, with the requests in that time. Without a kernel
/// burst from that instant on, returns the timeline of the [services' burst](of_recorded_burst).
///
/// # Errors
/// Fails if nothing was recorded in bursts from that instant on, on a read error, or if memory is
/// short.
pub fn of_burst(source: &Source, at_ns: i64) -> Result<TimelineView, QueryError> {
    let files = list_kernel(source.store())?;
    if files.is_empty() && source.bursts()?.is_empty() {
        return Err(QueryError::NoKernel(source.name()));
    }
    // The wanted window is in the chunk that covers the instant, or in a later one.
    let ends = files.iter().map(|file| file.covers_ns.1);
    let mut later: Vec<i64> = ends.filter(|&end_ns| end_ns > at_ns).collect();
    later.sort_unstable();
    for to_ns in later {
        // A burst may continue in the next chunk.
        let read_to_ns = to_ns.max(at_ns.saturating_add(ALWAYS_ON_SHOWN_NS));
        let (kernel, damage) = between(source.store(), at_ns, read_to_ns)?;
        let open = |part: &KernelPart| {
            let wall_ns = |ns| part.clocks.wall_ns(ns);
            let windows = part.timeline.windows.iter();
            let mut walls = windows.map(|of| (wall_ns(of.open_ns), wall_ns(of.close_ns)));
            walls.find(|&(_, close_ns)| close_ns > at_ns)
        };
        let first = |part: &KernelPart| Some((open(part)?, part.recording));
        let Some(((open_ns, close_ns), recording)) = kernel.iter().filter_map(first).min() else {
            continue;
        };
        let from_ns = open_ns.max(at_ns.min(close_ns - ALWAYS_ON_SHOWN_NS).max(open_ns));
        let to_ns = close_ns.min(from_ns.saturating_add(ALWAYS_ON_SHOWN_NS));
        let of_recording = files.iter().filter(|file| file.recording == recording);
        let burst_ns = whole_burst(of_recording, (open_ns, close_ns));
        let shown_ns = (from_ns, to_ns);
        return of_part(source, BurstPart { burst_ns, shown_ns }, kernel, damage);
    }
    of_recorded_burst(source, at_ns)
}

/// Returns the timeline of the services' burst that contains `at_ns` (ns since the Unix epoch), or
/// of the next one: at most a second, with the requests and kernel activity in it.
///
/// # Errors
/// Fails if nothing was recorded in bursts at that instant or later, if the store cannot be read,
/// or if there is too little memory.
pub fn of_recorded_burst(source: &Source, at_ns: i64) -> Result<TimelineView, QueryError> {
    let bursts = source.bursts()?;
    let holds_or_follows = bursts.iter().find(|(_, close_ns)| *close_ns > at_ns);
    let &(open_ns, close_ns) = holds_or_follows.ok_or_else(|| QueryError::NoBurst {
        at_ns,
        data: source.name(),
    })?;
    let from_ns = at_ns.clamp(open_ns, (close_ns - ALWAYS_ON_SHOWN_NS).max(open_ns));
    let to_ns = close_ns.min(from_ns.saturating_add(ALWAYS_ON_SHOWN_NS));
    let (kernel, damage) = between(source.store(), from_ns, to_ns)?;
    let part = BurstPart {
        burst_ns: (open_ns, close_ns),
        shown_ns: (from_ns, to_ns),
    };
    of_part(source, part, kernel, damage)
}

/// Returns the timeline of a part of a burst. Cuts the kernel activity to it, and reads the
/// requests in it.
fn of_part(
    source: &Source,
    burst: BurstPart,
    mut kernel: Vec<KernelPart>,
    damage: Vec<Damage>,
) -> Result<TimelineView, QueryError> {
    let (from_ns, to_ns) = burst.shown_ns;
    for part in &mut kernel {
        part.show(from_ns, to_ns);
    }
    kernel.retain(|part| !part.timeline.is_empty());
    compare_configs(source, &mut kernel, from_ns, to_ns)?;
    let (requests, share, damaged, large_traces) = requests_between(source, from_ns, to_ns)?;
    Ok(TimelineView {
        requests,
        kernel,
        damage: [damage, damaged].concat(),
        large_traces,
        burst: Some(burst),
        _share: Some(share),
    })
}

/// Returns the whole burst that a window belongs to, given the chunks of its recording in order of
/// time. Assumes that a window that reaches the edge of a chunk fills the adjacent chunk.
fn whole_burst<'a>(
    files: impl DoubleEndedIterator<Item = &'a KernelFile> + Clone,
    (mut open_ns, mut close_ns): (i64, i64),
) -> (i64, i64) {
    let touches =
        |edge_ns: i64, other_ns: i64| edge_ns.abs_diff(other_ns) <= CLOCKS_DIFFER_NS.unsigned_abs();
    for file in files.clone() {
        if touches(close_ns, file.covers_ns.0) {
            close_ns = file.covers_ns.1;
        }
    }
    for file in files.rev() {
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
) -> Result<(Vec<TraceRecords>, QueryShare, Vec<Damage>, u64), QueryError> {
    let mut progress = source
        .observer
        .begin("looking for requests", "traces", None);
    let touches = |records: &TraceRecords| {
        recorded_ns(records).is_some_and(|(start_ns, end_ns)| start_ns < to_ns && end_ns > from_ns)
    };
    // Reads only files with records up to an hour away. Other files are not searched.
    let range = TimeRange {
        since_ns: Some(from_ns),
        until_ns: Some(to_ns),
    };
    let keys = AttributeKeys::none();
    let files = TraceFiles::open_between(source.store(), &keys, range.records_ns())?;
    let mut traces = TraceReader::of(&files);
    let mut requests: Vec<TraceRecords> = Vec::new();
    let (mut records, mut share) = (TraceRecords::default(), source.share());
    while traces.next_within(&mut records, |bytes| bytes <= source.memory.trace_max()) {
        progress.add(1);
        if touches(&records) {
            let count = records.spans.len() + records.events.len();
            let room = share.take(ANALYSED_RECORD_BYTES * count);
            room.map_err(QueryError::lack_of_requests)?;
            requests.push(std::mem::take(&mut records));
        }
    }
    requests.sort_by_key(|records| (recorded_ns(records), records.id));
    let large_traces = traces.left_out().large_traces;
    Ok((requests, share, traces.damage(), large_traces))
}

/// Sums up the kernel recordings of a store that have windows.
///
/// # Errors
/// Fails if there is no such recording, if the store cannot be read, or if there is too little
/// memory.
pub fn overview(source: &Source) -> Result<KernelOverview, QueryError> {
    let mut overview = KernelOverview::default();
    let mut lost: BTreeMap<u128, LossCounts> = BTreeMap::new();
    let mut of_request = HostSummaries::default();
    let mut windows: Vec<(i64, i64)> = Vec::new();
    let (mut sums, mut locks) = (SpanSums::default(), LockSums::default());
    let what = "reading the kernel's events";
    let mut progress = source.observer.begin(what, "chunks", None);
    overview.damage = each_chunk(source.store(), |chunk| {
        progress.add(1);
        let part = chunk.part;
        lost.insert(part.recording, part.lost);
        overview.windows += chunk.windows;
        overview.events += chunk.events;
        let wall = |at_ns| part.clocks.wall_ns(at_ns);
        let opened = part.timeline.windows.iter();
        windows.extend(opened.map(|window| (wall(window.open_ns), wall(window.close_ns))));
        overview.architecture = part.architecture;
        sums.observe(&part.timeline, part.architecture);
        let host: Arc<str> = Arc::from(&*part.host);
        locks.observe(&host, &part.timeline, wall);
        for summary in requests(&part.timeline, part.architecture) {
            of_request.add(&host, summary);
        }
    })?;
    if lost.is_empty() {
        return Err(QueryError::NoKernel(source.name()));
    }
    overview.recordings = lost.len();
    overview.lost = lost.values().map(LossCounts::total).sum();
    overview.requests = of_request.into_requests();
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
    // Numbers per request are meaningful only for whole requests.
    let is_counted = |trace: u64| whole.is_empty() || whole.contains(&trace);
    let counted = overview.requests.iter();
    let counted = counted.filter(|request| is_counted(request.trace));
    let counted: Vec<RequestSummary> = counted.cloned().collect();
    overview.calls = calls_per_request(&counted);
    sums.retain(|span| is_counted(span.trace));
    overview.operations = sums.by_operation(|span| spans.of(span));
    overview.ids = spans.ids;
    Ok(overview)
}

/// Returns windows in order of time. Joins windows that are at most [`CLOCKS_DIFFER_NS`] apart.
pub(super) fn joined(mut windows: Vec<(i64, i64)>) -> Vec<(i64, i64)> {
    windows.sort_unstable();
    let mut joined: Vec<(i64, i64)> = Vec::new();
    for (open_ns, close_ns) in windows {
        match joined.last_mut() {
            // If a clock was corrected in between, there is a small gap at the end of a chunk.
            Some(last) if open_ns <= last.1.saturating_add(CLOCKS_DIFFER_NS) => {
                last.1 = last.1.max(close_ns);
            }
            _ => joined.push((open_ns, close_ns)),
        }
    }
    joined
}

const CLOCKS_DIFFER_NS: i64 = 10_000;
