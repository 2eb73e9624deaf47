//! The `worker` subcommand.

use std::net::SocketAddr;

use clap::Args;
use stroboscope_reports::arguments::DataArguments;
use stroboscope_reports::memory_limit::parse_reading_limit;
use stroboscope_reports::{Failure, Status};
use tokio::runtime::Runtime;

use super::net::PortArguments;

/// Read shards of a store for reports with --cluster, until interrupted
///
/// A worker reads shards of a store for drivers: subcommands with --cluster. It reads only its own
/// --data, and runs nothing but shards of reports, one at a time on all cores. Drivers and workers
/// must be the same version of this program. Drivers need the role read. Needs a binary built with
/// the `cluster` feature.
#[derive(Debug, Args)]
pub(super) struct WorkerVerb {
    #[command(flatten)]
    data: DataArguments,
    /// Address for drivers; port 0 picks a free port and prints it
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:4330")]
    listen: SocketAddr,
    /// Memory for traces and the models of drivers [default: 60 % of the control group's limit, or
    /// of the machine's memory, at least 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_reading_limit)]
    memory_limit: Option<u64>,
    #[command(flatten)]
    doors: PortArguments,
}

impl WorkerVerb {
    #[cfg(not(feature = "cluster"))]
    pub(super) fn run(self, _: &Runtime) -> Result<Status, Failure> {
        drop(self);
        Err(Failure::new(stroboscope_reports::cluster::NOT_BUILT))
    }

    #[cfg(feature = "cluster")]
    pub(super) fn run(self, runtime: &Runtime) -> Result<Status, Failure> {
        use std::sync::Arc;

        use stroboscope_cluster::worker_routes;
        use stroboscope_query::task_version;
        use stroboscope_reports::cluster::StoreTasks;
        use stroboscope_reports::memory_limit::{default_limit, of_verb};
        use stroboscope_reports::output::print;
        use stroboscope_server::net::Ports;
        use stroboscope_server::worker::WorkerServer;
        use stroboscope_store::data_dir::DataDir;
        use tokio::signal::unix::{SignalKind, signal};

        self.doors.check(&[("--listen", self.listen)])?;
        // Report a missing store at once, and not to each driver.
        let directory = self.data.to_read(runtime.handle())?;
        DataDir::existing(directory.directory()).map_err(Failure::of)?;
        drop(directory);
        let memory = of_verb(self.memory_limit);
        let settings = self
            .doors
            .worker_settings(self.memory_limit.unwrap_or_else(default_limit));
        let data = self.data.data.display().to_string();
        let tasks = StoreTasks::new(self.data, memory, runtime.handle().clone());
        let routes = worker_routes(Arc::new(tasks), &task_version()).map_err(Failure::of)?;
        runtime.block_on(async {
            let mut interrupted = signal(SignalKind::interrupt()).map_err(Failure::of)?;
            let mut terminated = signal(SignalKind::terminate()).map_err(Failure::of)?;
            let doors = Ports::open(settings).map_err(Failure::of)?;
            let started = WorkerServer::start(self.listen, doors, routes).await;
            let server = started.map_err(|error| {
                let listen = self.listen;
                Failure::new(format!(
                    "cannot listen on {listen}: {error}; --listen takes another address"
                ))
            })?;
            print(&format!("worker of {data} on {}", server.address()))?;
            tokio::select! {
                _ = interrupted.recv() => {}
                _ = terminated.recv() => {}
            }
            server.stop().await;
            Ok(Status::Done)
        })
    }
}
