//! Finds the visits of requests. Each span with a clear first and last segment is a visit to its
//! operation. Each segment may be a visit to a resource that was not recorded, unless it is the
//! only segment of its span.

use super::queue::{Visit, WaitPlace};
use super::sample::{SampledTrace, WaitingSample};
use super::waits::Waits;
use crate::critical_path::Predecessors;
use crate::label::{Labels, SegmentLabel};
use crate::task_path;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Tasks and operations of the spans, derived from labels.
pub(super) struct Spans {
    /// Task, kind and position of each label, by the label's number.
    parts: Vec<Part>,
    /// Tasks, by number.
    tasks: Vec<Task>,
    /// Service of each operation, by the operation's number.
    services: Vec<Arc<str>>,
}

struct Part {
    task: u32,
    /// Number of the kind: segments of one operation between the same two events have the same
    /// kind.
    kind: u32,
    is_first: bool,
    is_last: bool,
    leads: bool,
}

struct Task {
    parent: Option<u32>,
    depth: usize,
    operation: u32,
    /// True if the task above belongs to another service.
    enters_service: bool,
}

/// Visits to one operation in one process.
#[derive(Default)]
pub(super) struct Visits {
    pub(super) all: Vec<Visit>,
    /// True if a span of another service caused every visit.
    pub(super) enter_service: bool,
    /// True if any visit is a root span. The time at which its request was sent is unknown.
    pub(super) is_root: bool,
}

/// Visits of all requests of a sample.
#[derive(Default)]
pub(super) struct AllVisits {
    /// Visits by operation and process.
    pub(super) of_spans: BTreeMap<(u32, u32), Visits>,
    /// Visits by kind of segment and process.
    pub(super) of_stretches: BTreeMap<(u32, u32), Vec<Visit>>,
}

/// First and last segment of one span of a request, by index; `None` if unknown.
#[derive(Clone, Copy)]
struct Span {
    first: Option<usize>,
    last: Option<usize>,
    has_own_first: bool,
    /// False if several first segments, or several last segments, show that spans of the request
    /// share the task.
    is_clear: bool,
}

impl Spans {
    pub(super) fn of(labels: &Labels) -> Spans {
        let mut spans = Spans {
            parts: Vec::new(),
            tasks: Vec::new(),
            services: Vec::new(),
        };
        let mut tasks: FxHashMap<Arc<str>, u32> = FxHashMap::default();
        let mut operations: FxHashMap<String, u32> = FxHashMap::default();
        let mut kinds: FxHashMap<(u32, &str, &str), u32> = FxHashMap::default();
        for (_, label) in labels.iter() {
            let task = spans.task(&label.task, &mut tasks, &mut operations);
            let next = kinds.len() as u32;
            let operation = spans.tasks[task as usize].operation;
            let kind = kinds.entry((operation, &*label.start, &*label.end));
            spans.parts.push(Part {
                task,
                kind: *kind.or_insert(next),
                is_first: &*label.start == "start",
                is_last: &*label.end == "end",
                leads: label.end.starts_with('→'),
            });
        }
        spans
    }

    /// Returns the number of a task. Numbers the task, and the tasks above it, if they are new.
    fn task(
        &mut self,
        path: &str,
        tasks: &mut FxHashMap<Arc<str>, u32>,
        operations: &mut FxHashMap<String, u32>,
    ) -> u32 {
        if let Some(known) = tasks.get(path) {
            return *known;
        }
        let above = path
            .len()
            .checked_sub(task_path::last_component(path).len() + task_path::JOINT.len())
            .map(|upto| self.task(&path[..upto], tasks, operations));
        let name = SegmentLabel::new(path, "", "").operation();
        let service = name.split(':').next().unwrap_or(&name).to_owned();
        let operation = *operations.entry(name).or_insert_with(|| {
            self.services.push(service.as_str().into());
            self.services.len() as u32 - 1
        });
        let above_service = above.map(|above| {
            let operation = self.tasks[above as usize].operation;
            &self.services[operation as usize]
        });
        let enters_service = above_service.is_some_and(|above| **above != *service);
        let depth = above.map_or(0, |above| self.tasks[above as usize].depth + 1);
        self.tasks.push(Task {
            parent: above,
            depth,
            operation,
            enters_service,
        });
        let number = self.tasks.len() as u32 - 1;
        tasks.insert(path.into(), number);
        number
    }

    pub(super) fn service(&self, operation: u32) -> &Arc<str> {
        &self.services[operation as usize]
    }

    fn part(&self, sampled: &SampledTrace, index: usize) -> Option<&Part> {
        let id = sampled.trace.segments[index].id;
        self.parts.get(id.index())
    }

    /// Returns the indices of the segments of a visit that belong to the visit's own span.
    pub(super) fn own(&self, sampled: &SampledTrace, visit: &Visit) -> Vec<usize> {
        let task = |at: usize| self.part(sampled, at).map(|part| part.task);
        let is_own = |at: &usize| task(*at) == Some(visit.task);
        (visit.first..=visit.last.max(visit.first))
            .filter(is_own)
            .collect()
    }

