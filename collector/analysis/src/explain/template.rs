//! Determines the common part of the requests of both sides, up to their divergence (Spectroscope,
//! §5.5). Only an attribute recorded in the common part can be a reason for the divergence. A later
//! one may be a consequence.

use super::Parameter;
use super::identity::{SaidText, is_of_process};
use crate::flow::{ERROR, Operation};
use crate::name_rule::normalise;
use crate::record::{RecordOwner, SpanRecord, TraceRecords};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Parameter name for the host on which an operation ran.
const HOST: &str = "host";

/// Parameter name for the fact that an operation ran.
const RAN: &str = "";

/// Operations common to both sides, and the operation at which requests diverge.
#[derive(Clone, Debug)]
pub struct Template {
    operations: BTreeSet<(Arc<str>, Arc<str>)>,
    at: Option<(Arc<str>, Arc<str>)>,
    is_structural: bool,
}

fn names(operation: &Operation) -> (Arc<str>, Arc<str>) {
    (operation.service.clone(), operation.name.clone())
}

impl Template {
    /// Creates a template of these common operations. `at` is the operation at which requests
    /// diverge: in its next call if the change is structural, otherwise in its time. If `at` is
    /// `None`, all common operations count.
    pub fn new(
        operations: &BTreeSet<Operation>,
        at: Option<&Operation>,
        is_structural: bool,
    ) -> Template {
        Template {
            operations: operations.iter().map(names).collect(),
            at: at.map(names),
            is_structural,
        }
    }

    /// Returns the values of the common operations that began before the request diverged: that
    /// they ran, their hosts, and the attributes of their spans and of events inside these.
    /// Includes all common log events. Omits [`ERROR`]: a failure is part of the structure, not a
    /// reason for it.
    pub fn said(&self, records: &TraceRecords) -> Vec<SaidText> {
        let mut said = Vec::new();
        let processes = processes(records);
        let parts_ns = self.parts_ns(records);
        let mut spans: foldhash::HashMap<u64, Arc<str>> = foldhash::HashMap::default();
        for span in &records.spans {
            let Some(operation) = self.common(span).filter(|_| span.start_ns < parts_ns) else {
                continue;
            };
            said.push(text(&operation, RAN, RAN.into(), 0));
            if !span.host.is_empty() {
                let process = processes.get(&RecordOwner::Span(span.span_id));
                let process = process.copied().unwrap_or_default();
                said.push(text(&operation, HOST, span.host.clone(), process));
            }
            spans.insert(span.span_id, operation);
        }
        let mut events: FxHashMap<u32, Arc<str>> = FxHashMap::default();
        for event in &records.events {
            let key = (event.task.clone(), Arc::from(normalise(&event.event)));
            if self.operations.contains(&key) {
                let operation: Arc<str> = format!("{}:{}", key.0, key.1).into();
                said.push(text(&operation, RAN, RAN.into(), 0));
                events.insert(event.seq, operation);
            }
        }
        for attribute in &records.attributes {
            let (operation, owner) = match attribute.owner {
                RecordOwner::Span(id) | RecordOwner::InSpan(id, _) => {
                    (spans.get(&id), RecordOwner::Span(id))
                }
                RecordOwner::Event(seq) => (events.get(&seq), attribute.owner),
            };
            if let Some(operation) = operation.filter(|_| &*attribute.key != ERROR) {
                let process = processes.get(&owner).copied().unwrap_or_default();
                let value = attribute.value.clone();
                said.push(text(operation, &attribute.key, value, process));
            }
        }
        said.sort_unstable();
        said.dedup();
        said
    }

    /// Returns the name of a span's operation if the operation is common, or `None` otherwise.
    fn common(&self, span: &SpanRecord) -> Option<Arc<str>> {
        let key = (span.service.clone(), Arc::from(normalise(&span.name)));
        let is_common = self.operations.contains(&key);
        is_common.then(|| format!("{}:{}", key.0, key.1).into())
    }

