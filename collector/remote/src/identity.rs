//! What a data folder remembers of what it published: its id, and of each URL the manifest that it wrote last.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use stroboscope_store::disk::{Disk as _, LocalDisk};

use crate::address::RemoteError;

const FILE: &str = "published.json";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub id: String,
    /// By URL, the nonces of the last manifests that were written or were about to be, the newest last.
    written: BTreeMap<String, Vec<String>>,
}

/// How many nonces are remembered: more than writings may be under way or undecided.
const NONCES_MAX: usize = 32;

/// 128 random bits.
pub(crate) fn random() -> Result<String, RemoteError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| RemoteError::Local {
        path: PathBuf::from("the system's random numbers"),
        source: std::io::Error::other(error.to_string()),
    })?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}

impl Identity {
    pub(crate) fn path(data: &Path) -> PathBuf {
        data.join(FILE)
    }

    /// That of the data folder, made if it has none. The caller holds the folder's lock.
    pub(crate) fn of(data: &Path) -> Result<Self, RemoteError> {
        let path = Self::path(data);
        match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| RemoteError::Local {
                path,
                source: std::io::Error::other(format!("damaged: {error}")),
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let identity = Self {
                    id: random()?,
                    written: BTreeMap::new(),
                };
                identity.save(data)?;
                Ok(identity)
            }
            Err(source) => Err(RemoteError::Local { path, source }),
        }
    }

    /// Durable when this returns.
    fn save(&self, data: &Path) -> Result<(), RemoteError> {
        let path = Self::path(data);
        let save = || {
            use std::io::Write as _;
            let beside = data.join(format!(".{FILE}.new"));
            let mut file = std::fs::File::create(&beside)?;
            file.write_all(&serde_json::to_vec(self)?)?;
            file.sync_all()?;
            std::fs::rename(&beside, &path)?;
            LocalDisk.sync(data)
        };
        save().map_err(|source| RemoteError::Local {
            path: path.clone(),
            source,
        })
    }

    /// Whether the manifest with this nonce was written from this folder. A copy of the folder that has written since is
    /// not known here: its nonces are newer.
    pub(crate) fn wrote(&self, url: &str, nonce: &str) -> bool {
        let written = self.written.get(url);
        written.is_some_and(|nonces| nonces.iter().any(|known| known == nonce))
    }

    /// One is about to be written: remembered before, so that a crash in between leaves none that nobody knows.
    pub(crate) fn begin(&mut self, data: &Path, url: &str, nonce: &str) -> Result<(), RemoteError> {
        let nonces = self.written.entry(url.to_owned()).or_default();
        nonces.push(nonce.to_owned());
        let old = nonces.len().saturating_sub(NONCES_MAX);
        nonces.drain(..old);
        self.save(data)
    }
}
