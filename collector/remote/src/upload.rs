//! Uploads a file as an object with a unique name.

use std::fs::File;
use std::io::Read as _;

use object_store::path::Path;
use object_store::{Error, ObjectStore as _, ObjectStoreExt as _, PutMode, PutPayload};

use crate::address::{Remote, RemoteError};

/// Size in bytes of each part but the last. A part is in memory while it is sent.
const PART_BYTES: usize = 8 << 20;

/// Uploads a file; returns its size in bytes.
pub(crate) async fn upload(
    remote: &Remote,
    from: &mut File,
    path: &std::path::Path,
    to: &Path,
) -> Result<u64, RemoteError> {
    let first = part(from, path)?;
    let mut bytes = first.len() as u64;
    if first.len() < PART_BYTES {
        let mode = PutMode::Create.into();
        let put = remote.objects.put_opts(to, first.into(), mode).await;
        return match put {
            // Names are unique to this process, so an existing object means that an earlier request
            // succeeded and its response was lost.
            Ok(_) | Err(Error::AlreadyExists { .. }) => Ok(bytes),
            Err(error) => Err(remote.failed(error)),
        };
    }
    let upload = remote.objects.put_multipart(to).await;
    let mut upload = upload.map_err(|error| remote.failed(error))?;
    let mut next = first;
    while !next.is_empty() {
        if let Err(error) = upload.put_part(PutPayload::from(next)).await {
            // If this fails, parts remain until the bucket's own rules remove them.
            let _ = upload.abort().await;
            return Err(remote.failed(error));
        }
        next = part(from, path)?;
        bytes += next.len() as u64;
    }
    let completed = upload.complete().await;
    completed.map_err(|error| remote.failed(error))?;
    Ok(bytes)
}

fn part(from: &mut File, path: &std::path::Path) -> Result<Vec<u8>, RemoteError> {
    let mut part = Vec::new();
    let read = from.take(PART_BYTES as u64).read_to_end(&mut part);
    read.map_err(|source| RemoteError::Local {
        path: path.to_owned(),
        source,
    })?;
    Ok(part)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// Checks uploads in one request and in parts.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_file_of_any_size_arrives_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let url = format!("file://{}/store", directory.path().display());
        let remote = Remote::open(&url).unwrap();
        for length in [0, 1, PART_BYTES - 1, PART_BYTES, 2 * PART_BYTES + 7] {
            let content: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            std::fs::write(&path, &content).unwrap();
            let to = Path::from(format!("objects/{length}"));
            let mut from = File::open(&path).unwrap();
            let bytes = upload(&remote, &mut from, &path, &to).await.unwrap();
            assert_eq!(bytes, length as u64);
            let there = remote.objects.get(&to).await.unwrap();
            assert!(there.bytes().await.unwrap() == content, "{length}");
        }
    }
}
