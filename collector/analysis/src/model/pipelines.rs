//! Pipelines: tasks that hand data elements to each other in order (The Mystery Machine, §4.1).
//!
//! A task works on an element from the first start to the last end of its segments that process the
//! element. For a segment between two events of the same name (`sent` to `sent`) only the end
//! counts: the start of the work on its element is not known. A trace contradicts t₁≫t₂ if some
//! element reaches t₂ before t₁ is done with it. It also contradicts t₁≫t₂ if t₂ starts on two
//! elements in the opposite order to t₁. The model believes a pipeline only if some trace had at
//! least two elements that both tasks worked on, whose order could have been wrong.
//!
//! Timestamps with a resolution or error bounds contradict a pipeline only if the order is certain.
//! If the starts of one task are of several clocks, the error bounds also apply between timestamps
//! of one clock.

use crate::label::{Labels, SegmentId};
use crate::segment::{ClockId, ElementId, Segment, SegmentedTrace};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of distinct tasks that work on elements. Each refusal of a further task is
/// counted.
pub const PIPELINE_TASKS_MAX: usize = 256;
const NONE: u32 = u32::MAX;

/// Counts for an ordered pair of tasks that worked on the same elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PipelineCounts {
    /// Number of traces in which both tasks worked on the same element.
    pub cooccurrences: u64,
    /// Number of traces with at least two shared elements, which have an order.
    pub ordered: u64,
    /// Number of traces that contradict the pipeline.
    pub contradictions: u64,
    /// Number of shared elements, over all traces.
    pub elements: u64,
}

impl PipelineCounts {
    fn add(&mut self, other: PipelineCounts) {
        self.cooccurrences += other.cooccurrences;
        self.ordered += other.ordered;
        self.contradictions += other.contradictions;
        self.elements += other.elements;
    }
}

/// Interval in which a task works on one element.
#[derive(Clone, Copy, Debug)]
struct Stay {
    task: u32,
    element: ElementId,
    start: (i64, ClockId),
    end: (i64, ClockId),
}

/// Counts of the ordered pairs of tasks that worked on the same elements.
#[derive(Clone, Default)]
pub(super) struct Pipelines {
    tasks: Vec<Arc<str>>,
    number_of: FxHashMap<Arc<str>, u32>,
    /// Number of each segment's task, and `true` if only the segment's end counts. The number is
    /// `NONE` until it is needed, and for refused tasks.
    task_of: Vec<(u32, bool)>,
    counts: BTreeMap<(u32, u32), PipelineCounts>,
    refused: u64,
}

impl Pipelines {
    pub(super) fn observe(&mut self, trace: &SegmentedTrace, labels: &Labels) {
        let stays = self.stays(trace, labels);
        let tasks: Vec<&[Stay]> = stays.chunk_by(|a, b| a.task == b.task).collect();
        for first in &tasks {
            for second in tasks
                .iter()
                .filter(|second| second[0].task != first[0].task)
            {
                let shared = shared(first, second);
                if shared.is_empty() {
                    continue;
                }
                let contradicted = shared
                    .iter()
                    .any(|(a, b)| is_surely_before(trace, b.start, a.end))
                    || is_reordered(trace, &shared);
                self.counts
                    .entry((first[0].task, second[0].task))
                    .or_default()
                    .add(PipelineCounts {
                        cooccurrences: 1,
                        ordered: u64::from(shared.len() > 1),
                        contradictions: u64::from(contradicted),
                        elements: shared.len() as u64,
                    });
            }
        }
    }

    /// Returns the stays of a trace, sorted by task and element.
    fn stays(&mut self, trace: &SegmentedTrace, labels: &Labels) -> Vec<Stay> {
        let mut stays = Vec::new();
        for segment in trace
            .segments
            .iter()
            .filter(|segment| segment.element != ElementId::NONE)
        {
            if let Some((task, only_end)) = self.task(segment.id, labels) {
                let Segment {
                    element,
                    start_ns,
                    end_ns,
                    start_clock,
                    end_clock,
                    ..
                } = *segment;
                let end = (end_ns, end_clock);
                let start = if only_end {
                    end
                } else {
                    (start_ns, start_clock)
                };
                stays.push(Stay {
                    task,
                    element,
                    start,
                    end,
                });
            }
        }
        // For each task and element, the earliest start comes first.
        stays.sort_by_key(|stay| (stay.task, stay.element, stay.start.0));
        stays.dedup_by(|next, kept| {
            let same = (next.task, next.element) == (kept.task, kept.element);
            if same && next.end.0 > kept.end.0 {
                kept.end = next.end;
            }
            same
        });
        stays
    }

    fn task(&mut self, id: SegmentId, labels: &Labels) -> Option<(u32, bool)> {
        if let Some(known) = self
            .task_of
            .get(id.index())
            .filter(|(task, _)| *task != NONE)
        {
            return Some(*known);
        }
        let label = labels.get(id)?;
        let known = (self.number(&label.task)?, label.start == label.end);
        if self.task_of.len() <= id.index() {
            self.task_of.resize(id.index() + 1, (NONE, false));
        }
        self.task_of[id.index()] = known;
        Some(known)
    }

