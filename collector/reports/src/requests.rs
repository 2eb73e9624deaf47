//! The report `requests`: a list of requests, the slowest or the latest first.

use clap::{Args, ValueEnum};
use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::duration::{UNITS, parse_ns};
use stroboscope_query::{
    ListedRequest, Notes, RequestOrder, RequestsWanted, alignment, list_requests,
};
use stroboscope_render::humanise::{are, counted};
use stroboscope_render::rows;
use stroboscope_render::show::{Doc, Row as _, TableSpec};

use crate::Failure;
use crate::arguments::{ReadingArguments, ShowArguments};
use crate::notes::NOTHING_READ;
use crate::study::NamedStudy;
use crate::verb::{ReadingVerb, Report};

/// List requests, the slowest or the latest first
///
/// `search` lists the requests that satisfy a formula in order of time, with the spans that satisfy
/// it.
#[derive(Debug, Args)]
pub struct RequestsVerb {
    #[command(flatten)]
    reading: ReadingArguments,
    #[command(flatten)]
    show: ShowArguments,
    /// Only requests with a span of this service
    #[arg(long, value_name = "SERVICE")]
    service: Option<String>,
    /// Only requests with a span of this name, or this service:name
    #[arg(long, value_name = "OPERATION")]
    operation: Option<String>,
    /// Minimum latency
    #[arg(long, value_name = "DURATION", value_parser = parse_latency)]
    min: Option<u64>,
    /// Exclusive maximum latency
    #[arg(long, value_name = "DURATION", value_parser = parse_latency)]
    max: Option<u64>,
    /// Only requests whose root failed: it has an attribute `error` that is not false, or ended by
    /// a panic
    #[arg(long)]
    failed: bool,
    /// Order in which requests are listed
    #[arg(long, value_enum, default_value_t = OrderArgument::Slowest)]
    order: OrderArgument,
    /// Maximum number of requests to list; 0 only counts them
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u32).range(..=100_000))]
    top: u32,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OrderArgument {
    Slowest,
    Latest,
}

fn parse_latency(text: &str) -> Result<u64, String> {
    parse_ns(text).ok_or_else(|| format!("a number and a unit ({UNITS}), such as 2.5ms"))
}

/// Requests, in the requested order.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RequestsReport {
    #[serde(flatten)]
    notes: Notes,
    /// Number of requests examined: complete ones, and incomplete ones if requested.
    searched: u64,
    /// Number of requests that match; the first of these are listed.
    matched: u64,
    requests: Vec<RequestRow>,
}

/// One request of the list.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RequestRow {
    /// Trace id of 32 hexadecimal digits.
    trace: String,
    /// `service:name` of the request's root; `(event log)` or `(no root)` without one.
    root: String,
    latency_ns: u64,
    /// Beginning of the request, ns since the Unix epoch.
    start_ns: i64,
    spans: u64,
    services: u64,
    /// True if the root failed, by an attribute `error` that is not false, or by a panic.
    failed: bool,
    /// Reasons why the request is incomplete, or why its match is uncertain; empty if there are
    /// none.
    causes: Vec<&'static str>,
}

rows! {
    RequestRow as row, "requests": "A request; the slowest or the latest come first.";
    trace: Request, "request" = &*row.trace;
    root: Text, "root operation" = &*row.root;
    latency_ns: DurationNs, "took" = row.latency_ns;
    start_ns: Instant, "began (UTC)" = row.start_ns;
    spans: Count, "spans" = row.spans;
    services: Count, "services" = row.services;
    failed: Flag, "failed" = row.failed;
    causes: Text, "not complete" = (!row.causes.is_empty()).then(|| row.causes.join(", ")).as_deref();
}

impl RequestRow {
    pub fn of(request: &ListedRequest) -> Self {
        let mut causes = request.causes.clone();
        if !request.is_sure {
            causes.push("the formula may hold");
        }
        Self {
            trace: format!("{:032x}", request.id),
            root: request.root.clone(),
            latency_ns: request.latency_ns,
            start_ns: request.start_ns,
            spans: request.spans,
            services: request.services,
            failed: request.has_failed,
            causes,
        }
    }
}

impl ReadingVerb for RequestsVerb {
    type Report = RequestsReport;
    const TABLES: &'static [TableSpec] = &[RequestRow::TABLE];

    fn arguments(&self) -> (ReadingArguments, &ShowArguments) {
        (self.reading.clone(), &self.show)
    }

    fn answer(&self, study: &NamedStudy) -> Result<RequestsReport, Failure> {
        let wanted = RequestsWanted {
            formula: None,
            service: self.service.clone(),
            operation: self.operation.clone(),
            failed: self.failed,
            min_ns: self.min,
            max_ns: self.max,
            order: match self.order {
                OrderArgument::Slowest => RequestOrder::Slowest,
                OrderArgument::Latest => RequestOrder::Latest,
            },
            kept_max: self.top as usize,
        };
        let (source, selection) = (study.source(), study.selection());
        let clocks = alignment(source, selection).map_err(Failure::of)?;
        let found = list_requests(source, selection, clocks.as_ref(), &wanted);
        let found = found.map_err(Failure::of)?;
        Ok(RequestsReport {
            notes: found.notes,
            searched: found.searched,
            matched: found.matched,
            requests: found.requests.iter().map(RequestRow::of).collect(),
        })
    }
}

impl Report for RequestsReport {
    fn notes(&self) -> &Notes {
        &self.notes
    }

    fn show(&self, doc: &mut Doc) {
        let of = counted(self.searched, "request");
        doc.sentence(match self.searched {
            0 => NOTHING_READ.to_owned(),
            _ => format!("{} of {of}.", self.matched),
        });
        let omitted = self.notes.traces.saturating_sub(self.searched);
        if omitted > 0 {
            let of = counted(omitted, "incomplete request");
            let are = are(omitted);
            doc.sentence(format!("{of} {are} omitted without --include-incomplete."));
        }
        doc.table("", &self.requests, usize::MAX);
    }
}
