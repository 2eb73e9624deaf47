//! The log of one table: reads its newest version, and commits changes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use object_store::ObjectMeta;
use object_store::path::Path;

use super::action::{Action, AddFile, CommitInfo, MetaData, Protocol, RemoveFile, statistics};
use super::checkpoint::{LastCheckpoint, checkpoint};
use super::schema::{DeltaSchema, PARTITIONS};
use crate::tables::objects::{Store, StoreError};
use crate::tables::partition::StoreTable;
use crate::tables::read_budget::ReadBudget;
use crate::tables::reader::{Damage, TableFile};

/// Name of the directory of a table's log.
pub const DELTA_LOG: &str = "_delta_log";
/// Ends of the names of commits and of checkpoints, after the version.
const COMMIT: &str = ".json";
const CHECKPOINT: &str = ".checkpoint.parquet";
/// Object by which readers find the newest checkpoint.
const LAST_CHECKPOINT: &str = "_last_checkpoint";
/// Number of commits after which a commit states the whole table again, with a checkpoint. Limits
/// the number of commits that readers read.
const COMMITS_MAX: u64 = 100;

/// Reason why a log cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum DeltaError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store is not a local directory.
    #[error("only a local data directory has Delta logs")]
    Remote,
    /// The log is damaged, or another program wrote it.
    #[error(
        "cannot continue the Delta log: {file}: {reason}; delete {directory}, and run `stroboscope store delta` again"
    )]
    Log {
        file: String,
        reason: String,
        directory: PathBuf,
    },
}

/// Result of an update of a log.
#[derive(Debug, Default)]
pub struct DeltaCommit {
    /// Newest version of the log; `None` if it has none, because there is no file to list.
    pub version: Option<u64>,
    /// Number of files in this version.
    pub files: usize,
    pub added: usize,
    pub removed: usize,
    /// Columns of added files that Delta cannot have because of their names or types.
    pub left_out_columns: BTreeSet<String>,
    /// Files that this update found to be unreadable, which the log leaves out.
    pub damage: Vec<Damage>,
}

/// Delta log of one table. The writer must hold the lock of the data directory.
#[derive(Debug)]
pub struct DeltaLog {
    table: StoreTable,
    /// Newest version, as last read or written.
    known: Option<LogState>,
    /// Files that could not be read, with their sizes. They are reported once and not read again.
    unreadable: BTreeSet<(String, u64)>,
}

/// Table at one version of its log.
#[derive(Clone, Debug)]
struct LogState {
    version: u64,
    /// Version of the newest commit that states the whole table.
    whole: u64,
    metadata: MetaData,
    schema: DeltaSchema,
    /// Files by their paths below the table's directory.
    files: BTreeMap<String, AddFile>,
}

impl DeltaLog {
    /// Creates a writer of the table's log. Writes nothing yet.
    #[must_use]
    pub const fn of(table: StoreTable) -> Self {
        Self {
            table,
            known: None,
            unreadable: BTreeSet::new(),
        }
    }

    /// Creates the directory of the log, if it is missing. From then on, maintenance writes the
    /// log.
    ///
    /// # Errors
    /// Returns an error if the store is not a local directory, or if the disk fails.
    pub fn begin(store: &Store, table: StoreTable) -> Result<(), DeltaError> {
        let (Some(root), Some(disk)) = (store.local_root(), store.local_disk()) else {
            return Err(DeltaError::Remote);
        };
        let path = root.join(directory(table).as_ref());
        let created = disk.create_directories(&path);
        Ok(created.map_err(|source| StoreError::Write { path, source })?)
    }

    /// Reports whether the directory of the log exists.
    #[must_use]
    pub fn is_begun(store: &Store, table: StoreTable) -> bool {
        let local = store.local_root().zip(store.local_disk());
        local.is_some_and(|(root, disk)| disk.names(&root.join(directory(table).as_ref())).is_ok())
    }

