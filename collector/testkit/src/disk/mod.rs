//! A simulated disk that fails, tears and forgets as much as POSIX allows:
//!
//! - A write to a file is visible at once, and durable after a sync of the file. After a power cut,
//!   each sector of 512 bytes, and the length, is as it was after some number of the writes since
//!   the last sync. This number may differ between sectors.
//! - A name that is created, renamed or removed is visible at once, and durable after a sync of its
//!   directory. After a power cut, any subset of the changes since then may have happened. A rename
//!   is one change, or two between directories.
//! - A failed sync of a file leaves pages that are clean and lost: some of the pending writes are
//!   durable, the rest never will be, and the next sync reports success. A later read may return
//!   the written or the durable content. After a failed sync of a directory, its changes stay
//!   pending, because a file system that cannot write its journal stops.
//! - A kill of the process keeps everything visible, durable or not.
//!
//! The same seed produces the same behaviour.

mod files;
mod objects;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::{self, ErrorKind};
use std::path::{Component, Path};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stroboscope_store::disk::{Disk, DiskFile, IfThere};

use crate::random::Random;
use files::{Contents, Names};

/// Current faults of the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Number of operations that fail, per thousand.
    pub errors_per_mille: usize,
    /// True if writes fail for lack of space.
    pub is_full: bool,
    /// True if the disk was remounted read-only.
    pub is_read_only: bool,
}

/// Selects the paths whose syncs report success without any effect.
pub type Lie = fn(&Path) -> bool;

/// The simulated disk. Clones share its state.
#[derive(Clone, Debug)]
pub struct SimDisk(Arc<Mutex<State>>);

#[derive(Clone, Debug)]
enum Inode {
    File(Contents),
    Directory(Names),
}

#[derive(Clone, Debug)]
struct State {
    random: Random,
    inodes: Vec<Inode>,
    faults: Faults,
    lie: Option<Lie>,
    /// Operation at which the machine, or the process, ends.
    ends_at: Option<u64>,
    has_ended: bool,
    /// Number of the process's current life; files that an earlier life opened are closed.
    life: u64,
    operations: u64,
    log: Option<Vec<String>>,
}

const ROOT: usize = 0;

/// Kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    Change,
    Sync,
}

