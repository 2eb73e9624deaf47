//! Inner operations, which run inside others, and operations of connections. A source learns them
//! when it is opened, unless it finds them in its cache.

use serde::{Deserialize, Serialize};
use stroboscope_analysis::connection::{ConnectionLearning, Connections};
use stroboscope_analysis::inner_operations::InnerOperations;
use stroboscope_analysis::record::TraceRecords;
use stroboscope_store::tables::{
    AttributeKeys, Store, StoreError, TraceFiles, TraceReader, operation_facts,
};

use super::cache::Cache;

/// Kind of the cache entries that contain operations.
const KIND: &str = "operations";
/// Maximum size in bytes of a trace from which connections are learned. Larger traces are skipped.
const LEARNED_TRACE_BYTES_MAX: usize = 128 << 20;

/// Inner operations and operations of connections of one store.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct KnownOperations {
    pub(super) inner: InnerOperations,
    pub(super) connections: Connections,
}

impl KnownOperations {
    /// Returns the cached operations of the store. Without a cache entry, learns them from the
    /// store, and caches them if its files have not changed meanwhile.
    pub(super) fn of(
        store: &Store,
        cache: Option<&Cache>,
        threads: usize,
    ) -> Result<Self, StoreError> {
        if let Some(kept) = cache.and_then(|cache| cache.find(KIND, "")) {
            return Ok(kept);
        }
        let operations = Self::learn(store, threads)?;
        if let Some(cache) = cache.filter(|cache| cache.is_of(store)) {
            cache.keep(KIND, "", &operations);
        }
        Ok(operations)
    }

    fn learn(store: &Store, threads: usize) -> Result<Self, StoreError> {
        let facts = operation_facts(store, threads)?;
        let long = facts.long_traces();
        let mut learning = ConnectionLearning::default();
        for (service, name) in &facts.marked {
            learning.mark(service, name);
        }
        for (service, name) in &facts.roots {
            learning.note_root(service, name);
        }
        if !long.is_empty() {
            let files = TraceFiles::open(store, &AttributeKeys::none())?.only(long);
            let mut reader = TraceReader::of(&files);
            let mut records = TraceRecords::default();
            while reader.next_within(&mut records, |bytes| bytes <= LEARNED_TRACE_BYTES_MAX) {
                learning.observe(&records);
            }
        }
        let (inner, connections) = (facts.inner, learning.learned());
        Ok(Self { inner, connections })
    }
}
