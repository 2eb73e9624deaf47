//! Snapshot of the store's files at the start of the session, for the engine, which lists and opens
//! files itself. The snapshot omits files that were already replaced by merged files, and keeps
//! files that are replaced later.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::object_store::path::Path;
use datafusion::object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use stroboscope_store::tables::{Store, StoreError, StoreTable, replaced};

/// Base URL of the store for the engine.
pub(super) const URL: &str = "stroboscope://store/";

/// Read-only object store over the files of a snapshot.
#[derive(Debug)]
pub(super) struct Snapshot {
    objects: Arc<dyn ObjectStore>,
    files: Vec<ObjectMeta>,
}

impl Snapshot {
    /// Takes one snapshot of all tables: no hour is deleted or thinned in only some of them.
    pub(super) fn of(store: &Store) -> std::result::Result<Self, StoreError> {
        Ok(Self {
            objects: store.objects().clone(),
            files: store.snapshots(&StoreTable::ALL)?.concat(),
        })
    }

    fn under(&self, prefix: Option<&Path>) -> impl Iterator<Item = &ObjectMeta> {
        let is_under = move |meta: &&ObjectMeta| {
            prefix.is_none_or(|prefix| {
                meta.location.prefix_matches(prefix) && meta.location != *prefix
            })
        };
        self.files.iter().filter(is_under)
    }
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("stroboscope's store")
    }
}

fn read_only<T>() -> Result<T> {
    Err(Error::NotSupported {
        source: "the store is only read here".into(),
    })
}

#[async_trait]
impl ObjectStore for Snapshot {
    async fn put_opts(&self, _: &Path, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        read_only()
    }

    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        read_only()
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        match self.objects.get_opts(location, options.clone()).await {
            Err(Error::NotFound { .. }) => {
                self.objects.get_opts(&replaced(location), options).await
            }
            found => found,
        }
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        locations.map(|_| read_only()).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let found: Vec<_> = self.under(prefix).cloned().map(Ok).collect();
        stream::iter(found).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let root = Path::default();
        let prefix = prefix.unwrap_or(&root);
        let (mut common_prefixes, mut objects) = (std::collections::BTreeSet::new(), Vec::new());
        for meta in self.under(Some(prefix)) {
            let mut parts = meta.location.prefix_match(prefix).into_iter().flatten();
            match (parts.next(), parts.next()) {
                (Some(directory), Some(_)) => {
                    common_prefixes.insert(prefix.clone().join(directory));
                }
                _ => objects.push(meta.clone()),
            }
        }
        Ok(ListResult {
            common_prefixes: common_prefixes.into_iter().collect(),
            objects,
        })
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        read_only()
    }
}
