//! The `failures` subcommand: failed requests, changes of their rate, the origins of failures, and
//! the attributes that distinguish failed requests.

mod leaf;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::by_root::OTHER_ROOTS;
use stroboscope_analysis::root::NO_ROOT;
use stroboscope_analysis::sampling::WeightedCount;
use stroboscope_query::{
    FailedApart, FailureGroup, Failures, GroupedFailures, Notes, RateChange, RootFailures,
    alignment, failures,
};
use stroboscope_render::humanise::{counted, duration, percent};
use stroboscope_render::page::path_segment;
use stroboscope_render::rows;
use stroboscope_render::show::{Cell, Doc, Row as _, TableSpec};

use tokio::runtime::Runtime;

use crate::arguments::{ReadingArguments, ShowArguments};
use crate::latency::Latency;
use crate::notes::NOTHING_READ;
use crate::overview::MEDIANS_RATIO;
use crate::step_commands::comparing_commands;
use crate::study::NamedStudy;
use crate::time::{since, written_periods};
use crate::verb::{ReadingVerb, Report, give};
use crate::{Failure, Status};

pub use leaf::FailureLeafRow;

const ROOTS_SHOWN: usize = 20;
/// Maximum number of warnings about medians that failed requests shift. The second number is the
/// minimum number of failed requests, and of others, that a root operation needs for a warning.
const WARNINGS: (usize, u64) = (3, 12);

/// Show which requests fail, since when, where their failures start, and what distinguishes them
///
/// A request fails if its root does: by an attribute `error` that is not false, or by a panic.
/// Requests with missing parts count, too; those without a root fail if a failure leaves the
/// recorded part. A failure starts at a failed span that no failure below it reaches; if there are
/// several, at the one that ended first. Other requests with a failed span have recovered. The
/// command also searches for attributes of spans that distinguish failed requests of
/// a root operation from others, as `explain` does. It needs at least 12 of both kinds. If the
/// error rate rose, it uses only requests since then. It ignores attributes of the failure itself.
#[derive(Debug, Args)]
pub struct FailuresVerb {
    #[command(flatten)]
    reading: ReadingArguments,
    #[command(flatten)]
    show: ShowArguments,
    /// Maximum number of origins of failures to show; 0 shows all
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    top: usize,
}

/// Failed requests, changes of their rate, origins of their failures, and their distinguishing
/// attributes.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FailuresReport {
    #[serde(flatten)]
    notes: Notes,
    /// Number of requests, including incomplete ones.
    requests: u64,
    failed: u64,
    failed_share: f64,
    /// Number of requests that did not fail, although a span failed.
    recovered: u64,
    /// Root operations, most failed requests first.
    roots: Vec<FailureRootRow>,
    /// Last changes of the error rates of at most eight root operations: those with the most failed
    /// requests. The most certain change comes first; changes that may be chance are absent.
    changes: Vec<FailureChangeRow>,
    /// Origins of failures, the most frequent first.
    origins: Vec<FailureOriginRow>,
    /// Origins of failures in requests that recovered.
    recovered_origins: Vec<RecoveredOriginRow>,
    /// Number of requests with failures beyond the limit on distinct origins.
    other_origins: u64,
    /// Sets of attributes that distinguish failed requests of a root operation from others, for at
    /// most three root operations. For each, the sets of failed requests come first; among these
    /// and among the others, the largest recall comes first.
    leaves: Vec<FailureLeafRow>,
    /// Root operations whose failed requests no attribute distinguishes from others. At most three
    /// root operations with at least 12 requests of both kinds are examined: those with the most
    /// failed requests.
    indistinct: Vec<String>,
    /// Commands that examine the first change further; empty if there is none, if it is of several
    /// root operations, and on the page `/failures`, which has links.
    #[serde(skip)]
    commands: String,
    #[serde(skip)]
    top: usize,
}

/// Requests of a root operation, and how many of them failed.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FailureRootRow {
    /// `service:name`; `(no root)` or `(event log)` for requests without a root; or `(other)` for
    /// further roots, beyond 256.
    root: String,
    requests: u64,
    failed: u64,
    failed_share: f64,
    recovered: u64,
    /// Latency of the requests whose root was recorded completely; null if there are none.
    latency: Option<Latency>,
    /// Latency of the requests that did not fail and whose root was recorded completely; null if
    /// there are none.
    latency_without_failed: Option<Latency>,
}

/// Change of a root operation's share of failed requests.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct FailureChangeRow(RateChange);

