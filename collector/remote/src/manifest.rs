//! Reads and writes manifests. A manifest lists the published files of a collector, and is written
//! only if it has not changed since it was read.

use futures_util::TryStreamExt as _;
use object_store::path::Path;
use object_store::{
    Error, ObjectStore as _, ObjectStoreExt as _, PutMode, PutPayload, UpdateVersion,
};
use serde::{Deserialize, Serialize};
use stroboscope_store::data_dir::{DataDir, DataDirError};
use stroboscope_store::tables::{Hour, StoreTable};

use crate::address::{Remote, RemoteError};

/// Directory of all collectors.
pub(crate) const COLLECTORS: &str = "collectors";
const MANIFEST: &str = "manifest.json";
const VERSION: u32 = 1;

/// File of the store, published or to be published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PublishedFile {
    /// Path in the store, such as `spans/date=…/hour=…/seg-….parquet`.
    pub path: String,
    /// Name of the object below the collector's directory; empty before the upload.
    pub object: String,
    /// Size in bytes.
    pub bytes: u64,
}

impl PublishedFile {
    /// Returns the identity of the file's content: path and size in bytes.
    pub(crate) fn what(&self) -> (&str, u64) {
        (&self.path, self.bytes)
    }
}

/// Object that will be deleted, because the manifest lists no file for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UnnamedObject {
    pub object: String,
    /// Time at which a manifest stopped listing the object, or at which the object was found
    /// unlisted, in ns since the Unix epoch.
    pub since_ns: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub version: u32,
    /// Number of times the manifest was written.
    pub generation: u64,
    /// Random number by which the writer recognises the manifest as its own.
    pub nonce: String,
    pub files: Vec<PublishedFile>,
    pub unnamed: Vec<UnnamedObject>,
    /// Operations (`service:name`, or `none`) whose spans the data directory declares to be
    /// requests. Older manifests lack this field.
    #[serde(default)]
    pub requests: Vec<String>,
}

impl Manifest {
    pub(crate) fn empty() -> Self {
        Self {
            version: VERSION,
            ..Self::default()
        }
    }
}

/// Reads the operations that a data directory declares to be requests.
pub(crate) fn requests_of(data: &std::path::Path) -> Result<Vec<String>, RemoteError> {
    let requests = match DataDir::existing(data) {
        // Nothing has been declared in a directory that has no data yet.
        Err(DataDirError::Missing(_) | DataDirError::NotOurs(_)) => Ok(Vec::new()),
        found => found.and_then(|data| data.requests()),
    };
    requests.map_err(|error| RemoteError::at(data)(std::io::Error::other(error)))
}

/// Returns a collector's directory.
pub(crate) fn directory_of(id: &str) -> Path {
    Path::from(format!("{COLLECTORS}/{id}"))
}

fn path_of(id: &str) -> Path {
    directory_of(id).join(MANIFEST)
}

/// Reports whether an object is a manifest.
pub(crate) fn is_manifest(path: &Path) -> bool {
    path.filename() == Some(MANIFEST)
}

/// Manifest as it was read or written, with the object's version, by which a write replaces only
/// this manifest.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    pub manifest: Manifest,
    version: UpdateVersion,
}

/// Lists the ids of the collectors that have objects in the object store.
pub(crate) async fn collectors(remote: &Remote) -> Result<Vec<String>, RemoteError> {
    let prefix = Path::from(COLLECTORS);
    let listed = remote.objects.list_with_delimiter(Some(&prefix)).await;
    let listed = listed.map_err(|error| remote.failed(error))?;
    let names = listed.common_prefixes.iter().filter_map(Path::filename);
    Ok(names.map(str::to_owned).collect())
}

