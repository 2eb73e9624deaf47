//! Critical path of a request across links from its spans to spans of other traces.

use std::collections::HashMap;

use stroboscope_analysis::critical_path::{
    Entry, LinkedRequests, PathAcross, SegmentTiming, TracePath, path_across,
};
use stroboscope_analysis::record::{TraceId, TraceRecords};
use stroboscope_analysis::sampling::WeightedCount;
use stroboscope_analysis::segment::{OutlineSpan, SegmentedTrace, Segmenter, owners};
use stroboscope_store::tables::{AttributeKeys, Damage};

use super::cutter::Cutter;
use super::inference::Inference;
use super::notes::Notes;
use super::paths::TraceAnswer;
use super::query_error::QueryError;
use super::search::with_cut;
use super::source::{Selection, Source};
use super::span_links::{Follows, LINKS, LinkReader, StoredSpanId};

/// Critical path of one request, and its links.
#[derive(Debug)]
pub struct LinkedPath {
    pub answer: TraceAnswer,
    /// Spans that the request links to.
    pub follows: Follows,
    /// Spans that link to the request.
    pub followers: Follows,
    /// Path across traces; `None` unless it was requested.
    pub across: Option<AcrossAnswer>,
}

/// Critical path across traces.
#[derive(Debug)]
pub struct AcrossAnswer {
    pub path: PathAcross<StoredSpanId>,
    /// Request of each leg of the path.
    pub requests: Vec<LegRequest>,
    /// Number of links of the requests on the path to spans that are not in the store, or were not
    /// read.
    pub missing: u64,
    /// Number of links of the requests on the path whose order is unknown.
    pub unknown: u64,
}

/// Request of a leg.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LegRequest {
    pub id: TraceId,
    /// Name of the request in its source, or its id.
    pub label: String,
    /// Root operation of the request.
    pub root: String,
}

/// Returns the critical path of one request, with its links; `None` if no such request is selected.
/// With `is_across`, also follows the path into the requests that it links to.
///
/// # Errors
/// Fails if the store cannot be listed, if temporary files cannot be written, or if there is too
/// little memory.
pub fn linked_path_of(
    source: &Source,
    inference: &Inference,
    id: u128,
    is_across: bool,
) -> Result<(Option<LinkedPath>, Notes), QueryError> {
    let selection = with_cut(Selection::default());
    let keys = AttributeKeys::of([LINKS]).with_elements();
    let (found, mut notes) = source.trace(id, selection, &keys)?;
    let Some(mut records) = found else {
        return Ok((None, notes));
    };
    let mut requests = StoredRequests::of(source, inference);
    let (trace, path) = requests.cutter.path(inference, &mut records);
    requests.cutter.add_to(&mut notes);
    // A weight changes no figure of a single request.
    notes.sampling.requests = WeightedCount::default();
    requests.begin(&records, &trace)?;
    let follows = requests.current.follows.clone();
    let followers = requests.reader.followers(&records)?;
    let across = match is_across {
        true => Some(requests.across(&trace, &path)?),
        false => None,
    };
    for damage in [&follows.damage, &followers.damage, &requests.damage] {
        notes.add_damage(damage.clone());
    }
    let linked = LinkedPath {
        answer: TraceAnswer::made_of(&records, trace, path),
        follows,
        followers,
        across,
    };
    Ok((Some(linked), notes))
}

/// Requests of the store, read while a path is followed.
struct StoredRequests<'a> {
    inference: &'a Inference,
    reader: LinkReader<'a>,
    cutter: Cutter,
    current: Current,
    /// Requests that the path entered, in the order of entry.
    entered: Vec<LegRequest>,
    missing: u64,
    unknown: u64,
    damage: Vec<Damage>,
}

/// Links of the current request.
#[derive(Default)]
struct Current {
    follows: Follows,
    root: Option<u64>,
    /// Linking spans that begin with a segment, by the segment's index.
    begun: HashMap<usize, Vec<u64>>,
}

impl<'a> StoredRequests<'a> {
    fn of(source: &'a Source, inference: &'a Inference) -> Self {
        Self {
            inference,
            reader: LinkReader {
                source,
                alignment: inference.alignment.as_ref(),
            },
            cutter: Cutter::of(inference),
            current: Current::default(),
            entered: Vec::new(),
            missing: 0,
            unknown: 0,
            damage: Vec::new(),
        }
    }

    /// Makes a request the current one.
    fn begin(&mut self, records: &TraceRecords, trace: &SegmentedTrace) -> Result<(), QueryError> {
        let mut follows = self.reader.followed(records)?;
        self.missing += follows.missing() + follows.unread;
        self.unknown += follows.unknown;
        self.damage.append(&mut follows.damage);
        let label = records.name.as_ref().map(ToString::to_string);
        self.entered.push(LegRequest {
            id: records.id,
            label: label.unwrap_or_else(|| records.id.to_string()),
            root: records.root_name().into_owned(),
        });
        let mut begun: HashMap<usize, Vec<u64>> = HashMap::new();
        if !follows.latest.is_empty() {
            let (outline, owners) = self.owners(records, trace);
            let first = first_segments(&owners, outline.len());
            let own = first.iter().enumerate();
            for (place, segment) in own.filter_map(|(place, first)| Some((place, (*first)?))) {
                let start_ns = trace.segments[segment].start_ns;
                let spans = begun_with(records, &outline, &first, (place, start_ns));
                let linking = spans.filter(|span| follows.latest.contains_key(span));
                let linking: Vec<u64> = linking.collect();
                if !linking.is_empty() {
                    begun.insert(segment, linking);
                }
            }
        }
        self.current = Current {
            follows,
            root: records.root().map(|root| root.span_id),
            begun,
        };
        Ok(())
    }

