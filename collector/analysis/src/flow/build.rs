//! Builds the structures of requests from their records.

use super::operation::{NumberedOperation, OperationCache, OperationId};
use super::order::KnownOrders;
use super::shape::{Fold, FormDigest, Operation, Shape, ShapeOf};
use crate::record::{EventRecord, RecordOwner, SpanFlags, SpanRecord, TraceRecords};
use crate::root::{EVENT_LOG, NO_ROOT};
use crate::segment::SpanTree;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Level of detail of a request-flow graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Zoom {
    /// Calls from service to service: a span is hidden if its parent is of the same service.
    Service,
    /// Calls from operation to operation: spans are shown, down to [`DEPTH_MAX`].
    #[default]
    Operation,
    /// Spans, down to [`DEPTH_MAX`], and the events inside them.
    Full,
}

/// Settings that determine which requests have equal structures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct FlowSettings {
    /// Level of detail.
    pub zoom: Zoom,
    /// Precision with which repetitions are counted.
    pub fold: Fold,
    /// True if equal operations on different hosts count as different.
    pub with_hosts: bool,
}

/// Name of the attribute that marks a failed span, whatever the format of its source.
pub const ERROR: &str = "error";

/// Returns true if a span with this value of [`ERROR`] failed.
#[must_use]
pub fn is_failure(value: &str) -> bool {
    !["", "false", "0"].contains(&value)
}

/// Iterates over the ids of the spans that failed, by the attribute [`ERROR`] or by a panic. The
/// records must include [`ERROR`]. An id may occur several times.
pub fn failed_spans(records: &TraceRecords) -> impl Iterator<Item = u64> {
    let attributes = records.attributes.iter();
    let of_attributes = attributes.filter_map(|attribute| match attribute.owner {
        RecordOwner::Span(id) if &*attribute.key == ERROR && is_failure(&attribute.value) => {
            Some(id)
        }
        _ => None,
    });
    let panicked = |span: &&SpanRecord| span.flags.contains(SpanFlags::PANICKED);
    let of_panics = records.spans.iter().filter(panicked);
    of_attributes.chain(of_panics.map(|span| span.span_id))
}

/// Maximum nesting depth. Deeper spans are hidden, and count as part of the span at this depth.
pub const DEPTH_MAX: usize = 96;

/// Number of cached shapes above which the cache is cleared before the next request.
const SHAPES_MAX: usize = 1 << 16;

/// Builds structures, and caches them.
///
/// Most requests have a structure that was built before. For each visible span, the builder
/// therefore computes the digest of the shape first, in memory that it reuses for each request. It
/// builds the shape only if the cache lacks the digest.
#[derive(Clone, Debug, Default)]
pub struct FlowBuilder {
    settings: FlowSettings,
    operations: OperationCache,
    known: KnownShapes,
    tree: SpanTree,
    failed: foldhash::HashSet<u64>,
    /// Items that no finished operation contains yet, those of the innermost operation last.
    open: Vec<Item>,
    stages: Stages,
}

/// A finished operation, or an event inside an operation.
#[derive(Clone, Copy, Debug)]
struct Item {
    id: OperationId,
    /// Digest of the item's shape.
    digest: u128,
    shape: ShapeNumber,
    start_ns: i64,
    end_ns: i64,
}

/// Index of a shape in the cache.
type ShapeNumber = u32;

/// Cache of shapes by digest.
#[derive(Clone, Debug, Default)]
struct KnownShapes {
    numbers: FxHashMap<u128, ShapeNumber>,
    all: Vec<Arc<Shape>>,
}

impl KnownShapes {
    /// Clears the cache if it exceeds its maximum. Shape numbers are only valid within one request.
    fn bound(&mut self) {
        if self.all.len() > SHAPES_MAX {
            self.numbers.clear();
            self.all.clear();
        }
    }

    fn number(&mut self, digest: u128, make: impl FnOnce(&[Arc<Shape>]) -> Shape) -> ShapeNumber {
        if let Some(number) = self.numbers.get(&digest) {
            return *number;
        }
        let shape = make(&self.all);
        debug_assert_eq!(shape.digest, digest, "one way to work out digests");
        let number = self.all.len() as ShapeNumber;
        self.all.push(Arc::new(shape));
        self.numbers.insert(digest, number);
        number
    }

