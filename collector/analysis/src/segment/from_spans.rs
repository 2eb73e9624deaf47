//! Segments of a tree of spans: the stretches of a span's interval in which the span itself is active.
//!
//! **Tasks.** A span's task is the path of `service:name` from its root, joined by `/`. Names go through the
//! [rule for names of high cardinality](crate::name_rule); a `/` or `\` inside a name is escaped by `\`. Where a
//! parent has several children of one name, they are numbered in order of start, `#1`, `#2` and so on, and those past
//! [`NUMBERED_SIBLINGS_MAX`] all are `#*`. Roots count as siblings. Spans nested deeper than [`TASK_DEPTH_MAX`] are
//! named by the path of their ancestor at that depth, `…`, and their own name.
//!
//! **Boundaries.** A span's own time is its interval minus its children's (as far as those lie inside it). It is cut
//! at `start`, at the span's own events, where a stretch of overlapping children begins (`→child`, the first of them
//! to start) and ends (`←child`, the last of them to end), and at `end`. Own segments of length zero are left out;
//! so are events that happen while the span waits for children: the span is not active then.

use super::Pieces;
use super::span_tree::SpanTree;
use crate::diagnostic::Diagnostic;
use crate::name_rule::normalise;
use crate::record::SpanRecord;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// How many siblings of the same name are told apart; the others are one task.
pub const NUMBERED_SIBLINGS_MAX: usize = 32;
/// How many components a task's path has at most, so that a chain of spans does not make paths of quadratic size.
pub const TASK_DEPTH_MAX: usize = 64;

/// Cuts the spans of one trace.
pub(super) fn cut(records: &[SpanRecord], pieces: &mut Pieces<'_>) {
    if records.is_empty() {
        return;
    }
    let tree = SpanTree::build(records, &mut pieces.diagnostics);
    let components = components(&tree);
    let boundary_names = [Arc::from("start"), Arc::from("end")];
    let mut boundaries = Boundaries::default();
    let mut too_deep = None;
    let mut pending: Vec<(usize, Arc<str>, usize)> =
        tree.roots.iter().rev().map(|&root| (root, components[root].clone(), 1)).collect();
    while let Some((number, task, depth)) = pending.pop() {
        boundaries.find(&tree, number, &components, &boundary_names, &mut pieces.diagnostics);
        boundaries.cut(&task, pieces);
        for &child in tree.children[number].iter().rev() {
            let child_task: Arc<str> = if depth < TASK_DEPTH_MAX {
                format!("{task}/{}", components[child]).into()
            } else {
                too_deep.get_or_insert(tree.spans[child].span_id);
                deep_task(&task, depth, &components[child])
            };
            pending.push((child, child_task, depth + 1));
        }
    }
    if let Some(span_id) = too_deep {
        pieces.diagnostics.push(Diagnostic::TooDeep { span_id });
    }
}

/// The task of a span past the bound: the path of the ancestor at the bound, `…`, and its own name.
fn deep_task(parent_task: &str, parent_depth: usize, component: &str) -> Arc<str> {
    let kept = if parent_depth == TASK_DEPTH_MAX {
        parent_task
    } else {
        // Past the bound a path ends in `/…/name`; the name itself may hold an escaped `/`, but never `/…/`,
        // because every `/` inside it comes after a `\`.
        parent_task.rfind("/…/").map_or(parent_task, |at| &parent_task[..at])
    };
    format!("{kept}/…/{component}").into()
}

/// What each span is called in paths and boundaries: `service:name`, numbered among its siblings of the same name.
fn components(tree: &SpanTree<'_>) -> Vec<Arc<str>> {
    let mut names: FxHashMap<(&str, &str), Arc<str>> = FxHashMap::default();
    let mut components: Vec<Arc<str>> = tree
        .spans
        .iter()
        .map(|span| names.entry((&span.service, &span.name)).or_insert_with(|| component(span)).clone())
        .collect();
    let mut of_name: FxHashMap<Arc<str>, (usize, usize)> = FxHashMap::default();
    for siblings in tree.children.iter().chain(std::iter::once(&tree.roots)).filter(|s| s.len() > 1) {
        of_name.clear();
        for &number in siblings {
            of_name.entry(components[number].clone()).or_default().0 += 1;
        }
        for &number in siblings {
            let Some((total, given)) = of_name.get_mut(&components[number]) else { continue };
            *given += 1;
            if *total > 1 {
                let numbered = match *given {
                    n if n <= NUMBERED_SIBLINGS_MAX => format!("{}#{n}", components[number]),
                    _ => format!("{}#*", components[number]),
                };
                components[number] = numbered.into();
            }
        }
    }
    components
}

