//! Encodes a request as columns: its tree of spans, their segments, events, and kernel activity.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::{Value, json};
use stroboscope_analysis::record::SpanFlags;
use stroboscope_query::Request;

use super::columns::{Column, Columns, NONE, VERSION};
use super::kernel_rows::{rows, thread_name};
use super::texts::NumberedSet;

/// Flag of a span, in addition to those of [`SpanFlags`]: it names a parent, but is a root of the
/// tree of spans, because the parent was not recorded or the span is its own ancestor.
const ORPHAN: u16 = 256;
/// Flag of a row that is a task of an event log, not a span.
const TASK: u16 = 512;
/// Flag of a failed span.
const FAILED: u16 = 1024;
/// Flag of a segment on the critical path; `AFTER_ANSWER` marks one after the response.
const CRITICAL: u8 = 1;
const AFTER_ANSWER: u8 = 2;
/// Maximum number of kernel rows; the others are counted.
const KERNEL_ROWS_MAX: usize = 200_000;

/// Encodes a request as columns.
pub(super) fn columns_of(request: &Request) -> Columns {
    let mut columns = Columns::default();
    let origin_ns = origin(request);
    let tasks = tasks(request);
    let mut names = Names::default();
    let hosts = hosts(request);
    spans(request, &tasks, origin_ns, &mut names, &hosts, &mut columns);
    segments(request, &tasks, origin_ns, &mut columns);
    events(request, origin_ns, &mut columns);
    kernel(request, origin_ns, &hosts, &mut columns);
    let ends = request.aligned.spans.iter().map(|span| span.end_ns);
    let end_ns = ends.fold(request.trace.end_ns, i64::max);
    let path = request.path.as_ref();
    let answer_ns = request.trace.answer_ns;
    let is_answered = answer_ns < end_ns;
    let head = &mut columns.head;
    head.insert("format".into(), json!("stroboscope request"));
    head.insert("version".into(), json!(VERSION));
    head.insert("trace".into(), json!(request.recorded.id.to_string()));
    // The origin is a text, because readers that parse numbers as floating point lose digits.
    head.insert("origin_ns".into(), json!(origin_ns.to_string()));
    head.insert("length_ns".into(), json!(end_ns.abs_diff(origin_ns)));
    let answer = is_answered.then(|| offset(answer_ns, origin_ns));
    head.insert("answer_ns".into(), json!(answer));
    // Without a path, slack is not a number.
    head.insert("has_path".into(), json!(path.is_some()));
    head.insert("latency_ns".into(), json!(path.map(|path| path.latency_ns)));
    head.insert("services".into(), texts(names.services.values()));
    head.insert("operations".into(), json!(names.operations.values()));
    head.insert("hosts".into(), Value::Array(hosts_json(request, &hosts)));
    columns
}

#[derive(Default)]
struct Names {
    services: NumberedSet<Arc<str>>,
    operations: NumberedSet<(u32, Arc<str>)>,
}

fn texts(values: &[Arc<str>]) -> Value {
    values.iter().map(|value| json!(&**value)).collect()
}

/// Returns the instant from which offsets count, in ns since the Unix epoch: the earliest start.
fn origin(request: &Request) -> i64 {
    let starts = request.aligned.spans.iter().map(|span| span.start_ns);
    match starts.min() {
        Some(first_ns) => first_ns.min(request.trace.start_ns),
        None => request.trace.start_ns,
    }
}

fn offset(at_ns: i64, origin_ns: i64) -> f64 {
    (i128::from(at_ns) - i128::from(origin_ns)) as f64
}

/// A task of an event log.
struct TaskRow {
    name: Arc<str>,
    start_ns: i64,
    end_ns: i64,
}

/// Returns the tasks of segments without a span, in order of their start, and the row number of
/// each.
fn tasks(request: &Request) -> (Vec<TaskRow>, HashMap<Arc<str>, u32>) {
    let mut found: BTreeMap<Arc<str>, (i64, i64)> = BTreeMap::new();
    for (segment, owner) in request.trace.segments.iter().zip(&request.owners) {
        let Some(label) = request.labels.get(segment.id).filter(|_| owner.is_none()) else {
            continue;
        };
        let times = found
            .entry(label.task.clone())
            .or_insert((segment.start_ns, segment.end_ns));
        *times = (times.0.min(segment.start_ns), times.1.max(segment.end_ns));
    }
    let row = |(name, (start_ns, end_ns))| TaskRow {
        name,
        start_ns,
        end_ns,
    };
    let mut rows: Vec<TaskRow> = found.into_iter().map(row).collect();
    rows.sort_by(|a, b| (a.start_ns, &a.name).cmp(&(b.start_ns, &b.name)));
    let first = request.outline.len() as u32;
    let places = (first..).zip(&rows);
    let places = places
        .map(|(place, row)| (row.name.clone(), place))
        .collect();
    (rows, places)
}

