//! Jaeger's search: one span must match the service, operation, tags and duration together.

use std::collections::BTreeMap;

use stroboscope_analysis::flow::failed_spans;
use stroboscope_analysis::record::{RecordOwner, SpanFlags, SpanRecord, TraceRecords};
use stroboscope_store::query_memory::QueryShare;
use stroboscope_store::tables::AttributeKeys;

use crate::answer::Refusal;
use crate::parameters::Parameters;
use crate::store::{Search, Traces};
use crate::trace::StoredTrace;

/// Default number of traces; [`TRACES_MAX`] is the maximum.
const TRACES: u64 = 100;
const TRACES_MAX: u64 = 1_500;

/// Parameters of a search for traces by Jaeger's API.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FindQuery {
    service: Option<String>,
    operation: Option<String>,
    tags: BTreeMap<String, String>,
    duration_ns: std::ops::RangeInclusive<i64>,
    begins_ns: std::ops::RangeInclusive<i64>,
    traces_max: usize,
    /// True if traces have warnings in the response.
    has_warnings: bool,
}

impl FindQuery {
    /// Parses the parameters of v1, with times in µs.
    pub(super) fn of_v1(given: &Parameters) -> Result<Self, Refusal> {
        let from_ns = given.time_ns("start", 1_000)?.unwrap_or(i64::MIN);
        let to_ns = given.time_ns("end", 1_000)?.unwrap_or(i64::MAX);
        let mut tags = given.object(&["tags"])?;
        for tag in given.texts("tag") {
            let Some((key, value)) = tag.split_once(':') else {
                return Err(Refusal::Bad(format!("tag={tag}: expected KEY:VALUE")));
            };
            tags.insert(key.to_owned(), value.to_owned());
        }
        let text = |name: &str| given.text(&[name]).map(str::to_owned);
        Ok(Self {
            service: text("service"),
            operation: text("operation").filter(|name| name != "all"),
            tags,
            duration_ns: durations(given, &["minDuration"], &["maxDuration"])?,
            // The range includes the whole last microsecond.
            begins_ns: from_ns..=to_ns.saturating_add(999),
            traces_max: limit(given.number(&["limit"])?)?,
            has_warnings: true,
        })
    }

    /// Parses the parameters of v3, with times in RFC 3339 and names in camel case or snake case.
    pub(super) fn of_v3(given: &Parameters) -> Result<Self, Refusal> {
        if let Some(filter) = given.text(&["query.filter"]) {
            return Err(Refusal::Bad(format!(
                "query.filter={filter}: filters are not supported; query.attributes, query.serviceName, \
                 query.operationName and query.durationMin are"
            )));
        }
        let time = |names: [&str; 2]| {
            let required = format!("{} is required, such as 2026-03-01T12:00:00Z", names[0]);
            given.instant_ns(&names)?.ok_or(Refusal::Bad(required))
        };
        let from_ns = time(["query.startTimeMin", "query.start_time_min"])?;
        let to_ns = time(["query.startTimeMax", "query.start_time_max"])?;
        let text = |names: [&str; 2]| given.text(&names).map(str::to_owned);
        let shortest = ["query.durationMin", "query.duration_min"];
        let longest = ["query.durationMax", "query.duration_max"];
        let most = given.number(&[
            "query.searchDepth",
            "query.search_depth",
            "query.num_traces",
        ])?;
        Ok(Self {
            service: text(["query.serviceName", "query.service_name"]),
            operation: text(["query.operationName", "query.operation_name"]),
            tags: given.object(&["query.attributes"])?,
            duration_ns: durations(given, &shortest, &longest)?,
            begins_ns: from_ns..=to_ns,
            traces_max: limit(most)?,
            has_warnings: false,
        })
    }

    /// Returns the latest matching traces, up to `traces_max`, the latest first.
    pub(super) fn find(
        &self,
        traces: &Traces,
        share: &mut QueryShare,
    ) -> Result<Vec<StoredTrace>, Refusal> {
        let keys = self.tags.keys().flat_map(|key| names_of(key));
        let search = Search {
            begins_ns: self.begins_ns.clone(),
            keys: AttributeKeys::of(keys),
            is_one: &|records| records.spans.iter().any(|span| self.is_one(span, records)),
            traces_max: self.traces_max,
            has_warnings: self.has_warnings,
        };
        Ok(traces.find(&search, share)?)
    }

    fn is_one(&self, span: &SpanRecord, records: &TraceRecords) -> bool {
        let is_it = |wanted: &Option<String>, found: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted == found)
        };
        // A cut span took at least its recorded duration.
        let took_ns = span.end_ns.saturating_sub(span.start_ns);
        let took_ns_max = if span.is_whole() { took_ns } else { i64::MAX };
        let mut tags = self.tags.iter();
        is_it(&self.service, &span.service)
            && is_it(&self.operation, &span.name)
            && self.duration_ns.contains(&took_ns)
            && self.duration_ns.contains(&took_ns_max)
            && tags.all(|(key, value)| has_tag(span, records, key, value))
    }
}

/// Returns the names under which a tag may be stored: as an attribute of the span, of its resource,
/// or of its scope.
fn names_of(key: &str) -> [String; 3] {
    [
        key.to_owned(),
        format!("resource.{key}"),
        format!("scope.{key}"),
    ]
}

fn has_tag(span: &SpanRecord, records: &TraceRecords, key: &str, wanted: &str) -> bool {
    let has = |flag| span.flags.contains(flag);
    let by_flag = match (key, wanted) {
        ("span.kind", "server") => has(SpanFlags::SERVER),
        ("span.kind", "client") => has(SpanFlags::CLIENT),
        ("error", "true") => failed_spans(records).any(|id| id == span.span_id),
        ("hostname" | "host.name", host) => *span.host == *host,
        _ => false,
    };
    let names = names_of(key);
    by_flag
        || records.attributes.iter().any(|said| {
            matches!(said.owner, RecordOwner::Span(id) | RecordOwner::InSpan(id, _) if id == span.span_id)
                && *said.value == *wanted
                && names.iter().any(|name| **name == *said.key)
        })
}

fn durations(
    given: &Parameters,
    shortest: &[&str],
    longest: &[&str],
) -> Result<std::ops::RangeInclusive<i64>, Refusal> {
    let shortest_ns = given.duration_ns(shortest)?.unwrap_or(0);
    let longest_ns = given.duration_ns(longest)?.unwrap_or(i64::MAX);
    if longest_ns < shortest_ns {
        let (shortest, longest) = (shortest[0], longest[0]);
        return Err(Refusal::Bad(format!("{shortest} is longer than {longest}")));
    }
    Ok(shortest_ns..=longest_ns)
}

fn limit(asked: Option<u64>) -> Result<usize, Refusal> {
    match asked {
        Some(0) => Err(Refusal::Bad("the limit must be 1 or more".to_owned())),
        asked => Ok(asked.unwrap_or(TRACES).min(TRACES_MAX) as usize),
    }
}
