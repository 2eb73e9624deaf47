//! Background thread that publishes finished files to the object store.
//!
//! Other threads wait for this thread only at the end of the collector. Each round has three steps:
//!
//! 1. It uploads new files, each under a unique object name.
//! 2. After every 64 files and at the end, it writes a manifest if its content has changed. The
//!    write is conditional on the previous manifest.
//! 3. It deletes objects that no manifest has listed for the grace period.
//!
//! A crash may leave unlisted objects. The next start finds them and schedules their deletion.

#[cfg(feature = "simulation")]
mod simulated;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{self, RecvTimeoutError, TryRecvError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use object_store::path::Path;
use object_store::{Error, ObjectStoreExt as _};
use stroboscope_store::data_dir::DataDir;
use stroboscope_store::flush::{Counters, now_ns};
use stroboscope_store::publishing::PublishCounters;
use stroboscope_store::tables::{Hour, Segments, Store, StoreError, StoreTable};
use tokio::runtime::Handle;

use crate::address::{Remote, RemoteError};
use crate::identity::{Identity, random};
use crate::manifest::{self, Manifest, PublishedFile, Read, UnnamedObject, Wrote, directory_of};
use crate::naming::{covers, half_thinned, without_covered};
use crate::upload::upload;
#[cfg(feature = "simulation")]
pub use simulated::SimulatedPublisher;

/// Pause between a successful round and the next one.
const INTERVAL: Duration = Duration::from_secs(2);
/// Wait after the first failure; it doubles with each further failure in a row.
const BACK_OFF_MIN: Duration = Duration::from_secs(1);
/// Maximum wait after a failure.
const BACK_OFF_MAX: Duration = Duration::from_secs(60);
/// Time for which unlisted objects are kept: readers of the previous manifest may still fetch them.
const GRACE: Duration = Duration::from_secs(3_600);
/// Maximum number of new files before a manifest is written.
const FILES_PER_MANIFEST: usize = 64;
/// Time after which the last round begins no upload, when the collector stops.
const LAST_ROUND_MAX: Duration = Duration::from_secs(10);

/// Source, destination and retention of publishing.
#[derive(Clone, Debug)]
pub struct PublishSettings {
    /// Data directory to publish.
    pub data: PathBuf,
    /// Object store to publish to.
    pub remote: Remote,
    /// Retention: hours that ended longer ago are deleted from the object store. `None` keeps all.
    pub keep: Option<Duration>,
}

/// Handle to the running thread.
#[derive(Debug)]
pub struct Publisher {
    stop: mpsc::Sender<()>,
    thread: JoinHandle<()>,
}

impl Publisher {
    /// Starts the thread. `flushed` has the collector's counters, `counters` those of publishing.
    ///
    /// # Errors
    /// Returns an error if the data directory cannot be used or no thread can be created. An
    /// unreachable object store is no error.
    pub fn start(
        settings: PublishSettings,
        runtime: Handle,
        flushed: Arc<Counters>,
        counters: Arc<PublishCounters>,
    ) -> Result<Self, RemoteError> {
        let mut rounds = Rounds::of(settings, runtime, flushed, counters)?;
        let (stop, stopped) = mpsc::channel();
        let path = rounds.data.clone();
        let thread = std::thread::Builder::new().name("store-publish".to_owned());
        let thread = thread.spawn(move || rounds.run(&stopped));
        let thread = thread.map_err(|source| RemoteError::Local { path, source })?;
        Ok(Self { stop, thread })
    }

    /// Ends the thread, usually after a last round, which begins no upload after ten seconds.
    pub fn stop(self) {
        // Sending fails if the thread has already ended.
        let _ = self.stop.send(());
        drop(self.stop);
        if self.thread.join().is_err() {
            tracing::error!("publishing panicked; all data is in the data directory");
        }
    }
}

/// Outcome of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    /// Every file that was present is uploaded.
    Complete,
    /// The round was stopped, files disappeared during it, or the manifest at its end is unknown.
    Partial,
}

struct Rounds {
    data: PathBuf,
    remote: Remote,
    keep: Option<Duration>,
    store: Store,
    runtime: Handle,
    flushed: Arc<Counters>,
    counters: Arc<PublishCounters>,
    identity: Identity,
    /// Published manifest that this process wrote; `None` if it is unknown.
    owned: Option<Read>,
    /// Published manifest that the latest write was to replace; `None` if there was none.
    replaced: Option<Read>,
    /// Uploaded objects for the next manifest to list, by the path of their file.
    put: BTreeMap<String, PublishedFile>,
    /// Paths of the files that were unpublished at the previous check.
    behind: BTreeSet<String>,
    /// Prefix of this process's object names; a number follows.
    session: String,
    objects: u64,
}