impl SimDisk {
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            random: Random(seed),
            inodes: vec![Inode::Directory(Names::default())],
            faults: Faults::default(),
            lie: None,
            ends_at: None,
            has_ended: false,
            life: 0,
            operations: 0,
            log: None,
        })))
    }

    /// Returns an independent disk with the same contents, which continues with another seed.
    #[must_use]
    pub fn copy(&self, seed: u64) -> Self {
        let mut state = self.state().clone();
        state.random = Random(seed);
        Self(Arc::new(Mutex::new(state)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_faults(&self, faults: Faults) {
        self.state().faults = faults;
    }

    pub fn set_lie(&self, lie: Option<Lie>) {
        self.state().lie = lie;
    }

    /// Records all operations from now on.
    pub fn start_log(&self) {
        self.state().log = Some(Vec::new());
    }

    /// Adds a line to the record.
    pub fn note(&self, line: impl FnOnce() -> String) {
        if let Some(log) = &mut self.state().log {
            log.push(line());
        }
    }

    /// Returns the recorded lines.
    pub fn log(&self) -> Vec<String> {
        self.state().log.clone().unwrap_or_default()
    }

    /// Ends the process or the machine during a later operation: the next one if `operations` is 1.
    /// `None` cancels an end that was set before.
    pub fn end_after(&self, operations: Option<u64>) {
        let mut state = self.state();
        state.ends_at = operations.map(|more| state.operations + more);
    }

    pub fn has_ended(&self) -> bool {
        self.state().has_ended
    }

    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Simulates a restart of the process; the machine kept running.
    pub fn restart_process(&self) {
        let mut state = self.state();
        (state.has_ended, state.ends_at) = (false, None);
        state.life += 1;
        state.tell(|| "-- killed".to_owned());
    }

    /// Simulates a power cut and a restart of the machine.
    pub fn restart_machine(&self) {
        let mut state = self.state();
        let State { inodes, random, .. } = &mut *state;
        for inode in inodes {
            match inode {
                Inode::File(contents) => contents.lose_power(random),
                Inode::Directory(names) => names.lose_power(random),
            }
        }
        drop(state);
        self.restart_process();
        self.note(|| "-- the power was cut".to_owned());
    }

    /// Returns all files below a directory, with their sizes in bytes.
    pub fn files(&self, directory: &Path) -> BTreeMap<String, usize> {
        let state = self.state();
        let mut found = BTreeMap::new();
        if let Ok(at) = state.find(directory) {
            state.walk(at, String::new(), &mut found);
        }
        found
    }
}

impl State {
    fn tell(&mut self, line: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            log.push(line());
        }
    }

    /// Begins an operation. Returns false if the process or the machine ends during the operation,
    /// which is then performed only in part. Returns an error if a fault prevents the operation, or
    /// if the end has come before.
    fn begin(&mut self, kind: Kind, what: &dyn Debug, path: &Path) -> io::Result<bool> {
        if self.has_ended {
            return Err(io::Error::other("the process has ended"));
        }
        self.operations += 1;
        let at = self.operations;
        self.tell(|| format!("{at} {what:?} {}", path.display()));
        if self.ends_at == Some(at) {
            self.has_ended = true;
            return Ok(false);
        }
        let error = if self.faults.is_read_only && matches!(kind, Kind::Write | Kind::Change) {
            ErrorKind::ReadOnlyFilesystem
        } else if self.faults.is_full && kind == Kind::Write {
            ErrorKind::StorageFull
        } else if self.random.happens(self.faults.errors_per_mille) {
            ErrorKind::Other
        } else {
            return Ok(true);
        };
        self.tell(|| format!("{at} fails: {error:?}"));
        Err(error.into())
    }

    fn ended() -> io::Error {
        io::Error::other("the process ended in the midst of this")
    }

    fn find(&self, path: &Path) -> io::Result<usize> {
        let mut at = ROOT;
        for component in path.components() {
            let Component::Normal(name) = component else {
                continue;
            };
            let Inode::Directory(names) = &self.inodes[at] else {
                return Err(ErrorKind::NotADirectory.into());
            };
            let name = name.to_string_lossy();
            at = names.get(&name).ok_or(ErrorKind::NotFound)?;
        }
        Ok(at)
    }

    fn above<'p>(&mut self, path: &'p Path) -> io::Result<(&mut Names, &'p str)> {
        let name = path.file_name().and_then(|name| name.to_str());
        let above = self.find(path.parent().unwrap_or(Path::new("")))?;
        match (&mut self.inodes[above], name) {
            (Inode::Directory(names), Some(name)) => Ok((names, name)),
            _ => Err(ErrorKind::NotADirectory.into()),
        }
    }

    fn contents(&mut self, at: usize) -> io::Result<(&mut Contents, &mut Random)> {
        match &mut self.inodes[at] {
            Inode::File(contents) => Ok((contents, &mut self.random)),
            Inode::Directory(_) => Err(ErrorKind::IsADirectory.into()),
        }
    }

    fn add(&mut self, path: &Path, inode: Inode) -> io::Result<usize> {
        let at = self.inodes.len();
        let (names, name) = self.above(path)?;
        names.change(vec![(name.to_owned(), Some(at))]);
        self.inodes.push(inode);
        Ok(at)
    }

    fn sync(&mut self, at: usize, path: &Path) -> io::Result<()> {
        let begun = self.begin(Kind::Sync, &"sync", path);
        if !matches!(begun, Ok(false)) && self.lie.is_some_and(|is_lie| is_lie(path)) {
            return begun.map(drop);
        }
        let Self { inodes, random, .. } = self;
        match (begun, &mut inodes[at]) {
            (Ok(true), Inode::File(contents)) => contents.sync(),
            (Ok(true), Inode::Directory(names)) => names.sync(),
            (Ok(false), _) => return Err(Self::ended()),
            (Err(error), Inode::File(contents)) => {
                if !self.has_ended {
                    contents.lose_pages(random);
                }
                return Err(error);
            }
            (Err(error), Inode::Directory(_)) => return Err(error),
        }
        Ok(())
    }

    fn walk(&self, at: usize, path: String, found: &mut BTreeMap<String, usize>) {
        match &self.inodes[at] {
            Inode::File(contents) => drop(found.insert(path, contents.read().len())),
            Inode::Directory(names) => {
                for (name, below) in names.iter() {
                    let slash = if path.is_empty() { "" } else { "/" };
                    self.walk(below, format!("{path}{slash}{name}"), found);
                }
            }
        }
    }
}