fn component(span: &SpanRecord) -> Arc<str> {
    let mut text = String::with_capacity(span.service.len() + span.name.len() + 1);
    let name = normalise(&span.name);
    for c in span.service.chars().chain([':']).chain(name.chars()) {
        if c == '/' || c == '\\' {
            text.push('\\');
        }
        text.push(c);
    }
    text.into()
}

/// One instant at which a span's own time is cut.
#[derive(Debug)]
struct Boundary {
    time_ns: i64,
    name: Arc<str>,
    /// Whether what follows, up to the next boundary, is the children's time and not the span's own.
    waits_after: bool,
}

/// The boundaries of one span, in order. Kept between spans for its memory.
#[derive(Default)]
struct Boundaries {
    list: Vec<Boundary>,
}

impl Boundaries {
    fn find(
        &mut self,
        tree: &SpanTree<'_>,
        number: usize,
        components: &[Arc<str>],
        [start_name, end_name]: &[Arc<str>; 2],
        diagnostics: &mut Vec<Diagnostic>,
    ) {
        let span = tree.spans[number];
        let (start_ns, end_ns) = (span.start_ns, span.end_ns.max(span.start_ns));
        self.list.clear();
        self.list.push(Boundary { time_ns: start_ns, name: start_name.clone(), waits_after: false });
        let mut events = own_events(span, diagnostics).into_iter().peekable();
        for stretch in stretches(tree, number) {
            while let Some((time_ns, name)) = events.next_if(|e| e.0 <= stretch.start_ns) {
                self.list.push(Boundary { time_ns, name, waits_after: false });
            }
            while events.next_if(|e| e.0 < stretch.end_ns).is_some() {}
            let (first, last) = (&components[stretch.first], &components[stretch.last]);
            let (opens, closes) = (format!("→{first}").into(), format!("←{last}").into());
            self.list.push(Boundary { time_ns: stretch.start_ns, name: opens, waits_after: true });
            self.list.push(Boundary { time_ns: stretch.end_ns, name: closes, waits_after: false });
        }
        self.list.extend(events.map(|(time_ns, name)| Boundary { time_ns, name, waits_after: false }));
        self.list.push(Boundary { time_ns: end_ns, name: end_name.clone(), waits_after: false });
    }

    fn cut(&self, task: &Arc<str>, pieces: &mut Pieces<'_>) {
        for pair in self.list.windows(2) {
            let (a, b) = (&pair[0], &pair[1]);
            if !a.waits_after && a.time_ns < b.time_ns {
                pieces.push(task, (&a.name, a.time_ns), (&b.name, b.time_ns));
            }
        }
    }
}

/// The span's events inside its interval, in order of time.
fn own_events(span: &SpanRecord, diagnostics: &mut Vec<Diagnostic>) -> Vec<(i64, Arc<str>)> {
    let inside = span.start_ns..=span.end_ns.max(span.start_ns);
    let mut events: Vec<(i64, Arc<str>)> = span
        .events
        .iter()
        .filter(|event| inside.contains(&event.time_ns))
        .map(|event| (event.time_ns, normalise(&event.name).into()))
        .collect();
    let outside = span.events.len() - events.len();
    if outside > 0 {
        let events = u32::try_from(outside).unwrap_or(u32::MAX);
        diagnostics.push(Diagnostic::EventsOutsideSpan { span_id: span.span_id, events });
    }
    events.sort_unstable();
    events
}

/// A time in which a span waits for children that overlap, or follow each other without a gap.
struct Stretch {
    start_ns: i64,
    end_ns: i64,
    first: usize,
    last: usize,
}

/// The stretches of a span's children, clipped to the span. Children that lie outside of it hold nothing up.
fn stretches(tree: &SpanTree<'_>, number: usize) -> Vec<Stretch> {
    let span = tree.spans[number];
    let (from_ns, to_ns) = (span.start_ns, span.end_ns.max(span.start_ns));
    let mut stretches: Vec<Stretch> = Vec::new();
    // Children are in order of start.
    for &child in &tree.children[number] {
        let record = tree.spans[child];
        let ends_ns = record.end_ns.max(record.start_ns);
        let outside = record.start_ns > to_ns || ends_ns < from_ns;
        let touches_edge = record.start_ns == to_ns || ends_ns == from_ns;
        if outside || (touches_edge && ends_ns > record.start_ns && from_ns < to_ns) {
            continue;
        }
        let (start_ns, end_ns) = (record.start_ns.max(from_ns), ends_ns.min(to_ns));
        match stretches.last_mut() {
            Some(open) if start_ns <= open.end_ns => {
                if end_ns >= open.end_ns {
                    open.last = child;
                    open.end_ns = end_ns;
                }
            }
            _ => stretches.push(Stretch { start_ns, end_ns, first: child, last: child }),
        }
    }
    stretches
}
