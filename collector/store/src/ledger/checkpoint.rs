//! Checkpoint: the ledger on disk, and the position up to which the log is flushed to Parquet, or
//! forwarded by an agent. Both must change in one step, so they share one JSON file, which is
//! replaced atomically.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Ledger, LedgerEntry, Ranges, ReportedConfig};
use crate::disk::{Disk, IfThere};

const VERSION: u32 = 1;
const FILE_NAME: &str = "checkpoint.json";
/// Directory of an agent's checkpoint in its data directory.
pub(crate) const FORWARDED: &str = "forwarded";

/// Position in the log up to which its data are durable in the tables or forwarded, and the ledger
/// of these data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// Number of the first log segment that is not in Parquet yet, or not forwarded by an agent.
    /// This segment may not exist yet.
    pub next_segment: u64,
    /// Ledger of the batches in flushed or forwarded segments, without those of forgotten
    /// processes.
    pub ledger: Ledger,
}

/// Reason why a checkpoint cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    #[error("{path}: {source}")]
    Io {
        path: PathBuf,
        source: std::io::Error,
    },
    /// The content is damaged, or its format has another version.
    #[error("{path} is damaged ({reason}); {}", remedy(.path))]
    Damaged { path: PathBuf, reason: String },
}

/// Returns the remedy for a damaged checkpoint. An agent's checkpoint cannot be rebuilt.
fn remedy(path: &Path) -> String {
    let directory = path.parent().unwrap_or(path);
    if directory.ends_with(FORWARDED) {
        return "move it away to go on: retries of batches forwarded so far are no longer recognised"
            .to_owned();
    }
    format!(
        "to rebuild it from the store, run `stroboscope store check --repair --data {}`",
        directory.display()
    )
}

impl CheckpointError {
    /// Reports whether the disk has no space left, or a quota is used up.
    pub(crate) fn is_full(&self) -> bool {
        let full = [ErrorKind::StorageFull, ErrorKind::QuotaExceeded];
        matches!(self, Self::Io { source, .. } if full.contains(&source.kind()))
    }
}

#[derive(Serialize, Deserialize)]
struct FileForm {
    version: u32,
    next_segment: u64,
    processes: BTreeMap<String, ProcessForm>,
    past_losses: Vec<(String, String, u64)>,
}

#[derive(Serialize, Deserialize)]
struct ProcessForm {
    service: String,
    host: String,
    pid: u32,
    last_seen_ns: i64,
    // Files of earlier versions lack the next three fields.
    #[serde(default)]
    first_seen_ns: i64,
    #[serde(default)]
    config: Option<ReportedConfig>,
    #[serde(default)]
    has_ended: bool,
    records: u64,
    losses: BTreeMap<String, u64>,
    stored: Vec<(u64, u64)>,
    given_up_below: u64,
}

impl Checkpoint {
    /// Reads the checkpoint in `directory`. Returns an empty checkpoint if there is none.
    ///
    /// # Errors
    /// Returns an error if the checkpoint cannot be read or is damaged.
    pub fn load(disk: &dyn Disk, directory: &Path) -> Result<Self, CheckpointError> {
        let path = directory.join(FILE_NAME);
        let text = match disk.read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            Err(source) => return Err(CheckpointError::Io { path, source }),
            Ok(text) => text,
        };
        let damaged = |reason: String| CheckpointError::Damaged {
            path: path.clone(),
            reason,
        };
        let form: FileForm =
            serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        if form.version != VERSION {
            return Err(damaged(format!(
                "it is of version {}, this program knows {VERSION}",
                form.version
            )));
        }
        let mut ledger = Ledger::default();
        for (id, process) in form.processes {
            let id = u128::from_str_radix(&id, 16)
                .map_err(|_| damaged(format!("incarnation {id:?}")))?;
            ledger.entries.insert(id, process.into());
        }
        let past = form.past_losses.into_iter();
        ledger.past_losses = past.map(|(a, b, records)| ((a, b), records)).collect();
        Ok(Self {
            next_segment: form.next_segment,
            ledger,
        })
    }

    /// Replaces the checkpoint in `directory`, durably.
    ///
    /// # Errors
    /// Returns an error if the disk fails. The file is then either the old or the new checkpoint.
    pub fn save(&self, disk: &dyn Disk, directory: &Path) -> Result<(), CheckpointError> {
        let path = directory.join(FILE_NAME);
        let replace = || -> std::io::Result<()> {
            let fresh = directory.join("checkpoint.json.new");
            let mut file = disk.create(&fresh, IfThere::Empty)?;
            file.append(&serde_json::to_vec_pretty(&self.form())?)?;
            file.sync()?;
            disk.rename(&fresh, &path)?;
            disk.sync(directory)
        };
        let replaced = replace();
        replaced.map_err(|source| CheckpointError::Io { path, source })
    }

    fn form(&self) -> FileForm {
        let process =
            |(id, entry): (u128, &LedgerEntry)| (format!("{id:032x}"), ProcessForm::from(entry));
        let past = self.ledger.past_losses.iter();
        FileForm {
            version: VERSION,
            next_segment: self.next_segment,
            processes: self.ledger.entries().map(process).collect(),
            past_losses: past
                .map(|((service, cause), &n)| (service.clone(), cause.clone(), n))
                .collect(),
        }
    }
}

impl From<&LedgerEntry> for ProcessForm {
    fn from(entry: &LedgerEntry) -> Self {
        Self {
            service: entry.service.clone(),
            host: entry.host.clone(),
            pid: entry.pid,
            last_seen_ns: entry.last_seen_ns,
            first_seen_ns: entry.first_seen_ns,
            config: entry.config,
            has_ended: entry.has_ended,
            records: entry.records,
            losses: entry.losses.clone(),
            stored: entry.stored.runs().collect(),
            given_up_below: entry.stored.given_up_below(),
        }
    }
}

impl From<ProcessForm> for LedgerEntry {
    fn from(form: ProcessForm) -> Self {
        Self {
            service: form.service,
            host: form.host,
            pid: form.pid,
            last_seen_ns: form.last_seen_ns,
            first_seen_ns: form.first_seen_ns,
            config: form.config,
            has_ended: form.has_ended,
            records: form.records,
            losses: form.losses,
            stored: Ranges::from_parts(&form.stored, form.given_up_below),
        }
    }
}
