//! Data about one request for display: its records, spans, segments, critical path, failure and
//! kernel activity.

use std::sync::Arc;

use stroboscope_analysis::completeness::{Incomplete, completeness};
use stroboscope_analysis::critical_path::TracePath;
use stroboscope_analysis::label::Labels;
use stroboscope_analysis::record::{AttributeRecord, RecordOwner, SpanRecord, TraceRecords};
use stroboscope_analysis::segment::{OutlineSpan, SegmentedTrace, Segmenter, owners};
use stroboscope_store::query_memory::QueryShare;
use stroboscope_store::tables::{AttributeKeys, Damage, TraceFiles, TraceReader};

use super::cutter::Cutter;
use super::inference::Inference;
use super::kernel::KernelPart;
use super::query_error::QueryError;
use super::request_connection::{RequestConnection, request_connection};
use super::request_failure::{RequestFailure, request_failure, request_failure_keys};
use super::source::Source;
use super::span_links::{Follows, LINKS, LinkReader};
use super::stored_request::{RequestWanted, StoredRequest};
use super::time_range::TimeRange;
use super::timeline::kernel_of;

/// Data about one request.
#[derive(Debug)]
pub struct Request {
    /// Records of the request as they were recorded, without attributes other than `element`.
    pub recorded: TraceRecords,
    /// Copy of `recorded`, in the same order. With a model, its correction of the clocks is applied
    /// to the times.
    pub aligned: TraceRecords,
    /// Tree of the request's spans, which refers to the records of `aligned`.
    pub outline: Vec<OutlineSpan>,
    /// Request cut into segments.
    pub trace: SegmentedTrace,
    /// Index into `outline` of the span that each segment of `trace` belongs to; `None` if it
    /// belongs to no span.
    pub owners: Vec<Option<usize>>,
    /// Labels of the segments.
    pub labels: Labels,
    /// Segments of the spans that own no segment of `trace`. They are drawn, but are not part of
    /// critical paths.
    pub unmodelled: Vec<UnmodelledSegment>,
    /// Critical path and slack, over the segments of `trace`; `None` without a model.
    pub path: Option<TracePath>,
    /// Failure of the request, or a failure from which it recovered; `None` if no span failed.
    pub failure: Option<RequestFailure>,
    /// Trace that the request was divided from, or the requests that were divided from it.
    pub connection: RequestConnection,
    /// Spans of other requests that the request links to.
    pub follows: Follows,
    /// Reasons why the request counts as incomplete; empty if there are none.
    pub reasons: Vec<Incomplete>,
    /// Kernel activity on behalf of the request, one part per recording.
    pub kernel: Vec<KernelPart>,
    /// Files that could not be read in full.
    pub damage: Vec<Damage>,
    /// Number of the request's spans in the store, without copies; `recorded` may have only some of
    /// them.
    pub spans_in_store: u64,
    /// Memory of the request, held as long as it exists.
    pub share: QueryShare,
}

/// Selects a request, and the part of it to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestAsked {
    pub id: u128,
    /// Maximum number of spans of a trace to read, from the first one; `None` for no such limit. It
    /// does not apply to a request that is divided from a trace.
    pub spans_max: Option<usize>,
}

impl RequestAsked {
    /// Selects the whole request.
    #[must_use]
    pub fn whole(id: u128) -> Self {
        Self {
            id,
            spans_max: None,
        }
    }
}

/// Memory per record in multiples of the memory that the analysis of a record takes. The second
/// multiple is for the aligned copy of the record, and for segments with labels of their own.
const ANALYSES_PER_RECORD: usize = 2;

/// Segment of a span that owns no labelled segment, for example because the model's limit on labels
/// was reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnmodelledSegment {
    /// Span that the segment belongs to, as an index into [`Request::outline`].
    pub owner: usize,
    pub start: Arc<str>,
    pub end: Arc<str>,
    /// Start, in ns since the Unix epoch.
    pub start_ns: i64,
    /// End, in ns since the Unix epoch.
    pub end_ns: i64,
}

/// Maximum number of labels when a request is cut for its unmodelled segments.
const LABELS_MAX: usize = 1 << 22;

