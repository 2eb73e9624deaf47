//! The `map` subcommand.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_query::{
    MAP, Notes, OperationTimes, Paths, ServiceCounts, ServiceMap, ShardReport, by_time, nearest,
};
use stroboscope_render::humanise::{counted, duration, percent};
use stroboscope_render::page::path_segment;
use stroboscope_render::roots::requests_text;
use stroboscope_render::rows;
use stroboscope_render::show::{
    Cell, Doc, Figure, Graph, GraphEdge, GraphNode, Row as _, TableSpec,
};
use tokio::runtime::Runtime;

use crate::arguments::{ReadingArguments, ShowArguments};
use crate::latency::Latency;
use crate::shard::ShardArguments;
use crate::study::{NamedInference, NamedStudy};
use crate::suggest::command_on;
use crate::verb::{ReadingVerb, Report};
use crate::{Failure, Status};

const SERVICES_DRAWN: usize = 200;
const EDGES_DRAWN: usize = 600;
/// Maximum number of edges of a picture with labels. If there are more, none has a label, because
/// labels would hide each other.
const EDGES_LABELLED: usize = 60;
/// Maximum number of services without a caller that the text lists.
const UNCALLED_LISTED: usize = 8;

/// Show which services call which: how often, how long calls take, how many fail, and what requests
/// wait for
///
/// A call is a span whose parent is of another service. Its latency is that of the caller's client
/// span or, without one, of the called span. It failed if either of them did. Services that record
/// no spans are missing. Counts complete requests; a service's share is its share of the critical
/// path of all requests together.
#[derive(Debug, Args)]
pub struct MapVerb {
    #[command(flatten)]
    reading: ReadingArguments,
    #[command(flatten)]
    show: ShowArguments,
    /// Only this service, its callers, and the services that it calls
    #[arg(long, value_name = "SERVICE", conflicts_with_all = ["shard", "cluster"])]
    focus: Option<String>,
    /// Maximum number of services, and of edges, to show; 0 shows all
    #[arg(long, value_name = "COUNT", default_value_t = TOP)]
    top: usize,
    #[command(flatten)]
    shard: ShardArguments,
}

/// Default of `--top`.
pub const TOP: usize = 50;

/// Services, and the calls between them.
#[derive(Debug, Serialize, JsonSchema)]
pub struct MapReport {
    #[serde(flatten)]
    notes: Notes,
    /// Number of requests behind the shares: complete ones, and incomplete ones if requested.
    used_traces: u64,
    /// Number of spans of services beyond the limit of 4,096 services.
    other_spans: u64,
    /// Number of calls of edges beyond the limit of 4,096 edges.
    other_calls: u64,
    /// Services, those that requests wait for most first.
    services: Vec<ServiceRow>,
    /// Edges, those in most requests first.
    edges: Vec<EdgeRow>,
    #[serde(skip)]
    focus: Option<String>,
    #[serde(skip)]
    failures_command: String,
    #[serde(skip)]
    requests_text: String,
    #[serde(skip)]
    top: usize,
}

/// Figures of one service.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ServiceRow {
    service: String,
    /// Share of the critical path of all requests, 0 to 1.
    critical_share: f64,
    /// Number of requests with a span of the service.
    requests: u64,
    spans: u64,
    /// Number of spans that failed, by an attribute `error` that is not false, or by a panic.
    failed: u64,
    /// Number of services that call this one.
    callers: u64,
    /// Number of services that this one calls.
    callees: u64,
}

/// Calls from one service to another.
#[derive(Debug, Serialize, JsonSchema)]
pub struct EdgeRow {
    caller: String,
    callee: String,
    /// Number of requests with a call along this edge.
    requests: u64,
    calls: u64,
    /// Number of calls whose client span or called span failed.
    failed: u64,
    /// Latency of the client's span or, without one, of the called span.
    latency: Latency,
    /// Id of the request with the longest call.
    longest_in: Option<String>,
}