/// Failed requests of a root operation whose failures started at one operation in one way.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FailureOriginRow {
    root: String,
    /// Operation at which the failures start.
    origin: String,
    /// Type of the error, `panic`, or the span's status; `error` if the span states none.
    kind: String,
    /// Error message, with ids replaced by `*`; empty if there is none.
    message: String,
    requests: u64,
    /// Share of all failed requests, 0 to 1.
    share: f64,
    /// Time at which the first of the origin's failed spans ended, in ns since the Unix epoch.
    /// `last_ns` is the end of the last one.
    first_ns: Option<i64>,
    last_ns: Option<i64>,
    /// Id of the request with the first of the failed spans.
    example: Option<String>,
    /// Operations through which the failure of the example travelled, from the origin upwards. The
    /// middle of a list of more than 24 is replaced by its number of operations.
    trail: Vec<String>,
}

/// Requests that recovered from failures of one operation.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RecoveredOriginRow {
    root: String,
    origin: String,
    kind: String,
    message: String,
    requests: u64,
    first_ns: Option<i64>,
    last_ns: Option<i64>,
    example: Option<String>,
}

rows! {
    FailureRootRow as row, "failures": "Requests of a root operation, and how many of them failed.";
    {
        let ns = |latency: &Option<Latency>, of: fn(&Latency) -> u64| {
            Cell::from(latency.as_ref().map(|latency| of(latency) as f64))
        };
        let all = |of| ns(&row.latency, of);
        let others = |of| ns(&row.latency_without_failed, of);
        let is_one = ![NO_ROOT, OTHER_ROOTS].contains(&&*row.root);
    }
    root: Text, "root operation" = match is_one && row.failed > 0 {
        // The page lists only requests whose root failed.
        true => Cell::Linked(
            row.root.clone(),
            format!("/traces?failed=yes&operation={}", path_segment(&row.root)),
        ),
        false => Cell::from(row.root.as_str()),
    };
    requests: Count, "requests" = row.requests;
    failed: Count, "failed" = (row.failed > 0).then_some(row.failed);
    failed_share: Share, "of requests" = (row.failed > 0).then_some(row.failed_share);
    recovered: Count, "recovered" = (row.recovered > 0).then_some(row.recovered);
    p50_ns: DurationNs, "p50" = all(|of| of.p50_ns);
    p95_ns: DurationNs, "p95" = all(|of| of.p95_ns);
    p99_ns: DurationNs, "" = all(|of| of.p99_ns);
    p50_without_failed_ns: DurationNs, "p50 without failed" = others(|of| of.p50_ns);
    p95_without_failed_ns: DurationNs, "p95 without failed" = others(|of| of.p95_ns);
    p99_without_failed_ns: DurationNs, "" = others(|of| of.p99_ns);
}

rows! {
    FailureChangeRow as row, "failure_changes": "A change of the share of a root operation's requests that fail.";
    {
        let change = &row.0;
        let [from, at, until] = written_periods([change.before_from_ns, change.at_ns, change.until_ns]);
        let root = path_segment(&change.root);
    }
    root: Text, "root operation" = match change.root == OTHER_ROOTS {
        true => Cell::from(change.root.as_str()),
        false => Cell::Linked(
            change.root.clone(),
            format!("/compare?before={from}..{at}&after={at}..{until}&root={root}"),
        ),
    };
    at: Instant, "since (UTC)" = change.at_ns;
    share: Share, "failed" = change.rates[1];
    failed: Count, "requests" = change.failed[1];
    requests: Count, "of" = change.requests[1];
    share_before: Share, "failed before" = change.rates[0];
    failed_before: Count, "requests" = change.failed[0];
    requests_before: Count, "of" = change.requests[0];
    p_value: Probability, "p" = change.p_value;
}

rows! {
    FailureOriginRow as row, "failure_origins": "Failed requests whose failures started at one operation in one way.";
    origin: Text, "starts at" = &*row.origin;
    kind: Text, "with" = &*row.kind;
    message: Text, "message" = Some(&*row.message).filter(|message| !message.is_empty());
    requests: Count, "requests" = row.requests;
    share: Share, "of failed" = row.share;
    first: Instant, "first (UTC)" = row.first_ns;
    last: Instant, "last (UTC)" = row.last_ns;
    example: Request, "first in" = row.example.as_deref();
    root: Text, "" = &*row.root;
    trail: Text, "travelled" = &*row.trail.join(" → ");
}

