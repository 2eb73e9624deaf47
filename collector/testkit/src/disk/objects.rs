//! Reads files of the simulated disk as objects.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use stroboscope_store::disk::Disk as _;
use stroboscope_store::tables::Store;

use super::{SimDisk, State};

/// Files of a directory, as objects.
#[derive(Debug)]
struct SimObjects {
    disk: SimDisk,
    root: PathBuf,
}

impl SimDisk {
    /// Returns the store in a directory of this disk.
    pub fn store(&self, root: &std::path::Path, runtime: tokio::runtime::Handle) -> Store {
        let objects = SimObjects {
            disk: self.clone(),
            root: root.to_owned(),
        };
        Store::on(Arc::new(self.clone()), root, Arc::new(objects), runtime)
    }
}

impl fmt::Display for SimObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a simulated disk")
    }
}

fn failed(source: std::io::Error) -> Error {
    Error::Generic {
        store: "a simulated disk",
        source: Box::new(source),
    }
}

/// Rejects a write; writers use the disk itself.
fn only_read<T>() -> Result<T> {
    Err(failed(std::io::ErrorKind::Unsupported.into()))
}

fn about(location: Path, bytes: usize) -> ObjectMeta {
    ObjectMeta {
        location,
        last_modified: Default::default(),
        size: bytes as u64,
        e_tag: None,
        version: None,
    }
}

#[async_trait::async_trait]
impl ObjectStore for SimObjects {
    async fn put_opts(&self, _: &Path, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        only_read()
    }

    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        only_read()
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let path = self.root.join(location.as_ref());
        let bytes = self.disk.read(&path).map_err(failed)?;
        let all = 0..bytes.len() as u64;
        let range: Range<u64> = match options.range {
            None => all,
            Some(range) => range
                .as_range(all.end)
                .map_err(|error| failed(std::io::Error::other(error)))?,
        };
        let part = bytes[range.start as usize..range.end as usize].to_vec();
        Ok(GetResult {
            payload: GetResultPayload::Stream(stream::iter([Ok(part.into())]).boxed()),
            meta: about(location.clone(), bytes.len()),
            range,
            attributes: Default::default(),
        })
    }

    fn delete_stream(
        &self,
        _: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        stream::iter([only_read()]).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let prefix = prefix.map_or("", Path::as_ref).to_owned();
        let directory = self.root.join(&prefix);
        let begun = self
            .disk
            .state()
            .begin(super::Kind::Read, &"list", &directory)
            .and_then(|is_whole| is_whole.then_some(()).ok_or_else(State::ended));
        if let Err(error) = begun {
            return stream::iter([Err(failed(error))]).boxed();
        }
        let files = self.disk.files(&directory).into_iter();
        let found = files
            .map(move |(name, bytes)| Ok(about(Path::from(format!("{prefix}/{name}")), bytes)));
        stream::iter(found.collect::<Vec<_>>()).boxed()
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
        only_read()
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        only_read()
    }
}
