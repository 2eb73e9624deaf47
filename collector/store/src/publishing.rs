//! State of publishing to an object store: the publisher updates it, the metrics show it, and
//! retention waits for it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::{Mutex, PoisonError};

use crate::tables::Hour;

/// Reason why publishing failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishFailure {
    /// The object store is unreachable, or fails.
    Unavailable,
    /// The object store denies access: credentials or permissions are wrong.
    Denied,
    /// The bucket or prefix does not exist.
    Missing,
    /// Another collector publishes under this one's name.
    Fenced,
    /// A local file cannot be read.
    Local,
    /// Any other reason.
    Other,
}

impl PublishFailure {
    /// Every reason.
    pub const ALL: [Self; 6] = [
        Self::Unavailable,
        Self::Denied,
        Self::Missing,
        Self::Fenced,
        Self::Local,
        Self::Other,
    ];

    /// Returns the label in the metrics.
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
    /// Number of files in the object store and its listing.
    pub files: AtomicU64,
    /// Size of those files, in bytes.
    pub bytes: AtomicU64,
    /// Number of files that are only on the local disk yet.
    pub files_behind: AtomicU64,
    /// Size of those files, in bytes.
    pub bytes_behind: AtomicU64,
    /// Number of files deleted locally, for their age or the size limit, before they were
    /// published.
    pub files_missed: AtomicU64,
    /// Number of objects deleted because nothing refers to them any more.
    pub objects_deleted: AtomicU64,
    /// Latest time when everything had been published, in ns since the Unix epoch; 0 for never.
    pub last_success_ns: AtomicI64,
    /// One if another collector has taken this one's place; otherwise 0.
    pub fenced: AtomicU64,
    failures: [AtomicU64; PublishFailure::ALL.len()],
    /// Hours with files that are only on the local disk; none before the first check.
    waiting: Mutex<Option<BTreeSet<Hour>>>,
}

impl PublishCounters {
    /// Returns the number of failures for this reason.
    #[must_use]
    pub fn failures(&self, cause: PublishFailure) -> &AtomicU64 {
        &self.failures[cause as usize]
    }

    /// Sets the hours with files that are only on the local disk yet.
    pub fn set_waiting(&self, hours: BTreeSet<Hour>) {
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = Some(hours);
    }

    /// Reports whether an hour must be kept until it is published. Before the first check, every
    /// hour must.
    #[must_use]
    pub fn is_waiting(&self, hour: Hour) -> bool {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.as_ref().is_none_or(|hours| hours.contains(&hour))
    }
}
