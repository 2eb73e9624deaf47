//! Whether test differs from control: the requests of an experiment, by side.

mod assignment;
mod balance;
mod gathered;
mod judged;

use std::hash::RandomState;

use stroboscope_analysis::experiment::{Effect, LeftOutTime, Metric, Noise, Unanswered};
use stroboscope_analysis::record::TraceRecords;
use stroboscope_store::tables::{AttributeKeys, read_batches};

use super::notes::Notes;
use super::query_error::QueryError;
use super::source::{Selection, Source};
use super::time_range::TimeRange;
use assignment::Assignment;
pub use balance::{LoadBalance, MixOf, UserBalance};
use gathered::Gathered;

/// Which requests are whose, and how sure an answer must be.
#[derive(Clone, Debug)]
pub struct ExperimentSettings {
    /// The attribute that says which side a request is of; or `process`.
    pub by: String,
    /// The service whose process or host counts, if those say it. None: the root span's.
    pub of: Option<String>,
    /// Its values for the control.
    pub control: Vec<String>,
    /// Its values for the test.
    pub test: Vec<String>,
    /// The attribute whose values were assigned to a side. None: each request by itself.
    pub unit: Option<String>,
    /// The part of the units that was assigned to the test, if that is known.
    pub share: Option<f64>,
    /// When both sides were treated alike, if they ever were.
    pub equal: Option<TimeRange>,
    /// Differences that are not there are seen with this probability at most.
    pub alpha: f64,
}

/// A metric of all requests, or of some of them.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparedMetric {
    /// Of which requests.
    pub of: ComparedPart,
    /// Of latency.
    pub metric: Metric,
    /// How it differs.
    pub effect: Result<Effect, Unanswered>,
    /// The p-value, corrected for the number of metrics.
    pub q_value: Option<f64>,
}

/// Which requests are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ComparedPart {
    All,
    /// Of a root operation.
    Root(String),
    /// That began in this hour of the day, UTC.
    Hour(u8),
    /// That began while both sides were treated alike.
    Equal,
}

/// What an experiment says.
#[derive(Debug)]
pub struct ExperimentReport {
    /// Requests of control and test that were compared.
    pub requests: (usize, usize),
    /// Units of either.
    pub units: (usize, usize),
    /// Bursts, or times, whose requests were taken to be alike.
    pub bursts: usize,
    /// Whether those are the recorded bursts; otherwise equal times.
    pub is_of_bursts: bool,
    /// From the first request's begin to the last one's.
    pub covered_ns: u64,
    /// Of the week's 168 hours, those in which both sides have requests.
    pub hours_of_week: usize,
    /// All requests, then those of each operation.
    pub metrics: Vec<ComparedMetric>,
    /// The same by hour of the day, where there are several.
    pub hours: Vec<ComparedMetric>,
    /// While both sides were treated alike; empty, if no such time was named.
    pub equal: Vec<ComparedMetric>,
    /// How far apart equal sides are by chance; of requests while both were treated alike, or otherwise of the control's.
    pub noise: Vec<Noise>,
    /// Whether as many units came as were assigned; none, if that is not known.
    pub users: Option<UserBalance>,
    /// Whether units of both sides ask as often; none, if each request is its own.
    pub load: Option<LoadBalance>,
    /// Which operations they are, the most frequent first.
    pub mix: Vec<MixOf>,
    /// Times that were left out.
    pub left_out: Vec<LeftOutTime>,
    /// Requests of another value, or of none.
    pub of_no_side: u64,
    /// Requests that several processes or hosts served.
    pub of_several: u64,
    /// Requests without a unit.
    pub without_unit: u64,
    /// What was noticed on the way.
    pub notes: Notes,
}

/// How test and control differ. Reads the store once.
///
/// # Errors
/// When the store cannot be read, or no request says the attributes, or the values, that were asked for.
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
    let workers = (0..parts.count()).map(|_| Gathered::default()).collect();
    let hasher = RandomState::new();
    let visit = |side: &mut Gathered, records: &mut TraceRecords, _: &mut Notes| {
        side.take(records, settings, &by, unit.as_ref(), &hasher);
    };
    let (found, notes) = source.fold("comparing sides", selection, &parts, workers, visit)?;
    let mut all = Gathered::default();
    found.into_iter().for_each(|part| all.merge(part));
    all.check(source, selection, settings)?;
    let bursts = super::recorded::bursts(read_batches(source.store())?);
    Ok(all.judge(settings, &bursts, notes))
}