rows! {
    ServiceRow as row, "map_services": "A service, its number of requests, and its part of critical paths.";
    service: Text, "service" = Cell::Linked(row.service.clone(), row.path());
    critical_share: Share, "of critical paths" = row.critical_share;
    requests: Count, "requests" = row.requests;
    spans: Count, "spans" = row.spans;
    failed: Count, "failed spans" = (row.failed > 0).then_some(row.failed);
    failed_share: Share, "of its spans" = (row.failed > 0).then_some(row.failed as f64 / row.spans as f64);
    callers: Count, "callers" = row.callers;
    callees: Count, "callees" = row.callees;
}

rows! {
    EdgeRow as row, "map_edges": "The calls of a service by another one, as the caller sees them.";
    {
        let requests_of = |service: &str| {
            let path = format!("/traces?service={}", path_segment(service));
            Cell::Linked(service.to_owned(), path)
        };
    }
    caller: Text, "caller" = requests_of(&row.caller);
    callee: Text, "callee" = requests_of(&row.callee);
    requests: Count, "requests" = row.requests;
    calls: Count, "calls" = row.calls;
    failed: Count, "failed calls" = (row.failed > 0).then_some(row.failed);
    failed_share: Share, "of its calls" = (row.failed > 0).then_some(row.failed as f64 / row.calls as f64);
    p50_ns: DurationNs, "p50" = row.latency.p50_ns;
    p95_ns: DurationNs, "p95" = row.latency.p95_ns;
    p99_ns: DurationNs, "p99" = row.latency.p99_ns;
    longest_ns: DurationNs, "longest" = row.latency.max_ns;
    example: Request, "in" = row.longest_in.as_deref();
}

impl ServiceRow {
    /// Returns the path of the page with the map around this service.
    fn path(&self) -> String {
        format!("/map?focus={}", path_segment(&self.service))
    }
}

impl EdgeRow {
    fn of(((caller, callee), times): (&(Arc<str>, Arc<str>), &OperationTimes)) -> Self {
        Self {
            caller: caller.to_string(),
            callee: callee.to_string(),
            requests: times.requests.rounded(),
            calls: times.duration.weighted_count().rounded(),
            failed: times.failed.rounded(),
            latency: Latency::of(&times.duration),
            longest_in: times.longest.map(|(_, id)| id.to_string()),
        }
    }

    fn note(&self) -> String {
        let failed = match self.failed {
            0 => String::new(),
            failed => format!(", {failed} failed"),
        };
        format!(
            "{} calls {}: {}{failed}, p50 {}, p99 {}",
            self.caller,
            self.callee,
            counted(self.calls, "call"),
            duration(self.latency.p50_ns as f64),
            duration(self.latency.p99_ns as f64)
        )
    }

    /// Returns the lines of the label at the edge's arrow.
    fn label(&self) -> Vec<String> {
        let failed = match self.failed {
            0 => String::new(),
            failed => format!(", {} fail", percent(failed as f64 / self.calls as f64)),
        };
        let latency = [self.latency.p50_ns, self.latency.p95_ns].map(|ns| duration(ns as f64));
        vec![
            format!("{}{failed}", counted(self.calls, "call")),
            format!("p50 {}, p95 {}", latency[0], latency[1]),
        ]
    }

    fn is_of(&self, service: &str) -> bool {
        self.caller == service || self.callee == service
    }
}

/// Returns the service in `service:name`: the longest prefix that is the name of a service, because
/// both parts may contain colons. Returns `None` if there is none.
fn service_of<'a>(
    operation: &'a str,
    services: &BTreeMap<Arc<str>, ServiceCounts>,
) -> Option<&'a str> {
    let ends = operation.rmatch_indices(':');
    let mut prefixes = ends.map(|(end, _)| &operation[..end]);
    prefixes.find(|prefix| services.contains_key(*prefix))
}

