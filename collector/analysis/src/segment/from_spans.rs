//! Segments of a tree of spans: the stretches of a span's interval in which the span itself is
//! active.
//!
//! **Tasks.** A span's task is the path of `service:name` from its root, joined by ` > `, such as
//! `client:page > edge:newsfeed.v1.Page/Load > web:auth`. Names go through the [rule for names of
//! high cardinality](crate::name_rule); a lone `>` inside a name is written `\>`. Where a parent
//! has several children of one name, they are numbered in order of start, `#1`, `#2` and so on, and
//! those past [`NUMBERED_SIBLINGS_MAX`] all are `#*`. Roots count as siblings. Spans nested deeper
//! than [`TASK_DEPTH_MAX`] are named by the path of their ancestor at that depth, `…`, and their
//! own name.
//!
//! **Boundaries.** A span's own time is its interval minus its children's (as far as those lie
//! inside it). It is cut at `start`, at the span's own events, where a stretch of overlapping
//! children begins (`→child`, the first of them to start) and ends (`←child`, the last of them to
//! end), and at `end`. Own segments of length zero are left out, except for those that a child's
//! clock caused: if a child starts before its parent, or ends after it, or lies outside it as a
//! whole, by less than their clocks may be off, the parent was active before or after it, for an
//! unknown time, and the contradictions of its segment count. Events that happen while the span
//! waits for children are left out, too, as it is not active then.
//!
//! **Waiting.** A span waits for its children until it ends itself. A child that outlives it, by
//! more than their clocks may be off, was *detached*: the first one to end did not wait for the
//! other's end. It takes no time from its parent, whose own time is only cut where it starts
//! (`→child`). A *call* is the exception (a client span's child, or a server's span): its caller
//! waited for it until the caller itself ended, with an answer or without, as servers often end a
//! little after their callers have the answer. The callers of a span have all they wait for at the
//! least end of the spans from its own parent up to the root or a detached span. At that instant,
//! the span's own time is cut once more: the part before keeps its name, and the part after is
//! `answered … end`. Within the clocks' errors, an end is moved to that instant instead. If
//! recording ended before the parent did, the parent's end is unknown; children do not count as
//! outliving it then.
//!
//! **Elements.** A span that is about a data element works on it in all of its own time. Such spans
//! are distinguished by their elements and not numbered: siblings of one name are one task, as the
//! stages of a pipeline are. If an event of a span is about an element of its own, the segments
//! next to it work on elements as those of [event logs](super::from_events) do.

pub use super::name_cache::{NUMBERED_SIBLINGS_MAX, TASK_DEPTH_MAX};

use super::elements::{Elements, between};
use super::name_cache::{BoundaryId, ComponentId, Edge, NameCache, TaskId};
use super::outline::OutlineSpan;
use super::span_tree::SpanTree;
use super::waiting::{is_detached, known_end};
use super::{ClockId, ElementId, Instant, Pieces, ThreadStep};
use crate::diagnostic::Diagnostic;
use crate::record::{RecordOwner, SpanRecord, TraceRecords};

/// Cuts spans. It keeps its memory and a cache of names between traces.
#[derive(Clone, Debug, Default)]
pub(super) struct SpanCutter {
    names: NameCache,
    tree: SpanTree,
    /// Component of each span in paths and boundaries.
    components: Vec<ComponentId>,
    /// Number of siblings with each component, and of those already numbered.
    siblings: Vec<(u32, u32)>,
    pending: Vec<PendingSpan>,
    boundaries: Vec<Boundary>,
    /// Cuts of a span's own time that do not end its activity: its own events, and children it does
    /// not wait for.
    events: Vec<(i64, BoundaryId, ClockId, ElementId)>,
    stretches: Vec<ChildrenInterval>,
}

/// A span that is still to be cut.
#[derive(Clone, Copy, Debug)]
struct PendingSpan {
    number: u32,
    task: TaskId,
    /// Instant at which its callers had all that they waited for; `None` if no caller waits for it.
    answered: Option<Instant>,
}

/// An instant at which a span's own time is cut.
#[derive(Clone, Copy, Debug)]
struct Boundary {
    time_ns: i64,
    clock: ClockId,
    name: BoundaryId,
    /// Element of the event at this boundary, if any.
    element: ElementId,
    /// True if the time up to the next boundary is the children's and not the span's own.
    waits_after: bool,
    /// True if it lies here only because a child is cut at its parent's edge, which it crosses
    /// within the clocks' errors.
    is_moved: bool,
}

