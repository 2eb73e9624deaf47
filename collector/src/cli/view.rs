//! The `view` subcommand.

use std::net::SocketAddr;

use clap::Args;
use stroboscope_server::http::HttpServer;
use stroboscope_server::net::Ports;
use stroboscope_store::data_dir::DataDir;
use tokio::runtime::{Handle, Runtime};
use tokio::signal::unix::{SignalKind, signal};

use super::memory::MemoryArguments;
use super::net::NetArguments;
use super::pages::{ReaderPorts, served_site};
use stroboscope_reports::arguments::DataArguments;
use stroboscope_reports::output::print;
use stroboscope_reports::registry::pages;
use stroboscope_reports::{Failure, Status};
use stroboscope_web::store_verbs::StoreVerbs;

/// Show a store as pages in a browser, until interrupted
///
/// Serves the pages with which `collect` shows its store, without a collector. The store may be at
/// rest, or a collector may be writing it; then the pages show its flushed part. For a store
/// published to an object store, the pages show the state at the start of `view`. Most subcommands
/// that read have a page. The address of a page holds its options and can be shared.
#[derive(Debug, Args)]
pub(super) struct View {
    #[command(flatten)]
    data: DataArguments,
    /// Address for pages; port 0 picks a free port and prints it
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:4320")]
    http: SocketAddr,
    #[command(flatten)]
    readers: ReaderPorts,
    #[command(flatten)]
    memory: MemoryArguments,
    #[command(flatten)]
    doors: NetArguments,
}

impl View {
    pub(super) fn run(self, runtime: &Runtime) -> Result<Status, Failure> {
        let addresses = std::iter::once(("--http", self.http)).chain(self.readers.addresses());
        self.doors.check(&addresses.collect::<Vec<_>>())?;
        let directory = self.data.or_newest_demo().to_read(runtime.handle())?;
        let data = directory.directory();
        // Report a missing directory at once, and not on the pages.
        DataDir::existing(data).map_err(Failure::of)?;
        let scheme = self.doors.scheme();
        let memory = self.memory.split()?;
        let settings = self
            .doors
            .settings(memory, self.readers.addresses().count(), false);
        runtime.block_on(async {
            let mut interrupted = signal(SignalKind::interrupt()).map_err(Failure::of)?;
            let mut terminated = signal(SignalKind::terminate()).map_err(Failure::of)?;
            memory.keep_within()?;
            let doors = Ports::open(settings).map_err(Failure::of)?;
            let verbs = StoreVerbs::of(data, pages(), Handle::current(), &memory.queries());
            let login = self.doors.login();
            let site = served_site(verbs, login.as_slice(), self.readers, scheme, true)?;
            let started = HttpServer::start_site(self.http, doors.clone(), site.router).await;
            let server = started.map_err(Failure::of)?;
            print(&format!("pages on {scheme}://{}/", server.address()))?;
            let mut ports = Vec::new();
            for port in site.ports {
                let name = port.name;
                let started = HttpServer::start_port(port, doors.clone()).await;
                let started = started.map_err(Failure::of)?;
                print(&format!("{name} API on {scheme}://{}/", started.address()))?;
                ports.push(started);
            }
            tokio::select! {
                _ = interrupted.recv() => {}
                _ = terminated.recv() => {}
            }
            server.stop().await;
            for port in ports {
                port.stop().await;
            }
            Ok(Status::Done)
        })
    }
}
