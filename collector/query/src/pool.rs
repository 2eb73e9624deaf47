//! What a larger process would use: what processes of the store used, or others, pooled.

use std::collections::BTreeMap;

use stroboscope_analysis::pooling::{Pooled, ProcessUse, pool};
use stroboscope_store::record::LoadRow;
use stroboscope_store::tables::read_batches;

use super::query_error::QueryError;
use super::source::Source;
use super::time_range::TimeRange;

/// More samples are not read.
const SAMPLES_MAX: usize = 8_000_000;

/// What is pooled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PooledUse {
    /// Processor time by time: 1 is one core kept busy.
    CpuCores,
    /// Memory that is resident.
    MemoryBytes,
    /// Requests that enter.
    RequestsPerSecond,
}

impl PooledUse {
    /// None, where the system did not say, or the time has no length.
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

/// What processes used, by service.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UsesByService(BTreeMap<String, Vec<ProcessUse>>);

/// Which processes the larger one takes the place of.
#[derive(Clone, Debug)]
pub struct PoolSettings {
    /// A service; none: the only one there is.
    pub service: Option<String>,
    /// The service whose processes share what they use with those of the first. None: processes of the same one do.
    pub with: Option<String>,
    /// So many processes of the one service become one.
    pub times: usize,
}

/// What a larger process would use, and which ones it takes the place of.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolReport {
    /// Services, and how many processes of each were measured.
    pub services: Vec<(String, usize)>,
    pub pooled: Pooled,
}

impl UsesByService {
    /// As processes with the SDK measured it once a second.
    ///
    /// # Errors
    /// When the store cannot be read, or has no such measurements.
    pub fn of_store(
        source: &Source,
        range: TimeRange,
        used: PooledUse,
    ) -> Result<UsesByService, QueryError> {
        let mut processes: BTreeMap<u128, (String, Vec<(i64, f64)>)> = BTreeMap::new();
        let mut count = 0;
        for batch in read_batches(source.store())? {
            let samples = batch
                .loads
                .iter()
                .filter(|load| range.contains(load.to_ns))
                .filter_map(|load| Some((load.to_ns, used.of(load)?)));
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

    /// Of services, processes, and their samples.
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

    /// What a larger process would use.
    ///
    /// # Errors
    /// When there is no such service, or it is not said which one of several.
    pub fn pool(&self, settings: &PoolSettings) -> Result<PoolReport, QueryError> {
        let known = || {
            let of = |(service, uses): (&String, &Vec<ProcessUse>)| {
                format!("{service} ({})", uses.len())
            };
            self.0.iter().map(of).collect::<Vec<_>>().join(", ")
        };
        let find = |service: &str| match self.0.get_key_value(service) {
            Some(found) => Ok(found),
            None => Err(QueryError::NoSuchService {
                service: service.to_owned(),
                known: known(),
            }),
        };
        let only = || self.0.first_key_value().filter(|_| self.0.len() == 1);
        let first = match &settings.service {
            Some(service) => find(service)?,
            None => only().ok_or_else(|| QueryError::WhichService { known: known() })?,
        };
        let other = settings
            .with
            .as_deref()
            .filter(|other| *other != first.0)
            .map(find)
            .transpose()?;
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
        let pooled = pool(&uses, &groups).ok_or_else(|| QueryError::NoSuchService {
            service: first.0.clone(),
            known: known(),
        })?;
        Ok(PoolReport { services, pooled })
    }
}
