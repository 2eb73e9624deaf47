//! The `critical-path` subcommand.

mod links;
mod request;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::runtime::Runtime;

use self::request::{NotedRequest, Request};
use crate::arguments::{CategoryArguments, ReadingArguments, ShowArguments};
use crate::output::print_json;
use crate::results::critical_path::{Aggregate, CategoryShare, SegmentShare};
use crate::results::strata::BrokenDown;
use crate::shard::ShardArguments;
use crate::study::{NamedInference, NamedStudy};
use crate::verb::{ReadingVerb, Report, give};
use crate::{Failure, Status, notes};
use stroboscope_otlp::trace_id;
use stroboscope_query::{
    BreakdownQuestion, Notes, Paths, PathsQuestion, QueryError, ShardReport, StrataRule, each_path,
    linked_path_of, whole_id,
};
use stroboscope_render::show::{Doc, Row as _, TableSpec};

/// Show what makes up the latency of requests
///
/// Without --trace, shows for each segment its time on critical paths as a share of the time of all
/// requests, in how many requests it is critical, and how long it takes. Long requests count more
/// than short ones; the mean share of a request counts all alike. Also shows the shares of
/// categories. A client span's own time is network, and time in or below a server's span is server.
/// The rest is client, or server if no span is a server's. Summed delay adds up all segments,
/// including concurrent ones.
///
/// With --by, groups requests into strata by the value of an attribute, or by quantiles of a
/// numeric attribute.
///
/// With --trace, shows one request, segment by segment, and the spans of other requests that it
/// links to or that link to it. With --follow-links, continues its path into the request whose
/// message it waited for: the linked span that ended last before it began.
///
/// A request ends when its caller has the response: when its root span ends. Later work is on no
/// critical path and in no latency; it is shown separately, with its own path. An event log has no
/// root; its requests end with their last event.
#[derive(Debug, Args)]
pub struct CriticalPath {
    #[command(flatten)]
    reading: ReadingArguments,
    #[command(flatten)]
    show: ShowArguments,
    /// One trace, by its id, the last 16 digits of it, or the name that its source gave it
    #[arg(long, value_name = "ID", conflicts_with_all = ["each", "shard", "cluster"])]
    trace: Option<String>,
    /// Follow links to spans of other traces, such as those of a batch consumer to the producers of
    /// its messages. By default, a link is only a mention
    #[arg(long, requires = "trace")]
    follow_links: bool,
    /// Print every trace as one JSON document per line, with or without --json
    #[arg(long, conflicts_with_all = ["shard", "cluster"])]
    each: bool,
    /// Show latency and categories for each value of this attribute of requests; for each fifth of
    /// a numeric attribute with many values. `service`, `host`, `operation` and `kind` are those of
    /// the request's root span, and `status` is `error` or `ok`; `recorded:service` is a recorded
    /// attribute named service
    #[arg(long, value_name = "ATTRIBUTE", conflicts_with_all = ["trace", "each", "shard", "cluster"])]
    by: Option<String>,
    /// Number of quantiles of the attribute of --by
    #[arg(long, value_name = "COUNT", requires = "by", value_parser = clap::value_parser!(u8).range(2..=50))]
    quantiles: Option<u8>,
    /// Show the distributions of latency and of each category's share of the critical path
    #[arg(long, conflicts_with_all = ["trace", "each", "shard", "cluster"])]
    cdf: bool,
    #[command(flatten)]
    categories: CategoryArguments,
    /// Maximum number of segments to show; 0 shows all
    #[arg(long, value_name = "COUNT", default_value_t = TOP)]
    top: usize,
    #[command(flatten)]
    shard: ShardArguments,
}

/// Default of `--top`, also for `merge`.
pub const TOP: usize = 25;

impl ReadingVerb for CriticalPath {
    type Report = CriticalPathReport;
    const TABLES: &'static [TableSpec] = &[SegmentShare::TABLE, CategoryShare::TABLE];