    fn number(&mut self, task: &Arc<str>) -> Option<u32> {
        if let Some(number) = self.number_of.get(task) {
            return Some(*number);
        }
        if self.tasks.len() >= PIPELINE_TASKS_MAX {
            self.refused = self.refused.saturating_add(1);
            return None;
        }
        let number = self.tasks.len() as u32;
        self.tasks.push(task.clone());
        self.number_of.insert(task.clone(), number);
        Some(number)
    }

    pub(super) fn add(&mut self, first: &Arc<str>, second: &Arc<str>, counts: PipelineCounts) {
        if let (Some(first), Some(second)) = (self.number(first), self.number(second)) {
            self.counts.entry((first, second)).or_default().add(counts);
        }
    }

    pub(super) fn merge(&mut self, other: &Pipelines) {
        for (first, second, counts) in other.pairs() {
            self.add(first, second, counts);
        }
        self.refused = self.refused.saturating_add(other.refused);
    }

    /// Iterates over the pairs of tasks that shared an element, in no particular order.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>, PipelineCounts)> {
        let task = |number: u32| &self.tasks[number as usize];
        self.counts
            .iter()
            .map(move |((first, second), counts)| (task(*first), task(*second), *counts))
    }

    pub(super) fn get(&self, first: &str, second: &str) -> Option<PipelineCounts> {
        let pair = (*self.number_of.get(first)?, *self.number_of.get(second)?);
        self.counts.get(&pair).copied()
    }

    pub(super) fn refused(&self) -> u64 {
        self.refused
    }
}

/// Pairs the stays of two tasks on each element that both worked on.
fn shared<'a>(first: &'a [Stay], second: &'a [Stay]) -> Vec<(&'a Stay, &'a Stay)> {
    let mut second = second.iter().peekable();
    let both = |a: &'a Stay| {
        while second.next_if(|b| b.element < a.element).is_some() {}
        second
            .peek()
            .filter(|b| b.element == a.element)
            .map(|b| (a, *b))
    };
    first.iter().filter_map(both).collect()
}

fn is_surely_before(trace: &SegmentedTrace, a: (i64, ClockId), b: (i64, ClockId)) -> bool {
    i128::from(a.0) + i128::from(trace.tolerance_ns(a.1, b.1)) < i128::from(b.0)
}

/// Returns the earliest and latest instant at which each stay can have started, to compare the
/// stays with each other. If one clock took all starts, its error does not matter and is left out.
/// If the starts are of several islands, their order is unknown, and the bounds are unlimited.
fn start_bounds<'a>(
    trace: &SegmentedTrace,
    stays: impl Iterator<Item = &'a Stay> + Clone,
) -> Vec<(i64, i64)> {
    let mut clocks = stays.clone().map(|stay| stay.start.1);
    let first = clocks.next();
    let one_clock = clocks.all(|clock| Some(clock) == first);
    let bounds = |stay: &Stay| trace.clock_bounds(stay.start.1);
    let tick_ns = stays
        .clone()
        .map(|stay| bounds(stay).tick_ns)
        .max()
        .unwrap_or(0);
    let mut islands = stays.clone().map(|stay| bounds(stay).island);
    let first_island = islands.next();
    let one_island = islands.all(|island| Some(island) == first_island);
    stays
        .map(|stay| {
            let error_ns = match (one_clock, one_island) {
                (true, _) => 0,
                (false, true) => bounds(stay).error_ns,
                (false, false) => u64::MAX,
            };
            let (start_ns, after_ns) = (stay.start.0, error_ns.saturating_add(tick_ns));
            (
                start_ns.saturating_sub_unsigned(error_ns),
                start_ns.saturating_add_unsigned(after_ns),
            )
        })
        .collect()
}

/// Reports whether the two tasks certainly started on some pair of elements in opposite orders.
fn is_reordered(trace: &SegmentedTrace, shared: &[(&Stay, &Stay)]) -> bool {
    let first = start_bounds(trace, shared.iter().map(|(a, _)| *a));
    let second = start_bounds(trace, shared.iter().map(|(_, b)| *b));
    let mut by_latest: Vec<usize> = (0..shared.len()).collect();
    by_latest.sort_unstable_by_key(|i| first[*i].1);
    let mut by_earliest: Vec<usize> = (0..shared.len()).collect();
    by_earliest.sort_unstable_by_key(|i| first[*i].0);
    let mut surely_earlier = by_latest.into_iter().peekable();
    let mut second_start_ns = i64::MIN;
    by_earliest.into_iter().any(|i| {
        while let Some(earlier) = surely_earlier.next_if(|earlier| first[*earlier].1 < first[i].0) {
            second_start_ns = second_start_ns.max(second[earlier].0);
        }
        second[i].1 < second_start_ns
    })
}
