//! Whether test differs from control: the requests of an experiment, by side.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use stroboscope_analysis::attribute::Attribute;
use stroboscope_analysis::experiment::{
    Effect, Experiment, LeftOutTime, Metric, Observed, Unanswered, one_offs,
};
use stroboscope_analysis::record::TraceRecords;
use stroboscope_analysis::statistics::benjamini_hochberg;
use stroboscope_store::tables::{AttributeKeys, read_batches};

use super::attribute_names::no_such_attribute;
use super::notes::Notes;
use super::query_error::QueryError;
use super::source::{Selection, Source};

/// Root operations that are compared by themselves: those with most requests.
const OPERATIONS_MAX: usize = 8;
/// Values that are listed where none is the one asked for.
const VALUES_MAX: usize = 12;
/// Where nothing was recorded in bursts, requests of one of so many equal times count as of one.
const BLOCKS: i64 = 200;

/// What is compared.
const METRICS: [Metric; 4] = [
    Metric::Mean,
    Metric::Quantile(0.5),
    Metric::Quantile(0.95),
    Metric::Quantile(0.99),
];

/// Which requests are whose, and how sure an answer must be.
#[derive(Clone, Debug)]
pub struct ExperimentSettings {
    /// The attribute that says which side a request is of.
    pub by: String,
    /// Its value for the control.
    pub control: String,
    /// Its value for the test.
    pub test: String,
    /// The attribute whose values were assigned to a side. None: each request by itself.
    pub unit: Option<String>,
    /// Differences that are not there are seen with this probability at most.
    pub alpha: f64,
}

/// A metric of all requests, or of those of one root operation.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparedMetric {
    /// None: of all requests.
    pub root: Option<String>,
    /// Of latency.
    pub metric: Metric,
    /// How it differs.
    pub effect: Result<Effect, Unanswered>,
    /// The p-value, corrected for the number of metrics.
    pub q_value: Option<f64>,
}

/// One root operation's part of the requests of either side.
#[derive(Clone, Debug, PartialEq)]
pub struct MixOf {
    /// `service:name`.
    pub root: String,
    /// Part of the control's requests.
    pub control: f64,
    /// Part of the test's.
    pub test: f64,
    /// Corrected for their number: the probability of such a difference where users of both sides ask alike.
    pub q_value: f64,
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
    /// All requests, then those of each operation.
    pub metrics: Vec<ComparedMetric>,
    /// Which operations they are, the most frequent first.
    pub mix: Vec<MixOf>,
    /// Times that were left out.
    pub left_out: Vec<LeftOutTime>,
    /// Requests of another value, or of none.
    pub of_no_side: u64,
    /// Requests without a unit.
    pub without_unit: u64,
    /// What was noticed on the way.
    pub notes: Notes,
}

/// A request, and which operation it is by its number.
#[derive(Clone, Copy, Debug)]
struct Seen {
    at_ns: i64,
    root: u32,
    observed: Observed,
}

/// Those of a part of the store.
#[derive(Debug, Default)]
struct Side {
    seen: Vec<Seen>,
    roots: Vec<String>,
    values: BTreeMap<Arc<str>, u64>,
    of_no_side: u64,
    without_unit: u64,
    is_by_said: bool,
    is_unit_said: bool,
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
    let by = Attribute::named(&settings.by);
    let unit = settings.unit.as_deref().map(Attribute::named);
    let keys = [Some(&by), unit.as_ref()].into_iter().flatten();
    let keys: Vec<&str> = keys.filter_map(Attribute::recorded_key).collect();
    let parts = source.parts(selection, &AttributeKeys::of(keys))?;
    let workers = (0..parts.count()).map(|_| Side::default()).collect();
    let hasher = RandomState::new();
    let visit = |side: &mut Side, records: &mut TraceRecords, _: &mut Notes| {
        side.take(records, settings, &by, unit.as_ref(), &hasher);
    };
    let (found, notes) = source.fold("comparing sides", selection, &parts, workers, visit);
    let mut all = Side::default();
    found.into_iter().for_each(|part| all.merge(part));
    all.check(source, selection, settings)?;
    let bursts = super::recorded::bursts(read_batches(source.store())?);
    Ok(all.report(settings, &bursts, notes))
}