    /// Returns the instant at which the request diverges from the others, in nanoseconds since the
    /// Unix epoch. The first run of the operation counts. For a structural change, the instant is
    /// the start of its first child that is not common. Otherwise, or without such a child, it is
    /// the end of the run. It is always after the start of the run. Without any run, the instant is
    /// [`i64::MAX`].
    fn parts_ns(&self, records: &TraceRecords) -> i64 {
        let is_it = |span: &&SpanRecord| {
            self.at.as_ref().is_some_and(|(service, name)| {
                span.service == *service && *normalise(&span.name) == **name
            })
        };
        let runs = records.spans.iter().filter(is_it);
        let Some(first) = runs.min_by_key(|span| (span.start_ns, span.span_id)) else {
            return i64::MAX;
        };
        let is_child = |span: &&SpanRecord| span.parent_id == first.span_id;
        let own = records.spans.iter().filter(is_child);
        let others = own.filter(|span| self.is_structural && self.common(span).is_none());
        let other_ns = others.map(|span| span.start_ns).min();
        // The operation's own attributes count even if the request diverges at its start.
        let least_ns = first.start_ns.saturating_add(1);
        other_ns.unwrap_or(first.end_ns).max(least_ns)
    }
}

fn text(operation: &Arc<str>, key: &str, text: Arc<str>, process: u128) -> SaidText {
    SaidText {
        parameter: Parameter {
            operation: operation.clone(),
            key: key.into(),
        },
        text,
        process,
    }
}

/// Returns the process of each record, as far as it is known: its incarnation, or a hash of the
/// attributes that identify the process.
fn processes(records: &TraceRecords) -> foldhash::HashMap<RecordOwner, u128> {
    let mut processes: foldhash::HashMap<RecordOwner, u128> = foldhash::HashMap::default();
    let attributes = records.attributes.iter();
    for attribute in attributes.filter(|of| is_of_process(&of.key)) {
        let mut hasher = DefaultHasher::new();
        (&attribute.key, &attribute.value).hash(&mut hasher);
        // The sum does not depend on the order.
        let process = processes.entry(attribute.owner).or_default();
        *process = process.wrapping_add(u128::from(hasher.finish()));
    }
    for span in records.spans.iter().filter(|span| span.process != 0) {
        processes.insert(RecordOwner::Span(span.span_id), span.process);
    }
    processes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{AttributeRecord, SpanFlags};

    fn span(span_id: u64, parent_id: u64, name: &str, times: (i64, i64)) -> SpanRecord {
        SpanRecord {
            span_id,
            parent_id,
            service: "web".into(),
            name: name.into(),
            host: "".into(),
            process: 1,
            start_ns: times.0,
            end_ns: times.1,
            flags: SpanFlags::default(),
            events: Vec::new(),
        }
    }

    fn operation(name: &str) -> Operation {
        Operation {
            service: "web".into(),
            name: name.into(),
            host: None,
        }
    }

    /// A page that authorises, loads, and renders. Each span records its name as an attribute, as
    /// an attribute of an event, and as an error.
    fn page() -> TraceRecords {
        let spans = vec![
            span(1, 0, "page", (0, 100)),
            span(2, 1, "authorise", (5, 20)),
            span(3, 1, "load", (30, 60)),
            span(4, 1, "render", (70, 90)),
        ];
        let attributes = spans.iter().flat_map(|span| {
            let said = |owner, key: &str| AttributeRecord {
                owner,
                key: key.into(),
                value: span.name.clone(),
            };
            [
                said(RecordOwner::Span(span.span_id), "said"),
                said(RecordOwner::InSpan(span.span_id, 0), "noted"),
                said(RecordOwner::Span(span.span_id), ERROR),
            ]
        });
        TraceRecords {
            attributes: attributes.collect(),
            spans,
            ..TraceRecords::default()
        }
    }

    fn said(common: &[&str], at: &str, is_structural: bool) -> Vec<String> {
        let operations = common.iter().map(|name| operation(name)).collect();
        let template = Template::new(&operations, Some(&operation(at)), is_structural);
        let said = template.said(&page());
        said.iter()
            .filter(|said| !said.parameter.key.is_empty())
            .map(|said| said.parameter.to_string())
            .collect()
    }

    #[test]
    fn only_what_comes_before_the_difference_is_a_reason() {
        let before = [
            "noted (web:authorise)",
            "said (web:authorise)",
            "noted (web:page)",
            "said (web:page)",
        ];
        // Loading is new: attributes of rendering may follow from it.
        assert_eq!(said(&["page", "authorise", "render"], "page", true), before);
        // Only the time of authorising changed.
        assert_eq!(
            said(&["page", "authorise", "load", "render"], "authorise", false),
            before
        );
        // Nothing is new in the page: all of its attributes may be reasons.
        assert_eq!(
            said(&["page", "authorise", "load", "render"], "page", true).len(),
            8
        );
    }
}