rows! {
    RecoveredOriginRow as row, "recovered_failures": "Requests that recovered from failures of one operation.";
    origin: Text, "starts at" = &*row.origin;
    kind: Text, "with" = &*row.kind;
    message: Text, "message" = Some(&*row.message).filter(|message| !message.is_empty());
    requests: Count, "requests" = row.requests;
    first: Instant, "first (UTC)" = row.first_ns;
    last: Instant, "last (UTC)" = row.last_ns;
    example: Request, "first in" = row.example.as_deref();
    root: Text, "root operation" = &*row.root;
}

impl FailureRootRow {
    fn of((root, of): &(String, RootFailures)) -> Self {
        let (all, others) = (of.latency(), &of.latency_others);
        let latency = |of| Some(Latency::of(of)).filter(|_| of.count() > 0);
        Self {
            root: root.clone(),
            requests: of.outcomes.requests.rounded(),
            failed: of.outcomes.failed.rounded(),
            failed_share: of.outcomes.share(),
            recovered: of.recovered.rounded(),
            latency: latency(&all),
            latency_without_failed: latency(others),
        }
    }

    /// Returns a warning if failed requests shift the median latency, and there are enough failed
    /// and other requests; `None` otherwise.
    fn warning(&self) -> Option<String> {
        let (all, others) = (
            self.latency.as_ref()?,
            self.latency_without_failed.as_ref()?,
        );
        if self.failed.min(self.requests - self.failed) < WARNINGS.1 {
            return None;
        }
        let [all_ns, others_ns] = [all.p50_ns, others.p50_ns].map(|ns| ns as f64);
        let (faster, slower) = (
            all_ns * MEDIANS_RATIO < others_ns,
            others_ns * MEDIANS_RATIO < all_ns,
        );
        let how = match (faster, slower) {
            (false, false) => return None,
            (true, _) => "faster",
            (false, true) => "slower",
        };
        Some(format!(
            "Failed requests of {} are {how} than others, and move the median: it is {} of all, and {} without them.",
            self.root,
            duration(all_ns),
            duration(others_ns)
        ))
    }
}

impl FailureOriginRow {
    fn of(group: FailureGroup, of: GroupedFailures, failed: WeightedCount) -> Self {
        let (example, trail) = of.example.unzip();
        Self {
            root: group.root,
            origin: group.origin,
            kind: group.stated.kind,
            message: group.stated.message,
            requests: of.requests.rounded(),
            share: of.requests.share_of(failed),
            first_ns: of.times_ns.map(|times| times.0),
            last_ns: of.times_ns.map(|times| times.1),
            example: example.map(|id| id.to_string()),
            trail: trail.unwrap_or_default(),
        }
    }

    fn sentence(&self) -> String {
        let message = match &*self.message {
            "" => String::new(),
            message => format!(": {message}"),
        };
        format!(
            "{} of failed requests are of {} and start to fail at {} ({}{message}). The way of the first: {}.",
            percent(self.share),
            self.root,
            self.origin,
            self.kind,
            self.trail.join(" → ")
        )
    }
}

impl From<FailureOriginRow> for RecoveredOriginRow {
    fn from(row: FailureOriginRow) -> Self {
        Self {
            root: row.root,
            origin: row.origin,
            kind: row.kind,
            message: row.message,
            requests: row.requests,
            first_ns: row.first_ns,
            last_ns: row.last_ns,
            example: row.example,
        }
    }
}

/// Describes a change: `Since about 14:32:10, 5.2% of web:home fail rather than 0.1%`.
pub fn change_text(change: &RateChange) -> String {
    let [before, after] = change.rates.map(percent);
    format!(
        "Since about {}, {after} of {} fail rather than {before}",
        since(change.at_ns, change.until_ns),
        change.root,
    )
}

impl FailuresReport {
    fn of(found: Failures, top: usize) -> Self {
        let failed = found.outcomes.failed;
        let (reached, recovered): (Vec<_>, Vec<_>) = found
            .origins
            .into_iter()
            .partition(|(group, _)| group.has_reached_root);
        let row = |(group, of)| FailureOriginRow::of(group, of, failed);
        let leaves = |of: &FailedApart| {
            let leaves = of.explanation.leaves.iter();
            let rows = leaves.map(|leaf| FailureLeafRow::of(&of.root, leaf));
            rows.collect::<Vec<_>>()
        };
        Self {
            requests: found.outcomes.requests.rounded(),
            failed: failed.rounded(),
            failed_share: found.outcomes.share(),
            recovered: found.recovered.rounded(),
            roots: found.roots.iter().map(FailureRootRow::of).collect(),
            changes: found.changes.into_iter().map(FailureChangeRow).collect(),
            leaves: found.apart.iter().flat_map(leaves).collect(),
            indistinct: found
                .apart
                .iter()
                .filter(|of| !of.explanation.leaves.iter().any(|leaf| leaf.is_mutation))
                .map(|of| of.root.clone())
                .collect(),
            commands: String::new(),
            origins: reached.into_iter().map(row).collect(),
            recovered_origins: recovered.into_iter().map(row).map(Into::into).collect(),
            other_origins: found.other_origins.rounded(),
            top: if top == 0 { usize::MAX } else { top },
            notes: found.notes,
        }
    }