impl Disk for SimDisk {
    fn create(&self, path: &Path, if_there: IfThere) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state();
        let is_whole = state.begin(Kind::Change, &"create", path)?;
        let at = match (state.find(path), if_there) {
            (Ok(_), IfThere::Fail) => return Err(ErrorKind::AlreadyExists.into()),
            (Ok(at), IfThere::Empty) => {
                state.contents(at)?.0.cut(0);
                at
            }
            (Err(error), _) if error.kind() != ErrorKind::NotFound => return Err(error),
            (Err(_), _) => state.add(path, Inode::File(Contents::default()))?,
        };
        if !is_whole {
            return Err(State::ended());
        }
        Ok(Box::new(SimFile {
            disk: self.clone(),
            at,
            life: state.life,
            path: path.to_owned(),
        }))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut state = self.state();
        if !state.begin(Kind::Read, &"read", path)? {
            return Err(State::ended());
        }
        let at = state.find(path)?;
        let (contents, random) = state.contents(at)?;
        contents.forget_some(random);
        Ok(contents.read().to_vec())
    }

    fn names(&self, directory: &Path) -> io::Result<Vec<String>> {
        let mut state = self.state();
        if !state.begin(Kind::Read, &"names", directory)? {
            return Err(State::ended());
        }
        let at = state.find(directory)?;
        match &state.inodes[at] {
            Inode::Directory(names) => Ok(names.iter().map(|(name, _)| name.to_owned()).collect()),
            Inode::File(_) => Err(ErrorKind::NotADirectory.into()),
        }
    }

    fn create_directories(&self, directory: &Path) -> io::Result<()> {
        let mut state = self.state();
        for path in directory.ancestors().collect::<Vec<_>>().into_iter().rev() {
            match state.find(path) {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    let is_whole = state.begin(Kind::Change, &"create directory", path)?;
                    state.add(path, Inode::Directory(Names::default()))?;
                    if !is_whole {
                        return Err(State::ended());
                    }
                }
                found => drop(found?),
            }
        }
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        let is_whole = state.begin(Kind::Change, &("rename", from), to)?;
        let at = state.find(from)?;
        // Both directories must exist before anything changes.
        let come = state.above(to)?.1.to_owned();
        let (names, gone) = state.above(from)?;
        if from.parent() == to.parent() {
            names.change(vec![(gone.to_owned(), None), (come, Some(at))]);
        } else {
            names.change(vec![(gone.to_owned(), None)]);
            state.above(to)?.0.change(vec![(come, Some(at))]);
        }
        is_whole.then_some(()).ok_or_else(State::ended)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        let is_whole = state.begin(Kind::Change, &"remove", path)?;
        state.find(path)?;
        let (names, name) = state.above(path)?;
        names.change(vec![(name.to_owned(), None)]);
        is_whole.then_some(()).ok_or_else(State::ended)
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        let at = state.find(path)?;
        state.sync(at, path)
    }
}

struct SimFile {
    disk: SimDisk,
    at: usize,
    life: u64,
    path: std::path::PathBuf,
}

impl SimFile {
    fn state(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.disk.state();
        if state.life == self.life {
            Ok(state)
        } else {
            Err(io::Error::other(
                "the file was opened by an earlier process",
            ))
        }
    }
}

impl DiskFile for SimFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state()?;
        let has_begun = !state.has_ended;
        let begun = state.begin(Kind::Write, &("append", bytes.len()), &self.path);
        let written = match &begun {
            Ok(true) => bytes.len(),
            Err(error) if error.kind() == ErrorKind::ReadOnlyFilesystem => 0,
            _ => state.random.below(bytes.len() + 1),
        };
        if has_begun {
            state.contents(self.at)?.0.append(&bytes[..written]);
        }
        begun?.then_some(()).ok_or_else(State::ended)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.state()?.sync(self.at, &self.path)
    }

    fn cut(&mut self, len_bytes: u64) -> io::Result<()> {
        let mut state = self.state()?;
        let is_whole = state.begin(Kind::Change, &("cut", len_bytes), &self.path)?;
        state.contents(self.at)?.0.cut(len_bytes as usize);
        is_whole.then_some(()).ok_or_else(State::ended)
    }
}
