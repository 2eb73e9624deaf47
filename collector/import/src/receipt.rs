//! Receipts: which contents were imported in full.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::not_taken::NotTaken;

/// Says that a content is in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// Where it came from, for people.
    pub source: String,
    /// Spans kept.
    #[serde(default)]
    pub spans: u64,
    /// Events kept.
    pub events: u64,
    /// Lines left out.
    pub bad_lines: u64,
    /// Lines that are no events, as a mapping says.
    #[serde(default)]
    pub ignored_lines: u64,
    /// What else the source holds, by name.
    #[serde(default)]
    pub not_taken: Vec<NotTaken>,
}

impl Receipt {
    fn path(data: &Path, content: &str) -> PathBuf {
        data.join("imports").join(format!("{content}.json"))
    }

    /// The receipt of a content, if it was imported. A receipt that cannot be read is none: importing again then
    /// overwrites the same objects.
    #[must_use]
    pub fn find(data: &Path, content: &str) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(Self::path(data, content)).ok()?).ok()
    }

    /// Keeps the receipt, durably.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn keep(&self, data: &Path, content: &str) -> io::Result<()> {
        let path = Self::path(data, content);
        let folder = data.join("imports");
        std::fs::create_dir_all(&folder)?;
        let fresh = path.with_extension("new");
        let mut file = File::create(&fresh)?;
        file.write_all(&serde_json::to_vec_pretty(self)?)?;
        file.sync_all()?;
        std::fs::rename(&fresh, &path)?;
        File::open(&folder)?.sync_all()?;
        File::open(data)?.sync_all()
    }
}
