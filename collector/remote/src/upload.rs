//! Uploads a file as an object with a unique name.

use std::fs::File;
use std::io::Read as _;

use object_store::path::Path;
use object_store::{
    Error, MultipartUpload, ObjectStore as _, ObjectStoreExt as _, PutMode, PutPayload,
};

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
    let bytes = first.len() as u64;
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
    upload_parts(remote, &mut *upload, first, from, path).await
}

/// Uploads the first part and the rest of the file, and completes the upload or aborts it. Returns
/// the size in bytes.
async fn upload_parts(
    remote: &Remote,
    upload: &mut dyn MultipartUpload,
    first: Vec<u8>,
    from: &mut File,
    path: &std::path::Path,
) -> Result<u64, RemoteError> {
    let mut bytes = 0;
    let uploaded = async {
        let mut next = first;
        while !next.is_empty() {
            bytes += next.len() as u64;
            let put = upload.put_part(PutPayload::from(next)).await;
            put.map_err(|error| remote.failed(error))?;
            next = part(from, path)?;
        }
        let completed = upload.complete().await;
        completed.map_err(|error| remote.failed(error))
    }
    .await;
    if uploaded.is_err() {
        // If this fails, parts remain until the bucket's own rules remove them.
        let _ = upload.abort().await;
    }
    uploaded.map(|_| bytes)
}

fn part(from: &mut File, path: &std::path::Path) -> Result<Vec<u8>, RemoteError> {
    let mut part = Vec::new();
    let read = from.take(PART_BYTES as u64).read_to_end(&mut part);
    read.map_err(RemoteError::at(path))?;
    Ok(part)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::pin::Pin;

    use object_store::{PutResult, UploadPart};

    use super::*;

    type Reply<'a, T> = Pin<Box<dyn Future<Output = object_store::Result<T>> + Send + 'a>>;

    /// Upload that takes all parts, and fails to complete.
    #[derive(Debug)]
    struct Incomplete {
        is_aborted: bool,
    }

    impl MultipartUpload for Incomplete {
        fn put_part(&mut self, _: PutPayload) -> UploadPart {
            Box::pin(async { Ok(()) })
        }

        fn complete<'a, 'b>(&'a mut self) -> Reply<'b, PutResult>
        where
            'a: 'b,
            Self: 'b,
        {
            Box::pin(async {
                Err(Error::Generic {
                    store: "S3",
                    source: "500".into(),
                })
            })
        }

        fn abort<'a, 'b>(&'a mut self) -> Reply<'b, ()>
        where
            'a: 'b,
            Self: 'b,
        {
            self.is_aborted = true;
            Box::pin(async { Ok(()) })
        }
    }

    #[tokio::test]
    async fn an_upload_that_cannot_be_completed_is_aborted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "the rest").unwrap();
        let remote = Remote::open(&format!("file://{}", directory.path().display())).unwrap();
        let mut upload = Incomplete { is_aborted: false };
        let mut from = File::open(&path).unwrap();
        let done = upload_parts(&remote, &mut upload, vec![1], &mut from, &path).await;
        assert!(done.unwrap_err().to_string().contains("500"));
        assert!(upload.is_aborted);
    }

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