fn hosts(request: &Request) -> HashMap<Arc<str>, u32> {
    let names = request.recorded.hosts();
    let unknown = request.kernel.iter().map(|part| Arc::from(&*part.host));
    let mut hosts = HashMap::new();
    for name in names.into_iter().cloned().chain(unknown) {
        let number = hosts.len() as u32;
        hosts.entry(name).or_insert(number);
    }
    hosts
}

/// Describes each host's clock, in order of the hosts' numbers.
fn hosts_json(request: &Request, hosts: &HashMap<Arc<str>, u32>) -> Vec<Value> {
    let mut moved: HashMap<&str, (i64, i64)> = HashMap::new();
    let both = request.recorded.spans.iter().zip(&request.aligned.spans);
    for (recorded, aligned) in both {
        let by_ns = aligned.start_ns.saturating_sub(recorded.start_ns);
        let known = moved.entry(&recorded.host).or_insert((by_ns, by_ns));
        *known = (known.0.min(by_ns), known.1.max(by_ns));
    }
    let root_host = request
        .outline
        .first()
        .map(|root| &request.aligned.spans[root.record].host);
    let clock_of = |host: &str| {
        let clocks = &request.aligned.clocks;
        clocks.iter().find(|clock| &*clock.host == host)
    };
    let island = |host: &str| clock_of(host).map_or(0, |clock| clock.island);
    let mut in_order: Vec<(&Arc<str>, &u32)> = hosts.iter().collect();
    in_order.sort_by_key(|(_, number)| **number);
    let one = |(host, _): (&Arc<str>, &u32)| {
        let moved = moved.get(&**host).filter(|moved| **moved != (0, 0));
        json!({
            "name": &**host,
            "error_ns": clock_of(host).map_or(0, |clock| clock.error_ns),
            "moved_ns": moved.map(|(least, most)| [*least, *most]),
            "tied": root_host.is_none_or(|root| island(root) == island(host)),
        })
    };
    in_order.into_iter().map(one).collect()
}

fn spans(
    request: &Request,
    (tasks, _): &(Vec<TaskRow>, HashMap<Arc<str>, u32>),
    origin_ns: i64,
    names: &mut Names,
    hosts: &HashMap<Arc<str>, u32>,
    columns: &mut Columns,
) {
    let count = request.outline.len() + tasks.len();
    let with = || Vec::with_capacity(count);
    let (mut start, mut end, mut id) = (with(), with(), Vec::with_capacity(count));
    let (mut raw_start, mut raw_end) = (with(), with());
    let (mut parent, mut operation, mut host) = (Vec::new(), Vec::new(), Vec::new());
    let mut flags: Vec<u16> = Vec::with_capacity(count);
    let has_failed = |place: usize| {
        let failure = request.failure.as_ref();
        failure.is_some_and(|failure| failure.failed.contains(&place))
    };
    for (place, of) in request.outline.iter().enumerate() {
        let (span, recorded) = (
            &request.aligned.spans[of.record],
            &request.recorded.spans[of.record],
        );
        start.push(offset(span.start_ns, origin_ns));
        end.push(offset(span.end_ns.max(span.start_ns), origin_ns));
        raw_start.push(offset(recorded.start_ns, origin_ns));
        raw_end.push(offset(recorded.end_ns.max(recorded.start_ns), origin_ns));
        id.push(span.span_id);
        parent.push(of.parent.map_or(NONE, |place| place as u32));
        let service = names.services.of(span.service.clone());
        operation.push(names.operations.of((service, span.name.clone())));
        host.push(hosts.get(&span.host).copied().unwrap_or(NONE));
        let is_orphan = span.parent_id != 0 && of.parent.is_none();
        let orphan = if is_orphan { ORPHAN } else { 0 };
        let failed = if has_failed(place) { FAILED } else { 0 };
        flags.push(span_flags(span.flags) | orphan | failed);
    }
    for task in tasks {
        let times = [task.start_ns, task.end_ns].map(|at_ns| offset(at_ns, origin_ns));
        start.push(times[0]);
        end.push(times[1]);
        raw_start.push(times[0]);
        raw_end.push(times[1]);
        id.push(0);
        parent.push(NONE);
        // A task has no service: its number is one that no service has.
        operation.push(names.operations.of((NONE, task.name.clone())));
        host.push(NONE);
        flags.push(TASK);
    }
    let is_corrected = start != raw_start || end != raw_end;
    columns.push("spans.start", Column::F64(start));
    columns.push("spans.end", Column::F64(end));
    if is_corrected {
        columns.push("spans.raw_start", Column::F64(raw_start));
        columns.push("spans.raw_end", Column::F64(raw_end));
    }
    columns.push("spans.id", Column::U64(id));
    columns.push("spans.parent", Column::U32(parent));
    columns.push("spans.operation", Column::indices(operation));
    columns.push("spans.host", Column::indices(host));
    columns.push("spans.flags", Column::U16(flags));
}