    pub(super) fn visits(&self, sample: &WaitingSample, waiting: &Waits) -> AllVisits {
        let mut all = AllVisits::default();
        for (request, sampled) in sample.sampled().enumerate() {
            self.visits_of(request, sampled, waiting, &mut all);
        }
        all
    }

    fn visits_of(
        &self,
        request: usize,
        sampled: &SampledTrace,
        waiting: &Waits,
        all: &mut AllVisits,
    ) {
        let segments = &sampled.trace.segments;
        let spans = self.spans_of(sampled);
        let mut leads: FxHashMap<(u32, i64), usize> = FxHashMap::default();
        for (index, segment) in segments.iter().enumerate() {
            let Some(part) = self.part(sampled, index) else {
                continue;
            };
            if part.leads {
                leads.insert((part.task, segment.end_ns), index);
            }
            if !(part.is_first && part.is_last) {
                let key = (part.kind, sampled.process(index));
                all.of_stretches.entry(key).or_default().push(Visit {
                    request,
                    task: part.task,
                    place: WaitPlace::Start,
                    segment: index,
                    first: index,
                    last: index,
                    has_own_first: true,
                    asked_ns: segment.start_ns,
                    start_ns: segment.start_ns,
                    end_ns: segment.end_ns,
                    wait_ns: 0,
                });
            }
        }
        let mut ready_ns = Vec::new();
        let mut ready_ns = |index: usize| {
            if ready_ns.is_empty() {
                Predecessors::of(&sampled.trace, &waiting.relations).for_each_latest(
                    |_, latest| {
                        let ready_ns_of = latest.map(|at| segments[at].end_ns);
                        ready_ns.push(ready_ns_of.unwrap_or(sampled.trace.start_ns));
                    },
                );
            }
            ready_ns[index]
        };
        for (number, span) in spans {
            let task = &self.tasks[number as usize];
            let (Some(first), Some(last), true) = (span.first, span.last, span.is_clear) else {
                continue;
            };
            let (start_ns, end_ns) = (segments[first].start_ns, segments[last].end_ns);
            let lead = task
                .parent
                .and_then(|parent| leads.get(&(parent, start_ns)).copied());
            let (place, segment, asked_ns) = match lead {
                _ if task.parent.is_none() => (WaitPlace::Start, first, start_ns),
                Some(lead) => (WaitPlace::End, lead, segments[lead].start_ns),
                None => (WaitPlace::Before, first, ready_ns(first)),
            };
            let key = (task.operation, sampled.process(first));
            let visits = all.of_spans.entry(key).or_insert_with(|| Visits {
                enter_service: true,
                ..Visits::default()
            });
            visits.enter_service &= task.enters_service;
            visits.is_root |= task.parent.is_none();
            visits.all.push(Visit {
                request,
                task: number,
                place,
                segment,
                first,
                last,
                has_own_first: span.has_own_first,
                asked_ns,
                start_ns,
                end_ns,
                wait_ns: 0,
            });
        }
    }

    /// Returns the spans of a request, by task. A span that has no own time before its first child
    /// begins with that child. Likewise, a span that has no own time after its last child ends with
    /// that child.
    fn spans_of(&self, sampled: &SampledTrace) -> BTreeMap<u32, Span> {
        let segments = &sampled.trace.segments;
        let unseen = Span {
            first: None,
            last: None,
            has_own_first: false,
            is_clear: true,
        };
        let mut spans: BTreeMap<u32, Span> = BTreeMap::new();
        for index in 0..segments.len() {
            let Some(part) = self.part(sampled, index) else {
                continue;
            };
            let mut above = self.tasks[part.task as usize].parent;
            while let Some(task) = above.filter(|task| !spans.contains_key(task)) {
                spans.insert(task, unseen);
                above = self.tasks[task as usize].parent;
            }
            let span = spans.entry(part.task).or_insert(unseen);
            if part.is_first {
                span.is_clear &= span.first.replace(index).is_none();
                span.has_own_first = true;
            }
            if part.is_last {
                span.is_clear &= span.last.replace(index).is_none();
            }
        }
        let mut order: Vec<u32> = spans.keys().copied().collect();
        order.sort_by_key(|task| std::cmp::Reverse(self.tasks[*task as usize].depth));
        let own: BTreeMap<u32, (bool, bool)> = spans
            .iter()
            .map(|(task, span)| (*task, (span.first.is_some(), span.last.is_some())))
            .collect();
        for task in order {
            let span = spans[&task];
            let Some(parent) = self.tasks[task as usize].parent else {
                continue;
            };
            let (has_first, has_last) = own[&parent];
            let Some(above) = spans.get_mut(&parent) else {
                continue;
            };
            if let Some(first) = span.first.filter(|_| !has_first) {
                let start_ns = |at: usize| segments[at].start_ns;
                let earliest = above.first.filter(|at| start_ns(*at) <= start_ns(first));
                above.first = earliest.or(Some(first));
            }
            if let Some(last) = span.last.filter(|_| !has_last) {
                let end_ns = |at: usize| segments[at].end_ns;
                let latest = above.last.filter(|at| end_ns(*at) >= end_ns(last));
                above.last = latest.or(Some(last));
            }
        }
        spans
    }
}
