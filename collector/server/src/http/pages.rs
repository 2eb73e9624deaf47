//! State that the pages show: the parts of the collector, and the site of the store.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use stroboscope_render::page::NavLink;
use stroboscope_store::publishing::PublishCounters;
use stroboscope_store::query_memory::QueryMemory;

use crate::forward::ForwardCounters;
use crate::grpc::BurstControl;
use crate::ingest::Intake;
use crate::net::Ports;
use crate::redact::Redaction;

/// Site of pages about the store, which the collector serves in addition to its own pages.
#[derive(Clone, Debug)]
pub struct ServedSite {
    /// Router of all its pages. It answers `/model` for browsers, and all paths that no route of
    /// the collector matches, except gRPC calls and OTLP requests.
    pub router: Router,
    /// Links in the header of each page.
    pub navigation: Vec<NavLink>,
    /// Name of the store or data set that the pages show.
    pub name: String,
    /// Services with ports of their own, under the access control of the pages.
    pub ports: Vec<ServedPort>,
    /// Memory quota of the pages, and of the responses to Jaeger and Tempo queries.
    pub memory: QueryMemory,
}

/// Service with a port of its own, such as the query API that clients of Jaeger expect.
#[derive(Clone, Debug)]
pub struct ServedPort {
    /// One word that names the service.
    pub name: &'static str,
    /// Command-line flag that sets the address, for error messages.
    pub flag: &'static str,
    /// Address; port 0 picks a free port.
    pub address: SocketAddr,
    /// Router that answers all its requests.
    pub router: Router,
}

/// The parts of a collector that its pages show.
#[derive(Clone, Debug)]
pub struct Pages {
    /// Pages of the store; with `None`, the collector serves only its own pages.
    pub(crate) site: Option<ServedSite>,
    pub(crate) intake: Intake,
    pub(crate) control: BurstControl,
    pub(crate) doors: Arc<Ports>,
    pub(crate) redaction: Option<Arc<Redaction>>,
    /// Port for gRPC, for the error message to gRPC calls at the port of the pages.
    pub(crate) grpc_port: u16,
    pub(crate) publishing: Option<Arc<PublishCounters>>,
    /// Counters of forwarding, in an agent.
    pub(crate) forwarding: Option<Arc<ForwardCounters>>,
}
