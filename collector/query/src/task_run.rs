//! Runs the task of a worker: an inference, or the question of a report.

use std::path::Path;

use super::anomalies::AnomalyQuestion;
use super::operations::OPERATIONS;
use super::paths::PathsQuestion;
use super::service_map::MAP;
use super::shard::{ShardError, ShardReport, ShardTask, TaskStore};

/// Reads the shard of a task, and returns its part. `store` must be open for the task, and
/// `location` is the location of the data as the user gave it.
///
/// # Errors
/// Fails if the store cannot be read, changes meanwhile, or was opened for another kind of task, or
/// if there is too little memory.
pub fn run_task(
    store: &TaskStore,
    task: ShardTask<'_>,
    location: &Path,
) -> Result<Vec<u8>, ShardError> {
    let shard = task.shard;
    let Some(report) = task.report else {
        return store.infer(shard, location);
    };
    match &report {
        ShardReport::CriticalPath(rule) => {
            let question = PathsQuestion(rule.clone());
            store.report((&question, report), shard, location)
        }
        ShardReport::Slack => {
            let question = PathsQuestion::default();
            store.report((&question, report), shard, location)
        }
        ShardReport::Operations => store.report((&OPERATIONS, report), shard, location),
        ShardReport::Map => store.report((&MAP, report), shard, location),
        ShardReport::Anomalies(slowest) => {
            let question = AnomalyQuestion(*slowest);
            store.report((&question, report), shard, location)
        }
    }
}
