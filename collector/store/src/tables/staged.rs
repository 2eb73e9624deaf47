//! Object under construction. It is written piece by piece, and becomes visible in one step when it
//! is complete and durable.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStoreExt as _, PutPayload};

use super::objects::{Store, StoreError, create};
use crate::disk::DiskFile;

/// Extension of an incomplete file; readers ignore such files.
const PART: &str = "part";
/// Size in bytes at which a part of an upload is sent, which is above the minimum of object stores.
const UPLOAD_BYTES: usize = 8 << 20;

/// Reports whether an object is incomplete, because its writer is still running or was interrupted.
#[must_use]
pub fn is_part(path: &Path) -> bool {
    path.extension() == Some(PART)
}

/// Object that is not visible yet.
pub(super) struct StagedObject {
    store: Store,
    path: Path,
    to: Target,
}

enum Target {
    File {
        file: BufWriter<AppendWriter>,
        part: PathBuf,
    },
    Upload {
        upload: Box<dyn MultipartUpload>,
        bytes: Vec<u8>,
    },
}

/// Adapter of a disk's file to [`Write`].
struct AppendWriter(Box<dyn DiskFile>);

impl Write for AppendWriter {
    fn write(&mut self, more: &[u8]) -> io::Result<usize> {
        self.0.append(more).map(|()| more.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl std::fmt::Debug for StagedObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("StagedObject").field(&self.path).finish()
    }
}

fn part_of(path: &Path) -> Path {
    Path::from(format!("{path}.{PART}"))
}

impl StagedObject {
    /// Begins an object at `path`. An existing object at this path stays until the new one is
    /// published.
    pub(super) fn begin(store: &Store, path: &Path) -> Result<Self, StoreError> {
        let to = if let Some((root, disk)) = store.local_root().zip(store.local_disk()) {
            let part = root.join(part_of(path).as_ref());
            match create(disk, &part) {
                Ok(file) => Target::File {
                    file: BufWriter::with_capacity(1 << 20, AppendWriter(file)),
                    part,
                },
                Err(source) => return Err(StoreError::Directory { path: part, source }),
            }
        } else {
            let upload = store.objects().put_multipart(path);
            Target::Upload {
                upload: store.runtime().block_on(upload)?,
                bytes: Vec::new(),
            }
        };
        Ok(Self {
            store: store.clone(),
            path: path.clone(),
            to,
        })
    }

    /// Makes the contents of the complete object durable, then makes the object visible, and then
    /// makes its name durable.
    pub(super) fn publish(self) -> Result<(), StoreError> {
        let Self { store, path, to } = self;
        match to {
            Target::File { file, part } => {
                // Syncs the contents first, because a visible file may cover others, which are then
                // moved away.
                let at = |source| StoreError::Sync {
                    path: part.clone(),
                    source,
                };
                let file = file.into_inner().map_err(|error| at(error.into_error()))?;
                let AppendWriter(mut file) = file;
                file.sync().map_err(at)?;
                drop(file);
                store.rename(&part_of(&path), &path)?;
                store.make_durable(&[path])
            }
            Target::Upload { mut upload, bytes } => {
                let rest = async {
                    if !bytes.is_empty() {
                        upload.put_part(PutPayload::from(bytes)).await?;
                    }
                    upload.complete().await
                };
                store.runtime().block_on(rest)?;
                Ok(())
            }
        }
    }

    /// Deletes the unfinished object. Only logs a failure.
    pub(super) fn discard(self) {
        let Self { store, path, to } = self;
        let gone = match to {
            Target::File { .. } => {
                let deleted = store.delete(&part_of(&path));
                deleted.map_err(|error| error.to_string())
            }
            Target::Upload { mut upload, .. } => {
                let aborted = store.runtime().block_on(upload.abort());
                aborted.map_err(|error| error.to_string())
            }
        };
        if let Err(error) = gone {
            tracing::warn!(%path, %error, "cannot remove an unfinished file");
        }
    }
}

impl Write for StagedObject {
    fn write(&mut self, more: &[u8]) -> io::Result<usize> {
        match &mut self.to {
            Target::File { file, .. } => file.write(more),
            Target::Upload { upload, bytes } => {
                bytes.extend_from_slice(more);
                if bytes.len() >= UPLOAD_BYTES {
                    let part = PutPayload::from(std::mem::take(bytes));
                    let put = self.store.runtime().block_on(upload.put_part(part));
                    put.map_err(io::Error::other)?;
                }
                Ok(more.len())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.to {
            Target::File { file, .. } => file.flush(),
            Target::Upload { .. } => Ok(()),
        }
    }
}
