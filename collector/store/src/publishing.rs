//! State of publishing to an object store. The publisher updates it, and metrics and retention read
//! it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::{Mutex, PoisonError};

use crate::tables::Hour;

/// Reason why publishing failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishFailure {
    /// The object store is unreachable or reports a failure.
    Unavailable,
    /// The object store denies access: credentials or permissions are wrong.
    Denied,
    /// The bucket or an object in it does not exist.
    Missing,
    /// Another collector publishes under the same name.
    Fenced,
    /// The local disk or the operating system failed.
    Local,
    /// Publishing failed for any other reason.
    Other,
}

impl PublishFailure {
    /// List of the reasons, in the order of their discriminants.
    pub const ALL: [Self; 6] = [
        Self::Unavailable,
        Self::Denied,
        Self::Missing,
        Self::Fenced,
        Self::Local,
        Self::Other,
    ];

    /// Returns the reason's label in the metrics.
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

/// Counters and state of publishing by one collector, since it started.
#[derive(Debug, Default)]
pub struct PublishCounters {
    /// Number of files uploaded to the object store.
    pub files: AtomicU64,
    /// Total size of the files uploaded to the object store, in bytes.
    pub bytes: AtomicU64,
    /// Number of local files to publish that are not in the published list, as far as known.
    pub files_behind: AtomicU64,
    /// Total size of the files that `files_behind` counts, in bytes.
    pub bytes_behind: AtomicU64,
    /// Number of local files that were deleted before they were published, except files that were
    /// too old to be published.
    pub files_missed: AtomicU64,
    /// Number of objects deleted from the object store because nothing refers to them any more.
    pub objects_deleted: AtomicU64,
    /// Latest time at which all files were published, in ns since the Unix epoch; 0 for never.
    pub last_success_ns: AtomicI64,
    /// 1 if another collector publishes under the same name; otherwise 0.
    pub fenced: AtomicU64,
    failures: [AtomicU64; PublishFailure::ALL.len()],
    /// Hours with files that wait to be published; `None` before the publisher first checks.
    waiting: Mutex<Option<BTreeSet<Hour>>>,
}

impl PublishCounters {
    /// Returns the counter of failures for this reason.
    #[must_use]
    pub fn failures(&self, cause: PublishFailure) -> &AtomicU64 {
        &self.failures[cause as usize]
    }

    /// Sets the hours with files that wait to be published.
    pub fn set_waiting(&self, hours: BTreeSet<Hour>) {
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = Some(hours);
    }

    /// Reports whether an hour has files that wait to be published. Before the publisher first
    /// checks, returns true for every hour.
    #[must_use]
    pub fn is_waiting(&self, hour: Hour) -> bool {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.as_ref().is_none_or(|hours| hours.contains(&hour))
    }
}
