//! Cache that maps the names of spans to components, task paths, boundaries and segment numbers. It
//! is kept between traces.
//!
//! Requests repeat their names, so almost every name of a trace is in the cache. The key of a task
//! is the task that its path extends, and its component; the key of a segment is ⟨task, boundary,
//! boundary⟩. A lookup of cached names builds no text.

use crate::label::{Labels, SegmentId, SegmentLabel};
use crate::name_rule::normalise;
use crate::record::SpanRecord;
use crate::task_path::{JOINT, escape};
use crate::text_map::AddressCache;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Maximum number of siblings of the same name that are distinguished; all further ones form one
/// task.
pub const NUMBERED_SIBLINGS_MAX: usize = 32;
/// Maximum depth of the ancestors that a task's path names. Deeper ancestors are left out, because
/// the paths of a long chain of spans would otherwise have a quadratic total size.
pub const TASK_DEPTH_MAX: usize = 64;
/// Approximate size in bytes above which the cache is emptied before the next trace. Usually, only
/// names, paths, or addresses of names that rarely repeat fill the cache.
const CACHE_BYTES_MAX: usize = 32 << 20;
/// Approximate memory of an entry in addition to its text, in bytes.
const ENTRY_BYTES: usize = 96;

/// Number of a component. A component is `service:name`, followed by `#` and a number (or `#*`) if
/// the span is numbered among its siblings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ComponentId(u32);

impl ComponentId {
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Number of a task, which stands for its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct TaskId(u32);

/// Number of a boundary, which stands for its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct BoundaryId(u32);

impl BoundaryId {
    pub(super) const START: BoundaryId = BoundaryId(0);
    pub(super) const END: BoundaryId = BoundaryId(1);
    pub(super) const ANSWERED: BoundaryId = BoundaryId(2);
}

/// Kind of boundary at children. `Opens` is the start of a detached child, or of the first child of
/// a group. `Closes` is the end of the group's last child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Edge {
    Opens,
    Closes,
}

#[derive(Clone, Debug)]
struct Task {
    path: Arc<str>,
    depth: usize,
    /// The task whose path the paths of children extend: this task, or an ancestor if this task is
    /// too deep.
    trunk: TaskId,
}

/// Interned names of spans. See the [module](self).
#[derive(Clone, Debug)]
pub(super) struct NameCache {
    /// Components by service and name as recorded.
    of_texts: AddressCache<2, ComponentId>,
    /// Components by service, then by name as recorded.
    of_span: FxHashMap<Arc<str>, FxHashMap<Arc<str>, ComponentId>>,
    of_text: FxHashMap<Arc<str>, ComponentId>,
    components: Vec<Arc<str>>,
    numbered: FxHashMap<(ComponentId, usize), ComponentId>,
    tasks: Vec<Task>,
    children: FxHashMap<(Option<TaskId>, ComponentId), TaskId>,
    boundaries: Vec<Arc<str>>,
    of_event: FxHashMap<Arc<str>, BoundaryId>,
    edges: FxHashMap<(ComponentId, Edge), BoundaryId>,
    /// Segment numbers, each with its label. The label proves that the number still belongs to the
    /// current [`Labels`].
    segments: FxHashMap<(TaskId, BoundaryId, BoundaryId), (SegmentId, SegmentLabel)>,
    bytes: usize,
}

impl Default for NameCache {
    fn default() -> NameCache {
        NameCache {
            of_texts: AddressCache::default(),
            of_span: FxHashMap::default(),
            of_text: FxHashMap::default(),
            components: Vec::new(),
            numbered: FxHashMap::default(),
            tasks: Vec::new(),
            children: FxHashMap::default(),
            // In the order of `BoundaryId::START`, `BoundaryId::END` and `BoundaryId::ANSWERED`.
            boundaries: vec!["start".into(), "end".into(), "answered".into()],
            of_event: FxHashMap::default(),
            edges: FxHashMap::default(),
            segments: FxHashMap::default(),
            bytes: 0,
        }
    }
}

impl NameCache {
    /// Empties the cache if it has grown too large. This invalidates all ids.
    pub(super) fn bound(&mut self) {
        if self.bytes > CACHE_BYTES_MAX {
            *self = NameCache::default();
        }
    }

    /// Returns the number of components. All ids are below it.
    pub(super) fn component_count(&self) -> usize {
        self.components.len()
    }

    /// Returns a span's component, before it is numbered among its siblings.
    pub(super) fn component(&mut self, span: &SpanRecord) -> ComponentId {
        let texts = [&span.service, &span.name];
        if let Some(id) = self.of_texts.get(texts) {
            return *id;
        }
        let id = self.component_of_texts(span);
        self.bytes += span.service.len() + span.name.len() + ENTRY_BYTES;
        self.of_texts.insert(texts, id);
        id
    }

    fn component_of_texts(&mut self, span: &SpanRecord) -> ComponentId {
        if let Some(id) = self
            .of_span
            .get(&*span.service)
            .and_then(|names| names.get(&*span.name))
        {
            return *id;
        }
        let text = format!("{}:{}", span.service, normalise(&span.name));
        let id = self.component_of_text(&escape(&text));
        self.bytes += span.service.len() + span.name.len() + 2 * ENTRY_BYTES;
        self.of_span
            .entry(span.service.clone())
            .or_default()
            .insert(span.name.clone(), id);
        id
    }

