//! Graph of the happens-before relations for display, without most edges that follow from others.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use stroboscope_analysis::label::{SegmentId, SegmentLabel};
use stroboscope_analysis::model::{Relation, Relations};

/// Transitive reduction of happens-before, and the mutual exclusions.
///
/// An edge is omitted if another path connects its ends, unless the second segment of that path is
/// in a cycle with one of the ends. With a tolerance above 0, or for segments that were never seen
/// together, happens-before need not be transitive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CausalGraph {
    /// Happens-before edges to draw.
    pub edges: Vec<(SegmentId, SegmentId)>,
    /// Pairs of segments that exclude each other.
    pub exclusions: Vec<(SegmentId, SegmentId)>,
}

impl CausalGraph {
    /// Returns the graph of a model's relations.
    #[must_use]
    pub fn of(relations: &Relations) -> Self {
        Self::only(relations, |_| true)
    }

    /// Returns the graph of those relations of a model that connect two of the given segments.
    #[must_use]
    pub fn among(relations: &Relations, segments: &BTreeSet<SegmentId>) -> Self {
        Self::only(relations, |segment| segments.contains(segment))
    }

    fn only(relations: &Relations, is_wanted: impl Fn(&SegmentId) -> bool) -> Self {
        let some = |all: &[Relation]| -> Vec<(SegmentId, SegmentId)> {
            let pairs = all.iter().map(|relation| (relation.first, relation.second));
            let wanted = pairs.filter(|(a, b)| is_wanted(a) && is_wanted(b));
            wanted.collect()
        };
        Self {
            edges: reduce(&some(relations.all_happens_before())),
            exclusions: some(relations.all_mutual_exclusion()),
        }
    }

    /// Formats the graph in Graphviz's DOT language, with solid arrows for happens-before and
    /// dashed lines for mutual exclusion.
    #[must_use]
    pub fn to_dot<'a>(
        &self,
        segments: impl Iterator<Item = (SegmentId, &'a SegmentLabel)>,
    ) -> String {
        let mut dot = String::from(
            "digraph model {\n  rankdir=LR;\n  node [shape=box, fontname=\"sans-serif\"];\n",
        );
        // Writing to a String cannot fail.
        for (id, label) in segments {
            let task = escape(&label.task);
            let events = escape(&format!("{} … {}", label.start, label.end));
            let _ = writeln!(dot, "  s{} [label=\"{task}\\n{events}\"];", id.0);
        }
        for (a, b) in &self.edges {
            let _ = writeln!(dot, "  s{} -> s{};", a.0, b.0);
        }
        for (a, b) in &self.exclusions {
            let _ = writeln!(
                dot,
                "  s{} -> s{} [dir=none, style=dashed, constraint=false];",
                a.0, b.0
            );
        }
        dot.push_str("}\n");
        dot
    }
}

/// Omits each edge a → b for which there is an edge a → c and a path from c to b, unless c is in a
/// cycle with a or b. Paths are found with Warshall's algorithm on rows of bits, because the
/// relation itself may not be transitive.
fn reduce(edges: &[(SegmentId, SegmentId)]) -> Vec<(SegmentId, SegmentId)> {
    let sizes = edges.iter().map(|(a, b)| a.0.max(b.0) as usize + 1);
    let size = sizes.max().unwrap_or(0);
    let words = size.div_ceil(64);
    let mut reach = vec![0u64; size * words];
    for (a, b) in edges {
        reach[a.0 as usize * words + b.0 as usize / 64] |= 1 << (b.0 % 64);
    }
    let has = |rows: &[u64], a: usize, b: usize| rows[a * words + b / 64] >> (b % 64) & 1 == 1;
    for through in 0..size {
        let row = reach[through * words..(through + 1) * words].to_vec();
        for from in 0..size {
            if has(&reach, from, through) {
                let reached = reach[from * words..(from + 1) * words].iter_mut();
                reached.zip(&row).for_each(|(to, more)| *to |= more);
            }
        }
    }
    let mut direct: Vec<Vec<u32>> = vec![Vec::new(); size];
    edges
        .iter()
        .for_each(|(a, b)| direct[a.0 as usize].push(b.0));
    // Edges of a cycle can follow from each other. Omitting all of them would lose the cycle, so
    // they are kept. Cycles are possible with a tolerance, or if no trace has all segments of the
    // cycle.
    let follows = |a: SegmentId, b: SegmentId| {
        direct[a.0 as usize].iter().any(|&c| {
            let (c, b) = (c as usize, b.0 as usize);
            c != b && has(&reach, c, b) && !has(&reach, b, c) && !has(&reach, c, a.0 as usize)
        })
    };
    let edges = edges.iter().copied();
    edges.filter(|&(a, b)| !follows(a, b)).collect()
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ids(edges: &[(u32, u32)]) -> Vec<(SegmentId, SegmentId)> {
        edges
            .iter()
            .map(|&(a, b)| (SegmentId(a), SegmentId(b)))
            .collect()
    }

    fn paths(edges: &[(SegmentId, SegmentId)], size: u32) -> Vec<Vec<bool>> {
        let mut reach = vec![vec![false; size as usize]; size as usize];
        for _ in 0..size {
            for &(a, b) in edges {
                reach[a.0 as usize][b.0 as usize] = true;
                for row in &mut reach {
                    row[b.0 as usize] |= row[a.0 as usize];
                }
            }
        }
        reach
    }

    #[test]
    fn what_follows_is_left_out() {
        assert_eq!(
            reduce(&ids(&[(0, 1), (1, 2), (0, 2)])),
            ids(&[(0, 1), (1, 2)])
        );
        assert_eq!(reduce(&ids(&[(0, 1), (0, 2)])), ids(&[(0, 1), (0, 2)]));
        assert_eq!(reduce(&[]), []);
    }

    proptest! {
        #[test]
        fn the_reduction_reaches_the_same_and_no_edge_is_spare(pairs in prop::collection::vec((0u32..9, 0u32..9), 0..40)) {
            // Edges lead from lower to higher numbers, so there are no cycles.
            let mut edges: Vec<_> = pairs.into_iter().filter(|(a, b)| a < b).collect();
            edges.sort_unstable();
            edges.dedup();
            let edges = ids(&edges);
            let reduced = reduce(&edges);
            prop_assert_eq!(paths(&reduced, 9), paths(&edges, 9));
            for spare in 0..reduced.len() {
                let mut fewer = reduced.clone();
                fewer.remove(spare);
                prop_assert_ne!(paths(&fewer, 9), paths(&edges, 9));
            }
        }
    }
}