/// Drops the bits above 128, to which the format gives another meaning, or none.
fn span_flags(flags: SpanFlags) -> u16 {
    (flags.0 & 0xff) as u16
}

fn segments(
    request: &Request,
    (_, task_places): &(Vec<TaskRow>, HashMap<Arc<str>, u32>),
    origin_ns: i64,
    columns: &mut Columns,
) {
    let mut boundaries: NumberedSet<Arc<str>> = NumberedSet::default();
    let (mut start, mut end) = (Vec::new(), Vec::new());
    let (mut wait, mut slack) = (Vec::new(), Vec::new());
    let (mut span, mut flags) = (Vec::new(), Vec::new());
    let (mut from, mut to) = (Vec::new(), Vec::new());
    for (at, segment) in request.trace.segments.iter().enumerate() {
        let Some(label) = request.labels.get(segment.id) else {
            continue;
        };
        let owner = request.owners.get(at).copied().flatten();
        let task = || task_places.get(&label.task).copied();
        let timing = request.path.as_ref().map(|path| path.segments[at]);
        let is = |flag: u8, holds: Option<bool>| if holds == Some(true) { flag } else { 0 };
        start.push(offset(segment.start_ns, origin_ns));
        end.push(offset(segment.end_ns, origin_ns));
        wait.push(timing.map_or(0.0, |timing| timing.wait_ns as f64));
        slack.push(timing.map_or(f64::NAN, |timing| timing.slack_ns as f64));
        span.push(
            owner
                .map(|place| place as u32)
                .or_else(task)
                .unwrap_or(NONE),
        );
        flags.push(
            is(CRITICAL, timing.map(|timing| timing.critical))
                | is(AFTER_ANSWER, timing.map(|timing| timing.after_answer)),
        );
        from.push(boundaries.of(label.start.clone()));
        to.push(boundaries.of(label.end.clone()));
    }
    for other in &request.unmodelled {
        start.push(offset(other.start_ns, origin_ns));
        end.push(offset(other.end_ns, origin_ns));
        wait.push(0.0);
        slack.push(f64::NAN);
        span.push(other.owner as u32);
        flags.push(0);
        from.push(boundaries.of(other.start.clone()));
        to.push(boundaries.of(other.end.clone()));
    }
    columns.push("segments.start", Column::F64(start));
    columns.push("segments.end", Column::F64(end));
    columns.push("segments.wait", Column::F64(wait));
    columns.push("segments.slack", Column::F64(slack));
    columns.push("segments.span", Column::U32(span));
    columns.push("segments.flags", Column::U8(flags));
    columns.push("segments.from", Column::indices(from));
    columns.push("segments.to", Column::indices(to));
    columns
        .head
        .insert("boundaries".into(), texts(boundaries.values()));
}

/// Encodes the events of spans, those of a span in order of time.
fn events(request: &Request, origin_ns: i64, columns: &mut Columns) {
    let mut names: NumberedSet<Arc<str>> = NumberedSet::default();
    let (mut owner, mut at, mut name) = (Vec::new(), Vec::new(), Vec::new());
    for (place, of) in (0u32..).zip(&request.outline) {
        let mut events: Vec<_> = request.aligned.spans[of.record].events.iter().collect();
        events.sort_by_key(|event| event.time_ns);
        for event in events {
            owner.push(place);
            at.push(offset(event.time_ns, origin_ns));
            name.push(names.of(event.name.clone()));
        }
    }
    columns.push("events.span", Column::U32(owner));
    columns.push("events.at", Column::F64(at));
    columns.push("events.name", Column::indices(name));
    columns.head.insert("events".into(), texts(names.values()));
}

