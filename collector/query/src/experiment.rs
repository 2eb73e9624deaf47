//! Experiments: compares the latency of the test's requests with the control's.

mod assignment;
mod balance;
mod gathered;
mod judged;

use std::hash::RandomState;

use stroboscope_analysis::experiment::{Effect, LeftOutTime, Metric, NoComparison, Noise};
use stroboscope_analysis::record::TraceRecords;
use stroboscope_store::tables::{AttributeKeys, read_batches};

use super::notes::Notes;
use super::query_error::QueryError;
use super::source::{Selection, Source};
use super::time_range::TimeRange;
use assignment::Assignment;
pub use balance::{LoadBalance, MixOf, UserBalance};
use gathered::PartRequests;

/// Assignment of requests to sides, and the required certainty of the answer.
#[derive(Clone, Debug)]
pub struct ExperimentSettings {
    /// Attribute whose value assigns a request to a side, or `process` for the process that served
    /// it. If `of` names a service, `host` stands for the host on which this service served it.
    pub by: String,
    /// Service whose process or host counts if `by` is `process` or `host`. With `None`, the
    /// process of the root span counts, or the attribute `host`.
    pub of: Option<String>,
    /// Values of the attribute for the control.
    pub control: Vec<String>,
    /// Values of the attribute for the test.
    pub test: Vec<String>,
    /// Attribute that identifies the unit, such as a user, that was assigned to a side. `None`:
    /// each request was assigned separately.
    pub unit: Option<String>,
    /// Share of the units that was assigned to the test, 0 to 1; `None` if unknown.
    pub share: Option<f64>,
    /// Time range in which both sides were treated alike; `None` if there was none.
    pub equal: Option<TimeRange>,
    /// Significance level: maximum probability of reporting a difference that does not exist.
    pub alpha: f64,
}

/// Metric of latency, compared between the sides for all requests or for a part of them.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparedMetric {
    /// Requests that are compared.
    pub of: ComparedPart,
    /// Metric of the requests' latency.
    pub metric: Metric,
    /// Difference between the sides, or the reason why they cannot be compared.
    pub effect: Result<Effect, NoComparison>,
    /// P-value, corrected for the number of metrics; `None` if the sides cannot be compared.
    pub q_value: Option<f64>,
}

/// Requests to which a comparison is restricted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ComparedPart {
    All,
    /// Requests of a root operation.
    Root(String),
    /// Requests that began in this hour of the day, UTC.
    Hour(u8),
    /// Requests that began while both sides were treated alike.
    Equal,
}

/// Result of an experiment: the compared metrics, and evidence on whether the sides are comparable.
#[derive(Debug)]
pub struct ExperimentReport {
    /// Numbers of requests of control and test that were compared.
    pub requests: (usize, usize),
    /// Numbers of units of control and test.
    pub units: (usize, usize),
    /// Number of bursts or time blocks with requests. Requests of one burst or block count as
    /// correlated.
    pub bursts: usize,
    /// True if `bursts` counts recorded bursts, false if it counts equal blocks of time.
    pub is_of_bursts: bool,
    /// Time from the first request's start to the last one's, in ns. Requests in the time range of
    /// equal treatment do not count; those in `left_out` do.
    pub covered_ns: u64,
    /// Number of the week's 168 hours in which both sides have requests that count for
    /// `covered_ns`.
    pub hours_of_week: usize,
    /// Metrics of all requests, then those of each of the eight most frequent root operations, if
    /// there are several.
    pub metrics: Vec<ComparedMetric>,
    /// Metrics by hour of the day; empty if all requests are of one hour.
    pub hours: Vec<ComparedMetric>,
    /// Metrics while both sides were treated alike; empty if no such time was given.
    pub equal: Vec<ComparedMetric>,
    /// Differences by chance. They are measured while both sides were treated alike, or else within
    /// the control.
    pub noise: Vec<Noise>,
    /// Comparison of the units found with the units assigned; `None` if the assigned share is
    /// unknown, or if each request is a unit.
    pub users: Option<UserBalance>,
    /// Comparison of the numbers of requests per unit; `None` if each request is a unit, or if a
    /// side has no unit.
    pub load: Option<LoadBalance>,
    /// Shares of the eight most frequent root operations, the most frequent first.
    pub mix: Vec<MixOf>,
    /// Times whose requests were left out as one-off disturbances.
    pub left_out: Vec<LeftOutTime>,
    /// Number of requests whose value is missing or belongs to neither side.
    pub of_no_side: u64,
    /// Number of requests that several processes or hosts served.
    pub of_several: u64,
    /// Number of requests of both sides whose unit is unknown.
    pub without_unit: u64,
    /// Notes about the data that the query read.
    pub notes: Notes,
}

/// Compares test and control. Reads the selected requests once.
///
/// # Errors
/// Fails if the store cannot be read, if there is too little memory, if no request has the
/// attribute `by`, if a side has no request, if no request of the sides has the attribute `unit`,
/// or if samplers recorded too many bursts.
pub fn experiment(
    source: &Source,
    selection: Selection,
    settings: &ExperimentSettings,
) -> Result<ExperimentReport, QueryError> {
    let by = Assignment::of(&settings.by, settings.of.as_deref());
    let unit = settings.unit.as_deref().map(Assignment::of_unit);
    let keys = [Some(&by), unit.as_ref()].into_iter().flatten();
    let keys: Vec<&str> = keys.filter_map(Assignment::recorded_key).collect();
    let parts = source.parts(selection, &AttributeKeys::of(keys))?;
    let workers = vec![PartRequests::default(); parts.count()];
    let hasher = RandomState::new();
    let visit = |side: &mut PartRequests, records: &mut TraceRecords, _: &mut Notes| {
        side.take(records, settings, &by, unit.as_ref(), &hasher);
    };
    let (found, notes) = source.fold("comparing sides", selection, &parts, workers, visit)?;
    let mut all = PartRequests::default();
    found.into_iter().for_each(|part| all.merge(part));
    all.check(source, selection, settings)?;
    let batches = super::recorded::without_always_on(read_batches(source.store())?);
    let bursts = super::recorded::bursts(batches, &notes.sampling)?;
    Ok(all.judge(settings, &bursts, notes))
}
