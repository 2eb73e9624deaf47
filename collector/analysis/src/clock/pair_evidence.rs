//! Evidence for and against the recorded clocks of a pair of hosts.

use std::collections::BTreeMap;

/// Maximum number of a pair's round trips that the verdict uses.
const SAMPLE_MAX: usize = 128;
/// Number of size classes: zero, and one for each of the 20 powers of ten that fit 64 bits.
const DECADES: usize = 21;

/// A round trip between two hosts. The first host by name is called the client here, in whichever
/// direction the round trip went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(super) struct RoundTripSample {
    /// Middle of the interval on the client, by its clock.
    pub(super) client_ns: i64,
    /// Middle of the interval on the server, by its clock.
    pub(super) server_ns: i64,
    /// Round-trip delay; negative if the answering host's interval is the longer one.
    pub(super) rtt_ns: i128,
}

impl RoundTripSample {
    /// Returns a pseudo-random rank that depends on the content only.
    fn rank(self) -> u64 {
        let numbers = [self.client_ns, self.server_ns, self.rtt_ns as i64].into_iter();
        numbers.fold(0x9e37_79b9_7f4a_7c15, |hash: u64, n| {
            let mixed = (hash ^ n as u64).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed ^ (mixed >> 29)
        })
    }

    /// Returns the error bound of the offset: half of the time on the way, plus the nanosecond lost
    /// by taking middles, plus `slop_ns`. Within `slop_ns`, the order of timestamps is unknown.
    /// `None` if the sum is negative, as no offset explains the round trip then.
    pub(super) fn error_ns(self, slop_ns: u64) -> Option<u64> {
        let half_ns = self.rtt_ns.div_euclid(2) + 1 + i128::from(slop_ns);
        u64::try_from(half_ns).ok()
    }
}

/// Sample of a pair's round trips: the [`SAMPLE_MAX`] of lowest rank, in any order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(super) struct Sample {
    kept: BTreeMap<(u64, RoundTripSample), ()>,
}

impl Sample {
    pub(super) fn take(&mut self, seen: RoundTripSample) {
        let key = (seen.rank(), seen);
        let last = self.kept.last_key_value();
        if self.kept.len() >= SAMPLE_MAX && last.is_some_and(|(last, ())| *last <= key) {
            return;
        }
        self.kept.insert(key, ());
        if self.kept.len() > SAMPLE_MAX {
            self.kept.pop_last();
        }
    }

    pub(super) fn merge(&mut self, other: &Sample) {
        other.iter().for_each(|seen| self.take(seen));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = RoundTripSample> {
        self.kept.keys().map(|(_, seen)| *seen)
    }
}

/// Histogram of times in nanoseconds, by power of ten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(super) struct Sizes([u64; DECADES]);

impl Sizes {
    pub(super) fn take(&mut self, size_ns: u64) {
        self.0[decade(size_ns)] += 1;
    }

    pub(super) fn merge(&mut self, other: &Sizes) {
        for (own, other) in self.0.iter_mut().zip(other.0) {
            *own += other;
        }
    }

    pub(super) fn all(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Counts the recorded times below the first power of ten above `size_ns`.
    pub(super) fn upto(&self, size_ns: u64) -> u64 {
        self.0.iter().take(decade(size_ns) + 1).sum()
    }
}

/// Returns the number of a size class.
fn decade(size_ns: u64) -> usize {
    (size_ns.checked_ilog10()).map_or(0, |power| power as usize + 1)
}

/// Evidence about an unordered pair of hosts, in addition to its best round trips.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(super) struct PairEvidence {
    /// Sample of the round trips in both directions.
    pub(super) sample: Sample,
    /// Times by which servers took longer than their clients waited, where they did.
    pub(super) impossible: Sizes,
    /// Time by which a span sticks out of its parent at either end. Covers the spans of
    /// [`NestedSpan`](super::round_trip::NestedSpan); 0 counts too.
    pub(super) sticking_out: Sizes,
    /// Time by which the spans of `sticking_out` start before their parent, or 0.
    pub(super) early: Sizes,
    /// Number of event-log tasks that cross from one host to the other.
    pub(super) tasks: u64,
    /// Number of event-log tasks whose order of lines is the more plausible order of control.
    pub(super) for_lines: u64,
    /// Number of event-log tasks whose order of timestamps is the more plausible order.
    pub(super) for_clocks: u64,
    /// Number of tasks that return to their first host by their timestamps.
    pub(super) returns_by_time: u64,
}

impl PairEvidence {
    pub(super) fn merge(&mut self, other: &PairEvidence) {
        self.sample.merge(&other.sample);
        self.impossible.merge(&other.impossible);
        self.sticking_out.merge(&other.sticking_out);
        self.early.merge(&other.early);
        self.tasks += other.tasks;
        self.for_lines += other.for_lines;
        self.for_clocks += other.for_clocks;
        self.returns_by_time += other.returns_by_time;
    }

    /// Reports whether event-log tasks cross from one host to the other and the order of lines is
    /// accepted as the order of control.
    pub(super) fn are_lines_compared(&self) -> bool {
        self.tasks > 0 && self.lines_are_in_order()
    }

    /// Reports whether the order of lines is accepted as the order of control: at most one in ten
    /// deciding tasks contradicts it.
    pub(super) fn lines_are_in_order(&self) -> bool {
        self.for_clocks == 0 || self.for_lines / 9 >= self.for_clocks
    }
}

/// Conclusion from the evidence of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Verdict {
    /// The evidence supports the clocks as recorded, rather than a line of offsets. Both clocks are
    /// taken as equal, unless other clocks of a group of agreeing hosts differ.
    Agree,
    /// Nearly all round trips agree with one line of offsets, and that line is not zero.
    Differ,
    /// The evidence supports neither the clocks as recorded nor one line of offsets. The pair does
    /// not connect its hosts.
    Contradictory,
}