/// Reads a collector's manifest; `None` if it has none.
pub(crate) async fn read(remote: &Remote, id: &str) -> Result<Option<Read>, RemoteError> {
    let path = path_of(id);
    let got = match remote.objects.get(&path).await {
        Ok(got) => got,
        // Listings and writes detect a missing bucket.
        Err(Error::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(remote.failed(error)),
    };
    let version = UpdateVersion {
        e_tag: got.meta.e_tag.clone(),
        version: got.meta.version.clone(),
    };
    let bytes = got.bytes().await.map_err(|error| remote.failed(error))?;
    let manifest = parsed(&bytes).map_err(|what| RemoteError::Damaged {
        url: remote.url.clone(),
        object: path.to_string(),
        what,
    })?;
    Ok(Some(Read { manifest, version }))
}

fn parsed(bytes: &[u8]) -> Result<Manifest, String> {
    let manifest: Manifest =
        serde_json::from_slice(bytes).map_err(|error| format!("is not a manifest: {error}"))?;
    if manifest.version != VERSION {
        return Err(format!(
            "is of version {}, and this program knows version {VERSION}: use a newer one",
            manifest.version
        ));
    }
    // A program that can write to the bucket must not control where readers write.
    match manifest.files.iter().find(|file| !is_of_store(&file.path)) {
        Some(file) => Err(format!(
            "names {:?}, which is not a file of a store",
            file.path
        )),
        None => Ok(manifest),
    }
}

/// Reports whether a path has the form `TABLE/date=…/hour=…/NAME.parquet`.
fn is_of_store(path: &str) -> bool {
    let (Some((table, _)), Some((_, name))) = (path.split_once('/'), path.rsplit_once('/')) else {
        return false;
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    StoreTable::ALL.iter().any(|known| known.name() == table)
        && Hour::of_object(path).is_some()
        && name.ends_with(".parquet")
        && !name.starts_with('.')
        && name.chars().all(is_plain)
}

/// Outcome of writing a manifest.
#[derive(Debug)]
pub(crate) enum Wrote {
    Done(Read),
    /// The stored manifest is not the expected one.
    Changed,
}

/// Replaces the manifest `before`, or writes the first manifest if `before` is `None`. Changes
/// nothing if the stored manifest is another one.
pub(crate) async fn write(
    remote: &Remote,
    id: &str,
    before: Option<&Read>,
    manifest: Manifest,
) -> Result<Wrote, RemoteError> {
    let path = path_of(id);
    let text = serde_json::to_vec(&manifest).map_err(|error| RemoteError::Damaged {
        url: remote.url.clone(),
        object: path.to_string(),
        what: error.to_string(),
    })?;
    let payload = PutPayload::from(text);
    let _lock = match &remote.directory {
        None => None,
        // A file system has no conditional replace: the writer takes a lock and compares.
        Some(directory) => {
            let lock = locked(directory, id)?;
            let there = read(remote, id).await?.map(|read| read.manifest.nonce);
            if there.as_ref() != before.map(|before| &before.manifest.nonce) {
                return Ok(Wrote::Changed);
            }
            Some(lock)
        }
    };
    let mode = match (before, &remote.directory) {
        (None, None) => PutMode::Create,
        (Some(before), None) => PutMode::Update(before.version.clone()),
        (_, Some(_)) => PutMode::Overwrite,
    };
    match remote.objects.put_opts(&path, payload, mode.into()).await {
        Ok(put) => Ok(Wrote::Done(Read {
            manifest,
            version: UpdateVersion {
                e_tag: put.e_tag,
                version: put.version,
            },
        })),
        Err(Error::Precondition { .. } | Error::AlreadyExists { .. }) => Ok(Wrote::Changed),
        // The manifest to update is gone.
        Err(Error::NotFound { .. }) if before.is_some() => Ok(Wrote::Changed),
        Err(error) => Err(remote.failed(error)),
    }
}

fn locked(directory: &std::path::Path, id: &str) -> Result<std::fs::File, RemoteError> {
    let above = directory.join(COLLECTORS);
    let path = above.join(format!("{id}.lock"));
    let open = || -> std::io::Result<std::fs::File> {
        std::fs::create_dir_all(&above)?;
        let mut options = std::fs::File::options();
        let options = options.create(true).truncate(false).write(true);
        let file = options.open(&path)?;
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)?;
        Ok(file)
    };
    open().map_err(RemoteError::at(&path))
}

/// Lists all objects of a collector except the manifest, relative to the collector's directory.
pub(crate) async fn objects_of(remote: &Remote, id: &str) -> Result<Vec<String>, RemoteError> {
    let directory = directory_of(id);
    let listing = remote.objects.list(Some(&directory));
    let listed = listing.try_collect::<Vec<_>>().await;
    let listed = listed.map_err(|error| remote.failed(error))?;
    let below = |path: &Path| {
        let path = path.as_ref().strip_prefix(directory.as_ref())?;
        Some(path.trim_start_matches('/').to_owned())
    };
    let paths = listed.iter().map(|meta| &meta.location);
    let objects = paths.filter(|path| !is_manifest(path));
    Ok(objects.filter_map(below).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_of_a_store_are_taken() {
        assert!(is_of_store(
            "spans/date=2026-01-02/hour=03/seg-0000000001.parquet"
        ));
        for other in [
            "../x.parquet",
            "spans/../../x.parquet",
            "spans/date=2026-01-02/hour=03/../x.parquet",
            "cache/date=2026-01-02/hour=03/x.parquet",
            "spans/date=2026-01-02/hour=03/x.sh",
            "/spans/date=2026-01-02/hour=03/x.parquet",
            "spans/date=2026-01-02/hour=03/.x.parquet",
        ] {
            assert!(!is_of_store(other), "{other}");
        }
    }
}
