//! Service of a worker.

use std::sync::Arc;

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::object_store::ObjectStoreRegistry;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion_distributed::{
    DistributedExt as _, Worker, WorkerPlanRewriteEvent, WorkerPlanRewriteEventResponse,
    WorkerQueryContext,
};
use object_store::ObjectStore;
use tonic::service::Routes;
use url::Url;

use crate::runner::{Runner, TaskRunner};
use crate::task_node::{TaskCodec, TaskExec, foreign_plan};

/// Maximum size of a driver's message, in bytes. A task may contain a model of all traces.
const REQUEST_BYTES_MAX: usize = 1 << 30;

/// Registry without object stores. The usual one has the file system.
#[derive(Debug)]
struct NoStores;

impl ObjectStoreRegistry for NoStores {
    fn register_store(&self, _: &Url, _: Arc<dyn ObjectStore>) -> Option<Arc<dyn ObjectStore>> {
        None
    }

    fn get_store(&self, url: &Url) -> Result<Arc<dyn ObjectStore>> {
        let text = format!("a worker has no object store: {url}");
        Err(DataFusionError::Plan(text))
    }
}

/// Returns the gRPC service of a worker that runs `tasks`. `build` names the program's version,
/// which must equal that of drivers.
///
/// The service decodes any plan, but executes only plans of a single task node. Its session has no
/// object store and no temporary files.
///
/// # Errors
/// Fails if the engine rejects these settings.
pub fn worker_routes(tasks: Arc<dyn TaskRunner>, build: &str) -> Result<Routes> {
    let runner = Runner::new(tasks);
    let no_files = DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled);
    let runtime = RuntimeEnvBuilder::new()
        .with_object_store_registry(Arc::new(NoStores))
        .with_disk_manager_builder(no_files)
        .build()?;
    let session = move |context: WorkerQueryContext| {
        let codec = TaskCodec(Some(runner.clone()));
        async move {
            let builder = context
                .builder
                .with_distributed_user_codec(codec)
                .with_distributed_worker_plan_rewrite_handler(only_ours)
                // Parts are compressed already.
                .with_distributed_compression(None)?;
            Ok(builder.build())
        }
    };
    let worker = Worker::from_session_builder(session)
        .with_runtime_env(Arc::new(runtime))
        .with_version(build.to_owned());
    let service = worker
        .into_worker_server()
        .max_decoding_message_size(REQUEST_BYTES_MAX);
    Ok(Routes::new(service))
}

/// Rejects plans other than one [`TaskExec`], which could read files or call other machines.
fn only_ours(event: WorkerPlanRewriteEvent<'_>) -> Result<WorkerPlanRewriteEventResponse> {
    if !event.plan.is::<TaskExec>() {
        return Err(foreign_plan());
    }
    Ok(WorkerPlanRewriteEventResponse::new(event.plan))
}
