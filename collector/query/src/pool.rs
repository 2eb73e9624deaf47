//! Estimates the usage of a larger process by pooling the measured usage of several processes.

use std::collections::BTreeMap;

use stroboscope_analysis::pooling::{PooledDemand, ProcessUse, pool};
use stroboscope_store::record::LoadRow;
use stroboscope_store::tables::read_batches;

use super::query_error::QueryError;
use super::source::Source;
use super::time_range::TimeRange;

/// Maximum number of measurements that are read.
const SAMPLES_MAX: usize = 8_000_000;

/// Resource whose usage is pooled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PooledUse {
    /// Mean number of busy CPU cores.
    CpuCores,
    /// Resident memory, in bytes.
    MemoryBytes,
    /// Requests that enter the process, per second.
    RequestsPerSecond,
}

impl PooledUse {
    /// Returns the usage that a process measured. Returns `None` if the system did not report it,
    /// or if a rate has an interval without length.
    fn of(self, load: &LoadRow) -> Option<f64> {
        let seconds = load.to_ns.saturating_sub(load.from_ns) as f64 / 1e9;
        let by_second = |used: f64| (seconds > 0.0).then(|| used / seconds);
        match self {
            Self::CpuCores => by_second(load.cpu_ns? as f64 / 1e9),
            Self::MemoryBytes => load.memory_bytes.map(|bytes| bytes as f64),
            Self::RequestsPerSecond => by_second(load.requests as f64),
        }
    }
}

/// Measured usage of processes, by service.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UsesByService(BTreeMap<String, Vec<ProcessUse>>);

/// Choice of the processes that the larger process replaces.
#[derive(Clone, Debug)]
pub struct PoolSettings {
    /// Service whose processes are pooled; `None` if only one service was measured.
    pub service: Option<String>,
    /// Other service. One of its processes is pooled with one process of `service`. With `None` or
    /// `service` itself, processes of `service` are pooled with each other.
    pub with: Option<String>,
    /// Number of processes of `service` that one larger process replaces, if `with` names no other
    /// service.
    pub times: usize,
}

/// Usage of a larger process, and the processes that it replaces.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolReport {
    /// Pooled services, with the number of measured processes of each.
    pub services: Vec<(String, usize)>,
    pub pooled: PooledDemand,
}

impl UsesByService {
    /// Reads the usage that processes with the SDK measured about once a second.
    ///
    /// # Errors
    /// Fails if the store cannot be read, or if the range has no such measurements or more than 8
    /// million.
    pub fn of_store(
        source: &Source,
        range: TimeRange,
        used: PooledUse,
    ) -> Result<UsesByService, QueryError> {
        let mut processes: BTreeMap<u128, (String, Vec<(i64, f64)>)> = BTreeMap::new();
        let mut count = 0;
        for batch in read_batches(source.store())? {
            let loads = batch.loads.iter().filter(|load| range.contains(load.to_ns));
            let samples = loads.filter_map(|load| Some((load.to_ns, used.of(load)?)));
            let (_, known) = processes
                .entry(batch.process)
                .or_insert_with(|| (batch.service.to_string(), Vec::new()));
            let before = known.len();
            known.extend(samples);
            count += known.len() - before;
            if count > SAMPLES_MAX {
                return Err(QueryError::TooManySamples { max: SAMPLES_MAX });
            }
        }
        let measured = processes
            .into_iter()
            .filter(|(_, (_, samples))| !samples.is_empty());
        let samples = measured.map(|(process, (service, samples))| {
            let name = format!("{service} {:08x}", process >> 96);
            (service, name, samples)
        });
        let found = UsesByService::of(samples);
        match found.0.is_empty() {
            true => Err(QueryError::NoLoads(source.name())),
            false => Ok(found),
        }
    }

    /// Collects processes, each given by its service, its name and its samples. A sample is a time
    /// in ns since the Unix epoch and a usage.
    pub fn of(
        processes: impl IntoIterator<Item = (String, String, Vec<(i64, f64)>)>,
    ) -> UsesByService {
        let mut found = UsesByService::default();
        for (service, process, samples) in processes {
            let of_service = found.0.entry(service).or_default();
            of_service.push(ProcessUse { process, samples });
        }
        found
    }

    /// Estimates the usage of a larger process.
    ///
    /// # Errors
    /// Fails if a chosen service has no measurements, if no service is chosen and none or several
    /// have measurements, or if `times` is 0 and no other service is pooled.
    pub fn pool(&self, settings: &PoolSettings) -> Result<PoolReport, QueryError> {
        let known = || {
            let of = |(service, uses): (&String, &Vec<ProcessUse>)| {
                format!("{service} ({})", uses.len())
            };
            self.0.iter().map(of).collect::<Vec<_>>().join(", ")
        };
        let no_such = |service: &str| QueryError::NoSuchService {
            service: service.to_owned(),
            known: known(),
        };
        let find = |service: &str| {
            let found = self.0.get_key_value(service);
            found.ok_or_else(|| no_such(service))
        };
        let only = || self.0.first_key_value().filter(|_| self.0.len() == 1);
        let first = match &settings.service {
            Some(service) => find(service)?,
            None => only().ok_or_else(|| QueryError::WhichService { known: known() })?,
        };
        let other = settings.with.as_deref().filter(|other| *other != first.0);
        let other = other.map(find).transpose()?;
        let mut uses = first.1.clone();
        let own: Vec<usize> = (0..uses.len()).collect();
        let mut services = vec![(first.0.clone(), own.len())];
        let groups = match other {
            None => vec![own; settings.times],
            Some((service, others)) => {
                let from = uses.len();
                uses.extend(others.iter().cloned());
                services.push((service.clone(), others.len()));
                vec![own, (from..uses.len()).collect()]
            }
        };
        let pooled = pool(&uses, &groups).ok_or_else(|| no_such(first.0))?;
        Ok(PoolReport { services, pooled })
    }
}