impl Rounds {
    fn of(
        settings: PublishSettings,
        runtime: Handle,
        flushed: Arc<Counters>,
        counters: Arc<PublishCounters>,
    ) -> Result<Self, RemoteError> {
        let PublishSettings { data, remote, keep } = settings;
        let store = Store::local(&data, runtime.clone()).map_err(|error| local(&data, error))?;
        Ok(Self {
            identity: Identity::of(&data)?,
            session: random()?,
            store,
            data,
            remote,
            keep,
            runtime,
            flushed,
            counters,
            owned: None,
            replaced: None,
            put: BTreeMap::new(),
            behind: BTreeSet::new(),
            objects: 0,
        })
    }

    fn run(&mut self, stopped: &mpsc::Receiver<()>) {
        step_back();
        let mut wait = Duration::ZERO;
        let mut back_off = BACK_OFF_MIN;
        while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
            match self.round(&|| stopped.try_recv() == Err(TryRecvError::Empty)) {
                Ok(_) => {
                    if back_off > BACK_OFF_MIN {
                        tracing::info!("publishing to {} again", self.remote.url);
                    }
                    (wait, back_off) = (INTERVAL, BACK_OFF_MIN);
                }
                Err(error) => {
                    self.counters.failures(error.cause()).fetch_add(1, Relaxed);
                    if matches!(error, RemoteError::Fenced { .. }) {
                        self.counters.fenced.store(1, Relaxed);
                        // Files no longer wait for publication.
                        self.counters.set_waiting(BTreeSet::new());
                        tracing::error!("{error}");
                        return;
                    }
                    tracing::warn!(
                        "cannot publish: {error}; all data stays in the data directory, trying again in {} s",
                        back_off.as_secs()
                    );
                    (wait, back_off) = (back_off, (back_off * 2).min(BACK_OFF_MAX));
                }
            }
        }
        self.last_round();
    }

    fn last_round(&mut self) {
        // If another process has locked the directory, the rest is left to it.
        let Ok(data) = DataDir::existing(&self.data) else {
            return;
        };
        let Ok(_lock) = data.lock() else {
            return;
        };
        let begun = Instant::now();
        let goes_on = || begun.elapsed() < LAST_ROUND_MAX;
        let mut ended = self.round(&goes_on);
        if ended.is_ok() && self.owned.is_none() {
            ended = self.round(&goes_on); // adopts a late manifest
        }
        match ended {
            Ok(Round::Complete) => {}
            Ok(Round::Partial) => tracing::warn!(
                "not all data is published to {}: the rest follows when a collector runs on this directory again",
                self.remote.url
            ),
            Err(error) => {
                tracing::warn!("unpublished data stays in the data directory: {error}");
            }
        }
    }

    fn round(&mut self, goes_on: &dyn Fn() -> bool) -> Result<Round, RemoteError> {
        let files = self.files()?;
        self.note_behind(&files);
        if self.owned.is_none() {
            self.claim()?;
            self.note_behind(&files);
        }
        let mut is_complete = true;
        for chunk in self.unpublished(&files).chunks(FILES_PER_MANIFEST) {
            for file in chunk {
                if !goes_on() {
                    is_complete = false;
                    break;
                }
                is_complete &= self.put(file)?;
            }
            self.write(&files)?;
            self.note_behind(&files);
            if !is_complete && !goes_on() {
                return Ok(Round::Partial);
            }
        }
        self.tidy(&files)?;
        if !is_complete || self.owned.is_none() {
            return Ok(Round::Partial);
        }
        self.counters.last_success_ns.store(now_ns(), Relaxed);
        Ok(Round::Complete)
    }

    /// Lists the finished local files within the retention, published or not.
    fn files(&self) -> Result<Vec<PublishedFile>, RemoteError> {
        // The flusher may still be writing later segments.
        let next_segment = self.flushed.checkpoint_segment.load(Relaxed);
        let mut files = Vec::new();
        // Lists the tables together, so that an hour is thinned in all of them or in none.
        let listed = self.store.list_together(&StoreTable::ALL);
        let listed = listed.map_err(|error| local(&self.data, error))?;
        for (path, bytes) in listed.into_iter().flatten() {
            if Segments::of(&path).is_none_or(|of| of.last < next_segment)
                && !self.is_old(path.as_ref())
            {
                files.push(PublishedFile {
                    path: path.to_string(),
                    object: String::new(),
                    bytes,
                });
            }
        }
        Ok(files)
    }

    fn is_old(&self, path: &str) -> bool {
        let Some((keep, hour)) = self.keep.zip(Hour::of_object(path)) else {
            return false;
        };
        let keep_ns = i64::try_from(keep.as_nanos()).unwrap_or(i64::MAX);
        now_ns().saturating_sub(hour.end_ns()) > keep_ns
    }

    /// Returns the files that the last known manifest, if any, does not list with path and size.
    fn unpublished<'a>(&self, files: &'a [PublishedFile]) -> Vec<&'a PublishedFile> {
        let known = self.owned.as_ref().or(self.replaced.as_ref());
        let published = known.into_iter().flat_map(|read| &read.manifest.files);
        let there: BTreeSet<(&str, u64)> = published.map(PublishedFile::what).collect();
        let missing = files.iter().filter(|file| !there.contains(&file.what()));
        missing.collect()
    }

    fn note_behind(&mut self, files: &[PublishedFile]) {
        let behind = self.unpublished(files);
        let counters = &self.counters;
        counters.files_behind.store(behind.len() as u64, Relaxed);
        let bytes = behind.iter().map(|file| file.bytes).sum();
        counters.bytes_behind.store(bytes, Relaxed);
        let hours = behind.iter().filter_map(|file| Hour::of_object(&file.path));
        counters.set_waiting(hours.collect());
        // A file that is gone and that no other file covers was deleted by retention.
        let here: BTreeSet<&str> = files.iter().map(|file| &*file.path).collect();
        let is_here =
            |path: &str| here.contains(path) || files.iter().any(|file| covers(&file.path, path));
        let is_missed = |path: &&String| !is_here(path) && !self.is_old(path);
        let missed = self.behind.iter().filter(is_missed).count() as u64;
        counters.files_missed.fetch_add(missed, Relaxed);
        self.behind = behind.iter().map(|file| file.path.clone()).collect();
    }

    /// Adopts the published manifest if this directory wrote it, or writes the first one. Returns
    /// an error if another directory wrote it. The manifest is written anew, so a copy of this
    /// directory finds it changed. Schedules unlisted objects of ended processes for deletion.
    fn claim(&mut self) -> Result<(), RemoteError> {
        let (remote, id) = (self.remote.clone(), self.identity.id.clone());
        let found = self.runtime.block_on(manifest::read(&remote, &id))?;
        if let Some(read) = &found
            && !self.identity.wrote(&read.manifest.nonce)
        {
            return Err(self.fenced());
        }
        let adopted = found.as_ref().map(|read| read.manifest.clone());
        let mut manifest = adopted.unwrap_or_else(Manifest::empty);
        let objects = self.runtime.block_on(manifest::objects_of(&remote, &id))?;
        let listed = manifest.files.iter().map(|file| &*file.object);
        let unnamed = manifest.unnamed.iter().map(|unnamed| &*unnamed.object);
        let known: BTreeSet<String> = listed.chain(unnamed).map(str::to_owned).collect();
        let is_left =
            |object: &String| !known.contains(object) && !object.starts_with(&self.session);
        let since_ns = now_ns();
        let left = objects.into_iter().filter(is_left);
        let left = left.map(|object| UnnamedObject { object, since_ns });
        manifest.unnamed.extend(left);
        self.replace(found.as_ref(), manifest)
    }

    /// Uploads a file, unless it is uploaded already; returns false if it no longer exists locally.
    fn put(&mut self, file: &PublishedFile) -> Result<bool, RemoteError> {
        let before = self.put.get(&file.path);
        if before.is_some_and(|put| put.bytes == file.bytes) {
            return Ok(true);
        }
        let path = self.data.join(&file.path);
        let opened = match std::fs::File::open(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            opened => opened,
        };
        self.objects += 1;
        let object = format!("{}-{}/{}", self.session, self.objects, file.path);
        let to = Path::from(format!("{}/{object}", directory_of(&self.identity.id)));
        let mut from = opened.map_err(RemoteError::at(&path))?;
        let upload = upload(&self.remote, &mut from, &path, &to);
        let bytes = self.runtime.block_on(upload)?;
        self.counters.files.fetch_add(1, Relaxed);
        self.counters.bytes.fetch_add(bytes, Relaxed);
        let published = PublishedFile {
            path: file.path.clone(),
            object,
            bytes,
        };
        self.put.insert(file.path.clone(), published);
        Ok(true)
    }

    /// Writes a manifest if its content has changed and the published manifest is known.
    fn write(&mut self, files: &[PublishedFile]) -> Result<(), RemoteError> {
        let Some(owned) = self.owned.clone() else {
            return Ok(());
        };
        let before = &owned.manifest;
        let here: BTreeSet<&str> = files.iter().map(|file| &*file.path).collect();
        let listed = before.files.iter().map(|file| (&*file.path, file));
        let mut all: BTreeMap<&str, &PublishedFile> = listed.collect();
        // Leaves out uploaded files that are gone meanwhile: another file covers them or will cover
        // them, or they expired.
        let put = self.put.values().filter(|file| here.contains(&*file.path));
        all.extend(put.map(|file| (&*file.path, file)));
        let waiting = half_thinned(files, &before.files, &all);
        all.retain(|path, _| !waiting.contains(*path));
        let named = without_covered(all.into_values().filter(|file| !self.is_old(&file.path)));
        let objects: BTreeSet<&str> = named.iter().map(|file| &*file.object).collect();
        let since_ns = now_ns();
        let known = before.files.iter().chain(self.put.values());
        let known = known.filter(|file| !waiting.contains(&*file.path));
        let gone = known.filter(|file| !objects.contains(&*file.object));
        let gone: BTreeSet<String> = gone.map(|file| file.object.clone()).collect();
        let unnamed = |object| UnnamedObject { object, since_ns };
        let mut manifest = before.clone();
        manifest.unnamed.extend(gone.into_iter().map(unnamed));
        manifest.files = named;
        manifest.requests = manifest::requests_of(&self.data)?;
        if manifest == *before {
            return Ok(());
        }
        self.replace(Some(&owned), manifest)?;
        // A late manifest, which the next round adopts, does not list the uploaded files.
        if self.owned.is_some() {
            self.put.retain(|path, _| waiting.contains(path));
        }
        Ok(())
    }

    /// Removes expired files from the manifest; deletes objects unlisted for the grace period.
    fn tidy(&mut self, files: &[PublishedFile]) -> Result<(), RemoteError> {
        self.write(files)?;
        let Some(owned) = self.owned.clone() else {
            return Ok(());
        };
        let grace_ns = i64::try_from(GRACE.as_nanos()).unwrap_or(i64::MAX);
        let latest_ns = now_ns().saturating_sub(grace_ns);
        let mut manifest = owned.manifest.clone();
        let is_over = |unnamed: &UnnamedObject| unnamed.since_ns < latest_ns;
        let unnamed = std::mem::take(&mut manifest.unnamed).into_iter();
        let (over, rest): (Vec<_>, Vec<_>) = unnamed.partition(is_over);
        if over.is_empty() {
            return Ok(());
        }
        for unnamed in &over {
            let directory = directory_of(&self.identity.id);
            let path = Path::from(format!("{directory}/{}", unnamed.object));
            match self.runtime.block_on(self.remote.objects.delete(&path)) {
                Ok(()) | Err(Error::NotFound { .. }) => {}
                Err(error) => return Err(self.remote.failed(error)),
            }
            self.counters.objects_deleted.fetch_add(1, Relaxed);
        }
        manifest.unnamed = rest;
        self.replace(Some(&owned), manifest)
    }

    fn replace(
        &mut self,
        before: Option<&Read>,
        mut manifest: Manifest,
    ) -> Result<(), RemoteError> {
        manifest.generation += 1;
        manifest.nonce = random()?;
        let (remote, id) = (self.remote.clone(), self.identity.id.clone());
        let nonce = manifest.nonce.clone();
        let replaced = before.map(|read| &*read.manifest.nonce);
        self.identity
            .begin(&self.data, &remote.url, replaced, &nonce)?;
        let wrote = manifest::write(&remote, &id, before, manifest);
        // The current manifest is unknown until the write is confirmed.
        (self.owned, self.replaced) = (None, before.cloned());
        self.owned = match self.runtime.block_on(wrote)? {
            Wrote::Done(read) => Some(read),
            Wrote::Changed => match self.runtime.block_on(manifest::read(&remote, &id))? {
                // The response was lost, and the client sent the request again.
                Some(read) if read.manifest.nonce == nonce => Some(read),
                // An earlier write of this directory arrived late; the next round adopts it.
                Some(read) if self.identity.wrote(&read.manifest.nonce) => None,
                Some(_) => return Err(self.fenced()),
                None => None,
            },
        };
        Ok(())
    }

    fn fenced(&self) -> RemoteError {
        RemoteError::Fenced {
            url: self.remote.url.clone(),
            id: self.identity.id.clone(),
            file: Identity::path(&self.data).display().to_string(),
        }
    }
}

fn local(data: &std::path::Path, error: StoreError) -> RemoteError {
    RemoteError::at(data)(std::io::Error::other(error))
}

/// Lowers this thread's priority to the minimum, on Linux.
fn step_back() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(None, 19) {
        tracing::debug!("publishing runs at normal priority: {error}");
    }
}