    fn headline(&self) -> String {
        let requests = counted(self.requests, "request");
        let failed = match self.failed {
            _ if self.requests == 0 => return NOTHING_READ.to_owned(),
            0 => format!("None of {requests} failed"),
            failed => format!(
                "{failed} of {requests} failed ({})",
                percent(self.failed_share)
            ),
        };
        match self.recovered {
            0 => format!("{failed}."),
            recovered => format!(
                "{failed}; {} recovered, where a span failed and the root did not.",
                counted(recovered, "other")
            ),
        }
    }
}

impl ReadingVerb for FailuresVerb {
    type Report = FailuresReport;
    const TABLES: &'static [TableSpec] = &[
        FailureRootRow::TABLE,
        FailureChangeRow::TABLE,
        FailureOriginRow::TABLE,
        RecoveredOriginRow::TABLE,
        FailureLeafRow::TABLE,
    ];

    fn arguments(&self) -> (ReadingArguments, &ShowArguments) {
        (self.reading.clone(), &self.show)
    }

    fn answer(&self, study: &NamedStudy) -> Result<FailuresReport, Failure> {
        let (source, selection) = (study.source(), study.selection());
        let clocks = alignment(source, selection).map_err(Failure::of)?;
        let found = failures(source, selection, clocks.as_ref()).map_err(Failure::of)?;
        Ok(FailuresReport::of(found, self.top))
    }

    fn run(&self, runtime: &Runtime) -> Result<Status, Failure> {
        let study = NamedStudy::of(&self.reading, runtime.handle())?;
        let mut report = self.answer(&study)?;
        let of_one = |FailureChangeRow(change): &&FailureChangeRow| change.root != OTHER_ROOTS;
        if let Some(FailureChangeRow(change)) = report.changes.first().filter(of_one) {
            let times_ns = [change.before_from_ns, change.at_ns, change.until_ns];
            report.commands = comparing_commands(&change.root, times_ns, &self.reading);
        }
        give(&report, &self.reading.from, &self.show)
    }
}

impl Report for FailuresReport {
    fn notes(&self) -> &Notes {
        &self.notes
    }

    fn show(&self, doc: &mut Doc) {
        doc.heading("Failures");
        doc.sentence(self.headline());
        if let Some(FailureChangeRow(change)) = self.changes.first() {
            let said = format!("{}. {}", change_text(change), self.commands);
            doc.sentence(said.trim_end());
        } else if self.failed > 0 {
            doc.sentence(
                "The share of failed requests did not change by more than chance explains.",
            );
        }
        let warnings = self.roots.iter().filter_map(FailureRootRow::warning);
        doc.sentences(warnings.take(WARNINGS.0));
        doc.table("Requests by root operation", &self.roots, ROOTS_SHOWN);
        if let Some(most) = self.origins.first() {
            doc.sentence(most.sentence());
        }
        doc.table("Changes over time", &self.changes, self.changes.len());
        doc.table("Origins of failures", &self.origins, self.top);
        let telling = self.leaves.iter().find(|leaf| leaf.failed);
        if let Some(leaf) = telling {
            doc.sentence(format!("Of {}, {}.", leaf.root, leaf.sentence));
        }
        if !self.indistinct.is_empty() {
            doc.sentence(format!(
                "No attribute distinguishes the failed requests of {} from others.",
                self.indistinct.join(", ")
            ));
        }
        doc.table(
            "Attributes that distinguish failed requests",
            &self.leaves,
            self.leaves.len(),
        );
        doc.table("Recovered", &self.recovered_origins, self.top);
        if self.other_origins > 0 {
            doc.sentence(format!(
                "Not listed: failures of {} with origins beyond the number that is kept apart.",
                counted(self.other_origins, "request")
            ));
        }
    }
}

#[cfg(test)]
mod tests;