/// Returns the segments of the spans that own no labelled segment. `known` holds the owner of each
/// labelled segment, as an index into `outline`.
pub fn unmodelled(
    aligned: &TraceRecords,
    outline: &[OutlineSpan],
    known: &[Option<usize>],
) -> Vec<UnmodelledSegment> {
    let mut has_some = vec![false; outline.len()];
    for place in known.iter().flatten() {
        has_some[*place] = true;
    }
    // A span that only waits has no segment either. Such a span makes this function cut the request
    // once more in vain.
    if has_some.iter().all(|has| *has) {
        return Vec::new();
    }
    let mut labels = Labels::with_max(LABELS_MAX);
    let (trace, _) = Segmenter::default().segment(aligned, &mut labels);
    let all = owners(aligned, outline, &trace.segments, &labels);
    let others = trace
        .segments
        .iter()
        .zip(all)
        .filter_map(|(segment, owner)| {
            let label = labels.get(segment.id)?;
            Some(UnmodelledSegment {
                owner: owner.filter(|place| !has_some[*place])?,
                start: label.start.clone(),
                end: label.end.clone(),
                start_ns: segment.start_ns,
                end_ns: segment.end_ns,
            })
        });
    others.collect()
}

impl Request {
    /// Returns the first and the last recorded instant, in ns since the Unix epoch.
    #[must_use]
    pub fn recorded_ns(&self) -> (i64, i64) {
        bounds(&self.recorded)
    }

    /// Returns the name of the request in its source, or its hexadecimal id if it has no other
    /// name.
    #[must_use]
    pub fn label(&self) -> String {
        let name = self.recorded.name.as_ref();
        name.map_or_else(|| self.recorded.id.to_string(), |name| name.to_string())
    }
}

fn bounds(records: &TraceRecords) -> (i64, i64) {
    let spans = records.spans.iter();
    let of_spans = spans.map(|span| (span.start_ns, span.end_ns.max(span.start_ns)));
    let events = records.events.iter();
    let all = of_spans.chain(events.map(|event| (event.ts_ns, event.ts_ns)));
    all.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
        .unwrap_or_default()
}

/// Reads the records of one request, complete or not, and returns the damage found. Reads only
/// files that may hold it.
fn records(
    source: &Source,
    asked: RequestAsked,
    keys: &AttributeKeys,
) -> Result<(Option<StoredRequest>, Vec<Damage>), QueryError> {
    let wanted = RequestWanted {
        id: asked.id,
        keys,
        spans_max: asked.spans_max.unwrap_or(usize::MAX),
        reserved: ANALYSES_PER_RECORD,
    };
    let found = source.find_request(wanted, i64::MIN..=i64::MAX)?;
    Ok((found.request, found.damage))
}

/// Returns the request with this id, complete or not; `None` if there is none. The critical path
/// requires an `inference`. Reads only files of traces that may hold the request, or a request to
/// which it links.
///
/// # Errors
/// Fails if the store cannot be read, or if the memory does not suffice for the request.
pub fn request(
    source: &Source,
    inference: Option<&Inference>,
    asked: RequestAsked,
) -> Result<Option<Request>, QueryError> {
    let keys = AttributeKeys::of(request_failure_keys().chain([LINKS])).with_elements();
    let (found, mut damage) = records(source, asked, &keys)?;
    let Some(found) = found else {
        return Ok(None);
    };
    let mut recorded = found.records;
    let connection = request_connection(&recorded, &source.connections);
    let mut aligned = recorded.clone();
    let (trace, path, labels) = match inference {
        Some(inference) => {
            let mut cutter = Cutter::of(inference);
            let (trace, path) = cutter.path(inference, &mut aligned);
            (trace, Some(path), cutter.labels)
        }
        None => {
            let mut labels = Labels::default();
            let (trace, _) = Segmenter::default().segment(&aligned, &mut labels);
            (trace, None, labels)
        }
    };
    let alignment = inference.and_then(|inference| inference.alignment.as_ref());
    let links = LinkReader { source, alignment };
    let follows = links.followed(&aligned)?;
    damage.extend(follows.damage.iter().cloned());
    let outline = Segmenter::default().outline(&aligned);
    let failure = request_failure(&aligned, &outline);
    for records in [&mut recorded, &mut aligned] {
        let is_read = |key: &str| key == LINKS || request_failure_keys().any(|of| of == key);
        records.attributes.retain(|said| !is_read(&said.key));
    }
    let owners = owners(&aligned, &outline, &trace.segments, &labels);
    let unmodelled = unmodelled(&aligned, &outline, &owners);
    let (from_ns, to_ns) = bounds(&recorded);
    let (kernel, kernel_damage) = kernel_of(source, found.trace as u64, from_ns, to_ns)?;
    damage.extend(kernel_damage);
    let mut reasons = completeness(&recorded, source.losses()).reasons;
    reasons.extend(source.inner_root(&recorded));
    Ok(Some(Request {
        recorded,
        aligned,
        outline,
        trace,
        owners,
        labels,
        unmodelled,
        path,
        failure,
        connection,
        follows,
        reasons,
        kernel,
        damage,
        spans_in_store: found.spans,
        share: found.share,
    }))
}

