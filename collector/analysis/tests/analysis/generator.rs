//! Random requests, with a known causal structure or without one.

use proptest::prelude::*;
use std::sync::Arc;
use stroboscope_analysis::label::{Labels, SegmentId};
use stroboscope_analysis::record::TraceId;
use stroboscope_analysis::segment::{Segment, SegmentedTrace};

/// SplitMix64, which yields the same numbers on every machine.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

/// Pairs of segment numbers.
pub(crate) type Pairs = Vec<(usize, usize)>;

/// Structure of a request. Leaves are segments, some of which hold the one shared lock.
pub(crate) enum Structure {
    Leaf { segment: usize, locked: bool },
    Series(Vec<Structure>),
    Parallel(Vec<Structure>),
}

impl Structure {
    /// Returns a random structure of `leaves` leaves, numbered from `first`.
    pub(crate) fn random(random: &mut Random, first: usize, leaves: usize) -> Structure {
        if leaves == 1 {
            return Structure::Leaf {
                segment: first,
                locked: random.below(4) == 0,
            };
        }
        let parts = 2 + random.below(3.min(leaves - 1));
        let mut sizes = vec![1; parts];
        for _ in parts..leaves {
            sizes[random.below(parts)] += 1;
        }
        let mut at = first;
        let mut children = Vec::new();
        for size in sizes {
            children.push(Structure::random(random, at, size));
            at += size;
        }
        if random.below(2) == 0 {
            Structure::Series(children)
        } else {
            Structure::Parallel(children)
        }
    }

    /// Runs the request once, with random durations and a random order at the lock.
    pub(crate) fn run(&self, random: &mut Random) -> SegmentedTrace {
        let mut segments = Vec::new();
        let origin_ns = 1_700_000_000_000_000_000 + random.below(1 << 40) as i64;
        let mut lock_free_ns = origin_ns;
        let end_ns = self.schedule(random, origin_ns, &mut lock_free_ns, &mut segments);
        let id = TraceId(u128::from(random.next()));
        SegmentedTrace::new(id, None, origin_ns, end_ns, segments)
    }

    fn schedule(
        &self,
        random: &mut Random,
        ready_ns: i64,
        lock_free_ns: &mut i64,
        segments: &mut Vec<Segment>,
    ) -> i64 {
        match self {
            Structure::Leaf { segment, locked } => {
                let start_ns = if *locked {
                    ready_ns.max(*lock_free_ns)
                } else {
                    ready_ns
                };
                // Some segments are far longer than others, so that every possible order occurs.
                let duration_ns = random.below(20) << (random.below(4) * 4);
                let end_ns = start_ns + duration_ns as i64;
                if *locked {
                    *lock_free_ns = end_ns;
                }
                segments.push(Segment::new(SegmentId(*segment as u32), start_ns, end_ns));
                end_ns + random.below(2) as i64 * random.below(30) as i64
            }
            Structure::Series(parts) => parts.iter().fold(ready_ns, |at_ns, part| {
                part.schedule(random, at_ns, lock_free_ns, segments)
            }),
            Structure::Parallel(parts) => {
                let mut order: Vec<&Structure> = parts.iter().collect();
                random.shuffle(&mut order);
                let ends = order
                    .iter()
                    .map(|part| part.schedule(random, ready_ns, lock_free_ns, segments));
                ends.max().unwrap_or(ready_ns)
            }
        }
    }

    /// Returns the pairs (a, b) in which a always comes first, and the pairs a < b that only the
    /// lock keeps apart.
    pub(crate) fn truth(&self) -> (Pairs, Pairs) {
        let (mut before, mut exclusive) = (Vec::new(), Vec::new());
        self.collect_truth(&mut before, &mut exclusive);
        (before, exclusive)
    }

    fn collect_truth(&self, before: &mut Pairs, exclusive: &mut Pairs) -> Vec<(usize, bool)> {
        let (parts, series) = match self {
            Structure::Leaf { segment, locked } => return vec![(*segment, *locked)],
            Structure::Series(parts) => (parts, true),
            Structure::Parallel(parts) => (parts, false),
        };
        let mut leaves: Vec<(usize, bool)> = Vec::new();
        for part in parts {
            let of_part = part.collect_truth(before, exclusive);
            for &(a, a_locked) in &leaves {
                for &(b, b_locked) in &of_part {
                    if series {
                        before.push((a, b));
                    } else if a_locked && b_locked {
                        exclusive.push((a, b));
                    }
                }
            }
            leaves.extend(of_part);
        }
        leaves
    }
}

/// Labels `t000`, `t001` … whose numbers are in the order of their text.
pub(crate) fn labels(count: usize) -> Labels {
    let mut labels = Labels::default();
    intern(&mut labels, 0..count);
    labels
}

/// Interns the labels of these numbers, in this order.
pub(crate) fn intern(
    labels: &mut Labels,
    numbers: impl IntoIterator<Item = usize>,
) -> Vec<SegmentId> {
    let (start, end): (Arc<str>, Arc<str>) = ("start".into(), "end".into());
    let one = |number| {
        labels
            .intern(&format!("t{number:03}").into(), &start, &end)
            .expect("there is room")
    };
    numbers.into_iter().map(one).collect()
}

/// Generates traces of up to `most` instances of `labels` labels. Labels repeat, times tie, and
/// lengths may be zero.
pub(crate) fn any_trace(labels: u32, most: usize) -> impl Strategy<Value = SegmentedTrace> {
    let segment = (0..labels, -20i64..20, 0i64..8).prop_map(|(id, start_ns, length_ns)| {
        Segment::new(SegmentId(id), start_ns, start_ns + length_ns)
    });
    (
        proptest::collection::vec(segment, 0..=most),
        0i64..4,
        0i64..4,
    )
        .prop_map(|(segments, lead_ns, tail_ns)| {
            let start_ns = segments.iter().map(|s| s.start_ns).min().unwrap_or(0) - lead_ns;
            let end_ns = segments.iter().map(|s| s.end_ns).max().unwrap_or(0) + tail_ns;
            SegmentedTrace::new(TraceId(1), None, start_ns, end_ns, segments)
        })
}