    /// Commits the differences between the table's files and the newest version of the log, if
    /// there are any. `now_ms` is the time in ms since the Unix epoch.
    ///
    /// # Errors
    /// Returns an error if the store fails, if the log is damaged, or if another program wrote it.
    /// The log may have the commit nevertheless, for example if only writing its checkpoint failed.
    pub fn update(&mut self, store: &Store, now_ms: i64) -> Result<DeltaCommit, DeltaError> {
        let names = names(store, self.table)?;
        if self.known.as_ref().map(|known| known.version) != versions(&names, COMMIT).max() {
            self.known = read(store, self.table, &names)?;
        }
        let (known, table) = (self.known.as_ref(), self.table);
        let mut listed = store.snapshot(table)?;
        let key = |meta: &ObjectMeta| (store.display(&meta.location), meta.size);
        if !self.unreadable.is_empty() {
            listed.retain(|meta| !self.unreadable.contains(&key(meta)));
        }
        let mut next = known.map_or_else(
            || LogState::new(table, now_ms),
            |known| LogState {
                version: known.version + 1,
                ..known.clone()
            },
        );
        let mut commit = next.follow(store, table, &listed);
        if !commit.damage.is_empty() {
            let is_damaged =
                |meta: &&ObjectMeta| commit.damage.iter().any(|of| of.file == key(meta).0);
            self.unreadable
                .extend(listed.iter().filter(is_damaged).map(key));
        }
        let old_files = known.map(|known| &known.files);
        let is_new =
            |file: &&AddFile| old_files.is_none_or(|old| old.get(&file.path) != Some(file));
        let old_paths = old_files.into_iter().flat_map(|old| old.keys());
        let removed = old_paths.filter(|path| !next.files.contains_key(*path));
        let removed: Vec<&String> = removed.collect();
        commit.added = next.files.values().filter(is_new).count();
        commit.removed = removed.len();
        commit.version = known.map(|known| known.version);
        if commit.added + commit.removed == 0 {
            return Ok(commit);
        }
        let is_whole = known.is_none_or(|known| next.version - known.whole >= COMMITS_MAX);
        let mut actions = vec![Action {
            commit_info: Some(CommitInfo::at(now_ms)),
            ..Action::default()
        }];
        if is_whole {
            next.whole = next.version;
            actions.push(Action {
                protocol: Some(Protocol::ours()),
                ..Action::default()
            });
        }
        if is_whole || known.is_none_or(|known| known.metadata != next.metadata) {
            actions.push(Action {
                meta_data: Some(next.metadata.clone()),
                ..Action::default()
            });
        }
        actions.extend(removed.into_iter().map(|path| Action {
            remove: Some(RemoveFile {
                path: path.clone(),
                deletion_timestamp: now_ms,
                data_change: true,
            }),
            ..Action::default()
        }));
        let added = next.files.values().filter(|file| is_whole || is_new(file));
        actions.extend(added.map(|file| Action {
            add: Some(AddFile {
                data_change: is_new(&file),
                ..file.clone()
            }),
            ..Action::default()
        }));
        let lines = actions
            .iter()
            .map(|action| serde_json::to_string(action).unwrap_or_default() + "\n");
        let lines = lines.collect::<String>().into_bytes();
        put(store, object(table, &commit_name(next.version)), lines)?;
        if is_whole && next.version > 0 {
            put_checkpoint(store, table, &next, &names)?;
        }
        commit.version = Some(next.version);
        self.known = Some(next);
        Ok(commit)
    }
}

impl LogState {
    fn new(table: StoreTable, now_ms: i64) -> Self {
        let schema = DeltaSchema::new();
        Self {
            version: 0,
            whole: 0,
            metadata: MetaData::new(random_uuid(), table.name(), &schema, now_ms),
            schema,
            files: BTreeMap::new(),
        }
    }

