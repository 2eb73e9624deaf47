//! Attributes that distinguish requests and segments: recorded attributes, and properties of spans.
//!
//! These names always refer to a property of spans, even if an attribute of that name was recorded:
//!
//! | name | of a request | of a segment |
//! |---|---|---|
//! | `service` (or `service.name`) | its root span's service | its operation's service |
//! | `host` (or `host.name`) | its root span's host; of an event log, the first event's | the most frequent host of its operation's spans (or events) |
//! | `operation` | its root span's `service:name` | its own operation, as `service:name` |
//! | `kind` (or `span.kind`) | its root span's: `server`, `client`, another recorded kind, or `internal` | the most frequent kind of its operation's spans |
//! | `status` | `error`, if [failed](crate::failure), or `ok` | the most frequent of its spans |
//!
//! A request's value of a recorded attribute is its root span's value; of several values of roots,
//! the alphabetically first. If no root has one, the value is that of the other records, if they
//! all agree. If they disagree, the value is [`SEVERAL_VALUES`](crate::record::SEVERAL_VALUES).
//!
//! A fragment has no root, so it can have values of recorded attributes only. Every name that is
//! not in the table refers to a recorded attribute. The prefix `recorded:`, as in
//! `recorded:service`, refers to a recorded attribute with a name from the table.

use crate::failure::FailureFinder;
use crate::flow::{ERROR, failed_spans};
use crate::record::{RecordOwner, SpanFlags, SpanRecord, TraceRecords};
use foldhash::{HashMap, HashSet};
use std::sync::Arc;

/// Names of the properties of spans that the [module](self) lists, without alternative names.
pub const KNOWN_OF_ALL: [&str; 5] = ["service", "host", "operation", "kind", "status"];
/// Prefix that addresses a recorded attribute of any name, also one of [`KNOWN_OF_ALL`].
const RECORDED: &str = "recorded:";
/// Recorded attribute that holds the kinds without a span flag.
const KIND_RECORDED: &str = "span.kind";

/// A property that distinguishes requests or segments.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Attribute {
    /// The service that recorded the span.
    Service,
    /// The host that recorded the span or event.
    Host,
    /// The operation, as `service:name`.
    Operation,
    /// The kind of span: `server`, `client`, another recorded kind, or `internal`.
    Kind,
    /// The outcome: `error` or `ok`.
    Status,
    /// The recorded attribute of this name.
    Recorded(String),
}

impl std::fmt::Display for Attribute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Attribute::Service => "service",
            Attribute::Host => "host",
            Attribute::Operation => "operation",
            Attribute::Kind => "kind",
            Attribute::Status => "status",
            Attribute::Recorded(name) => name,
        })
    }
}

impl Attribute {
    /// Returns the attribute of this name. The [module](self) lists the names.
    pub fn named(name: &str) -> Attribute {
        match name {
            "service" | "service.name" => Attribute::Service,
            "host" | "host.name" => Attribute::Host,
            "operation" => Attribute::Operation,
            "kind" | KIND_RECORDED => Attribute::Kind,
            "status" => Attribute::Status,
            _ => Attribute::Recorded(name.strip_prefix(RECORDED).unwrap_or(name).to_owned()),
        }
    }

    /// Returns the name of the recorded attribute that the records must include to determine this
    /// attribute. `None` if no attribute is needed.
    pub fn recorded_key(&self) -> Option<&str> {
        match self {
            Attribute::Recorded(key) => Some(key),
            Attribute::Kind => Some(KIND_RECORDED),
            Attribute::Status => Some(ERROR),
            Attribute::Service | Attribute::Host | Attribute::Operation => None,
        }
    }

    /// Returns the value for a request as a whole, or `None` if it is unknown.
    pub fn of_request(&self, records: &TraceRecords) -> Option<Arc<str>> {
        let root = || records.root();
        match self {
            Attribute::Recorded(key) => records.attribute(key),
            Attribute::Service => root().map(|root| root.service.clone()),
            Attribute::Operation => records.root_operation().map(Into::into),
            Attribute::Kind => root().map(|root| kind(root, &recorded_kinds(records))),
            Attribute::Status => root().map(|_| {
                let trail = FailureFinder::default().trail(records);
                status(trail.is_some_and(|trail| trail.has_reached_root))
            }),
            Attribute::Host => {
                let events = records.events.iter();
                let first = || events.min_by_key(|event| (event.ts_ns, event.seq));
                let of_log = || Some(&first().filter(|_| records.spans.is_empty())?.host);
                let host = root().map(|root| &root.host).or_else(of_log);
                host.filter(|host| !host.is_empty()).cloned()
            }
        }
    }

