//! The `operations` subcommand.

use std::collections::BTreeMap;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_query::{
    Notes, OPERATIONS, OperationTimes, Operations, Paths, ShardReport, by_time,
};
use stroboscope_render::humanise::counted;
use stroboscope_render::page::path_segment;
use stroboscope_render::roots::requests_text;
use stroboscope_render::rows;
use stroboscope_render::show::{Cell, Doc, Row as _, TableSpec};
use tokio::runtime::Runtime;

use crate::arguments::{ReadingArguments, ShowArguments};
use crate::latency::Latency;
use crate::shard::ShardArguments;
use crate::study::{NamedInference, NamedStudy};
use crate::verb::{ReadingVerb, Report};
use crate::{Failure, Status};

/// List operations: how often each is done and fails, how long it takes, and how much requests wait
/// for it
///
/// Counts complete requests. Operations that requests wait for most come first; the share is that
/// of the critical path of all requests together.
#[derive(Debug, Args)]
pub struct OperationsVerb {
    #[command(flatten)]
    reading: ReadingArguments,
    #[command(flatten)]
    show: ShowArguments,
    /// Maximum number of operations to show; 0 shows all
    #[arg(long, value_name = "COUNT", default_value_t = TOP)]
    top: usize,
    #[command(flatten)]
    shard: ShardArguments,
}

/// Default of `--top`.
pub const TOP: usize = 100;
/// Operations, those that requests wait for most first.
#[derive(Debug, Serialize, JsonSchema)]
pub struct OperationsReport {
    #[serde(flatten)]
    notes: Notes,
    /// Number of requests behind the shares: complete ones, and incomplete ones if requested.
    used_traces: u64,
    /// Number of spans of operations beyond the limit of 4,096 operations.
    other_spans: u64,
    operations: Vec<OperationRow>,
    #[serde(skip)]
    requests_text: String,
    #[serde(skip)]
    top: usize,
}

/// Figures of one operation.
#[derive(Debug, Serialize, JsonSchema)]
pub struct OperationRow {
    /// Name of the operation, as `service:name`.
    operation: String,
    /// Share of the critical path of all requests, 0 to 1.
    critical_share: f64,
    /// Number of requests in which the operation occurs.
    requests: u64,
    spans: u64,
    /// Number of spans that failed, by an attribute `error` that is not false, or by a panic.
    failed: u64,
    duration: Latency,
    /// Id of the request with the operation's longest span.
    longest_in: Option<String>,
}

rows! {
    OperationRow as row, "operations":
        "An operation, its frequency, its durations, and its part of critical paths.";
    operation: Text, "operation" = Cell::Linked(
        row.operation.clone(),
        format!("/what-if?operation={}&scale=0.5", path_segment(&row.operation)),
    );
    critical_share: Share, "of critical paths" = row.critical_share;
    requests: Count, "requests" = row.requests;
    spans: Count, "times" = row.spans;
    failed: Count, "failed" = (row.failed > 0).then_some(row.failed);
    failed_share: Share, "of them" = (row.failed > 0).then_some(row.failed as f64 / row.spans as f64);
    p50_ns: DurationNs, "p50" = row.duration.p50_ns;
    p95_ns: DurationNs, "p95" = row.duration.p95_ns;
    p99_ns: DurationNs, "p99" = row.duration.p99_ns;
    longest_ns: DurationNs, "longest" = row.duration.max_ns;
    example: Request, "in" = row.longest_in.as_deref();
}

impl OperationRow {
    fn new(operation: String, times: &OperationTimes, critical_share: f64) -> Self {
        Self {
            operation,
            critical_share,
            requests: times.requests.rounded(),
            spans: times.duration.weighted_count().rounded(),
            failed: times.failed.rounded(),
            duration: Latency::of(&times.duration),
            longest_in: times.longest.map(|(_, id)| id.to_string()),
        }
    }
}

impl ReadingVerb for OperationsVerb {
    type Report = OperationsReport;
    const TABLES: &'static [TableSpec] = &[OperationRow::TABLE];

    fn arguments(&self) -> (ReadingArguments, &ShowArguments) {
        (self.reading.clone(), &self.show)
    }

    fn answer(&self, study: &NamedStudy) -> Result<OperationsReport, Failure> {
        let found = study.ask(&OPERATIONS)?;
        Ok(OperationsReport::of(found, study.known()?, self.top))
    }

    fn run_shard(&self, runtime: &Runtime) -> Option<Result<Status, Failure>> {
        let asked = (&OPERATIONS, ShardReport::Operations);
        let given = (&self.reading, &self.show);
        self.shard.run(given, asked, runtime, |found, known| {
            OperationsReport::of(found, known, self.top)
        })
    }
}

impl OperationsReport {
    /// Creates the report from the answer to [`OPERATIONS`].
    pub fn of((found, paths): (Operations, Paths), known: NamedInference<'_>, top: usize) -> Self {
        let labels = known.inference.model.labels();
        let waited: BTreeMap<String, f64> = by_time(&paths.aggregate, labels)
            .into_iter()
            .map(|one| (one.operation, one.share_of_time))
            .collect();
        let row = |(name, times): (String, OperationTimes)| {
            let share = waited.get(&name).copied().unwrap_or_default();
            OperationRow::new(name, &times, share)
        };
        let mut operations: Vec<OperationRow> = found.of.into_iter().map(row).collect();
        operations.sort_by(|a, b| b.critical_share.total_cmp(&a.critical_share));
        let requests = paths.aggregate.traces();
        Self {
            used_traces: requests.rounded(),
            other_spans: found.others,
            operations,
            requests_text: requests_text(requests),
            top: if top == 0 { usize::MAX } else { top },
            notes: paths.notes,
        }
    }
}

impl Report for OperationsReport {
    fn notes(&self) -> &Notes {
        &self.notes
    }

    fn show(&self, doc: &mut Doc) {
        let title = format!(
            "{} in {}",
            counted(self.operations.len() as u64, "operation"),
            self.requests_text
        );
        doc.table(title, &self.operations, self.top);
        if self.other_spans > 0 {
            doc.sentence(format!(
                "Not listed: {} of operations beyond the number that is kept apart.",
                counted(self.other_spans, "span")
            ));
        }
    }
}