/// Interval in which a span waits for children that overlap, or follow each other without a gap.
#[derive(Clone, Copy, Debug)]
struct ChildrenInterval {
    start: Instant,
    end: Instant,
    /// True if the start was moved, see [`Boundary::is_moved`].
    start_moved: bool,
    /// True if the end was moved, see [`Boundary::is_moved`].
    end_moved: bool,
    /// End as its own clock showed it. Children that followed each other may both be moved to one
    /// edge, where their gap is lost.
    recorded_end: Instant,
    first: u32,
    last: u32,
}

impl ChildrenInterval {
    /// True if it ended before another child began: by one clock, if both have the same, or else as
    /// both are clipped.
    fn is_before(&self, recorded_start: Instant, start: Instant) -> bool {
        if self.recorded_end.1 == recorded_start.1 {
            self.recorded_end.0 < recorded_start.0
        } else {
            self.end.0 < start.0
        }
    }

    /// Reports whether it has ended when another child ends.
    fn ends_by(&self, recorded_end: Instant, end: Instant) -> bool {
        if self.recorded_end.1 == recorded_end.1 {
            self.recorded_end.0 <= recorded_end.0
        } else {
            self.end.0 <= end.0
        }
    }
}

impl SpanCutter {
    /// Cuts the spans of one trace.
    pub(super) fn cut(&mut self, records: &[SpanRecord], pieces: &mut Pieces<'_>) {
        if records.is_empty() {
            return;
        }
        self.names.bound();
        self.tree.build(records, &mut pieces.diagnostics);
        self.name_components(records, &pieces.elements);
        let mut too_deep = None;
        self.pending.clear();
        for &root in self.tree.roots().iter().rev() {
            let (task, _) = self.names.task(None, self.components[root as usize]);
            self.pending.push(PendingSpan {
                number: root,
                task,
                answered: None,
            });
        }
        while let Some(PendingSpan {
            number,
            task,
            answered,
        }) = self.pending.pop()
        {
            let number = number as usize;
            self.find_boundaries(records, number, pieces);
            let owner = RecordOwner::Span(self.tree.span(records, number).span_id);
            let element = pieces.elements.named(owner);
            let element = pieces.elements.number(element);
            self.cut_own_time((task, element), number, answered, pieces);
            let span = self.tree.span(records, number);
            let ends = known_end(span, pieces);
            for &child in self.tree.children(number).iter().rev() {
                let (child_task, shortened) =
                    self.names.task(Some(task), self.components[child as usize]);
                let record = self.tree.span(records, child as usize);
                if shortened {
                    too_deep.get_or_insert(record.span_id);
                }
                let answered = if is_detached(record, span, pieces) {
                    None
                } else {
                    answered
                        .into_iter()
                        .chain(ends)
                        .min_by_key(|(at_ns, _)| *at_ns)
                };
                self.pending.push(PendingSpan {
                    number: child,
                    task: child_task,
                    answered,
                });
            }
        }
        if let Some(span_id) = too_deep {
            pieces.diagnostics.push(Diagnostic::TooDeep { span_id });
        }
    }

    /// Returns the spans in the order in which they are cut, parents before children, with their
    /// tasks.
    pub(super) fn outline(&mut self, records: &TraceRecords) -> Vec<OutlineSpan> {
        self.names.bound();
        // Cutting reports the flaws of the tree.
        self.tree.build(&records.spans, &mut Vec::new());
        self.name_components(&records.spans, &Elements::of(records));
        let mut outline: Vec<OutlineSpan> = Vec::with_capacity(self.tree.len());
        let mut pending: Vec<(u32, Option<(usize, TaskId)>)> = Vec::new();
        pending.extend(self.tree.roots().iter().rev().map(|root| (*root, None)));
        while let Some((number, above)) = pending.pop() {
            let number = number as usize;
            let (task, _) = self
                .names
                .task(above.map(|(_, task)| task), self.components[number]);
            let place = outline.len();
            outline.push(OutlineSpan {
                record: self.tree.record(number),
                parent: above.map(|(place, _)| place),
                task: self.names.path(task).clone(),
            });
            let below = self.tree.children(number).iter().rev();
            pending.extend(below.map(|child| (*child, Some((place, task)))));
        }
        outline
    }

    fn name_components(&mut self, records: &[SpanRecord], elements: &Elements<'_>) {
        self.components.clear();
        for number in 0..self.tree.len() {
            self.components
                .push(self.names.component(self.tree.span(records, number)));
        }
        let tree = &self.tree;
        let is_numbered = |number: u32| {
            elements
                .named(RecordOwner::Span(
                    tree.span(records, number as usize).span_id,
                ))
                .is_none()
        };
        for siblings in (0..tree.len())
            .map(|parent| tree.children(parent))
            .chain([tree.roots()])
        {
            if siblings.len() > 1 {
                let numbered = siblings
                    .iter()
                    .copied()
                    .filter(|number| is_numbered(*number));
                number_siblings(
                    numbered,
                    &mut self.components,
                    &mut self.siblings,
                    &mut self.names,
                );
            }
        }
    }

