//! Maps segments to their spans, to draw them next to the spans' names.
//!
//! A segment's label has its task, and most spans have a task of their own. Siblings past
//! [`NUMBERED_SIBLINGS_MAX`](super::from_spans::NUMBERED_SIBLINGS_MAX), siblings with data
//! elements, very deep spans, and spans below any of these may share a task. Among them, the times
//! decide, because a segment lies within its span, apart from clock errors.

use super::Segment;
use crate::label::Labels;
use crate::record::TraceRecords;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// A span in the tree by which a trace is cut. See
/// [`Segmenter::outline`](super::Segmenter::outline).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutlineSpan {
    /// Index of the span in [`TraceRecords::spans`].
    pub record: usize,
    /// Index of the span's parent in the outline, lower than the span's own index; `None` for a
    /// root.
    pub parent: Option<usize>,
    /// Path of the span's task.
    pub task: Arc<str>,
}

/// Maximum number of spans of one task that are compared with a segment: those that started last,
/// but not after the segment.
const COMPARED_MAX: usize = 64;

/// Returns the index in the outline of the span that each segment belongs to. It is `None` for a
/// segment without a span, as in an event log.
pub fn owners(
    records: &TraceRecords,
    outline: &[OutlineSpan],
    segments: &[Segment],
    labels: &Labels,
) -> Vec<Option<usize>> {
    let mut of_task: FxHashMap<&str, Vec<usize>> = FxHashMap::default();
    for (place, span) in outline.iter().enumerate() {
        of_task.entry(&span.task).or_default().push(place);
    }
    let times = |place: usize| {
        let span = &records.spans[outline[place].record];
        (span.start_ns, span.end_ns.max(span.start_ns))
    };
    for places in of_task.values_mut().filter(|places| places.len() > 1) {
        places.sort_by_key(|place| (times(*place), *place));
    }
    let owner = |segment: &Segment| {
        let places = of_task.get(&*labels.get(segment.id)?.task)?;
        if let [only] = places.as_slice() {
            return Some(*only);
        }
        let after = places.partition_point(|place| times(*place).0 <= segment.start_ns);
        let started = places[..after].iter().rev().take(COMPARED_MAX).copied();
        let fit = |place: &usize| {
            let (start_ns, end_ns) = times(*place);
            let edges = u8::from(start_ns == segment.start_ns) + u8::from(end_ns == segment.end_ns);
            (segment.end_ns <= end_ns, edges)
        };
        // Of equally good spans, the first one visited wins: the one that started last.
        let best = started.reduce(|best, next| if fit(&next) > fit(&best) { next } else { best });
        best.or_else(|| places.first().copied())
    };
    segments.iter().map(owner).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{SpanFlags, SpanRecord};
    use crate::segment::Segmenter;
    use proptest::prelude::*;

    fn span(span_id: u64, parent_id: u64, name: &str, start_ns: i64, end_ns: i64) -> SpanRecord {
        SpanRecord {
            span_id,
            parent_id,
            service: "s".into(),
            name: name.into(),
            host: "h".into(),
            process: 1,
            start_ns,
            end_ns,
            flags: SpanFlags(0),
            events: Vec::new(),
        }
    }

    fn found(spans: Vec<SpanRecord>) -> Vec<(u64, i64, i64)> {
        let records = TraceRecords {
            spans,
            ..TraceRecords::default()
        };
        let (mut segmenter, mut labels) = (Segmenter::default(), Labels::default());
        let outline = segmenter.outline(&records);
        let (trace, _) = segmenter.segment(&records, &mut labels);
        let owners = owners(&records, &outline, &trace.segments, &labels);
        let id = |place: usize| records.spans[outline[place].record].span_id;
        trace
            .segments
            .iter()
            .zip(owners)
            .map(|(segment, owner)| (owner.map_or(0, id), segment.start_ns, segment.end_ns))
            .collect()
    }

    #[test]
    fn siblings_of_one_name_keep_their_segments() {
        let spans = vec![
            span(1, 0, "root", 0, 100),
            span(2, 1, "read", 10, 60),
            span(3, 1, "read", 20, 50),
            span(4, 3, "disk", 30, 40),
        ];
        let expected = [
            (1, 0, 10),
            (2, 10, 60),
            (3, 20, 30),
            (4, 30, 40),
            (3, 40, 50),
            (1, 60, 100),
        ];
        assert_eq!(found(spans), expected);
    }

    #[test]
    fn an_outline_stands_in_the_order_of_the_tree() {
        let records = TraceRecords {
            spans: vec![
                span(4, 2, "d", 30, 40),
                span(1, 0, "a", 0, 100),
                span(3, 1, "c", 50, 60),
                span(2, 1, "b", 10, 60),
                span(9, 77, "orphan", 5, 6),
                span(9, 1, "twin", 7, 8),
            ],
            ..TraceRecords::default()
        };
        let outline = Segmenter::default().outline(&records);
        let shape: Vec<(u64, Option<usize>, &str)> = outline
            .iter()
            .map(|of| {
                let id = records.spans[of.record].span_id;
                (id, of.parent, &*of.task)
            })
            .collect();
        let expected = [
            (1, None, "s:a"),
            (2, Some(0), "s:a > s:b"),
            (4, Some(1), "s:a > s:b > s:d"),
            (3, Some(0), "s:a > s:c"),
            (9, None, "s:orphan"),
        ];
        assert_eq!(shape, expected);
    }

    proptest! {
        /// Compares with a reference: if every span has a name of its own, the names of the
        /// segments identify their spans.
        #[test]
        fn owners_are_those_of_spans_with_names_of_their_own(
            drawn in proptest::collection::vec((0usize..60, 0i64..1000, 1i64..300), 1..60)
        ) {
            let spans = |is_named: bool| -> Vec<SpanRecord> {
                drawn
                    .iter()
                    .enumerate()
                    .map(|(at, (parent, start_ns, takes_ns))| {
                        let parent = if at == 0 { 0 } else { (parent % at) as u64 + 1 };
                        let id = at as u64 + 1;
                        // Begins are distinct, so that exactly one of two equal spans is the owner.
                        let start_ns = start_ns * 64 + at as i64;
                        let name = if is_named { format!("n{}x", char::from(b'a' + (at % 26) as u8).to_string() + &"q".repeat(at / 26)) } else { "same".to_owned() };
                        span(id, parent, &name, start_ns, start_ns + takes_ns * 64)
                    })
                    .collect()
            };
            let mut alike = found(spans(false));
            let mut own = found(spans(true));
            alike.sort_unstable();
            own.sort_unstable();
            prop_assert_eq!(alike, own);
        }
    }
}