impl Side {
    fn take(
        &mut self,
        records: &TraceRecords,
        settings: &ExperimentSettings,
        by: &Attribute,
        unit: Option<&Attribute>,
        hasher: &RandomState,
    ) {
        let Some(value) = by.of_request(records) else {
            self.of_no_side += 1;
            return;
        };
        self.is_by_said = true;
        if self.values.len() < VALUES_MAX || self.values.contains_key(&value) {
            *self.values.entry(value.clone()).or_default() += 1;
        }
        let is_test = *value == *settings.test;
        if !is_test && *value != *settings.control {
            self.of_no_side += 1;
            return;
        }
        let unit = match unit.map(|unit| unit.of_request(records)) {
            // The request itself.
            None => hasher.hash_one(records.id.0),
            Some(Some(unit)) => {
                self.is_unit_said = true;
                hasher.hash_one(&*unit)
            }
            Some(None) => {
                self.without_unit += 1;
                return;
            }
        };
        let Some((start_ns, end_ns)) = request_time_ns(records) else {
            return;
        };
        let root = records.root_name();
        let known = self.roots.iter().position(|known| *known == *root);
        let root = known.unwrap_or_else(|| {
            self.roots.push(root.into_owned());
            self.roots.len() - 1
        });
        let observed = Observed {
            unit,
            burst: 0,
            is_test,
            latency_ns: end_ns.saturating_sub(start_ns).max(0).unsigned_abs(),
        };
        self.seen.push(Seen {
            at_ns: start_ns,
            root: root as u32,
            observed,
        });
    }

    fn merge(&mut self, other: Side) {
        let numbers: Vec<u32> = other
            .roots
            .into_iter()
            .map(|root| {
                let known = self.roots.iter().position(|known| *known == root);
                known.unwrap_or_else(|| {
                    self.roots.push(root);
                    self.roots.len() - 1
                }) as u32
            })
            .collect();
        self.seen.extend(other.seen.into_iter().map(|seen| Seen {
            root: numbers[seen.root as usize],
            ..seen
        }));
        for (value, count) in other.values {
            if self.values.len() < VALUES_MAX || self.values.contains_key(&value) {
                *self.values.entry(value).or_default() += count;
            }
        }
        self.of_no_side += other.of_no_side;
        self.without_unit += other.without_unit;
        self.is_by_said |= other.is_by_said;
        self.is_unit_said |= other.is_unit_said;
    }

    /// Whether what was asked for is there.
    fn check(
        &self,
        source: &Source,
        selection: Selection,
        settings: &ExperimentSettings,
    ) -> Result<(), QueryError> {
        if !self.is_by_said {
            return Err(no_such_attribute(source, selection, &settings.by));
        }
        for (value, is_test) in [(&settings.control, false), (&settings.test, true)] {
            let is_there = self
                .seen
                .iter()
                .any(|seen| seen.observed.is_test == is_test);
            if !is_there && self.without_unit == 0 {
                let known: Vec<&str> = self.values.keys().map(|value| &**value).collect();
                return Err(QueryError::NoSide {
                    attribute: settings.by.clone(),
                    value: value.clone(),
                    known: known.join(", "),
                });
            }
        }
        if let Some(unit) = settings.unit.as_ref().filter(|_| !self.is_unit_said) {
            return Err(no_such_attribute(source, selection, unit));
        }
        Ok(())
    }

