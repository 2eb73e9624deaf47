//! Segments of a tree of spans: the parts of a span's interval in which the span itself is active.
//!
//! **Tasks.** A span's task is the path of `service:name` from its root, joined by ` > `, such as
//! `client:page > edge:newsfeed.v1.Page/Load > web:auth`. The [name rule](crate::name_rule)
//! replaces ids in names, and a lone `>` inside a name is written `\>`. Several children of one
//! parent with the same name are numbered in order of start: `#1`, `#2` and so on; those past
//! [`NUMBERED_SIBLINGS_MAX`] are all `#*`. Roots count as siblings. The path of a span nested
//! deeper than [`TASK_DEPTH_MAX`] is the path of its ancestor at that depth, then `…`, then its own
//! name.
//!
//! **Boundaries.** A span's own time is its interval minus the parts that its children cover. It is
//! cut at `start`, at the span's own events, and at `end`. It is also cut where a group of children
//! that overlap or adjoin begins (`→child`, the first child to start) and ends (`←child`, the last
//! child to end). Own segments of length zero are left out, unless clock errors may cause them.
//! For example, a child crosses the parent's edge, or lies outside the parent, by no more than
//! their clocks may be off. The parent was then active before or after the child for an unknown
//! time, so its segment of length zero is kept. Events that happen while the span waits for
//! children are also left out, because the span is not active then.
//!
//! **Waiting.** A span waits for its children until it ends. A child that outlives its parent by
//! more than their clocks may be off was *detached*: the parent did not wait for the child's end. A
//! detached child takes no time from its parent, whose own time is only cut where the child starts
//! (`→child`). The exception is a *call*: a child of a client span, or a server's span. Unless it
//! certainly began after its caller's end, the caller counts as waiting for it until the caller's
//! own end, since servers often end a little after their callers have the answer.
//!
//! The callers of a span are the spans from its parent up to the root or a detached span. They have
//! all that they wait for when the first of them ends. At that instant, the span's own time is cut
//! once more: the part before keeps its name, and the part after starts at `answered`. If the span
//! ends later, but not certainly, its end is moved to that instant instead. If a parent's end was
//! not recorded, no child counts as outliving it.
//!
//! **Elements.** A span with a data element works on it in all of its own time. Such spans are not
//! numbered: siblings of one name form one task, like a stage of a pipeline, and their elements
//! distinguish them. If an event of a span has an element of its own, the elements of the segments
//! next to it follow the rule for [event logs](super::from_events).

pub use super::name_cache::{NUMBERED_SIBLINGS_MAX, TASK_DEPTH_MAX};

use super::elements::{Elements, between};
use super::name_cache::{BoundaryId, ComponentId, Edge, NameCache, TaskId};
use super::outline::OutlineSpan;
use super::span_tree::SpanTree;
use super::waiting::{is_detached, known_end};
use super::{ClockId, ElementId, Instant, Pieces, ThreadStep};
use crate::diagnostic::Diagnostic;
use crate::record::{RecordOwner, SpanRecord, TraceRecords};

/// Cuts spans into segments. Keeps its buffers and a cache of names between traces.
#[derive(Clone, Debug, Default)]
pub(super) struct SpanCutter {
    names: NameCache,
    tree: SpanTree,
    /// Component of each span, as it appears in paths and boundaries, by the span's number.
    components: Vec<ComponentId>,
    /// Number of siblings with each component, and how many of them have been visited.
    siblings: Vec<(u32, u32)>,
    pending: Vec<PendingSpan>,
    boundaries: Vec<Boundary>,
    /// Cuts of a span's own time at which the span stays active: its own events, and the starts of
    /// children that it does not wait for.
    events: Vec<(i64, BoundaryId, ClockId, ElementId)>,
    stretches: Vec<ChildrenInterval>,
}

/// A span that is still to be cut.
#[derive(Clone, Copy, Debug)]
struct PendingSpan {
    number: u32,
    task: TaskId,
    /// Instant at which the span's callers had all that they waited for; `None` if no caller waits
    /// for the span, or the ends of all callers are unknown.
    answered: Option<Instant>,
}

/// An instant at which a span's own time is cut.
#[derive(Clone, Copy, Debug)]
struct Boundary {
    time_ns: i64,
    clock: ClockId,
    name: BoundaryId,
    /// Element of the event at this boundary; [`ElementId::NONE`] without one.
    element: ElementId,
    /// True if the span waits for children from here to the next boundary.
    waits_after: bool,
    /// True if a child's edge counts as being here, at its parent's edge, but may be at another
    /// time because of the clocks' errors.
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
    /// End as recorded. Children that followed each other with a gap may both be moved to one edge,
    /// which hides the gap.
    recorded_end: Instant,
    first: u32,
    last: u32,
}

impl ChildrenInterval {
    /// Reports whether the interval ended before another child began. Compares recorded times if
    /// they are of one clock, and times clipped to the parent otherwise.
    fn is_before(&self, recorded_start: Instant, start: Instant) -> bool {
        if self.recorded_end.1 == recorded_start.1 {
            self.recorded_end.0 < recorded_start.0
        } else {
            self.end.0 < start.0
        }
    }

    /// Reports whether the interval ends no later than another child. Compares times as `is_before`
    /// does.
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
        // `cut` reports the flaws of the tree.
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
            // Odd steps are left for the part after the answer.
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
        // Number the elements in order of name, so that the order of events does not matter.
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

    /// Finds the intervals in which the span waits for children, clipped to the span. Children that
    /// overlap, or follow each other without a gap, share an interval. Children that certainly lie
    /// outside the span are ignored. So are children on the span's clock that only touch its edge,
    /// if child and span take time. A child that lies outside by no more than the two clocks may be
    /// off is moved to the span's edge. A detached child adds at most an event at its start.
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
        // An instant that certainly lies beyond an edge is clipped to the edge. An instant that may
        // not lie beyond is moved to the edge. An instant of another clock that lies exactly on the
        // edge is uncertain, too, unless both clocks are exact.
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

/// Numbers the siblings that share their name with another sibling.
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