    /// Returns the numbered component for the sibling with this number, counted from 1, among
    /// siblings of the same name.
    pub(super) fn numbered(&mut self, component: ComponentId, number: usize) -> ComponentId {
        let number = number.min(NUMBERED_SIBLINGS_MAX + 1);
        if let Some(id) = self.numbered.get(&(component, number)) {
            return *id;
        }
        let base = &self.components[component.index()];
        let text = if number > NUMBERED_SIBLINGS_MAX {
            format!("{base}#*")
        } else {
            format!("{base}#{number}")
        };
        let id = self.component_of_text(&text);
        self.bytes += ENTRY_BYTES;
        self.numbered.insert((component, number), id);
        id
    }

    fn component_of_text(&mut self, text: &str) -> ComponentId {
        if let Some(id) = self.of_text.get(text) {
            return *id;
        }
        let text: Arc<str> = text.into();
        let id = ComponentId(self.components.len() as u32);
        self.bytes += text.len() + ENTRY_BYTES;
        self.components.push(text.clone());
        self.of_text.insert(text, id);
        id
    }

    /// Returns the task of a span below `parent` (`None` for a root), and `true` if the task's path
    /// is shortened because of its depth.
    pub(super) fn task(
        &mut self,
        parent: Option<TaskId>,
        component: ComponentId,
    ) -> (TaskId, bool) {
        let trunk = parent.map(|parent| self.tasks[parent.0 as usize].trunk);
        if let Some(id) = self.children.get(&(trunk, component)) {
            return (*id, self.tasks[id.0 as usize].depth > TASK_DEPTH_MAX);
        }
        let id = TaskId(self.tasks.len() as u32);
        let text = &self.components[component.index()];
        let task = match trunk.map(|trunk| (trunk, &self.tasks[trunk.0 as usize])) {
            None => Task {
                path: text.clone(),
                depth: 1,
                trunk: id,
            },
            Some((_, Task { path, depth, .. })) if *depth < TASK_DEPTH_MAX => Task {
                path: format!("{path}{JOINT}{text}").into(),
                depth: depth + 1,
                trunk: id,
            },
            // All tasks below this one extend the same trunk.
            Some((trunk, Task { path, depth, .. })) => Task {
                path: format!("{path}{JOINT}…{JOINT}{text}").into(),
                depth: depth + 1,
                trunk,
            },
        };
        let shortened = task.depth > TASK_DEPTH_MAX;
        self.bytes += task.path.len() + ENTRY_BYTES;
        self.tasks.push(task);
        self.children.insert((trunk, component), id);
        (id, shortened)
    }

    pub(super) fn path(&self, task: TaskId) -> &Arc<str> {
        &self.tasks[task.0 as usize].path
    }

    /// Returns the boundary at an event of a span, by the event's name.
    pub(super) fn event(&mut self, name: &Arc<str>) -> BoundaryId {
        if let Some(id) = self.of_event.get(name) {
            return *id;
        }
        let id = self.new_boundary(normalise(name).into());
        self.bytes += name.len() + ENTRY_BYTES;
        self.of_event.insert(name.clone(), id);
        id
    }

    /// Returns the boundary at an edge of a child, which is given by its component.
    pub(super) fn edge(&mut self, component: ComponentId, edge: Edge) -> BoundaryId {
        if let Some(id) = self.edges.get(&(component, edge)) {
            return *id;
        }
        let arrow = if edge == Edge::Opens { '→' } else { '←' };
        let id = self.new_boundary(format!("{arrow}{}", self.components[component.index()]).into());
        self.edges.insert((component, edge), id);
        id
    }

    fn new_boundary(&mut self, text: Arc<str>) -> BoundaryId {
        let id = BoundaryId(self.boundaries.len() as u32);
        self.bytes += text.len() + ENTRY_BYTES;
        self.boundaries.push(text);
        id
    }

    pub(super) fn boundary(&self, id: BoundaryId) -> &str {
        &self.boundaries[id.0 as usize]
    }

    /// Returns the number of a segment in `labels`; `None` if it is new and `labels` are full.
    pub(super) fn segment(
        &mut self,
        labels: &mut Labels,
        task: TaskId,
        start: BoundaryId,
        end: BoundaryId,
    ) -> Option<SegmentId> {
        if let Some((id, label)) = self.segments.get(&(task, start, end))
            && labels.get(*id).is_some_and(|known| known.is_same(label))
        {
            return Some(*id);
        }
        let path = &self.tasks[task.0 as usize].path;
        let id = labels.intern(
            path,
            &self.boundaries[start.0 as usize],
            &self.boundaries[end.0 as usize],
        )?;
        let label = labels.get(id)?.clone();
        self.bytes += ENTRY_BYTES;
        self.segments.insert((task, start, end), (id, label));
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::SpanFlags;

    #[test]
    fn names_that_never_repeat_do_not_fill_the_memory() {
        let mut names = NameCache::default();
        let mut labels = Labels::with_max(10);
        let (mut most_kept, mut emptied) = (0, 0);
        for number in 0..40_000u64 {
            let span = SpanRecord {
                span_id: number,
                parent_id: 0,
                service: "s".into(),
                name: format!("n{number}{}", "x".repeat(1000)).into(),
                host: "h".into(),
                process: 1,
                start_ns: 0,
                end_ns: 0,
                flags: SpanFlags(0),
                events: Vec::new(),
            };
            let component = names.component(&span);
            let (task, _) = names.task(None, component);
            let boundary = names.edge(component, Edge::Opens);
            let known = names.segment(&mut labels, task, BoundaryId::START, boundary);
            assert_eq!(known.is_some(), number < 10);
            most_kept = most_kept.max(names.components.len());
            names.bound();
            emptied += u32::from(names.components.is_empty());
        }
        // Each name adds at least three texts of 1,000 bytes.
        assert!(
            most_kept <= CACHE_BYTES_MAX / 3000 && emptied > 1,
            "{most_kept} names were kept"
        );
    }
}