    /// Returns each span with its value. Omits spans without a host if this is [`Attribute::Host`].
    /// Returns no spans for recorded attributes, which not every span has.
    pub(crate) fn of_spans<'a>(
        &self,
        records: &'a TraceRecords,
    ) -> Vec<(&'a SpanRecord, Arc<str>)> {
        let mut kinds: HashMap<u64, &Arc<str>> = HashMap::default();
        let mut failed: HashSet<u64> = HashSet::default();
        match self {
            Attribute::Kind => kinds = recorded_kinds(records),
            Attribute::Status => failed.extend(failed_spans(records)),
            _ => {}
        }
        let of_span = |span: &'a SpanRecord| match self {
            Attribute::Service => Some(span.service.clone()),
            Attribute::Host => Some(span.host.clone()).filter(|host| !host.is_empty()),
            Attribute::Kind => Some(kind(span, &kinds)),
            Attribute::Status => Some(status(failed.contains(&span.span_id))),
            Attribute::Operation => Some(span.operation().into()),
            Attribute::Recorded(_) => None,
        };
        let spans = records.spans.iter();
        let valued = spans.filter_map(|span| Some((span, of_span(span)?)));
        valued.collect()
    }
}

fn status(has_failed: bool) -> Arc<str> {
    if has_failed { "error" } else { "ok" }.into()
}

fn kind(span: &SpanRecord, recorded: &HashMap<u64, &Arc<str>>) -> Arc<str> {
    if span.flags.contains(SpanFlags::SERVER) {
        "server".into()
    } else if span.flags.contains(SpanFlags::CLIENT) {
        "client".into()
    } else {
        let kind = recorded.get(&span.span_id);
        kind.map_or_else(|| "internal".into(), |kind| (*kind).clone())
    }
}

/// Maps span ids to the kinds that spans recorded as an attribute. Of several values of one span,
/// the alphabetically first one counts.
fn recorded_kinds(records: &TraceRecords) -> HashMap<u64, &Arc<str>> {
    let mut kinds: HashMap<u64, &Arc<str>> = HashMap::default();
    for said in &records.attributes {
        if let RecordOwner::Span(id) = said.owner
            && &*said.key == KIND_RECORDED
        {
            let kept = kinds.entry(id).or_insert(&said.value);
            *kept = (*kept).min(&said.value);
        }
    }
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{AttributeRecord, EventRecord};

    #[track_caller]
    fn check(records: &TraceRecords, name: &str, expected: Option<&str>) {
        assert_eq!(
            Attribute::named(name).of_request(records).as_deref(),
            expected,
            "{name}"
        );
    }

    #[test]
    fn what_is_known_of_all_wins_and_what_was_recorded_is_reached() {
        let span = |span_id, parent_id, service: &str, flags| SpanRecord {
            span_id,
            parent_id,
            service: service.into(),
            name: "GET /users/7".into(),
            host: format!("host of {service}").into(),
            process: 1,
            start_ns: span_id as i64,
            end_ns: 9,
            flags,
            events: Vec::new(),
        };
        let said = |owner, key: &str, value: &str| AttributeRecord {
            owner,
            key: key.into(),
            value: value.into(),
        };
        let mut records = TraceRecords {
            spans: vec![
                span(2, 1, "store", SpanFlags::SERVER),
                span(1, 0, "web", SpanFlags::CLIENT),
            ],
            attributes: vec![
                said(RecordOwner::Span(1), "service", "gold"),
                said(RecordOwner::Span(2), "user", "ann"),
                said(RecordOwner::Span(2), "span.kind", "producer"),
            ],
            ..TraceRecords::default()
        };
        check(&records, "service", Some("web"));
        check(&records, "service.name", Some("web"));
        check(&records, "recorded:service", Some("gold"));
        check(&records, "host", Some("host of web"));
        check(&records, "operation", Some("web:GET /users/*"));
        check(&records, "kind", Some("client"));
        check(&records, "user", Some("ann"));
        check(&records, "recorded:user", Some("ann"));
        check(&records, "shoe", None);
        records.spans[1].flags = SpanFlags::default();
        check(&records, "kind", Some("internal"));
        records
            .attributes
            .push(said(RecordOwner::Span(1), "span.kind", "consumer"));
        check(&records, "span.kind", Some("consumer"));
        check(&records, "status", Some("ok"));
        // A request that recovered from a failure has not failed.
        records
            .attributes
            .push(said(RecordOwner::Span(2), "error", "true"));
        check(&records, "status", Some("ok"));
        records
            .attributes
            .push(said(RecordOwner::Span(1), "error", "true"));
        check(&records, "status", Some("error"));
        // A fragment's root was not recorded.
        records.spans.pop();
        for name in KNOWN_OF_ALL {
            check(&records, name, None);
        }
        let event = EventRecord {
            host: "h".into(),
            ts_ns: 3,
            seq: 7,
            event: "e".into(),
            task: "t".into(),
        };
        let log = TraceRecords {
            events: vec![event],
            ..TraceRecords::default()
        };
        check(&log, "host", Some("h"));
        check(&log, "service", None);
    }
}