    fn get(&self, number: ShapeNumber) -> &Arc<Shape> {
        &self.all[number as usize]
    }
}

impl FlowBuilder {
    /// Creates a builder with these settings.
    pub fn new(settings: FlowSettings) -> FlowBuilder {
        FlowBuilder {
            settings,
            ..FlowBuilder::default()
        }
    }

    /// Returns the structure of a request. The records must include the attribute [`ERROR`].
    ///
    /// A trace of spans has the structure of its root. If it has several roots, an operation with a
    /// fixed name contains all of them as parallel parts. In an event log, tasks are parallel, and
    /// the events of a task follow each other; [`Zoom::Service`] hides the events.
    pub fn shape(&mut self, records: &TraceRecords, orders: &KnownOrders) -> Arc<Shape> {
        self.operations.bound();
        self.known.bound();
        self.open.clear();
        if records.spans.is_empty() {
            return self.of_events(&records.events);
        }
        self.failed.clear();
        self.failed.extend(failed_spans(records));
        let mut tree = std::mem::take(&mut self.tree);
        tree.build(&records.spans, &mut Vec::new());
        for &root in tree.roots() {
            self.put(&tree, &records.spans, root as usize, orders, (0, None));
        }
        let shape = match (tree.roots(), &*self.open) {
            ([_], [item]) => self.known.get(item.shape).clone(),
            _ => {
                let items = std::mem::take(&mut self.open);
                let stage = items.iter().map(|item| self.known.get(item.shape).clone());
                let stages = vec![stage.collect()];
                self.made(named(NO_ROOT), stages)
            }
        };
        self.tree = tree;
        shape
    }

    /// Adds a span to the open items of its parent, or its children if the span is hidden.
    fn put(
        &mut self,
        tree: &SpanTree,
        records: &[SpanRecord],
        number: usize,
        orders: &KnownOrders,
        (depth, parent): (usize, Option<&SpanRecord>),
    ) {
        let span = tree.span(records, number);
        let is_hidden = self.settings.zoom == Zoom::Service
            && parent.is_some_and(|parent| parent.service == span.service);
        let first = self.open.len();
        if depth < DEPTH_MAX {
            let within = (depth + 1, Some(span));
            for &child in tree.children(number) {
                self.put(tree, records, child as usize, orders, within);
            }
        }
        if is_hidden {
            return;
        }
        if self.settings.zoom == Zoom::Full {
            for event in &span.events {
                let of_event = self.operations.of(&span.service, &event.name, None);
                let item = self.instant(&of_event, event.time_ns);
                self.open.push(item);
            }
        }
        let known = self.operations.of_span(span, self.settings.with_hosts);
        let is_error = self.failed.contains(&span.span_id);
        let (digest, shape) = self.close(first, &known, is_error, orders);
        self.open.push(Item {
            id: known.id,
            digest,
            shape,
            start_ns: span.start_ns,
            end_ns: span.end_ns.max(span.start_ns),
        });
    }

    /// Returns the digest and the number of the shape of an operation with the items from `first`
    /// on, and removes these items.
    fn close(
        &mut self,
        first: usize,
        of: &NumberedOperation,
        is_error: bool,
        orders: &KnownOrders,
    ) -> (u128, ShapeNumber) {
        let fold = self.settings.fold;
        let items = &mut self.open[first..];
        self.stages.find(items, of.id, orders);
        let mut digest = FormDigest::new(of.digest, is_error, false);
        for stage in self.stages.of(items) {
            digest.stage();
            for alike in stage.chunk_by(|a, b| a.digest == b.digest) {
                digest.part(alike[0].digest, fold.repeats(alike.len()));
            }
        }
        let digest = digest.finish();
        let stages = &self.stages;
        let make = |known: &[Arc<Shape>]| {
            let shape = |item: &Item| known[item.shape as usize].clone();
            let stages = stages.of(items);
            let stages = stages.map(|stage| stage.iter().map(shape).collect());
            let of = ShapeOf {
                operation: of.operation.clone(),
                is_error,
                is_event: false,
                stages: stages.collect(),
            };
            of.canonical(fold)
        };
        let shape = self.known.number(digest, make);
        self.open.truncate(first);
        (digest, shape)
    }