    fn arguments(&self) -> (ReadingArguments, &ShowArguments) {
        (self.reading.clone(), &self.show)
    }

    fn answer(&self, study: &NamedStudy) -> Result<CriticalPathReport, Failure> {
        if let Some(trace) = &self.trace {
            return self.one(trace, study);
        }
        let rule = self.categories.rule();
        if self.by.is_some() || self.cdf {
            let by = self.by.clone().map(|attribute| StrataRule {
                attribute,
                quantiles: self.quantiles.map(usize::from),
            });
            let found = study.ask(&BreakdownQuestion { rule, by })?;
            let found = BrokenDown::of(found, study.known()?, self.by.as_deref(), self.cdf);
            return Ok(CriticalPathReport::BrokenDown(Box::new(found)));
        }
        let found = study.ask(&PathsQuestion(rule))?;
        Ok(CriticalPathReport::of(found, study.known()?, self.top))
    }

    fn run_shard(&self, runtime: &Runtime) -> Option<Result<Status, Failure>> {
        let question = PathsQuestion(self.categories.rule());
        let report = ShardReport::CriticalPath(self.categories.rule());
        let given = (&self.reading, &self.show);
        self.shard
            .run(given, (&question, report), runtime, |paths, known| {
                CriticalPathReport::of(paths, known, self.top)
            })
    }

    fn run(&self, runtime: &Runtime) -> Result<Status, Failure> {
        if let Some(done) = self.run_shard(runtime) {
            return done;
        }
        let study = NamedStudy::of(&self.reading, runtime.handle())?;
        if self.each {
            each(&study)
        } else {
            give(&self.answer(&study)?, &self.reading.from, &self.show)
        }
    }
}

impl CriticalPath {
    fn one(&self, trace: &str, study: &NamedStudy) -> Result<CriticalPathReport, Failure> {
        let known = study.known()?;
        let id = whole_id(study.source(), trace_id(trace)).map_err(Failure::of)?;
        let found = linked_path_of(study.source(), known.inference, id, self.follow_links);
        let (linked, notes) = found.map_err(Failure::of)?;
        let linked = linked.ok_or_else(|| {
            let none = QueryError::NoSuchTrace {
                trace: trace.to_owned(),
                data: study.source().name(),
            };
            Failure::of(none.with_damage(&notes.damage))
        })?;
        let request = NotedRequest::of(&linked, known, notes);
        Ok(CriticalPathReport::Request(Box::new(request)))
    }
}

fn each(study: &NamedStudy) -> Result<Status, Failure> {
    let mut failure = None;
    let known = study.known()?;
    let noted = each_path(
        study.source(),
        study.selection(),
        known.inference,
        |answer| {
            let request = Request::of(&answer, known);
            failure = print_json(&request).err();
            failure.is_none()
        },
    );
    let noted = noted.map_err(Failure::of)?;
    failure.map_or_else(|| Ok(notes::tell(&noted)), Err)
}

/// Critical paths of all requests, of strata, or of one request.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum CriticalPathReport {
    Aggregate(Box<Aggregate>),
    BrokenDown(Box<BrokenDown>),
    Request(Box<NotedRequest>),
}

impl CriticalPathReport {
    /// Creates the report on the paths of all requests.
    pub fn of(paths: Paths, known: NamedInference<'_>, top: usize) -> Self {
        Self::Aggregate(Box::new(Aggregate::of(paths, known, top)))
    }
}

impl Report for CriticalPathReport {
    fn notes(&self) -> &Notes {
        match self {
            Self::Aggregate(report) => report.notes(),
            Self::BrokenDown(report) => report.notes(),
            Self::Request(report) => report.notes(),
        }
    }

    fn show(&self, doc: &mut Doc) {
        match self {
            Self::Aggregate(report) => report.show(doc),
            Self::BrokenDown(report) => report.show(doc),
            Self::Request(report) => report.show(doc),
        }
    }
}
