//! From what was recorded of a request to its structure.

use super::operation::{Known, OperationCache, OperationId};
use super::order::KnownOrders;
use super::shape::{Fold, FormDigest, Operation, Shape, ShapeOf};
use crate::record::{EventRecord, RecordOwner, SpanFlags, SpanRecord, TraceRecords};
use crate::root::{EVENT_LOG, NO_ROOT};
use crate::segment::SpanTree;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// How much of a request its graph shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Zoom {
    /// Where it goes from service to service.
    Service,
    /// Every span.
    #[default]
    Operation,
    /// Every span, and every event inside of them.
    Full,
}

/// What makes two requests equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct FlowSettings {
    /// How much of a request is looked at.
    pub zoom: Zoom,
    /// How repetitions are counted.
    pub fold: Fold,
    /// Whether the same on another host is something else.
    pub with_hosts: bool,
}

/// The attribute that says that a span failed; every format's status is kept as this.
pub const ERROR: &str = "error";

/// Returns true if a span with this value of [`ERROR`] failed.
#[must_use]
pub fn is_failure(value: &str) -> bool {
    !["", "false", "0"].contains(&value)
}

/// The ids of the spans that failed: by the attribute [`ERROR`], which has to be read, or by a panic. An id may come twice.
pub fn failed_spans(records: &TraceRecords) -> impl Iterator<Item = u64> {
    let of_attributes = records
        .attributes
        .iter()
        .filter_map(|attribute| match attribute.owner {
            RecordOwner::Span(id) if &*attribute.key == ERROR && is_failure(&attribute.value) => {
                Some(id)
            }
            _ => None,
        });
    let panicked = |span: &&SpanRecord| span.flags.contains(SpanFlags::PANICKED);
    let of_panics = records.spans.iter().filter(panicked);
    of_attributes.chain(of_panics.map(|span| span.span_id))
}

/// Spans that are nested deeper belong to the one at this depth.
pub const DEPTH_MAX: usize = 96;

/// How many structures are remembered, parts of others among them.
const SHAPES_MAX: usize = 1 << 16;

/// Makes structures, and remembers those it has made.
///
/// Most requests are of structures that were made before. So the digest of a form is worked out first, in memory that is kept
/// from request to request, and the form itself is made only where its digest is new.
#[derive(Clone, Debug, Default)]
pub struct FlowBuilder {
    settings: FlowSettings,
    operations: OperationCache,
    known: KnownShapes,
    tree: SpanTree,
    failed: FxHashSet<u64>,
    /// What operations waited for that are not closed yet, the innermost last.
    open: Vec<Item>,
    stages: Stages,
}

/// Something that an operation waited for, or that happened in it.
#[derive(Clone, Copy, Debug)]
struct Item {
    id: OperationId,
    /// Of its shape.
    digest: u128,
    shape: ShapeNumber,
    start_ns: i64,
    end_ns: i64,
}

/// A shape's place among those that are known.
type ShapeNumber = u32;

/// Shapes by their digests; parts of structures are mostly the same.
#[derive(Clone, Debug, Default)]
struct KnownShapes {
    numbers: FxHashMap<u128, ShapeNumber>,
    all: Vec<Arc<Shape>>,
}

impl KnownShapes {
    /// Forgets all, if that is much. Numbers are of one request.
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
    /// One with these settings.
    pub fn new(settings: FlowSettings) -> FlowBuilder {
        FlowBuilder {
            settings,
            ..FlowBuilder::default()
        }
    }

    /// The structure of a request, of which the attribute [`ERROR`] was read.
    ///
    /// Of spans, it is that of the root; without one, or with several, of all of them below an operation that says so. Of an
    /// event log, tasks are parallel, and a task's events follow each other.
    pub fn shape(&mut self, records: &TraceRecords, orders: &KnownOrders) -> Arc<Shape> {
        self.operations.bound();
        self.known.bound();
        self.open.clear();
        if records.spans.is_empty() {
            return self.of_events(&records.events);
        }
        self.note_failures(records);
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
                self.made(ShapeOf {
                    operation: named(NO_ROOT),
                    is_error: false,
                    is_event: false,
                    stages,
                })
            }
        };
        self.tree = tree;
        shape
    }

    fn note_failures(&mut self, records: &TraceRecords) {
        self.failed.clear();
        self.failed.extend(failed_spans(records));
    }

    /// Puts a span among the items of its parent, which are open; of one that is not shown, its children.
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
            for &child in tree.children(number) {
                self.put(
                    tree,
                    records,
                    child as usize,
                    orders,
                    (depth + 1, Some(span)),
                );
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

    /// The shape of an operation that waited for the items from there on, which are taken.
    fn close(
        &mut self,
        first: usize,
        of: &Known,
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
            let stages = stages.of(items).map(|stage| {
                let shapes = stage.iter().map(|item| known[item.shape as usize].clone());
                shapes.collect()
            });
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

    fn instant(&mut self, of: &Known, time_ns: i64) -> Item {
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
            // What follows itself is one step, as often as it does.
            let steps = task
                .chunk_by(|a, b| a.event == b.event)
                .filter(|_| is_shown);
            let stages = steps
                .map(|run| {
                    let of_event = self.operations.of(&run[0].task, &run[0].event, None);
                    let item = self.instant(&of_event, run[0].ts_ns);
                    vec![self.known.get(item.shape).clone(); run.len()]
                })
                .collect();
            tasks.push(self.made(ShapeOf {
                operation: of_task.operation.clone(),
                is_error: false,
                is_event: false,
                stages,
            }));
        }
        self.made(ShapeOf {
            operation: named(EVENT_LOG),
            is_error: false,
            is_event: false,
            stages: vec![tasks],
        })
    }

    /// The shape as it is remembered.
    fn made(&mut self, of: ShapeOf) -> Arc<Shape> {
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

/// What an operation waited for, in stages.
#[derive(Clone, Debug, Default)]
struct Stages {
    /// Where each begins among the items.
    begins: Vec<usize>,
    /// What is in the last one, and when the last of each ended.
    last: Vec<(OperationId, i64)>,
}

impl Stages {
    /// Puts items into stages, each in the order of digests. A new one begins with what follows all of the last one, by orders
    /// that mean something; the same again and again is one stage.
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

    /// The stages of the items that were put into them.
    fn of<'a>(&'a self, items: &'a [Item]) -> impl Iterator<Item = &'a [Item]> {
        self.begins.iter().enumerate().map(move |(at, begin)| {
            let end = self.begins.get(at + 1).copied().unwrap_or(items.len());
            &items[*begin..end]
        })
    }
}