/// Reports whether a request with this id exists.
///
/// # Errors
/// Fails if the store cannot be read, or if there is too little memory.
pub fn request_exists(source: &Source, id: u128) -> Result<bool, QueryError> {
    let asked = RequestAsked {
        id,
        spans_max: Some(1),
    };
    let (found, _) = records(source, asked, &AttributeKeys::none())?;
    Ok(found.is_some())
}

/// Returns the whole id of a request from its low half, which is the only part that the kernel
/// knows. Reads the traces that begin in `range`, except those that are too large for the memory.
/// Returns `None` if none of them has the id.
///
/// # Errors
/// Fails if the store cannot be read.
pub fn request_of_low(
    source: &Source,
    low: u64,
    range: TimeRange,
) -> Result<Option<u128>, QueryError> {
    let keys = AttributeKeys::none();
    let files = TraceFiles::open_between(source.store(), &keys, range.records_ns())?;
    let mut traces = TraceReader::of(&files);
    let mut records = TraceRecords::default();
    while traces.next_within(&mut records, |bytes| bytes <= source.memory.trace_max()) {
        if records.id.0 as u64 == low && range.holds(&records) {
            return Ok(Some(records.id.0));
        }
    }
    Ok(None)
}

/// Completes the id of a request if only its low half is given, as tables print it. If the high
/// half is 0 and no request has the id as given, reads traces until one has this low half. Returns
/// the id as given in all other cases.
///
/// # Errors
/// Fails if the store cannot be read, or if there is too little memory.
pub fn whole_id(source: &Source, id: u128) -> Result<u128, QueryError> {
    if id >> 64 != 0 || request_exists(source, id)? {
        return Ok(id);
    }
    let whole = request_of_low(source, id as u64, TimeRange::default())?;
    Ok(whole.unwrap_or(id))
}

/// Returns one span of a request, its attributes and those of its events and log lines, and the
/// recorded start of the request in ns since the Unix epoch. Returns `None` if no span that is read
/// has the id. If several have it, returns the first of them.
///
/// # Errors
/// Fails if the store cannot be read, or if there is too little memory.
pub fn span_of(
    source: &Source,
    asked: RequestAsked,
    span_id: u64,
) -> Result<Option<(SpanRecord, Vec<AttributeRecord>, i64)>, QueryError> {
    let (found, _) = records(source, asked, &AttributeKeys::all())?;
    Ok(found.and_then(|StoredRequest { records, .. }| {
        let start_ns = bounds(&records).0;
        let mut spans = records.spans.into_iter();
        let span = spans.find(|span| span.span_id == span_id)?;
        let is_its = |one: &AttributeRecord| {
            matches!(one.owner, RecordOwner::Span(id) | RecordOwner::InSpan(id, _) if id == span_id)
        };
        let attributes = records.attributes.into_iter().filter(is_its).collect();
        Some((span, attributes, start_ns))
    }))
}