/// Returns the rows of all services, in order of name. `waited` maps services to their shares of
/// the critical path.
fn service_rows(map: &ServiceMap, waited: &BTreeMap<&str, f64>) -> Vec<ServiceRow> {
    let mut neighbours: BTreeMap<&str, [u64; 2]> = BTreeMap::new();
    for (caller, callee) in map.calls.keys() {
        neighbours.entry(callee).or_default()[0] += 1;
        neighbours.entry(caller).or_default()[1] += 1;
    }
    let row = |(service, counts): (&Arc<str>, &ServiceCounts)| {
        let [callers, callees] = neighbours.get(&**service).copied().unwrap_or_default();
        ServiceRow {
            service: service.to_string(),
            critical_share: waited.get(&**service).copied().unwrap_or_default(),
            requests: counts.requests.rounded(),
            spans: counts.spans.rounded(),
            failed: counts.failed.rounded(),
            callers,
            callees,
        }
    };
    map.services.iter().map(row).collect()
}

impl ReadingVerb for MapVerb {
    type Report = MapReport;
    const TABLES: &'static [TableSpec] = &[ServiceRow::TABLE, EdgeRow::TABLE];

    fn arguments(&self) -> (ReadingArguments, &ShowArguments) {
        (self.reading.clone(), &self.show)
    }

    fn answer(&self, study: &NamedStudy) -> Result<MapReport, Failure> {
        let (found, data) = (study.ask(&MAP)?, &self.reading.from.data.data);
        let mut report = MapReport::of(found, study.known()?, (self.top, data));
        if let Some(focus) = &self.focus {
            report.focus_on(focus, data)?;
        }
        Ok(report)
    }

    fn run_shard(&self, runtime: &Runtime) -> Option<Result<Status, Failure>> {
        let (asked, data) = ((&MAP, ShardReport::Map), &self.reading.from.data.data);
        let given = (&self.reading, &self.show);
        self.shard.run(given, asked, runtime, |found, known| {
            MapReport::of(found, known, (self.top, data))
        })
    }
}

impl MapReport {
    /// Creates the report from the answer to [`MAP`]. `data` is the location of the data as the
    /// user gave it.
    pub fn of(
        (map, paths): (ServiceMap, Paths),
        known: NamedInference<'_>,
        (top, data): (usize, &Path),
    ) -> Self {
        let operations = by_time(&paths.aggregate, known.inference.model.labels());
        let mut waited: BTreeMap<&str, f64> = BTreeMap::new();
        for operation in &operations {
            if let Some(service) = service_of(&operation.operation, &map.services) {
                *waited.entry(service).or_default() += operation.share_of_time;
            }
        }
        let mut services = service_rows(&map, &waited);
        let mut edges: Vec<EdgeRow> = map.calls.iter().map(EdgeRow::of).collect();
        // Stable sorts keep equal rows in order of name.
        services.sort_by(|a, b| b.critical_share.total_cmp(&a.critical_share));
        edges.sort_by_key(|edge| Reverse((edge.requests, edge.calls)));
        let requests = paths.aggregate.traces();
        Self {
            used_traces: requests.rounded(),
            other_spans: map.other_spans,
            other_calls: map.other_calls,
            services,
            edges,
            focus: None,
            failures_command: command_on("failures", data),
            requests_text: requests_text(requests),
            top: if top == 0 { usize::MAX } else { top },
            notes: paths.notes,
        }
    }

    /// Keeps only a service and those around it.
    fn focus_on(&mut self, focus: &str, data: &Path) -> Result<(), Failure> {
        if self.services.iter().all(|row| row.service != focus) {
            let known = self.services.iter().map(|row| &*row.service);
            let nearest = nearest(focus, known);
            let nearest = nearest.map_or_else(String::new, |name| format!(" (is it {name}?)"));
            let listed = command_on("map", data);
            return Err(Failure::unknown(format!(
                "no span is of the service {focus}{nearest}; `{listed}` lists services"
            )));
        }
        let edges = &mut self.edges;
        edges.retain(|edge| edge.is_of(focus));
        let is_around = |service: &str| edges.iter().any(|edge| edge.is_of(service));
        let services = &mut self.services;
        services.retain(|row| row.service == focus || is_around(&row.service));
        self.focus = Some(focus.to_owned());
        Ok(())
    }