    fn report(
        mut self,
        settings: &ExperimentSettings,
        bursts: &[(i64, i64)],
        notes: Notes,
    ) -> ExperimentReport {
        // In any order of reading the same.
        self.seen
            .sort_unstable_by_key(|seen| (seen.at_ns, seen.observed.unit));
        let is_of_bursts = bursts.len() > 1;
        let first_ns = self.seen.first().map_or(0, |seen| seen.at_ns);
        let last_ns = self.seen.last().map_or(0, |seen| seen.at_ns);
        let covered_ns = last_ns.saturating_sub(first_ns);
        let block_ns = (covered_ns / BLOCKS).saturating_add(1);
        for seen in &mut self.seen {
            seen.observed.burst = match is_of_bursts {
                true => bursts.partition_point(|(open_ns, _)| *open_ns <= seen.at_ns) as u64,
                false => (seen.at_ns.saturating_sub(first_ns) / block_ns).unsigned_abs(),
            };
        }
        let timed: Vec<(i64, Observed)> = self
            .seen
            .iter()
            .map(|seen| (seen.at_ns, seen.observed))
            .collect();
        let left_out = one_offs(&timed);
        drop(timed);
        let is_in = |at_ns: i64| {
            let of = |time: &LeftOutTime| time.from_ns <= at_ns && at_ns < time.to_ns;
            left_out.iter().any(of)
        };
        self.seen.retain(|seen| !is_in(seen.at_ns));
        let all = Experiment::new(self.seen.iter().map(|seen| seen.observed));
        let mut counts: HashMap<u32, usize> = HashMap::new();
        for seen in &self.seen {
            *counts.entry(seen.root).or_default() += 1;
        }
        let mut roots: Vec<(usize, u32)> = counts.into_iter().map(|(root, n)| (n, root)).collect();
        roots.sort_unstable_by(|a, b| b.cmp(a));
        roots.truncate(OPERATIONS_MAX);
        let mix = self.mix(&roots, all.requests());
        let mut metrics: Vec<ComparedMetric> = compared(&all, None, settings.alpha).collect();
        if roots.len() > 1 {
            for (_, root) in roots {
                let own = self.seen.iter().filter(|seen| seen.root == root);
                let own = Experiment::new(own.map(|seen| seen.observed));
                let name = self.roots[root as usize].clone();
                metrics.extend(compared(&own, Some(name), settings.alpha));
            }
        }
        correct(&mut metrics);
        ExperimentReport {
            requests: all.requests(),
            units: all.units(),
            bursts: all.bursts(),
            is_of_bursts,
            covered_ns: covered_ns.unsigned_abs(),
            metrics,
            mix,
            left_out,
            of_no_side: self.of_no_side,
            without_unit: self.without_unit,
            notes,
        }
    }

    /// Whether users of both sides ask for the same: each operation's part, as if it were a latency of 0 or 1.
    fn mix(&self, roots: &[(usize, u32)], (control, test): (usize, usize)) -> Vec<MixOf> {
        let parts = roots.iter().map(|(_, root)| {
            let is_own = |seen: &Seen| Observed {
                latency_ns: u64::from(seen.root == *root),
                ..seen.observed
            };
            let own = |is_test: bool| {
                let own = self
                    .seen
                    .iter()
                    .filter(|seen| seen.root == *root && seen.observed.is_test == is_test);
                own.count() as f64
            };
            MixOf {
                root: self.roots[*root as usize].clone(),
                control: own(false) / control.max(1) as f64,
                test: own(true) / test.max(1) as f64,
                q_value: Experiment::new(self.seen.iter().map(is_own)).p_value(Metric::Mean),
            }
        });
        let mut parts: Vec<MixOf> = parts.collect();
        let p_values: Vec<f64> = parts.iter().map(|part| part.q_value).collect();
        for (part, q_value) in parts.iter_mut().zip(benjamini_hochberg(&p_values)) {
            part.q_value = q_value;
        }
        parts
    }
}

fn compared(
    requests: &Experiment,
    root: Option<String>,
    alpha: f64,
) -> impl Iterator<Item = ComparedMetric> + use<'_> {
    METRICS.into_iter().map(move |metric| ComparedMetric {
        root: root.clone(),
        metric,
        effect: requests.effect(metric, alpha),
        q_value: None,
    })
}

/// Several metrics are several chances to be wrong.
fn correct(metrics: &mut [ComparedMetric]) {
    let p_values: Vec<f64> = metrics
        .iter()
        .filter_map(|of| of.effect.as_ref().ok().map(|effect| effect.p_value))
        .collect();
    let answered = metrics.iter_mut().filter(|of| of.effect.is_ok());
    for (of, q_value) in answered.zip(benjamini_hochberg(&p_values)) {
        of.q_value = Some(q_value);
    }
}

/// From the root's begin to its end; of an event log from its first event to its last.
fn request_time_ns(records: &TraceRecords) -> Option<(i64, i64)> {
    if let Some(root) = records.root() {
        return Some((root.start_ns, root.end_ns));
    }
    let times = records.events.iter().map(|event| event.ts_ns);
    Some((times.clone().min()?, times.max()?))
}
