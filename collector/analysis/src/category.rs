//! Attributes a segment's time to a server, the network or a client.
//! [`Breakdown`](crate::breakdown::Breakdown) accepts any other function of a segment's number
//! instead of this default rule.
//!
//! An operation is a client or a server if any of its spans was recorded as one. The own segments
//! of a client are **network** time: the client only waits for another process. Other segments are
//! **server** time if their operation, or one that it runs inside, is a server. The rest, such as a
//! browser's time, is **client** time. If no operation at all is a server, the rest is server time
//! instead.

use crate::attribute::Attribute;
use crate::label::SegmentLabel;
use crate::record::{RecordOwner, SEVERAL_VALUES, SpanFlags, SpanRecord, TraceRecords};
use crate::task_path;
use crate::text_map::AddressCache;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// Maximum number of operations whose kinds or values are kept. Further operations have neither.
pub const OPERATIONS_MAX: usize = 4096;

/// The party that a segment's time is attributed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Category {
    /// Time in which a service works.
    Server,
    /// Time in which a process waits for another process.
    Network,
    /// Time in which the initiator of the request works.
    Client,
}

impl fmt::Display for Category {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Category::Server => "server",
            Category::Network => "network",
            Category::Client => "client",
        })
    }
}

/// Kinds of the operations (`service:name`) seen so far. Merging is commutative and associative
/// while all operations fit [`OPERATIONS_MAX`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SpanKinds {
    #[cfg_attr(feature = "serde", serde(serialize_with = "in_order"))]
    flags: FxHashMap<String, u32>,
    /// Cache of known kinds by service and recorded span name. Most spans add nothing new.
    #[cfg_attr(feature = "serde", serde(skip))]
    known: AddressCache<2, u32>,
}

/// Serializes a table in order of its keys, so that equal tables have equal bytes.
#[cfg(feature = "serde")]
fn in_order<S: serde::Serializer>(
    table: &FxHashMap<String, u32>,
    to: S,
) -> Result<S::Ok, S::Error> {
    to.collect_map(table.iter().collect::<BTreeMap<_, _>>())
}

impl SpanKinds {
    /// Records the kinds of a trace's spans.
    pub fn observe(&mut self, records: &TraceRecords) {
        let kinds = SpanFlags::CLIENT.with(SpanFlags::SERVER).0;
        for span in &records.spans {
            let flags = span.flags.0 & kinds;
            let texts = [&span.service, &span.name];
            if flags == 0 {
                continue;
            }
            let known = self.known.get(texts).copied().unwrap_or(0);
            if known & flags == flags {
                continue;
            }
            self.known.insert(texts, known | flags);
            self.take(span.operation(), flags);
        }
    }

    /// Adds the kinds of `other`.
    pub fn merge(&mut self, other: &SpanKinds) {
        for (operation, flags) in &other.flags {
            self.take(operation.clone(), *flags);
        }
    }

    fn take(&mut self, operation: String, flags: u32) {
        if self.flags.len() < OPERATIONS_MAX || self.flags.contains_key(&operation) {
            *self.flags.entry(operation).or_default() |= flags;
        }
    }

    /// Returns the category of a segment by the rule of the [module](self).
    pub fn category(&self, label: &SegmentLabel) -> Category {
        let is = |operation: &str, kind: SpanFlags| {
            let flags = self.flags.get(operation);
            flags.is_some_and(|flags| SpanFlags(*flags).contains(kind))
        };
        if is(&label.operation(), SpanFlags::CLIENT) {
            return Category::Network;
        }
        let mut path = label.task.split(task_path::JOINT).map(operation_of);
        let is_server = |flags: &u32| SpanFlags(*flags).contains(SpanFlags::SERVER);
        let no_servers = || !self.flags.values().any(is_server);
        if path.any(|operation| is(&operation, SpanFlags::SERVER)) || no_servers() {
            Category::Server
        } else {
            Category::Client
        }
    }
}

/// Returns the operation of a task.
fn operation_of(task: &str) -> String {
    SegmentLabel::new(task, "", "").operation()
}

/// Maximum number of values of an attribute other than the service. Further values are ignored.
pub const VALUES_MAX: usize = 64;

