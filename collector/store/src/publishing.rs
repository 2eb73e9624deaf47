//! What was published to an object store: whoever publishes says so here, the metrics show it, and retention waits for it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::{Mutex, PoisonError};

use crate::tables::Hour;

/// Why something could not be published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishFailure {
    /// The object store cannot be reached, or fails.
    Unavailable,
    /// It refuses: credentials, permissions.
    Denied,
    /// There is no such bucket, or prefix.
    Missing,
    /// Another collector publishes under this one's name.
    Fenced,
    /// What is to be published cannot be read here.
    Local,
    /// Anything else.
    Other,
}

impl PublishFailure {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Unavailable,
        Self::Denied,
        Self::Missing,
        Self::Fenced,
        Self::Local,
        Self::Other,
    ];

    /// Its name in the metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable",
            Self::Denied => "denied",
            Self::Missing => "missing",
            Self::Fenced => "fenced",
            Self::Local => "local",
            Self::Other => "other",
        }
    }
}

/// Counters of one process, since it started.
#[derive(Debug, Default)]
pub struct PublishCounters {
    /// Files that are in the object store and named there.
    pub files: AtomicU64,
    /// Their bytes.
    pub bytes: AtomicU64,
    /// Files that are only on the local disk yet.
    pub files_behind: AtomicU64,
    /// Their bytes.
    pub bytes_behind: AtomicU64,
    /// Files that were deleted here, for their age or for want of room, before they were published.
    pub files_missed: AtomicU64,
    /// Objects that were deleted, as nothing names them any more.
    pub objects_deleted: AtomicU64,
    /// When all that was there had been published, ns since the Unix epoch; 0: never.
    pub last_success_ns: AtomicI64,
    /// Whether another collector has taken this one's place: 1.
    pub fenced: AtomicU64,
    failures: [AtomicU64; PublishFailure::ALL.len()],
    /// Hours with files that are only on the local disk; none: nobody has looked yet.
    waiting: Mutex<Option<BTreeSet<Hour>>>,
}

impl PublishCounters {
    /// How often it failed for this cause.
    #[must_use]
    pub fn failures(&self, cause: PublishFailure) -> &AtomicU64 {
        &self.failures[cause as usize]
    }

    /// These hours have files that are only on the local disk yet.
    pub fn set_waiting(&self, hours: BTreeSet<Hour>) {
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = Some(hours);
    }

    /// Whether an hour is to stay until it is published. As long as nobody has looked, each is.
    #[must_use]
    pub fn is_waiting(&self, hour: Hour) -> bool {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.as_ref().is_none_or(|hours| hours.contains(&hour))
    }
}