    fn instant(&mut self, of: &NumberedOperation, time_ns: i64) -> Item {
        let digest = FormDigest::new(of.digest, false, true).finish();
        let fold = self.settings.fold;
        let make = |_: &[Arc<Shape>]| {
            let of = ShapeOf {
                operation: of.operation.clone(),
                is_error: false,
                is_event: true,
                stages: Vec::new(),
            };
            of.canonical(fold)
        };
        Item {
            id: of.id,
            digest,
            shape: self.known.number(digest, make),
            start_ns: time_ns,
            end_ns: time_ns,
        }
    }

    fn of_events(&mut self, events: &[EventRecord]) -> Arc<Shape> {
        let mut order: Vec<&EventRecord> = events.iter().collect();
        order.sort_unstable_by(|a, b| {
            (&a.task, a.ts_ns, a.seq, &a.event, &a.host)
                .cmp(&(&b.task, b.ts_ns, b.seq, &b.event, &b.host))
        });
        order.dedup_by(|b, a| a == b);
        let is_shown = self.settings.zoom != Zoom::Service;
        let mut tasks = Vec::new();
        for task in order.chunk_by(|a, b| a.task == b.task) {
            let host = self.settings.with_hosts.then_some(&task[0].host);
            let of_task = self.operations.of(&task[0].task, &Arc::from(""), host);
            // Consecutive equal events count as repetitions of one step.
            let steps = task.chunk_by(|a, b| a.event == b.event);
            let steps = steps.filter(|_| is_shown);
            let stages = steps.map(|run| {
                let of_event = self.operations.of(&run[0].task, &run[0].event, None);
                let item = self.instant(&of_event, run[0].ts_ns);
                vec![self.known.get(item.shape).clone(); run.len()]
            });
            let stages = stages.collect();
            tasks.push(self.made(of_task.operation.clone(), stages));
        }
        self.made(named(EVENT_LOG), vec![tasks])
    }

    /// Returns the cached shape of an operation that did not fail, with these parts by stage.
    fn made(&mut self, operation: Operation, stages: Vec<Vec<Arc<Shape>>>) -> Arc<Shape> {
        let of = ShapeOf {
            operation,
            is_error: false,
            is_event: false,
            stages,
        };
        let shape = of.canonical(self.settings.fold);
        let number = self.known.number(shape.digest, |_| shape);
        self.known.get(number).clone()
    }
}

fn named(name: &str) -> Operation {
    Operation {
        service: "".into(),
        name: name.into(),
        host: None,
    }
}

/// Stages of the items inside an operation.
#[derive(Clone, Debug, Default)]
struct Stages {
    /// Index of each stage's first item.
    begins: Vec<usize>,
    /// Operations in the last stage, each with its latest end.
    last: Vec<(OperationId, i64)>,
}

impl Stages {
    /// Groups items into stages, each sorted by digest. An item begins a new stage if, for each
    /// item of the current stage, it starts when or after that item ended, and their order is
    /// meaningful. A repetition of an operation in the current stage stays in that stage.
    fn find(&mut self, items: &mut [Item], parent: OperationId, orders: &KnownOrders) {
        self.begins.clear();
        self.last.clear();
        if items.len() > 1 {
            items.sort_unstable_by_key(|item| (item.start_ns, item.end_ns, item.id, item.digest));
        }
        let last = &mut self.last;
        for (at, item) in items.iter().enumerate() {
            let follows = |(id, end_ns): &(OperationId, i64)| {
                *end_ns <= item.start_ns && orders.is_serial(parent, *id, item.id)
            };
            if !last.is_empty() && last.iter().all(follows) {
                last.clear();
            }
            if last.is_empty() {
                self.begins.push(at);
            }
            match last.iter_mut().find(|(id, _)| *id == item.id) {
                Some((_, end_ns)) => *end_ns = item.end_ns.max(*end_ns),
                None => last.push((item.id, item.end_ns)),
            }
        }
        for (at, begin) in self.begins.iter().enumerate() {
            let end = self.begins.get(at + 1).copied().unwrap_or(items.len());
            if end - begin > 1 {
                items[*begin..end].sort_unstable_by_key(|item| item.digest);
            }
        }
    }

    /// Iterates over the stages of the items that [`Stages::find`] grouped.
    fn of<'a>(&'a self, items: &'a [Item]) -> impl Iterator<Item = &'a [Item]> {
        self.begins.iter().enumerate().map(move |(at, begin)| {
            let end = self.begins.get(at + 1).copied().unwrap_or(items.len());
            &items[*begin..end]
        })
    }
}