/// Values of one attribute by operation, dividing segments in place of [`Category`].
///
/// An operation's value of a recorded attribute is the one that at least nine in ten of its
/// recorded values agree on, otherwise [`SEVERAL_VALUES`]. Its value of a property of spans, such
/// as the host, is the most frequent one. An operation without a value takes the value of the
/// operation inside which it runs. In event logs, a task's events count as records of its
/// operation. Merging is commutative and associative while all operations and values fit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct OperationValues {
    attribute: Attribute,
    /// Number of records with each value, by operation.
    counts: FxHashMap<String, BTreeMap<Arc<str>, u64>>,
    values: BTreeSet<Arc<str>>,
}

/// Minimum share of an operation's values of a recorded attribute that must be equal.
const ONE_VALUE_MIN: f64 = 0.9;

impl OperationValues {
    /// Creates an empty collection for this attribute.
    pub fn new(attribute: Attribute) -> OperationValues {
        OperationValues {
            attribute,
            counts: FxHashMap::default(),
            values: BTreeSet::new(),
        }
    }

    /// Counts the values in a trace's records. A record with several values counts for each. The
    /// records must include the attribute that [`Attribute::recorded_key`] names.
    pub fn observe(&mut self, records: &TraceRecords) {
        match &self.attribute {
            // A label contains its operation, so nothing needs to be counted.
            Attribute::Operation => {}
            Attribute::Service | Attribute::Host | Attribute::Kind | Attribute::Status => {
                for (span, value) in self.attribute.of_spans(records) {
                    self.take(&span.operation(), &value, 1);
                }
                if self.attribute == Attribute::Host {
                    for event in records.events.iter().filter(|event| !event.host.is_empty()) {
                        self.take(&operation_of(&event.task), &event.host, 1);
                    }
                }
            }
            Attribute::Recorded(key) => self.observe_recorded(records, &key.clone()),
        }
    }

    fn observe_recorded(&mut self, records: &TraceRecords, key: &str) {
        let attributes = records.attributes.iter();
        let mut said = attributes.filter(|said| &*said.key == key).peekable();
        if said.peek().is_none() {
            return;
        }
        let spans = records.spans.iter();
        let spans: foldhash::HashMap<u64, &SpanRecord> =
            spans.map(|span| (span.span_id, span)).collect();
        let events = records.events.iter();
        let tasks: FxHashMap<u32, &Arc<str>> =
            events.map(|event| (event.seq, &event.task)).collect();
        for attribute in said {
            let operation = match attribute.owner {
                RecordOwner::Span(id) => spans.get(&id).map(|span| span.operation()),
                RecordOwner::Event(seq) => tasks.get(&seq).map(|task| operation_of(task)),
                // The attribute belongs to an instant, not to the operation.
                RecordOwner::InSpan(..) => None,
            };
            if let Some(operation) = operation {
                self.take(&operation, &attribute.value, 1);
            }
        }
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &OperationValues) {
        for (operation, values) in &other.counts {
            for (value, count) in values {
                self.take(operation, value, *count);
            }
        }
    }

    fn take(&mut self, operation: &str, value: &Arc<str>, count: u64) {
        let (values, counts) = (&mut self.values, &mut self.counts);
        // Services need no limit: the limit on operations bounds them too.
        let is_bounded = self.attribute == Attribute::Service;
        let value_fits = is_bounded || values.len() < VALUES_MAX || values.contains(value);
        if value_fits && (counts.len() < OPERATIONS_MAX || counts.contains_key(operation)) {
            values.insert(value.clone());
            let of_operation = counts.entry(operation.to_owned()).or_default();
            *of_operation.entry(value.clone()).or_default() += count;
        }
    }

    /// Returns the value of a segment's operation by the rule of [`OperationValues`]. `None` if
    /// neither the operation nor any operation around it has a value. Of equally frequent values,
    /// the alphabetically first one counts.
    pub fn value(&self, label: &SegmentLabel) -> Option<Arc<str>> {
        if self.attribute == Attribute::Operation {
            return Some(label.operation().into());
        }
        let components = label.task.split(task_path::JOINT).collect::<Vec<_>>();
        components.iter().rev().find_map(|component| {
            let counts = self.counts.get(&operation_of(component))?;
            let all: u64 = counts.values().sum();
            let ranked = counts.iter();
            let (value, count) = ranked.max_by_key(|(value, count)| (**count, Reverse(*value)))?;
            // A segment's time cannot be split between several recorded values.
            let is_recorded = matches!(self.attribute, Attribute::Recorded(_));
            let is_one = *count as f64 >= ONE_VALUE_MIN * all as f64;
            Some(if is_recorded && !is_one {
                SEVERAL_VALUES.into()
            } else {
                value.clone()
            })
        })
    }
}