    fn find_boundaries(&mut self, records: &[SpanRecord], number: usize, pieces: &mut Pieces<'_>) {
        let span = self.tree.span(records, number);
        let (start_ns, end_ns) = (span.start_ns, span.end_ns.max(span.start_ns));
        let own = pieces.clock(&span.host);
        self.find_own_events(span, own, pieces);
        self.find_stretches(records, number, own, pieces);
        let names = &self.names;
        self.events.sort_unstable_by(|a, b| {
            (a.0, names.boundary(a.1), a.3).cmp(&(b.0, names.boundary(b.1), b.3))
        });
        self.boundaries.clear();
        let mut bound = |(time_ns, clock): Instant, (name, element), (waits_after, is_moved)| {
            self.boundaries.push(Boundary {
                time_ns,
                clock,
                name,
                element,
                waits_after,
                is_moved,
            });
        };
        const ACTIVE: (bool, bool) = (false, false);
        const NONE: ElementId = ElementId::NONE;
        bound((start_ns, own), (BoundaryId::START, NONE), ACTIVE);
        let mut events = self.events.iter().copied().peekable();
        for stretch in &self.stretches {
            while let Some((time_ns, name, clock, element)) =
                events.next_if(|e| e.0 <= stretch.start.0)
            {
                bound((time_ns, clock), (name, element), ACTIVE);
            }
            while events.next_if(|e| e.0 < stretch.end.0).is_some() {}
            let (first, last) = (
                self.components[stretch.first as usize],
                self.components[stretch.last as usize],
            );
            let (opens, closes) = (
                self.names.edge(first, Edge::Opens),
                self.names.edge(last, Edge::Closes),
            );
            bound(stretch.start, (opens, NONE), (true, stretch.start_moved));
            bound(stretch.end, (closes, NONE), (false, stretch.end_moved));
        }
        for (time_ns, name, clock, element) in events {
            bound((time_ns, clock), (name, element), ACTIVE);
        }
        bound((end_ns, own), (BoundaryId::END, NONE), ACTIVE);
    }

    fn cut_own_time(
        &mut self,
        (task, of_span): (TaskId, ElementId),
        span: usize,
        answered: Option<Instant>,
        pieces: &mut Pieces<'_>,
    ) {
        for (step, pair) in self.boundaries.windows(2).enumerate() {
            let (a, b) = (&pair[0], &pair[1]);
            let is_empty = a.time_ns >= b.time_ns && !(a.is_moved || b.is_moved);
            if a.waits_after || is_empty {
                continue;
            }
            let (start, end) = ((a.time_ns, a.clock), (b.time_ns, b.clock));
            let known = |at: &Boundary| {
                let element = if at.element == ElementId::NONE {
                    of_span
                } else {
                    at.element
                };
                (element != ElementId::NONE).then_some(element)
            };
            let element = between((&a.name, known(a)), (&b.name, known(b)));
            let element = element.unwrap_or(ElementId::NONE);
            let id = self.names.segment(pieces.labels, task, a.name, b.name);
            // Steps leave room for a second part behind each.
            let place = ThreadStep::of_span(span, 2 * step);
            match answered.filter(|answered| answered.0 < end.0) {
                Some(answered) if !pieces.is_after(end, answered) => {
                    let answered = pieces.move_to(answered, end);
                    let start = if start.0 < answered.0 {
                        start
                    } else {
                        answered
                    };
                    pieces.push(id, element, place, (start, answered));
                }
                Some(answered) if start.0 < answered.0 => {
                    pieces.push(id, element, place, (start, answered));
                    let id = self
                        .names
                        .segment(pieces.labels, task, BoundaryId::ANSWERED, b.name);
                    let place = ThreadStep::of_span(span, 2 * step + 1);
                    pieces.push(id, element, place, (answered, end));
                }
                _ => pieces.push(id, element, place, (start, end)),
            }
        }
    }

