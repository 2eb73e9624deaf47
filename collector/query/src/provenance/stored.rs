//! Provenance logs of a data directory.

use std::ops::ControlFlow;
use std::path::Path;

use stroboscope_store::data_dir::DataDir;
use stroboscope_store::query_memory::{QueryMemory, QueryShare};
use stroboscope_store::tables::{Damage, IdRange, Store, StoredProvenance, read_provenance};
use tokio::runtime::Handle;

use crate::log_recovery::put_log_into_store;
use crate::query_error::QueryError;
use crate::source::Source;

/// Provenance logs that were read from a data directory, in order of trace and time.
#[derive(Debug)]
pub struct StoredLogs {
    pub logs: Vec<StoredProvenance>,
    /// Files that could not be read whole.
    pub damage: Vec<Damage>,
    /// Bytes in the write-ahead log if the directory cannot be locked, mostly because a collector
    /// is running; otherwise 0.
    pub unflushed_bytes: u64,
    /// Memory of the logs.
    _share: QueryShare,
}

impl StoredLogs {
    /// Reads the logs of one trace, or of all.
    ///
    /// # Errors
    /// Fails if the directory is missing or unreadable, if it has no such logs, or if they need
    /// more memory than there is.
    pub fn read(
        root: &Path,
        runtime: Handle,
        trace: Option<u128>,
        memory: &QueryMemory,
    ) -> Result<Self, QueryError> {
        let data = DataDir::existing(root)?;
        let store = Store::local(root, runtime)?;
        let unflushed_bytes = put_log_into_store(&data, &store);
        let name = root.display().to_string();
        Self::of_store(&store, (name, unflushed_bytes), trace, memory.share())
    }

    /// Reads all logs of a source's data directory.
    ///
    /// # Errors
    /// Fails like [`read`](Self::read).
    pub fn of_source(source: &Source) -> Result<Self, QueryError> {
        let unflushed_bytes = source.first_notes().unflushed_bytes;
        let of = (source.name(), unflushed_bytes);
        Self::of_store(source.store(), of, None, source.share())
    }

    fn of_store(
        store: &Store,
        (data, unflushed_bytes): (String, u64),
        trace: Option<u128>,
        mut share: QueryShare,
    ) -> Result<Self, QueryError> {
        let (mut logs, mut lack) = (Vec::new(), None);
        let range = trace.map_or(IdRange::ALL, IdRange::only);
        let damage = read_provenance(store, &range, &mut |log| {
            // Parsing copies sources, outputs and items.
            match share.take(size_of::<StoredProvenance>() + 2 * log.log.len()) {
                Ok(()) => {
                    logs.push(log);
                    ControlFlow::Continue(())
                }
                Err(short) => {
                    lack = Some(short);
                    ControlFlow::Break(())
                }
            }
        })?;
        if let Some(lack) = lack {
            return Err(QueryError::Provenance {
                what: "the provenance logs",
                lack,
            });
        }
        if logs.is_empty() {
            let none = QueryError::NoProvenance {
                data,
                unflushed_bytes,
            };
            return Err(none.with_damage(&damage));
        }
        let key = |log: &StoredProvenance| {
            let batch = (log.process, log.sequence, log.number);
            (log.trace_id, log.time_ns, batch)
        };
        logs.sort_by_key(key);
        logs.dedup_by_key(|log| key(log));
        Ok(Self {
            logs,
            damage,
            unflushed_bytes,
            _share: share,
        })
    }
}