/// Encodes kernel activity. Shifts each row by the clock correction of its span, if the request has
/// the span, and the windows of a recording by as much as the recording's last row, if it has one.
fn kernel(
    request: &Request,
    origin_ns: i64,
    hosts: &HashMap<Arc<str>, u32>,
    columns: &mut Columns,
) {
    let places: HashMap<u64, u32> = (0u32..)
        .zip(&request.outline)
        .map(|(place, of)| (request.aligned.spans[of.record].span_id, place))
        .collect();
    let moved_ns = |place: u32| {
        let record = request.outline[place as usize].record;
        let (aligned, recorded) = (&request.aligned.spans, &request.recorded.spans);
        aligned[record]
            .start_ns
            .saturating_sub(recorded[record].start_ns)
    };
    let mut threads: NumberedSet<(Arc<str>, u32)> = NumberedSet::default();
    let mut texts_seen: NumberedSet<Arc<str>> = NumberedSet::default();
    let mut holders: NumberedSet<u64> = NumberedSet::default();
    let mut locks: NumberedSet<Arc<str>> = NumberedSet::default();
    let (mut span, mut start, mut end) = (Vec::new(), Vec::new(), Vec::new());
    let (mut kind, mut thread) = (Vec::new(), Vec::new());
    let (mut text, mut holder, mut lock) = (Vec::new(), Vec::new(), Vec::new());
    let (mut left_out, mut windows) = (0, Vec::new());
    let low = request.recorded.stored_id().0 as u64;
    for part in &request.kernel {
        let room = KERNEL_ROWS_MAX.saturating_sub(span.len());
        let (rows, more) = rows(part, low, room);
        left_out += more;
        let host = hosts.get(&*part.host).copied().unwrap_or(NONE);
        let mut host_moved_ns = 0;
        for row in rows {
            let place = places.get(&row.span).copied();
            let by_ns = place.map_or(0, moved_ns);
            host_moved_ns = by_ns;
            let at = |ns: i64| offset(ns.saturating_add(by_ns), origin_ns);
            // Activity of a span that was not recorded belongs to no row of the timeline.
            span.push(place.unwrap_or(NONE));
            start.push(at(row.start_ns));
            end.push(row.end_ns.map_or(f64::NAN, at));
            kind.push(row.kind as u8);
            thread.push(threads.of((Arc::from(thread_name(part, row.thread)), host)));
            text.push(texts_seen.of(Arc::from(row.text)));
            holder.push(row.holder.map_or(NONE, |low| holders.of(low)));
            lock.push(row.lock.map_or(NONE, |name| locks.of(Arc::from(name))));
        }
        for window in &part.timeline.windows {
            let at = |ns: u64| {
                let wall_ns = part.clocks.wall_ns(ns).saturating_add(host_moved_ns);
                offset(wall_ns, origin_ns)
            };
            windows.push([at(window.open_ns), at(window.close_ns)]);
        }
    }
    columns.push("kernel.span", Column::U32(span));
    columns.push("kernel.start", Column::F64(start));
    columns.push("kernel.end", Column::F64(end));
    columns.push("kernel.kind", Column::U8(kind));
    columns.push("kernel.thread", Column::indices(thread));
    columns.push("kernel.text", Column::indices(text));
    columns.push("kernel.holder", Column::U32(holder));
    columns.push("kernel.lock", Column::U32(lock));
    let thread = |(name, host): &(Arc<str>, u32)| json!({ "name": &**name, "host": host });
    let threads: Value = threads.values().iter().map(thread).collect();
    let low = |low: &u64| json!(format!("{low:016x}"));
    let head = &mut columns.head;
    head.insert("threads".into(), threads);
    head.insert("texts".into(), texts(texts_seen.values()));
    head.insert("holders".into(), holders.values().iter().map(low).collect());
    head.insert("locks".into(), texts(locks.values()));
    head.insert("windows".into(), json!(windows));
    head.insert("kernel_left_out".into(), json!(left_out));
}