    /// Finds the span's events inside its interval.
    fn find_own_events(&mut self, span: &SpanRecord, own: ClockId, pieces: &mut Pieces<'_>) {
        self.events.clear();
        // Number elements by name, as the order of events must not matter.
        let of_events = span.events.iter();
        let mut elements: Vec<_> = of_events.filter_map(|e| e.element.as_ref()).collect();
        elements.sort_unstable();
        for element in elements {
            pieces.elements.number(Some(element));
        }
        let inside = span.start_ns..=span.end_ns.max(span.start_ns);
        for event in span
            .events
            .iter()
            .filter(|event| inside.contains(&event.time_ns))
        {
            let element = pieces.elements.number(event.element.as_ref());
            let name = self.names.event(&event.name);
            self.events.push((event.time_ns, name, own, element));
        }
        let outside = span.events.len() - self.events.len();
        if outside > 0 {
            let events = u32::try_from(outside).unwrap_or(u32::MAX);
            pieces.diagnostics.push(Diagnostic::EventsOutsideSpan {
                span_id: span.span_id,
                events,
            });
        }
    }

    /// Finds the stretches of a span's children, clipped to the span. Children that certainly lie
    /// outside it delay nothing. Children that another clock shows outside, by less than the two
    /// may be off, are moved to its edge. A child that it does not wait for only adds an event at
    /// its start.
    fn find_stretches(
        &mut self,
        records: &[SpanRecord],
        number: usize,
        own: ClockId,
        pieces: &Pieces<'_>,
    ) {
        let span = self.tree.span(records, number);
        let from = (span.start_ns, own);
        let to = (span.end_ns.max(span.start_ns), own);
        // An instant that certainly crosses the edge is cut there; one that may not have crossed it
        // is moved to it. An instant that another clock shows on the edge is as uncertain.
        let clip = |at: Instant, is_start: bool| {
            let touched = if is_start { from } else { to };
            let (edge, is_sure) = if at.0 == touched.0 {
                (touched, pieces.disorder_ns(at.1, own) == 0)
            } else if at.0 < from.0 {
                (from, at.1 == own || pieces.is_after(from, at))
            } else if at.0 > to.0 {
                (to, at.1 == own || pieces.is_after(at, to))
            } else {
                return (at, false);
            };
            if is_sure {
                (edge, false)
            } else {
                (pieces.move_to(edge, at), true)
            }
        };
        self.stretches.clear();
        // Children are in order of start.
        for &child in self.tree.children(number) {
            let record = self.tree.span(records, child as usize);
            let clock = pieces.clock(&record.host);
            let recorded_start = (record.start_ns, clock);
            let recorded_end = (record.end_ns.max(record.start_ns), clock);
            let is_outside = recorded_start.0 > to.0 || recorded_end.0 < from.0;
            let is_instant = recorded_end.0 == recorded_start.0 || from.0 == to.0;
            let touches_edge = recorded_start.0 == to.0 || recorded_end.0 == from.0;
            if is_outside || (touches_edge && !is_instant) {
                let is_sure = clock == own
                    || pieces.is_after(recorded_start, to)
                    || pieces.is_after(from, recorded_end);
                if is_sure {
                    continue;
                }
            }
            if is_detached(record, span, pieces) {
                if from.0 <= record.start_ns {
                    let opens = self
                        .names
                        .edge(self.components[child as usize], Edge::Opens);
                    self.events
                        .push((record.start_ns, opens, clock, ElementId::NONE));
                }
                continue;
            }
            let (start, start_moved) = clip(recorded_start, true);
            let (end, end_moved) = clip(recorded_end, false);
            match self.stretches.last_mut() {
                Some(open) if !open.is_before(recorded_start, start) => {
                    if open.ends_by(recorded_end, end) {
                        open.last = child;
                        (open.end, open.end_moved) = (end, end_moved);
                        open.recorded_end = recorded_end;
                    }
                }
                _ => self.stretches.push(ChildrenInterval {
                    start,
                    end,
                    start_moved,
                    end_moved,
                    recorded_end,
                    first: child,
                    last: child,
                }),
            }
        }
    }
}

/// Numbers the siblings that share their name with another one.
fn number_siblings(
    siblings: impl Iterator<Item = u32> + Clone,
    components: &mut [ComponentId],
    counts: &mut Vec<(u32, u32)>,
    names: &mut NameCache,
) {
    if counts.len() < names.component_count() {
        counts.resize(names.component_count(), (0, 0));
    }
    for number in siblings.clone() {
        counts[components[number as usize].index()].0 += 1;
    }
    for number in siblings {
        let base = components[number as usize];
        let (total, given) = &mut counts[base.index()];
        *given += 1;
        if *total > 1 {
            components[number as usize] = names.numbered(base, *given as usize);
        }
        if *given == *total {
            (*total, *given) = (0, 0);
        }
    }
}
