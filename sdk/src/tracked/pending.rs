//! Provenance logs that wait for the shipping thread.

use std::sync::{Mutex, MutexGuard, PoisonError};

use stroboscope_provenance::{LogWriter, MergeLog, ReadLog};

use crate::loss::{LOSSES, LossCause};

/// Maximum length of a log as it ships, in bytes. The limits of a request's log allow less.
const LOG_BYTES_MAX: usize = 1 << 20;
/// Maximum number of logs that wait, and of bytes that they take.
const LOGS_MAX: usize = 4_096;
const BYTES_MAX: usize = 8 << 20;

/// Log of a request.
#[derive(Debug)]
pub(crate) struct PendingLog {
    pub(crate) trace_id: u128,
    /// Span in which the request began to be tracked.
    pub(crate) span_id: u64,
    pub(crate) is_sampled: bool,
    /// Time at which the request began to be tracked.
    pub(crate) ticks: u64,
    pub(crate) log: MergeLog,
}

/// Logs that wait.
#[derive(Debug)]
pub(crate) struct PendingLogs {
    logs: Vec<PendingLog>,
    bytes: usize,
}

pub(crate) type PendingLock = MutexGuard<'static, PendingLogs>;

/// Logs that wait to be sent. The lock is held only to move them, and during a fork.
static PENDING: Mutex<PendingLogs> = Mutex::new(PendingLogs {
    logs: Vec::new(),
    bytes: 0,
});

pub(crate) fn lock() -> PendingLock {
    PENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PendingLogs {
    /// Forgets the parent's logs, which the parent ships, in a forked child. It does not free them:
    /// another thread of the parent may have held the allocator's locks.
    pub(crate) fn forked(&mut self) {
        std::mem::forget(std::mem::take(&mut self.logs));
        self.bytes = 0;
    }
}

/// Adds a log, unless it has no outputs, or too many logs or bytes wait.
pub(super) fn push(pending: PendingLog) {
    if pending.log.outputs().is_empty() {
        return;
    }
    let mut all = lock();
    let bytes = all.bytes.saturating_add(pending.log.bytes());
    if all.logs.len() < LOGS_MAX && bytes <= BYTES_MAX {
        all.bytes = bytes;
        all.logs.push(pending);
    } else {
        drop(all);
        LOSSES.add(LossCause::ProvenanceDropped, 1);
    }
}

/// Takes the logs that wait.
pub(crate) fn take() -> Vec<PendingLog> {
    let mut all = lock();
    all.bytes = 0;
    std::mem::take(&mut all.logs)
}

impl PendingLog {
    /// Returns the log in the form of a file. If that fails or is too long, counts a loss and
    /// returns `None`.
    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        let file = LogWriter::new(Vec::new()).and_then(|writer| writer.finish(&self.log));
        let file = file.ok().filter(|file| file.len() <= LOG_BYTES_MAX);
        if file.is_none() {
            LOSSES.add(LossCause::ProvenanceDropped, 1);
        }
        file
    }
}

#[cfg(test)]
mod tests {
    use stroboscope_provenance::{Item, Labels, Limits};

    use super::*;

    fn pending(item_bytes: usize) -> PendingLog {
        let mut log = MergeLog::new(Limits {
            item_bytes: u32::MAX,
            ..Limits::default()
        });
        log.output(1, 0, 1, Labels::NULL);
        log.describe(Item {
            id: 1,
            span: 0,
            name: "".into(),
            content: vec![0; item_bytes].into(),
        });
        PendingLog {
            trace_id: 1,
            span_id: 1,
            is_sampled: true,
            ticks: 0,
            log,
        }
    }

    fn dropped() -> u64 {
        LOSSES.get(LossCause::ProvenanceDropped)
    }

    #[test]
    fn logs_beyond_a_limit_are_dropped_and_counted() {
        let before = dropped();
        for _ in 0..LOGS_MAX + 5 {
            push(pending(0));
        }
        assert_eq!(dropped() - before, 5);
        assert_eq!(take().len(), LOGS_MAX);
        for _ in 0..3 {
            push(pending(BYTES_MAX / 2));
        }
        assert_eq!(dropped() - before, 7, "each takes a little more than half");
        assert_eq!(take().len(), 1);

        assert!(pending(LOG_BYTES_MAX).encode().is_none());
        assert_eq!(dropped() - before, 8);
        assert!(pending(0).encode().is_some());
        push(PendingLog {
            log: MergeLog::default(),
            ..pending(0)
        });
        assert!(take().is_empty(), "a log without outputs");
        assert_eq!(dropped() - before, 8);
    }
}
