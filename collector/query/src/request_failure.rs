//! Failed spans of one request with their errors, and the path of the failure from its origin.

use std::collections::{BTreeMap, HashSet};

use stroboscope_analysis::failure::{FAILURE_KEYS, FailureFinder, StatedFailure};
use stroboscope_analysis::flow::failed_spans;
use stroboscope_analysis::record::{RecordOwner, TraceRecords};
use stroboscope_analysis::segment::OutlineSpan;

const STACK: &str = "exception.stacktrace";
const TYPE: &str = "exception.type";
const MESSAGE: &str = "exception.message";
/// Maximum number of failed spans that are described. Those of the trail come first, then the
/// others.
const DESCRIBED_MAX: usize = 100;

/// Returns the attributes that describe a failure, and the attribute with the stack trace of an
/// exception.
pub(super) fn request_failure_keys() -> impl Iterator<Item = &'static str> {
    FAILURE_KEYS.into_iter().chain([STACK])
}

/// Failure of a request, or a failure from which it recovered. Spans are indexes into the request's
/// outline.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestFailure {
    /// True if the root span failed as well, or if it was not recorded and the failure may have
    /// reached it; false if the request recovered.
    pub has_reached_root: bool,
    /// Spans that the failure passed through, from its origin up towards the root.
    pub trail: Vec<usize>,
    /// Indexes of all failed spans.
    pub failed: HashSet<usize>,
    /// Descriptions of at most 100 failed spans; those of the trail come first.
    pub described: Vec<FailedSpan>,
}

/// Failed span with its error.
#[derive(Clone, Debug, PartialEq)]
pub struct FailedSpan {
    pub place: usize,
    pub stated: StatedFailure,
    /// Exceptions recorded on the span itself, then those of its events in order, then those of its
    /// log lines.
    pub exceptions: Vec<SpanException>,
}

/// Exception as attributes of a span, event or log line describe it. Missing texts are empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpanException {
    pub kind: String,
    pub message: String,
    pub stack: String,
}

/// Finds the failure of a request, whose records must have the attributes of
/// [`request_failure_keys`]. Returns `None` if no span failed.
pub(super) fn request_failure(
    records: &TraceRecords,
    outline: &[OutlineSpan],
) -> Option<RequestFailure> {
    let mut finder = FailureFinder::default();
    let trail = finder.trail(records)?;
    let ids: HashSet<u64> = failed_spans(records).collect();
    let id = |place: usize| records.spans[outline[place].record].span_id;
    let failed: HashSet<usize> = (0..outline.len())
        .filter(|place| ids.contains(&id(*place)))
        .collect();
    let place_of = |span_id: u64| (0..outline.len()).find(|place| id(*place) == span_id);
    let has_reached_root = trail.has_reached_root;
    let spans = trail.spans.iter();
    let trail: Vec<usize> = spans.filter_map(|span| place_of(span.span_id)).collect();
    let of_trail = trail.iter().copied().filter(|place| failed.contains(place));
    let others =
        (0..outline.len()).filter(|place| failed.contains(place) && !trail.contains(place));
    let describe = |place: usize| FailedSpan {
        place,
        stated: StatedFailure::in_full(records, &records.spans[outline[place].record]),
        exceptions: exceptions(records, id(place)),
    };
    let described = of_trail.chain(others).take(DESCRIBED_MAX);
    let described = described.map(describe).collect();
    Some(RequestFailure {
        has_reached_root,
        trail,
        failed,
        described,
    })
}

fn exceptions(records: &TraceRecords, span_id: u64) -> Vec<SpanException> {
    let mut found = BTreeMap::<RecordOwner, SpanException>::new();
    for said in &records.attributes {
        let is_its = matches!(said.owner, RecordOwner::Span(id) | RecordOwner::InSpan(id, _) if id == span_id);
        if !is_its || ![TYPE, MESSAGE, STACK].contains(&&*said.key) {
            continue;
        }
        let exception = found.entry(said.owner).or_default();
        let field = match &*said.key {
            TYPE => &mut exception.kind,
            MESSAGE => &mut exception.message,
            _ => &mut exception.stack,
        };
        *field = said.value.trim().to_owned();
    }
    found.into_values().collect()
}
