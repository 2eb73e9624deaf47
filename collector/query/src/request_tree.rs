//! Tree of a request's spans, each with its own segments.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use stroboscope_analysis::label::Labels;
use stroboscope_analysis::record::{SpanRecord, TraceRecords};
use stroboscope_analysis::segment::Segmenter;

/// Interval between two events of a span in which the span itself is active.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnSegment {
    /// Name of the event at which the segment starts.
    pub start: Arc<str>,
    /// Name of the event at which the segment ends.
    pub end: Arc<str>,
    /// Start as wall time, in ns since the Unix epoch.
    pub start_ns: i64,
    /// End as wall time, in ns since the Unix epoch.
    pub end_ns: i64,
}

/// Span with its place in the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanNode<'a> {
    /// Number of ancestors in the tree.
    pub depth: usize,
    /// Span as recorded.
    pub span: &'a SpanRecord,
    /// Segments of the span in order of time. No segment covers time in which a child is active,
    /// unless the span did not wait for the child's end.
    pub segments: Vec<OwnSegment>,
}

impl SpanNode<'_> {
    /// Returns the operation of the span as `service:name`.
    #[must_use]
    pub fn operation(&self) -> String {
        format!("{}:{}", self.span.service, self.span.name)
    }
}

/// Returns the spans of a request. Siblings are in order of their starts. A span whose parent is
/// missing is a root; in or below a cycle of parents, so is each span that no earlier root leads
/// to. Without cycles, each span comes before its children. Of several spans with the same id, only
/// one is returned.
#[must_use]
pub fn tree(records: &TraceRecords) -> Vec<SpanNode<'_>> {
    let known: HashSet<u64> = records.spans.iter().map(|span| span.span_id).collect();
    let mut in_order: Vec<&SpanRecord> = records.spans.iter().collect();
    in_order.sort_by_key(|span| (span.start_ns, span.span_id));
    let mut children: HashMap<u64, Vec<&SpanRecord>> = HashMap::new();
    for &span in &in_order {
        children.entry(span.parent_id).or_default().push(span);
    }
    let mut nodes = Vec::with_capacity(in_order.len());
    let mut seen: HashSet<u64> = HashSet::new();
    let is_root = |span: &&SpanRecord| span.parent_id == 0 || !known.contains(&span.parent_id);
    let all = || in_order.iter().copied();
    let roots = all().filter(is_root).chain(all());
    let mut cutter = Cutter {
        segmenter: Segmenter::default(),
        // The request itself bounds the number of labels.
        labels: Labels::with_max(usize::MAX),
    };
    for root in roots {
        let mut pending = vec![(0, root)];
        while let Some((depth, span)) = pending.pop() {
            if !seen.insert(span.span_id) {
                continue;
            }
            let of_span = children.get(&span.span_id).map_or(&[][..], Vec::as_slice);
            nodes.push(SpanNode {
                depth,
                span,
                segments: cutter.own_segments(span, of_span),
            });
            pending.extend(of_span.iter().rev().map(|&child| (depth + 1, child)));
        }
    }
    nodes
}

struct Cutter {
    segmenter: Segmenter,
    labels: Labels,
}

impl Cutter {
    /// Returns the span's own segments. They depend only on the span and its children, so only
    /// these are cut.
    fn own_segments(&mut self, span: &SpanRecord, children: &[&SpanRecord]) -> Vec<OwnSegment> {
        let root = SpanRecord {
            parent_id: 0,
            ..span.clone()
        };
        let spans = std::iter::once(root)
            .chain(children.iter().map(|&child| child.clone()))
            .collect();
        let records = TraceRecords {
            spans,
            ..TraceRecords::default()
        };
        let (trace, _) = self.segmenter.segment(&records, &mut self.labels);
        let own = trace.segments.iter().filter_map(|segment| {
            let label = self.labels.get(segment.id)?;
            // Task paths of children have more than one part, separated by ` > `.
            (!label.task.contains(" > ")).then(|| OwnSegment {
                start: label.start.clone(),
                end: label.end.clone(),
                start_ns: segment.start_ns,
                end_ns: segment.end_ns,
            })
        });
        own.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stroboscope_analysis::record::SpanFlags;

    fn span(span_id: u64, parent_id: u64, start_ns: i64, end_ns: i64) -> SpanRecord {
        SpanRecord {
            span_id,
            parent_id,
            service: "web".into(),
            name: format!("s{span_id}").into(),
            host: "h".into(),
            process: 1,
            start_ns,
            end_ns,
            flags: SpanFlags::default(),
            events: Vec::new(),
        }
    }

    #[test]
    fn each_span_stands_before_its_children_with_its_own_segments() {
        let spans = vec![
            span(3, 2, 30, 40),
            span(2, 1, 20, 60),
            span(1, 0, 10, 100),
            span(9, 77, 15, 16),
        ];
        let records = TraceRecords {
            spans,
            ..TraceRecords::default()
        };
        let nodes = tree(&records);
        let shape: Vec<(u64, usize)> = nodes
            .iter()
            .map(|node| (node.span.span_id, node.depth))
            .collect();
        assert_eq!(shape, [(1, 0), (2, 1), (3, 2), (9, 0)]);
        let times = |node: &SpanNode<'_>| -> Vec<(i64, i64)> {
            node.segments
                .iter()
                .map(|segment| (segment.start_ns, segment.end_ns))
                .collect()
        };
        assert_eq!(times(&nodes[0]), [(10, 20), (60, 100)]);
        assert_eq!(times(&nodes[1]), [(20, 30), (40, 60)]);
        assert_eq!(
            (&*nodes[1].segments[0].start, &*nodes[1].segments[0].end),
            ("start", "→web:s3")
        );
    }

    #[test]
    fn all_segments_of_a_span_with_many_children_are_there() {
        let children = (2..5_002u32).map(|id| {
            let start_ns = 10 * i64::from(id);
            span(u64::from(id), 1, start_ns, start_ns + 5)
        });
        let records = TraceRecords {
            spans: std::iter::once(span(1, 0, 0, 60_000))
                .chain(children)
                .collect(),
            ..TraceRecords::default()
        };
        let nodes = tree(&records);
        assert_eq!(nodes[0].segments.len(), 5_001);
        assert!(nodes[1..].iter().all(|node| node.segments.len() == 1));
    }

    #[test]
    fn a_ring_of_parents_is_walked_once() {
        let records = TraceRecords {
            spans: vec![span(1, 2, 0, 9), span(2, 1, 1, 8)],
            ..TraceRecords::default()
        };
        assert_eq!(tree(&records).len(), 2);
    }
}