    fn owners(
        &self,
        records: &TraceRecords,
        trace: &SegmentedTrace,
    ) -> (Vec<OutlineSpan>, Vec<Option<usize>>) {
        let outline = Segmenter::default().outline(records);
        let labels = &self.cutter.labels;
        let owners = owners(records, &outline, &trace.segments, labels);
        (outline, owners)
    }

    fn across(
        &mut self,
        trace: &SegmentedTrace,
        path: &TracePath,
    ) -> Result<AcrossAnswer, QueryError> {
        let own = Entry {
            path: path.clone(),
            start_ns: trace.start_ns,
            end_ns: trace.answer_ns,
            last: path.critical().last(),
        };
        let path = path_across(self, own)?;
        let mut requests = std::mem::take(&mut self.entered);
        requests.reverse();
        Ok(AcrossAnswer {
            path,
            requests,
            missing: self.missing,
            unknown: self.unknown,
        })
    }
}

impl LinkedRequests for StoredRequests<'_> {
    type Producer = StoredSpanId;
    type Error = QueryError;

    fn latest(&self, segment: Option<usize>, by_ns: i64) -> Option<(i64, StoredSpanId)> {
        let current = &self.current;
        let spans = match segment {
            Some(segment) => current.begun.get(&segment).map_or(&[][..], Vec::as_slice),
            None => current.root.as_slice(),
        };
        let ends = spans
            .iter()
            .filter_map(|span| current.follows.latest.get(span));
        ends.copied().filter(|(end_ns, _)| *end_ns <= by_ns).max()
    }

    fn enter(&mut self, producer: &StoredSpanId) -> Result<Option<Entry>, QueryError> {
        let keys = AttributeKeys::of([LINKS]).with_elements();
        let mut found = None;
        let unread = self
            .reader
            .source
            .for_each_of(vec![producer.trace], &keys, |request| {
                let mut spans = request.spans.iter();
                if spans.any(|span| span.span_id == producer.span) {
                    found.get_or_insert_with(|| request.clone());
                }
            })?;
        self.damage.extend(unread.damage);
        let Some(mut records) = found else {
            return Ok(None);
        };
        let (trace, path) = self.cutter.path(self.inference, &mut records);
        let (outline, owners) = self.owners(&records, &trace);
        let of_span = |of: &OutlineSpan| &records.spans[of.record];
        let place = outline
            .iter()
            .position(|of| of_span(of).span_id == producer.span);
        let Some(place) = place else {
            return Ok(None);
        };
        let end_ns = of_span(&outline[place])
            .end_ns
            .max(of_span(&outline[place]).start_ns);
        let is_below = below(&outline, place);
        let of_producer = |(index, timing): &(usize, &SegmentTiming)| {
            owners[*index].is_some_and(|place| is_below[place]) && timing.end_ns <= end_ns
        };
        let timings = path.segments.iter().enumerate().filter(of_producer);
        let last = timings.max_by_key(|(index, timing)| (timing.end_ns, timing.start_ns, *index));
        let last = last.map(|(index, _)| index);
        self.begin(&records, &trace)?;
        Ok(Some(Entry {
            path,
            start_ns: trace.start_ns,
            end_ns,
            last,
        }))
    }
}

/// Returns the first segment of each span, by the span's place in the outline; `None` for a span
/// without segments.
fn first_segments(owners: &[Option<usize>], spans: usize) -> Vec<Option<usize>> {
    let mut first = vec![None; spans];
    let owned = owners.iter().enumerate();
    for (segment, place) in owned.filter_map(|(segment, owner)| Some((segment, (*owner)?))) {
        first[place].get_or_insert(segment);
    }
    first
}

/// Iterates over the ids of the spans that begin with the first segment of the span at `place`: the
/// span itself, and its ancestors that also begin at `start_ns` and have no earlier segment.
fn begun_with<'a>(
    records: &'a TraceRecords,
    outline: &'a [OutlineSpan],
    first: &'a [Option<usize>],
    (place, start_ns): (usize, i64),
) -> impl Iterator<Item = u64> + 'a {
    let span = move |place: usize| &records.spans[outline[place].record];
    let places = std::iter::successors(Some(place), move |below| {
        let parent = outline[*below].parent?;
        let begins = span(parent).start_ns == start_ns && span(*below).start_ns == start_ns;
        let is_later = first[parent].is_none_or(|own| Some(own) > first[place]);
        (begins && is_later).then_some(parent)
    });
    places.map(move |place| span(place).span_id)
}

/// Reports for each span of an outline whether it is the span at `place` or a descendant of it.
fn below(outline: &[OutlineSpan], place: usize) -> Vec<bool> {
    let mut is_below = vec![false; outline.len()];
    for (at, span) in outline.iter().enumerate() {
        is_below[at] = at == place || span.parent.is_some_and(|parent| is_below[parent]);
    }
    is_below
}
