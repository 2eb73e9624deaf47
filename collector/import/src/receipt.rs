//! Receipts of contents whose import was finished.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::not_taken::NotTaken;

/// Records that a content is in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// Origin of the content, for people.
    pub source: String,
    /// Number of spans stored.
    #[serde(default)]
    pub spans: u64,
    /// Number of events stored.
    pub events: u64,
    /// Number of lines, records or spans left out because of a defect; a damaged end counts as one.
    pub bad_lines: u64,
    /// Number of records that the mapping skips.
    #[serde(default)]
    pub ignored_lines: u64,
    /// Valid parts of the source that are not stored, by name.
    #[serde(default)]
    pub not_taken: Vec<NotTaken>,
}

impl Receipt {
    fn path(data: &Path, content: &str) -> PathBuf {
        data.join("imports").join(format!("{content}.json"))
    }

    /// Returns the receipt of a content, if it was imported. An unreadable receipt counts as
    /// missing: importing again then overwrites the same objects.
    #[must_use]
    pub fn find(data: &Path, content: &str) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(Self::path(data, content)).ok()?).ok()
    }

    /// Stores the receipt durably.
    ///
    /// # Errors
    /// Returns the errors of the disk.
    pub fn keep(&self, data: &Path, content: &str) -> io::Result<()> {
        let path = Self::path(data, content);
        let directory = data.join("imports");
        std::fs::create_dir_all(&directory)?;
        let fresh = path.with_extension("new");
        let mut file = File::create(&fresh)?;
        file.write_all(&serde_json::to_vec_pretty(self)?)?;
        file.sync_all()?;
        std::fs::rename(&fresh, &path)?;
        File::open(&directory)?.sync_all()?;
        File::open(data)?.sync_all()
    }
}
