//! State behind the pages: the collector's own parts, and a site for the store.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use stroboscope_render::page::NavLink;
use stroboscope_store::memory::QueryMemory;
use stroboscope_store::publishing::PublishCounters;

use crate::forward::ForwardCounters;
use crate::grpc::BurstControl;
use crate::ingest::Intake;
use crate::net::Ports;
use crate::redact::Redaction;

/// A site of pages about the store, served next to the collector's own.
#[derive(Clone, Debug)]
pub struct ServedSite {
    /// Router of all its pages; it answers the paths that no route of the collector matches.
    pub router: Router,
    /// Links in the header of each page.
    pub navigation: Vec<NavLink>,
    /// Name of the store or data set that the pages show.
    pub name: String,
    /// Services with ports of their own, behind the same access control.
    pub ports: Vec<ServedPort>,
    /// Memory that their responses hold.
    pub memory: QueryMemory,
}

/// A service with a port of its own, in the form that its clients expect.
#[derive(Clone, Debug)]
pub struct ServedPort {
    /// Name of its purpose, in one word.
    pub name: &'static str,
    /// The flag that sets its address.
    pub flag: &'static str,
    /// Address; port 0 picks a free port.
    pub address: SocketAddr,
    /// Router that answers all its requests.
    pub router: Router,
}

/// The parts of a collector that its pages show.
#[derive(Clone, Debug)]
pub struct Pages {
    /// Pages of the store; with none, only the collector's own are served.
    pub(crate) site: Option<ServedSite>,
    pub(crate) intake: Intake,
    pub(crate) control: BurstControl,
    pub(crate) doors: Arc<Ports>,
    pub(crate) redaction: Option<Arc<Redaction>>,
    /// Port for gRPC, named to callers who use gRPC at this port.
    pub(crate) grpc_port: u16,
    pub(crate) publishing: Option<Arc<PublishCounters>>,
    /// Counters of forwarding, in an agent.
    pub(crate) forwarding: Option<Arc<ForwardCounters>>,
}
