//! The collector's publisher, a copy of its data directory that publishes too, and readers'
//! mirrors.
//!
//! Publishers and mirrors read real directories: each round first copies the simulated disk to one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use stroboscope_fixtures::stored::Stored;
use stroboscope_remote::address::{Remote, RemoteError};
use stroboscope_remote::mirror::Mirror;
use stroboscope_remote::publish::{PublishSettings, SimulatedPublisher};
use stroboscope_store::disk::Disk as _;
use stroboscope_store::flush::Counters;
use stroboscope_store::tables::Store;
use tokio::runtime::Runtime;

use crate::clock;
use crate::collector::{Machine, ROOT};
use crate::log::Log;
use crate::objects::{ObjectFaults, SimObjects};
use crate::plan::Planted;

const URL: &str = "s3://simulated/store";

pub(crate) struct Publishing {
    pub(crate) objects: SimObjects,
    machine: Machine,
    log: Log,
    directory: PathBuf,
    planted: Planted,
    publisher: Option<SimulatedPublisher>,
    runtime: Runtime,
    pub(crate) is_fenced: bool,
    reads: u64,
}

/// Creates a runtime with one thread for files, so that it draws equally many random numbers in
/// each run of a seed.
fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let builder = builder.enable_all().max_blocking_threads(1);
    builder.build().expect("a runtime")
}

impl Publishing {
    pub(crate) fn new(
        objects: SimObjects,
        machine: Machine,
        directory: &Path,
        planted: Planted,
    ) -> Self {
        let log = machine.log.clone();
        Self {
            objects,
            machine,
            log,
            directory: directory.to_owned(),
            planted,
            publisher: None,
            runtime: runtime(),
            is_fenced: false,
            reads: 0,
        }
    }

    fn data(&self) -> PathBuf {
        self.directory.join("published")
    }

    /// Drops the publisher, because the collector's process is gone.
    pub(crate) fn forget(&mut self) {
        self.publisher = None;
    }

    /// Runs one round of the publisher of the collector that has these counters. Returns true if
    /// everything is published.
    pub(crate) fn round(&mut self, flushed: &Arc<Counters>) -> bool {
        if self.is_fenced {
            return false;
        }
        let mut done = Ok(false);
        clock::apart(&mut || done = self.try_round(flushed));
        self.log.add(
            "publisher",
            format_args!("a round: {:?}", done.as_ref().map_err(|error| error.0)),
        );
        self.is_fenced = done.as_ref().is_err_and(|error| error.1);
        done.unwrap_or(false)
    }

    fn try_round(&mut self, flushed: &Arc<Counters>) -> Result<bool, (&'static str, bool)> {
        let data = self.data();
        copy_out(&self.machine, &data).map_err(|_| ("the disk fails", false))?;
        let publisher = match &mut self.publisher {
            Some(publisher) => publisher,
            none => {
                let objects = self
                    .objects
                    .used_by("publisher", self.planted == Planted::ConditionIgnored);
                let started = publisher(&data, objects, &self.runtime, flushed)
                    .map_err(|error| short(&error))?;
                none.insert(started)
            }
        };
        publisher.round().map_err(|error| short(&error))
    }

    /// Copies the data directory, if the publisher has begun and the disk works. A publisher of the
    /// copy runs once programs have begun this many more updates.
    pub(crate) fn set_copy(&mut self, after: usize, flushed: &Arc<Counters>) {
        let copy = self.directory.join("copy");
        let _ = std::fs::remove_dir_all(&copy);
        if !self.data().join("published.json").exists()
            || copy_out(&self.machine, &self.data()).is_err()
        {
            return;
        }
        copy_directory(&self.data(), &copy).expect("a directory in memory");
        let (objects, log) = (self.objects.used_by("copy", false), self.log.clone());
        let counters = Arc::new(Counters::default());
        let segment = flushed
            .checkpoint_segment
            .load(std::sync::atomic::Ordering::Relaxed);
        counters
            .checkpoint_segment
            .store(segment, std::sync::atomic::Ordering::Relaxed);
        self.log.add("copy", "made");
        let meanwhile = move || {
            let runtime = runtime();
            let done = publisher(&copy, objects, &runtime, &counters)
                .and_then(|mut publisher| publisher.round());
            log.add(
                "copy",
                format_args!("a round: {:?}", done.map_err(|error| short(&error).0)),
            );
        };
        self.objects.set_meanwhile(after, Box::new(meanwhile));
    }

    /// Returns a reader's view; `None` if it cannot read now.
    pub(crate) fn read(&mut self, faults: ObjectFaults) -> Option<Stored> {
        self.reads += 1;
        let objects = self.objects.used_by_reader(self.reads, faults);
        let cache = self.directory.join("cache");
        let mut read = None;
        clock::apart(&mut || {
            let remote = Remote::simulated(URL, objects.clone());
            let runtime = runtime();
            let Ok(mirror) = runtime.block_on(Mirror::of(&remote, &cache)) else {
                return;
            };
            let store =
                Store::local(mirror.directory(), runtime.handle().clone()).expect("a mirror");
            read = Some(Stored::read(&store).expect("whole files"));
        });
        let rows = read
            .as_ref()
            .map(|read| (read.batches.len(), read.spans.len()));
        self.log
            .add("reader", format_args!("sees {rows:?} batches and spans"));
        read
    }
}

fn publisher(
    data: &Path,
    objects: Arc<SimObjects>,
    runtime: &Runtime,
    flushed: &Arc<Counters>,
) -> Result<SimulatedPublisher, RemoteError> {
    let settings = PublishSettings {
        data: data.to_owned(),
        remote: Remote::simulated(URL, objects),
        keep: None,
    };
    SimulatedPublisher::new(settings, runtime.handle().clone(), flushed.clone())
}

/// Returns the kind of an error, without paths that differ from run to run, and whether it is
/// final.
fn short(error: &RemoteError) -> (&'static str, bool) {
    match error {
        RemoteError::Fenced { .. } => ("fenced", true),
        RemoteError::Object { .. } => ("the object store fails", false),
        _ => ("an error", false),
    }
}

/// Copies the files of the store on the simulated disk to a real directory.
fn copy_out(machine: &Machine, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    let files = machine.disk.files(Path::new(ROOT));
    let is_of_store = |name: &String| name.ends_with(".parquet");
    let names: Vec<String> = files.into_keys().filter(is_of_store).collect();
    remove_others(to, to, &names)?;
    for name in names {
        let path = to.join(&name);
        let bytes = machine.disk.read(&Path::new(ROOT).join(&name))?;
        std::fs::create_dir_all(path.parent().unwrap_or(to))?;
        std::fs::write(path, bytes)?;
    }
    Ok(())
}

fn remove_others(root: &Path, directory: &Path, names: &[String]) -> std::io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        let is_there = |name: &String| root.join(name) == path;
        if path.is_dir() {
            remove_others(root, &path, names)?;
        } else if path.extension().is_some_and(|end| end == "parquet")
            && !names.iter().any(is_there)
        {
            std::fs::remove_file(path)?;
        }
    }
    Ok(())
}

fn copy_directory(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let path = entry?.path();
        let beside = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            copy_directory(&path, &beside)?;
        } else {
            std::fs::copy(&path, beside)?;
        }
    }
    Ok(())
}
