//! Keeps the Delta logs of the tables up to date.

use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;

use super::round::Care;
use crate::flush::now_ns;
use crate::tables::{DeltaLog, StoreTable};

impl Care {
    /// Commits changes of these tables to the [Delta logs](crate::tables::DeltaLog) that were
    /// begun. Callers must call this before they move files that readers no longer list, so that
    /// the newest version of a log contains no moved files. A log is only an output, so an error
    /// does not stop the maintenance, but is logged and counted. The log then lists moved files
    /// until the next commit.
    pub(crate) fn log_tables(&self, tables: &[StoreTable]) {
        for table in tables {
            if !DeltaLog::is_begun(self.store(), *table) {
                continue;
            }
            let mut logs = self.delta.lock().unwrap_or_else(PoisonError::into_inner);
            let log = logs.entry(*table).or_insert(DeltaLog::of(*table));
            match log.update(self.store(), now_ns() / 1_000_000) {
                Ok(commit) => {
                    for damage in commit.damage {
                        tracing::warn!("the Delta log leaves out a file: {damage}");
                    }
                }
                Err(error) => {
                    self.counters.delta_log_failures.fetch_add(1, Relaxed);
                    tracing::error!("{error}");
                }
            }
        }
    }
}
