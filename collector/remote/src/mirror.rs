//! Local directory with the published files, for readers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::{Error, ObjectStoreExt as _};
use stroboscope_store::data_dir::DataDir;
use tokio::io::AsyncWriteExt as _;
use twox_hash::XxHash3_128;

use crate::address::{Remote, RemoteError};
use crate::manifest::{self, Manifest, PublishedFile, directory_of};

/// Time since the last claim of a mirror after which the next reader deletes it, if it is unused.
const UNUSED_MAX: Duration = Duration::from_secs(7 * 24 * 3_600);
/// Maximum number of objects fetched concurrently.
const FETCHES: usize = 8;
/// Maximum number of attempts to list and fetch all files, if objects are deleted meanwhile.
const TRIES: usize = 3;

/// Directory with the files that were published when it was filled. It belongs to this process
/// alone until the value is dropped.
#[derive(Debug)]
pub struct Mirror {
    directory: PathBuf,
    /// Reasons why manifests of collectors cannot be read; their published files are left out.
    left_out: Vec<RemoteError>,
    _lock: File,
}

impl Mirror {
    /// Fetches the published files that the cache lacks, and deletes the files that no readable
    /// manifest lists.
    ///
    /// # Errors
    /// Returns an error if no readable manifest lists a file, if the size of a fetched file differs
    /// from that in its manifest, or if the object store or the local disk fails.
    pub async fn of(remote: &Remote, cache: &Path) -> Result<Self, RemoteError> {
        let name = format!("{:032x}", XxHash3_128::oneshot(remote.url.as_bytes()));
        let (directory, lock) = claimed(cache, &name)?;
        delete_unused(cache);
        let mut tries = 0;
        loop {
            tries += 1;
            match fill(remote, &directory).await {
                Err(RemoteError::Object { source, .. })
                    if tries < TRIES && matches!(*source, Error::NotFound { .. }) => {}
                filled => {
                    return Ok(Self {
                        left_out: filled?,
                        directory,
                        _lock: lock,
                    });
                }
            }
        }
    }

    /// Returns the mirror's path, which callers use as a data directory. They must add no files to
    /// its tables.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the reasons why published files are missing from the mirror.
    #[must_use]
    pub fn left_out(&self) -> &[RemoteError] {
        &self.left_out
    }
}

/// Returns the default cache directory.
#[must_use]
pub fn default_cache() -> PathBuf {
    let set = |name: &str| {
        let value = std::env::var_os(name).map(PathBuf::from);
        value.filter(|path| path.is_absolute())
    };
    set("XDG_CACHE_HOME")
        .or_else(|| set("HOME").map(|home| home.join(".cache")))
        .unwrap_or_else(std::env::temp_dir)
        .join("stroboscope")
}

fn try_lock(path: &Path) -> std::io::Result<Option<File>> {
    let mut options = File::options();
    let options = options.create(true).truncate(false).write(true);
    let open = options.open(path)?;
    match rustix::fs::flock(&open, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(open)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Claims the first mirror of this name that is not in use. A mirror becomes free when its
/// [`Mirror`] is dropped or its process ends.
fn claimed(cache: &Path, name: &str) -> Result<(PathBuf, File), RemoteError> {
    std::fs::create_dir_all(cache).map_err(RemoteError::at(cache))?;
    let mut number = 0;
    loop {
        let directory = cache.join(format!("{name}-{number}"));
        let lock = directory.with_extension("lock");
        if let Some(file) = try_lock(&lock).map_err(RemoteError::at(&lock))? {
            std::fs::create_dir_all(&directory).map_err(RemoteError::at(&directory))?;
            let touched = file.set_modified(std::time::SystemTime::now());
            touched.map_err(RemoteError::at(&lock))?;
            return Ok((directory, file));
        }
        number += 1;
    }
}

/// Deletes unused mirrors whose last claim is older than [`UNUSED_MAX`]. Failed deletions are
/// ignored, because this is only a cache.
fn delete_unused(cache: &Path) {
    for entry in std::fs::read_dir(cache).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_lock = path.extension().is_some_and(|end| end == "lock");
        let modified = entry.metadata().and_then(|about| about.modified());
        let unused = modified.ok().and_then(|then| then.elapsed().ok());
        if is_lock
            && unused.is_some_and(|unused| unused > UNUSED_MAX)
            && let Ok(Some(_lock)) = try_lock(&path)
        {
            // The lock file stays: another process may have it open.
            let _ = std::fs::remove_dir_all(path.with_extension(""));
        }
    }
}

/// Returns a file's path in the mirror. Segment names are unique only within a collector, so the
/// path includes the collector's id and a hash of the object's name. The content of an object never
/// changes. The manifest lists no covered file, so names need not encode coverage. Chunks of kernel
/// recordings keep their names, which are random.
fn local_name(id: &str, file: &PublishedFile) -> String {
    let (directory, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
    if file.path.starts_with("kernel/") {
        return file.path.clone();
    }
    let stem = name.strip_suffix(".parquet").unwrap_or(name);
    let object = XxHash3_128::oneshot(file.object.as_bytes());
    format!("{directory}/of-{id}-{stem}-{object:032x}.parquet")
}

/// Makes the mirror match the published files. Returns the errors of the manifests that were left
/// out.
async fn fill(remote: &Remote, directory: &Path) -> Result<Vec<RemoteError>, RemoteError> {
    let mut wanted: BTreeMap<String, (String, PublishedFile)> = BTreeMap::new();
    let mut requests: BTreeSet<String> = BTreeSet::new();
    let mut is_detection_kept = false;
    let mut left_out = Vec::new();
    for id in manifest::collectors(remote).await? {
        let manifest = match manifest::read(remote, &id).await {
            Ok(read) => read.map_or_else(Manifest::empty, |read| read.manifest),
            Err(error @ RemoteError::Damaged { .. }) => {
                left_out.push(error);
                continue;
            }
            Err(error) => return Err(error),
        };
        let set = &manifest.requests;
        is_detection_kept |= !set.is_empty() && !set.iter().any(|one| one == "none");
        requests.extend(manifest.requests);
        for file in manifest.files {
            wanted.insert(local_name(&id, &file), (id.clone(), file));
        }
    }
    if wanted.is_empty() {
        let empty = || RemoteError::Empty(remote.url.clone());
        return Err(left_out.pop().unwrap_or_else(empty));
    }
    for table in stroboscope_store::tables::StoreTable::ALL {
        delete_others(directory, &directory.join(table.name()), &wanted)
            .map_err(RemoteError::at(directory))?;
    }
    let is_there = |path: &str, bytes: u64| {
        std::fs::metadata(directory.join(path)).is_ok_and(|about| about.len() == bytes)
    };
    let missing = wanted
        .into_iter()
        .filter(|(path, (_, file))| !is_there(path, file.bytes));
    futures_util::stream::iter(missing)
        .map(|(path, (id, file))| fetch(remote, directory.join(path), id, file))
        .buffer_unordered(FETCHES)
        .try_collect::<()>()
        .await?;
    // Operations that one collector declares hold for all. `none` holds if every collector with a
    // setting has it.
    if is_detection_kept {
        requests.remove("none");
    }
    let requests: Vec<String> = requests.into_iter().collect();
    let declared = DataDir::existing(directory).and_then(|data| data.set_requests(&requests));
    declared.map_err(|error| RemoteError::at(directory)(std::io::Error::other(error)))?;
    Ok(left_out)
}

/// Deletes the files below `directory` whose paths relative to `root` are not in `wanted`.
fn delete_others(
    root: &Path,
    directory: &Path,
    wanted: &BTreeMap<String, (String, PublishedFile)>,
) -> std::io::Result<()> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            delete_others(root, &path, wanted)?;
            continue;
        }
        let below = path.strip_prefix(root).ok().and_then(Path::to_str);
        if !below.is_some_and(|below| wanted.contains_key(below)) {
            std::fs::remove_file(&path)?;
        }
    }
    Ok(())
}

