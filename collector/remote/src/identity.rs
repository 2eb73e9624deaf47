//! Published identity of a data directory: its id, and the nonces of the last manifests for each
//! URL.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use stroboscope_store::disk::{Disk as _, LocalDisk};

use crate::address::RemoteError;

const FILE: &str = "published.json";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub id: String,
    /// Nonces of the last manifests that this directory wrote, was about to write, or replaced, by
    /// URL, newest last.
    written: BTreeMap<String, Vec<String>>,
}

/// Reports whether this data directory has the file that a collector creates to publish it. Only
/// such a collector can determine which hours are published.
#[must_use]
pub fn is_published(data: &Path) -> bool {
    Identity::path(data).exists()
}

/// Maximum number of remembered nonces per URL. A manifest with an older one counts as written by
/// another directory.
const NONCES_MAX: usize = 32;

/// Returns 128 random bits in hexadecimal.
pub(crate) fn random() -> Result<String, RemoteError> {
    let mut bytes = [0; 16];
    let failed = RemoteError::at(Path::new("the system's random numbers"));
    getrandom::fill(&mut bytes)
        .map_err(|error| failed(std::io::Error::other(error.to_string())))?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}

impl Identity {
    pub(crate) fn path(data: &Path) -> PathBuf {
        data.join(FILE)
    }

    /// Reads the data directory's identity, or creates one. The caller must hold the directory's
    /// lock.
    pub(crate) fn of(data: &Path) -> Result<Self, RemoteError> {
        let path = Self::path(data);
        match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
                RemoteError::at(&path)(std::io::Error::other(format!("damaged: {error}")))
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

    /// Saves the identity; it is durable if this succeeds.
    fn save(&self, data: &Path) -> Result<(), RemoteError> {
        let path = Self::path(data);
        let save = || -> std::io::Result<()> {
            use std::io::Write as _;
            let beside = data.join(format!(".{FILE}.new"));
            let mut file = std::fs::File::create(&beside)?;
            file.write_all(&serde_json::to_vec(self)?)?;
            file.sync_all()?;
            std::fs::rename(&beside, &path)?;
            LocalDisk.sync(data)
        };
        save().map_err(RemoteError::at(&path))
    }

    /// Reports whether this directory recently wrote or began to write a manifest with this nonce,
    /// to any URL. The nonces that a copy of the directory records are not known here.
    pub(crate) fn wrote(&self, nonce: &str) -> bool {
        self.written.values().flatten().any(|known| known == nonce)
    }

    /// Records the nonce of a manifest that is about to be written. Recording it first ensures that
    /// a crash in between leaves no manifest with an unknown nonce. The published manifest
    /// `before`, which the write replaces, counts as new: it stays known however many writes fail.
    pub(crate) fn begin(
        &mut self,
        data: &Path,
        url: &str,
        before: Option<&str>,
        nonce: &str,
    ) -> Result<(), RemoteError> {
        let nonces = self.written.entry(url.to_owned()).or_default();
        nonces.retain(|known| Some(known.as_str()) != before);
        nonces.extend(before.into_iter().chain([nonce]).map(str::to_owned));
        let old = nonces.len().saturating_sub(NONCES_MAX);
        nonces.drain(..old);
        self.save(data)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering::Relaxed;

    use stroboscope_store::data_dir::DataDir;
    use stroboscope_store::publishing::PublishCounters;

    use super::{Identity, NONCES_MAX, random};
    use crate::address::Remote;
    use crate::publish::{PublishSettings, Publisher};

    #[test]
    fn another_spelling_of_the_url_is_not_another_collector() {
        let [data, there] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        DataDir::create(data.path()).unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let url = format!("file://{}", there.path().display());
        for url in [format!("{url}/."), url] {
            let settings = PublishSettings {
                data: data.path().to_owned(),
                remote: Remote::open(&url).unwrap(),
                keep: None,
            };
            let counters = Arc::new(PublishCounters::default());
            let handle = runtime.handle().clone();
            let publisher = Publisher::start(settings, handle, Arc::default(), counters.clone());
            // The last round publishes, if no earlier one did.
            publisher.unwrap().stop();
            assert!(counters.last_success_ns.load(Relaxed) > 0, "{url}");
        }
    }

    #[test]
    fn the_published_manifest_stays_known_however_many_writes_fail() {
        let data = tempfile::tempdir().unwrap();
        let mut identity = Identity::of(data.path()).unwrap();
        let url = "s3://bucket";
        let published = random().unwrap();
        identity.begin(data.path(), url, None, &published).unwrap();
        for _ in 0..2 * NONCES_MAX {
            let failed = random().unwrap();
            let begun = identity.begin(data.path(), url, Some(&published), &failed);
            begun.unwrap();
        }
        assert!(Identity::of(data.path()).unwrap().wrote(&published));
        assert_eq!(identity.written[url].len(), NONCES_MAX);
    }
}
