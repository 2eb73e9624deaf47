//! Cache of results about a store's traces, in the data directory. A query uses the result of an
//! earlier query that asked the same question about the same files.
//!
//! An entry is a file in the directory `cache/`. Its name depends on the question, on the version,
//! size and modification time of this program, and on the names and sizes of the store's files in
//! the tables that inference reads. Files never change. Entries of other files or of another
//! program are never found, and are deleted when a new entry is kept. Entries can be deleted at any
//! time. If the directory cannot be written, new results are not cached.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde::de::DeserializeOwned;
use twox_hash::XxHash3_128;

use stroboscope_store::data_dir::DataDir;
use stroboscope_store::tables::{Store, StoreError, StoreTable};

/// Maximum number of entries of one kind for the same files and program. The oldest entries beyond
/// it are evicted.
const ENTRIES_MAX: usize = 16;
/// Maximum size of an entry before compression, in bytes. Larger results are recomputed each time.
pub(super) const ENTRY_BYTES_MAX: usize = 64 << 20;
const ZSTD_LEVEL: i32 = 1;

/// Cache entries that were computed from the same files of a store by the same program.
#[derive(Clone, Debug)]
pub(super) struct Cache {
    directory: PathBuf,
    /// Hash of the store's files and of this program, with which the names of entries begin.
    pub(super) state: String,
}

impl Cache {
    /// Returns the cache for the files that the store has now.
    pub(super) fn of(data: &DataDir, store: &Store) -> Result<Self, StoreError> {
        Ok(Self {
            directory: data.cache(),
            state: state(store)?,
        })
    }

    /// Reports whether the store still has the files for which this cache was created. If so,
    /// everything that was read since then comes from these files.
    pub(super) fn is_of(&self, store: &Store) -> bool {
        state(store).is_ok_and(|state| state == self.state)
    }

    /// Returns the cached answer to the question `asked`; `None` if there is no readable entry.
    pub(super) fn find<T: DeserializeOwned>(&self, kind: &str, asked: &str) -> Option<T> {
        let packed = fs::read(self.path(kind, asked)).ok()?;
        let entry = zstd::decode_all(&*packed).ok()?;
        postcard::from_bytes(&entry).ok()
    }

    /// Stores the answer to the question `asked`. Does nothing if the answer is too large or cannot
    /// be written.
    pub(super) fn keep(&self, kind: &str, asked: &str, answer: &impl Serialize) {
        let Ok(entry) = postcard::to_stdvec(answer) else {
            return;
        };
        if entry.len() > ENTRY_BYTES_MAX {
            return;
        }
        let path = self.path(kind, asked);
        let part = path.with_extension(format!("{}.part", std::process::id()));
        let written = fs::create_dir_all(&self.directory)
            .and_then(|()| zstd::encode_all(&*entry, ZSTD_LEVEL))
            .and_then(|packed| fs::write(&part, packed))
            .and_then(|()| fs::rename(&part, &path));
        if written.is_err() {
            // A missing entry is no error, because everything works without it.
            let _ = fs::remove_file(&part);
            return;
        }
        self.delete_stale(kind);
    }

    fn path(&self, kind: &str, asked: &str) -> PathBuf {
        self.directory.join(format!(
            "{}-{kind}-{:032x}.zst",
            self.state,
            XxHash3_128::oneshot(asked.as_bytes())
        ))
    }

    /// Deletes entries for other files or programs, and the oldest entries of this kind beyond
    /// [`ENTRIES_MAX`].
    fn delete_stale(&self, kind: &str) {
        let Ok(entries) = fs::read_dir(&self.directory) else {
            return;
        };
        let own = format!("{}-{kind}-", self.state);
        let mut of_kind = Vec::new();
        for entry in entries.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(&own) {
                let modified = entry.metadata().and_then(|about| about.modified());
                of_kind.push((modified.unwrap_or(UNIX_EPOCH), entry.path()));
            } else if !name.starts_with(&self.state) && is_entry(&entry.path()) {
                let _ = fs::remove_file(entry.path());
            }
        }
        of_kind.sort();
        let more = of_kind.len().saturating_sub(ENTRIES_MAX);
        of_kind.iter().take(more).for_each(|(_, path)| {
            let _ = fs::remove_file(path);
        });
    }
}

/// Reports whether a file has the extension of an entry or of a partly written entry.
fn is_entry(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "zst" || extension == "part")
}

fn state(store: &Store) -> Result<String, StoreError> {
    let mut text = program();
    for table in StoreTable::OF_TRACES {
        for (path, bytes) in store.list(table)? {
            text += &format!("{path} {bytes}\n");
        }
    }
    Ok(format!("{:032x}", XxHash3_128::oneshot(text.as_bytes())))
}

/// Returns the version, size and modification time of this program as text. Another program may
/// compute other results or encode them differently.
fn program() -> String {
    let about = std::env::current_exe().and_then(fs::metadata);
    let modified = about.as_ref().ok().and_then(|about| about.modified().ok());
    let since = modified.and_then(|modified| modified.duration_since(SystemTime::UNIX_EPOCH).ok());
    let bytes = about.map_or(0, |about| about.len());
    format!(
        "{} {bytes} {:?}\n",
        env!("CARGO_PKG_VERSION"),
        since.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_asked_of_these_files_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let cache = |state: &str| Cache {
            directory: directory.path().join("cache"),
            state: state.to_owned(),
        };
        let (now, later) = (cache("a"), cache("b"));
        now.keep("kind", "question", &(1_u64, "answer".to_owned()));
        assert_eq!(
            now.find("kind", "question"),
            Some((1_u64, "answer".to_owned()))
        );
        assert_eq!(now.find::<(u64, String)>("kind", "another"), None);
        assert_eq!(later.find::<(u64, String)>("kind", "question"), None);
        later.keep("kind", "question", &2_u64);
        assert_eq!(
            now.find::<(u64, String)>("kind", "question"),
            None,
            "it is stale, and deleted"
        );
        assert_eq!(later.find("kind", "question"), Some(2_u64));
    }

    #[test]
    fn there_are_never_many() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache {
            directory: directory.path().to_owned(),
            state: "a".to_owned(),
        };
        cache.keep("other", "question", &0_u64);
        (0..3 * ENTRIES_MAX as u64).for_each(|n| cache.keep("kind", &n.to_string(), &n));
        assert_eq!(
            fs::read_dir(directory.path()).unwrap().count(),
            ENTRIES_MAX + 1
        );
        assert_eq!(cache.find("other", "question"), Some(0_u64));
    }

    #[test]
    fn what_cannot_be_read_or_written_is_done_without() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache {
            directory: directory.path().to_owned(),
            state: "a".to_owned(),
        };
        cache.keep("kind", "question", &7_u64);
        let path = cache.path("kind", "question");
        let whole = fs::read(&path).unwrap();
        for cut in 0..whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            assert_eq!(
                cache.find::<u64>("kind", "question"),
                None,
                "{cut} of {} bytes",
                whole.len()
            );
        }
        let file = directory.path().join("file");
        fs::write(&file, "").unwrap();
        Cache {
            directory: file,
            state: "a".to_owned(),
        }
        .keep("kind", "question", &7_u64);
    }
}