    /// Updates the files to those of the table. Adds the columns of new files, from their footers.
    fn follow(&mut self, store: &Store, table: StoreTable, listed: &[ObjectMeta]) -> DeltaCommit {
        let mut commit = DeltaCommit::default();
        let mut files = BTreeMap::new();
        for meta in listed {
            let Some(path) = meta.location.as_ref().strip_prefix(table.name()) else {
                continue;
            };
            let path = path.trim_start_matches('/');
            let known = self.files.remove(path);
            // The flusher may replace a file after a crash.
            let read = match known.filter(|known| known.size == meta.size) {
                Some(known) => Ok(Some(known)),
                None => self.read_file(store, table, meta, path, &mut commit.left_out_columns),
            };
            match read {
                Ok(file) => files.extend(file.map(|file| (path.to_owned(), file))),
                Err(damage) => commit.damage.push(damage),
            }
        }
        self.files = files;
        self.metadata.schema_string = self.schema.json();
        commit.files = self.files.len();
        commit
    }

    /// Describes a new or replaced file, and adds its columns to the schema. Returns `None` for a
    /// file that is not in the directory of an hour.
    fn read_file(
        &mut self,
        store: &Store,
        table: StoreTable,
        meta: &ObjectMeta,
        path: &str,
        left_out: &mut BTreeSet<String>,
    ) -> Result<Option<AddFile>, Damage> {
        let Some(partition_values) = partition_values(path) else {
            return Ok(None);
        };
        let object = (meta.location.clone(), meta.size);
        let file = TableFile::open(store, table, &object, &[], ReadBudget::of(1))?;
        self.schema
            .add(file.schema(), |name| _ = left_out.insert(name.to_owned()));
        let fields = file.schema().fields().iter();
        let names = fields.map(|field| field.name().as_str());
        let times = names.filter(|name| name.ends_with("_ns"));
        Ok(Some(AddFile {
            path: path.to_owned(),
            partition_values,
            size: meta.size,
            modification_time: meta.last_modified.timestamp_millis(),
            data_change: true,
            stats: statistics(file.metadata(), times),
        }))
    }
}

/// Returns the partition values in a file's path; `None` if it is not in an hour's directory.
fn partition_values(path: &str) -> Option<BTreeMap<String, String>> {
    let mut parts = path.split('/');
    let values = PARTITIONS.map(|name| {
        let value = parts.next()?.strip_prefix(name)?.strip_prefix('=')?;
        Some((name.to_owned(), value.to_owned()))
    });
    values.into_iter().collect()
}

fn directory(table: StoreTable) -> Path {
    Path::from_iter([table.name(), DELTA_LOG])
}

/// Reports whether an object is part of a log. Its checkpoints are Parquet files, too.
#[must_use]
pub fn is_of_delta_log(path: &Path) -> bool {
    path.parts()
        .nth(1)
        .is_some_and(|part| part.as_ref() == DELTA_LOG)
}

fn object(table: StoreTable, name: &str) -> Path {
    directory(table).join(name)
}

fn commit_name(version: u64) -> String {
    format!("{version:020}{COMMIT}")
}

fn checkpoint_name(version: u64) -> String {
    format!("{version:020}{CHECKPOINT}")
}

fn put(store: &Store, path: Path, bytes: Vec<u8>) -> Result<(), StoreError> {
    store.put(&path, bytes)?;
    store.make_durable(&[path])
}

/// Returns the names of the objects of a log.
fn names(store: &Store, table: StoreTable) -> Result<BTreeSet<String>, StoreError> {
    let listed = store.list_under(&directory(table))?;
    let names = listed.iter().filter_map(|meta| meta.location.filename());
    Ok(names.map(str::to_owned).collect())
}

/// Returns the versions of the commits or of the checkpoints among some names.
fn versions(names: &BTreeSet<String>, suffix: &str) -> impl Iterator<Item = u64> {
    names.iter().filter_map(move |name| {
        let digits = name.strip_suffix(suffix)?;
        digits.parse().ok().filter(|_| digits.len() == 20)
    })
}

