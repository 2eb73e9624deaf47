//! Tasks of a worker.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use stroboscope_cluster::TaskRunner;
use stroboscope_query::{ShardTask, TaskStore, run_task};
use stroboscope_store::query_memory::QueryMemory;
use tokio::runtime::Handle;

use crate::Failure;
use crate::arguments::{DataArguments, Readable};

/// Runs the shards of drivers on a store. It keeps the store open after a task that succeeds,
/// because the next one is probably of the same run.
#[derive(Debug)]
pub struct StoreTasks {
    data: DataArguments,
    memory: QueryMemory,
    runtime: Handle,
    open: Mutex<Option<OpenStore>>,
}

#[derive(Debug)]
struct OpenStore {
    store: TaskStore,
    /// Directory of the store; dropping this releases a mirror.
    _directory: Readable,
}

impl StoreTasks {
    /// Creates the tasks of a worker that reads from `data` with this memory.
    pub fn new(data: DataArguments, memory: QueryMemory, runtime: Handle) -> Self {
        Self {
            data,
            memory,
            runtime,
            open: Mutex::new(None),
        }
    }

    fn part(&self, task: ShardTask<'_>) -> Result<Vec<u8>, Failure> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        // Close another task's store first, which frees the memory of its model. After a failure,
        // no store stays open, because it may have changed.
        let last = open.take().filter(|last| last.store.is_for(&task));
        let last = match last {
            Some(last) => last,
            None => self.open(&task)?,
        };
        let part = run_task(&last.store, task, &self.data.data).map_err(Failure::of)?;
        *open = Some(last);
        Ok(part)
    }

    fn open(&self, task: &ShardTask<'_>) -> Result<OpenStore, Failure> {
        let directory = self.data.to_read(&self.runtime)?;
        let path: &Path = directory.directory();
        let store = TaskStore::open(path, task, &self.memory, self.runtime.clone());
        Ok(OpenStore {
            store: store.map_err(Failure::of)?,
            _directory: directory,
        })
    }
}

impl TaskRunner for StoreTasks {
    fn run(&self, task: &[u8]) -> Result<Vec<u8>, String> {
        let task = ShardTask::decode(task).map_err(|error| error.to_string())?;
        self.part(task).map_err(|failure| failure.to_string())
    }
}
