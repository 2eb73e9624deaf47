//! Runs tasks, one after the other.

use std::fmt;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// Runs the tasks of a worker.
pub trait TaskRunner: Send + Sync {
    /// Runs a task, and returns its result.
    ///
    /// # Errors
    /// Returns the text of an error for the driver.
    fn run(&self, task: &[u8]) -> Result<Vec<u8>, String>;
}

/// [`TaskRunner`] with a queue: a task uses all cores, so a worker runs one at a time.
#[derive(Clone)]
pub(crate) struct Runner {
    tasks: Arc<dyn TaskRunner>,
    turn: Arc<Semaphore>,
}

impl Runner {
    pub(crate) fn new(tasks: Arc<dyn TaskRunner>) -> Self {
        let turn = Arc::new(Semaphore::new(1));
        Self { tasks, turn }
    }

    pub(crate) async fn run(&self, task: Arc<[u8]>) -> Result<Vec<u8>, String> {
        // A driver that went away is no longer in the queue. A running task continues to its end.
        let turn = self.turn.clone().acquire_owned().await;
        let tasks = self.tasks.clone();
        let ran = spawn_blocking(move || {
            let _turn = turn;
            tasks.run(&task)
        });
        ran.await.unwrap_or_else(|error| Err(error.to_string()))
    }
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Runner")
    }
}