/// Reads the newest version of a log; `None` if it has no versions.
fn read(
    store: &Store,
    table: StoreTable,
    names: &BTreeSet<String>,
) -> Result<Option<LogState>, DeltaError> {
    let Some(newest) = versions(names, COMMIT).max() else {
        return Ok(None);
    };
    // Reads from the newest commit back to one that states the whole table.
    let mut commits: Vec<Vec<Action>> = Vec::new();
    let mut whole = newest;
    let protocol = loop {
        let actions = read_commit(store, table, whole)?;
        let protocol = actions.iter().find_map(|action| action.protocol.clone());
        commits.push(actions);
        match protocol {
            Some(protocol) => break protocol,
            None if whole == 0 => return Err(unusable(store, table, 0, "it lacks the protocol")),
            None => whole -= 1,
        }
    };
    if !protocol.is_ours() {
        return Err(unusable(store, table, whole, "another program wrote it"));
    }
    let mut metadata = None;
    let mut files = BTreeMap::new();
    for action in commits.into_iter().rev().flatten() {
        metadata = action.meta_data.or(metadata);
        if let Some(removed) = action.remove {
            files.remove(&removed.path);
        }
        if let Some(added) = action.add {
            let file = AddFile {
                data_change: true,
                ..added
            };
            files.insert(file.path.clone(), file);
        }
    }
    let metadata =
        metadata.ok_or_else(|| unusable(store, table, whole, "it lacks the metadata"))?;
    let schema = DeltaSchema::parse(&metadata.schema_string)
        .map_err(|error| unusable(store, table, whole, &error.to_string()))?;
    Ok(Some(LogState {
        version: newest,
        whole,
        metadata,
        schema,
        files,
    }))
}

fn read_commit(store: &Store, table: StoreTable, version: u64) -> Result<Vec<Action>, DeltaError> {
    let path = object(table, &commit_name(version));
    let bytes = store
        .known(&path)?
        .ok_or_else(|| unusable(store, table, version, "it is missing"))?;
    let lines = bytes.split(|byte| *byte == b'\n');
    let lines = lines.filter(|line| !line.is_empty());
    let parsed: Result<Vec<Action>, _> = lines.map(serde_json::from_slice).collect();
    parsed.map_err(|error| unusable(store, table, version, &error.to_string()))
}

fn unusable(store: &Store, table: StoreTable, version: u64, reason: &str) -> DeltaError {
    let directory = store.display(&directory(table)).into();
    DeltaError::Log {
        file: store.display(&object(table, &commit_name(version))),
        reason: reason.to_owned(),
        directory,
    }
}

/// Writes the checkpoint of the newest version. Then deletes the commits and checkpoints before the
/// previous checkpoint. Readers that began after the previous checkpoint do not need them.
fn put_checkpoint(
    store: &Store,
    table: StoreTable,
    of: &LogState,
    names: &BTreeSet<String>,
) -> Result<(), StoreError> {
    let bytes = checkpoint(&Protocol::ours(), &of.metadata, of.files.values())?;
    put(store, object(table, &checkpoint_name(of.version)), bytes)?;
    let last = LastCheckpoint {
        version: of.version,
        size: of.files.len() + 2,
    };
    let last = serde_json::to_vec(&last).unwrap_or_default();
    put(store, object(table, LAST_CHECKPOINT), last)?;
    let Some(previous) = versions(names, CHECKPOINT).max() else {
        return Ok(());
    };
    let is_old = |version: &u64| *version < previous;
    let commits = versions(names, COMMIT).filter(is_old).map(commit_name);
    let checkpoints = versions(names, CHECKPOINT).filter(is_old);
    let old = commits.chain(checkpoints.map(checkpoint_name));
    store.remove(&old.map(|name| object(table, &name)).collect::<Vec<_>>())
}

/// Returns a random UUID (version 4).
fn random_uuid() -> String {
    use std::hash::{BuildHasher as _, RandomState};
    let half = || u128::from(RandomState::new().hash_one(std::process::id()));
    let bits = half() << 64 | half();
    let bits = bits & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
    let digits = format!("{bits:032x}");
    format!(
        "{}-{}-{}-{}-{}",
        &digits[..8],
        &digits[8..12],
        &digits[12..16],
        &digits[16..20],
        &digits[20..]
    )
}