    /// Builds the graph of the services in most requests, and of the edges that most requests use;
    /// always includes the service in focus.
    fn graph(&self) -> Graph {
        let requests = self.used_traces.max(1) as f64;
        let mut drawn: Vec<&ServiceRow> = self.services.iter().collect();
        drawn.sort_by_key(|row| {
            let is_focus = self.focus.as_ref() == Some(&row.service);
            Reverse((is_focus, row.requests))
        });
        drawn.truncate(SERVICES_DRAWN);
        let node = |row: &&ServiceRow| GraphNode {
            name: row.service.clone(),
            lines: vec![
                row.service.clone(),
                format!("in {} of requests", percent(row.requests as f64 / requests)),
                format!("{} of critical paths", percent(row.critical_share)),
            ],
            share: row.critical_share,
            style: 0,
            path: Some(row.path()),
        };
        let place = |service: &str| drawn.iter().position(|row| row.service == service);
        let edge = |row: &EdgeRow| {
            Some(GraphEdge {
                from: place(&row.caller)?,
                to: place(&row.callee)?,
                share: row.requests as f64 / requests,
                is_marked: row.failed > 0,
                label: row.label(),
                note: row.note(),
            })
        };
        let edges = self.edges.iter().filter_map(edge);
        let mut edges: Vec<GraphEdge> = edges.take(EDGES_DRAWN).collect();
        if edges.len() > EDGES_LABELLED {
            edges.iter_mut().for_each(|edge| edge.label.clear());
        }
        Graph {
            nodes: drawn.iter().map(node).collect(),
            edges,
        }
    }

    /// Draws the map; `None` if it has no edge.
    fn figure(&self) -> Option<Figure> {
        let graph = self.graph();
        let (nodes, edges) = (graph.nodes.len(), graph.edges.len());
        if edges == 0 {
            return None;
        }
        let mut title = "Calls between services".to_owned();
        if self.edges.iter().any(|edge| edge.failed > 0) {
            title += "; those of which some failed are marked";
        }
        let (services, calls) = (self.services.len(), self.edges.len());
        let some = match (nodes < services, edges < calls) {
            (true, _) => {
                format!(
                    "the {nodes} of {services} services in most requests, and {edges} of {calls} edges"
                )
            }
            (false, true) => format!("the {edges} of {calls} edges in most requests"),
            (false, false) => String::new(),
        };
        if !some.is_empty() {
            title += &format!(". Drawn are {some}; a focus shows one service with those around it");
        }
        let alternative = "The tables list everything.";
        Some(Figure::new(title, alternative, graph).on_pages_only())
    }

    /// Returns a sentence about the services that no other service calls; `None` if there are none.
    fn uncalled_text(&self) -> Option<String> {
        let uncalled = self.services.iter().filter(|row| row.callers == 0);
        let uncalled: BTreeSet<&str> = uncalled.map(|row| &*row.service).collect();
        if uncalled.is_empty() {
            return None;
        }
        let listed: Vec<&str> = uncalled.iter().copied().take(UNCALLED_LISTED).collect();
        let more = match uncalled.len() - listed.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Some(format!(
            "No other service calls {}{more}.",
            listed.join(", ")
        ))
    }
}

impl Report for MapReport {
    fn notes(&self) -> &Notes {
        &self.notes
    }

    fn show(&self, doc: &mut Doc) {
        if self.services.iter().any(|row| row.failed > 0) {
            doc.link(
                "Start times and origins of failures",
                "/failures",
                self.failures_command.clone(),
            );
        }
        if let Some(figure) = self.figure() {
            doc.figure(figure);
        }
        let services = counted(self.services.len() as u64, "service");
        doc.table(
            format!("{services} in {}", self.requests_text),
            &self.services,
            self.top,
        );
        doc.sentences(self.uncalled_text());
        doc.table("Calls between services", &self.edges, self.top);
        let others = [
            (self.other_spans, "span", "services"),
            (self.other_calls, "call", "pairs of services"),
        ];
        for (count, what, of) in others.into_iter().filter(|(count, ..)| *count > 0) {
            doc.sentence(format!(
                "Not listed: {} of {of} beyond the number that is kept apart.",
                counted(count, what)
            ));
        }
    }
}
