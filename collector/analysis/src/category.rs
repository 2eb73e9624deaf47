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
use crate::record::{RecordOwner, SEVERAL_VALUES, SpanFlags, TraceRecords};
use crate::task_path;
use crate::text_map::AddressCache;
use rustc_hash::FxHashMap;
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
        for span in records
            .spans
            .iter()
            .filter(|span| span.flags.0 & kinds != 0)
        {
            let flags = span.flags.0 & kinds;
            let texts = [&span.service, &span.name];
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
        other
            .flags
            .iter()
            .for_each(|(operation, flags)| self.take(operation.clone(), *flags));
    }

    fn take(&mut self, operation: String, flags: u32) {
        if self.flags.len() < OPERATIONS_MAX || self.flags.contains_key(&operation) {
            *self.flags.entry(operation).or_default() |= flags;
        }
    }

    /// Returns the category of a segment by the rule of the [module](self).
    pub fn category(&self, label: &SegmentLabel) -> Category {
        let is = |operation: &str, kind: SpanFlags| {
            self.flags
                .get(operation)
                .is_some_and(|flags| SpanFlags(*flags).contains(kind))
        };
        if is(&label.operation(), SpanFlags::CLIENT) {
            return Category::Network;
        }
        let mut path = label.task.split(task_path::JOINT).map(|component| {
            // Treat the component as a task of its own.
            SegmentLabel {
                task: component.into(),
                ..label.clone()
            }
            .operation()
        });
        let no_servers = || {
            !self
                .flags
                .values()
                .any(|flags| SpanFlags(*flags).contains(SpanFlags::SERVER))
        };
        if path.any(|operation| is(&operation, SpanFlags::SERVER)) || no_servers() {
            Category::Server
        } else {
            Category::Client
        }
    }
}

/// Maximum number of values of an attribute other than the service. Further values are ignored.
pub const VALUES_MAX: usize = 64;

/// Values of one attribute by operation, which divide segments into categories in place of
/// [`Category`].
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
                let of_spans = self.attribute.of_spans(records);
                for (span, value) in of_spans {
                    self.take(&span.operation(), &value, 1);
                }
                if self.attribute == Attribute::Host {
                    for event in records.events.iter().filter(|event| !event.host.is_empty()) {
                        self.take(
                            &SegmentLabel::new(&event.task, "", "").operation(),
                            &event.host,
                            1,
                        );
                    }
                }
            }
            Attribute::Recorded(key) => self.observe_recorded(records, &key.clone()),
        }
    }

    fn observe_recorded(&mut self, records: &TraceRecords, key: &str) {
        let mut said = records
            .attributes
            .iter()
            .filter(|attribute| &*attribute.key == key)
            .peekable();
        if said.peek().is_none() {
            return;
        }
        let spans: foldhash::HashMap<u64, String> = records
            .spans
            .iter()
            .map(|span| (span.span_id, span.operation()))
            .collect();
        let tasks: FxHashMap<u32, &Arc<str>> = records
            .events
            .iter()
            .map(|event| (event.seq, &event.task))
            .collect();
        for attribute in said {
            let operation = match attribute.owner {
                RecordOwner::Span(id) => spans.get(&id).cloned(),
                RecordOwner::Event(seq) => tasks
                    .get(&seq)
                    .map(|task| SegmentLabel::new(task, "", "").operation()),
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
            values
                .iter()
                .for_each(|(value, count)| self.take(operation, value, *count));
        }
    }

    fn take(&mut self, operation: &str, value: &Arc<str>, count: u64) {
        // Services need no limit: the limit on operations bounds them too.
        let is_bounded = self.attribute == Attribute::Service;
        let value_fits =
            is_bounded || self.values.len() < VALUES_MAX || self.values.contains(value);
        let operation_fits =
            self.counts.len() < OPERATIONS_MAX || self.counts.contains_key(operation);
        if value_fits && operation_fits {
            self.values.insert(value.clone());
            *self
                .counts
                .entry(operation.to_owned())
                .or_default()
                .entry(value.clone())
                .or_default() += count;
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
            let operation = SegmentLabel {
                task: (*component).into(),
                ..label.clone()
            }
            .operation();
            let counts = self.counts.get(&operation)?;
            let all: u64 = counts.values().sum();
            let most = counts
                .iter()
                .max_by_key(|(value, count)| (**count, std::cmp::Reverse(*value)));
            let is_one = |count: u64| count as f64 >= ONE_VALUE_MIN * all as f64;
            // A segment's time cannot be split between several recorded values.
            let is_recorded = matches!(self.attribute, Attribute::Recorded(_));
            most.map(|(value, count)| {
                if is_recorded && !is_one(*count) {
                    SEVERAL_VALUES.into()
                } else {
                    value.clone()
                }
            })
        })
    }
}
