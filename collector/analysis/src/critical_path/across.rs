//! Critical path across traces, from a request into the requests that it follows.
//!
//! A *link* leads from a span to a span of another trace, its *producer*. The span began because of
//! the producer, as a consumer begins because of a message. If the producer ended by the start of
//! the span, its end is one more predecessor of the segment with which the span begins. As within a
//! request, the predecessor that ended last is the one that the segment waited for. If that is a
//! producer, the path goes on at the producer's last segment, in the producer's request. The time
//! from the producer's end to the segment's start is time in the *queue*. A path that reaches the
//! start of a request goes on at the producer of the request itself, which is its root span's
//! producer.
//!
//! So the path is exactly as long as the time from its first instant to the answer of the request
//! in which it ends. Segments, waits, tails and queues leave no gap and do not overlap.

use super::{SegmentTiming, TracePath};
use crate::segment::interval_ns;
use std::collections::BTreeSet;

/// Maximum number of [legs](Leg) of one path.
pub const LEGS_MAX: usize = 64;

/// Requests and the links between their spans, from which [`path_across`] reads.
pub trait LinkedRequests {
    /// Name of a producer.
    type Producer: Clone + Ord;
    /// Failure to read a request.
    type Error;

    /// Returns the producer that ended last by `by_ns` (ns since the Unix epoch), and its end.
    /// `segment` is the segment of the current request with which the linking span begins, as an
    /// index into [`TracePath::segments`]; `None` stands for the request itself. Leaves out
    /// producers that may have ended after the linking span began.
    fn latest(&self, segment: Option<usize>, by_ns: i64) -> Option<(i64, Self::Producer)>;

    /// Makes the request of a producer the current one. Returns `None` if there is no such request.
    ///
    /// # Errors
    /// Fails if the request cannot be read.
    fn enter(&mut self, producer: &Self::Producer) -> Result<Option<Entry>, Self::Error>;
}

/// Request that a path enters, from its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Critical path of the request. [`path_across`] uses only the timings of its segments.
    pub path: TracePath,
    /// Start of the request, in nanoseconds since the Unix epoch.
    pub start_ns: i64,
    /// Instant at which the path leaves the request, in nanoseconds since the Unix epoch: the
    /// producer's end, or the answer in the last request of the path.
    pub end_ns: i64,
    /// Last segment on the path, as an index into [`TracePath::segments`]; it ended by `end_ns`.
    /// `None` if there is none.
    pub last: Option<usize>,
}

/// Part of a path that lies in one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leg<P> {
    /// Producer by which the path leaves the request; `None` for the last leg.
    pub producer: Option<P>,
    /// Start of the leg, in nanoseconds since the Unix epoch.
    pub start_ns: i64,
    /// End of the leg, in nanoseconds since the Unix epoch.
    pub end_ns: i64,
    /// Time from the end of the earlier leg to the start of this one; 0 in the first leg.
    pub queued_ns: u64,
    /// Segments in order of time, as indices into [`TracePath::segments`], and their timings. The
    /// waits are those since the start of the leg.
    pub steps: Vec<(usize, SegmentTiming)>,
    /// Time from the end of the last segment, or from the start of the leg if there is none, to the
    /// end of the leg.
    pub tail_wait_ns: u64,
}

/// Critical path over the requests of several traces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathAcross<P> {
    /// Legs in order of time; the last one lies in the request that was asked about.
    pub legs: Vec<Leg<P>>,
    /// True if the path may go on before its first leg, because it has [`LEGS_MAX`] legs, the links
    /// form a cycle, or a request could not be found.
    pub is_cut: bool,
}

impl<P> PathAcross<P> {
    /// Returns the length of the path: the time from its start to the answer, in nanoseconds.
    pub fn length_ns(&self) -> u64 {
        let ends = self.legs.first().zip(self.legs.last());
        ends.map_or(0, |(first, last)| interval_ns(first.start_ns, last.end_ns))
    }
}

/// Follows the critical path of a request, the current one of `requests`, into the requests of its
/// producers. The path enters no producer twice, so it ends even if links form a cycle.
///
/// # Errors
/// Fails if a request cannot be read.
pub fn path_across<R: LinkedRequests>(
    requests: &mut R,
    own: Entry,
) -> Result<PathAcross<R::Producer>, R::Error> {
    let (mut legs, mut entered) = (Vec::new(), BTreeSet::new());
    let mut next = Some((None, own));
    let mut is_cut = false;
    while let Some((producer, entry)) = next.take() {
        let (mut leg, cause) = leg(requests, producer, &entry);
        if let Some((end_ns, producer)) = cause {
            let is_new = legs.len() + 1 < LEGS_MAX && entered.insert(producer.clone());
            next = match is_new {
                true => (requests.enter(&producer)?).map(|entry| (Some(producer), entry)),
                false => None,
            };
            is_cut = next.is_none();
            if !is_cut {
                leg.queued_ns = interval_ns(end_ns, leg.start_ns);
            }
        }
        legs.push(leg);
    }
    legs.reverse();
    Ok(PathAcross { legs, is_cut })
}

/// End of a producer, in nanoseconds since the Unix epoch, and the producer.
type Cause<P> = (i64, P);

/// Walks back through one request. Returns the producer at which the path goes on, if any.
fn leg<R: LinkedRequests>(
    requests: &R,
    producer: Option<R::Producer>,
    entry: &Entry,
) -> (Leg<R::Producer>, Option<Cause<R::Producer>>) {
    let timings = &entry.path.segments;
    let last = entry.last.map(|last| timings[last]);
    let last_end_ns = last.map_or(entry.start_ns, |last| last.end_ns);
    let mut leg = Leg {
        producer,
        start_ns: entry.start_ns,
        end_ns: entry.end_ns,
        queued_ns: 0,
        steps: Vec::new(),
        tail_wait_ns: interval_ns(last_end_ns, entry.end_ns),
    };
    let mut cause = None;
    let mut at = entry.last;
    while let Some(index) = at {
        let timing = timings[index];
        leg.steps.push((index, timing));
        at = timing.predecessor;
        let ready_ns = at.map_or(entry.start_ns, |before| timings[before].end_ns);
        let found = requests.latest(Some(index), timing.start_ns);
        let begins_request = at.is_none() && timing.start_ns == entry.start_ns;
        cause = found.filter(|(end_ns, _)| begins_request || *end_ns > ready_ns);
        if cause.is_some() && !begins_request {
            leg.start_ns = timing.start_ns;
            if let Some((_, first)) = leg.steps.last_mut() {
                first.wait_ns = 0;
            }
            break;
        }
    }
    if leg.start_ns == entry.start_ns {
        let of_request = requests.latest(None, entry.start_ns);
        let is_later = |(end_ns, _): &Cause<R::Producer>| {
            cause.as_ref().is_none_or(|(known_ns, _)| end_ns > known_ns)
        };
        cause = of_request.filter(is_later).or(cause);
    }
    leg.steps.reverse();
    (leg, cause)
}