async fn fetch(
    remote: &Remote,
    to: PathBuf,
    id: String,
    file: PublishedFile,
) -> Result<(), RemoteError> {
    let from = object_store::path::Path::from(format!("{}/{}", directory_of(&id), file.object));
    let failed = |error| remote.failed(error);
    let got = remote.objects.get(&from).await;
    let mut parts = got.map_err(failed)?.into_stream();
    let above = to.parent().unwrap_or(&to);
    std::fs::create_dir_all(above).map_err(RemoteError::at(above))?;
    let beside = to.with_extension("new");
    let mut bytes = 0;
    let created = tokio::fs::File::create(&beside).await;
    let mut written = created.map_err(RemoteError::at(&beside))?;
    while let Some(part) = parts.next().await {
        let part = part.map_err(failed)?;
        bytes += part.len() as u64;
        written
            .write_all(&part)
            .await
            .map_err(RemoteError::at(&beside))?;
    }
    written.flush().await.map_err(RemoteError::at(&beside))?;
    drop(written);
    let expected = file.bytes;
    if bytes != expected {
        return Err(RemoteError::Damaged {
            url: remote.url.clone(),
            object: from.to_string(),
            what: format!("has {bytes} bytes instead of the {expected} in its manifest"),
        });
    }
    std::fs::rename(&beside, &to).map_err(RemoteError::at(&to))
}

#[cfg(test)]
mod tests {
    use object_store::PutPayload;

    use super::*;

    /// Publishes a file of one collector for each setting of requests. Returns the setting of the
    /// mirror.
    async fn mirrored(settings: &[&[&str]]) -> Vec<String> {
        let [there, cache] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let remote = Remote::open(&format!("file://{}", there.path().display())).unwrap();
        for (number, requests) in settings.iter().enumerate() {
            let id = format!("collector-{number}");
            let object = directory_of(&id).join("object");
            let put = remote
                .objects
                .put(&object, PutPayload::from_static(b"rows"));
            put.await.unwrap();
            let file = PublishedFile {
                path: "spans/date=2026-01-02/hour=03/import-1.parquet".to_owned(),
                object: "object".to_owned(),
                bytes: 4,
            };
            let manifest = Manifest {
                files: vec![file],
                requests: requests.iter().map(|one| (*one).to_owned()).collect(),
                ..Manifest::empty()
            };
            let wrote = manifest::write(&remote, &id, None, manifest).await;
            wrote.unwrap();
        }
        let mirror = Mirror::of(&remote, cache.path()).await.unwrap();
        let data = DataDir::existing(mirror.directory()).unwrap();
        data.requests().unwrap()
    }

    #[tokio::test]
    async fn none_is_kept_beside_operations_unless_a_collector_lacks_it() {
        assert_eq!(mirrored(&[&["none", "a:b"]]).await, ["a:b", "none"]);
        assert_eq!(
            mirrored(&[&["none", "a:b"], &["none"]]).await,
            ["a:b", "none"]
        );
        assert_eq!(mirrored(&[&["none"], &[]]).await, ["none"]);
        assert_eq!(mirrored(&[&["none"], &["a:b"]]).await, ["a:b"]);
    }
}
