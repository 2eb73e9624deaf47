//! What pages are made of: the collector's own parts, and a site of the store.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use stroboscope_present::page::NavLink;
use stroboscope_store::memory::QueryMemory;
use stroboscope_store::publishing::PublishCounters;

use crate::doors::Doors;
use crate::ingest::BurstControl;
use crate::intake::Intake;
use crate::redact::Redaction;

/// A site of pages about the store, served beside the collector's own.
#[derive(Clone, Debug)]
pub struct ServedSite {
    /// Routes of all pages; it answers what no route of the collector does.
    pub router: Router,
    /// What the header of each page links to.
    pub navigation: Vec<NavLink>,
    /// What the pages are of.
    pub name: String,
    /// What is served behind the same guards at ports of its own.
    pub ports: Vec<ServedPort>,
    /// Memory that their answers hold.
    pub memory: QueryMemory,
}

/// What has a port of its own, as those expect it who read it.
#[derive(Clone, Debug)]
pub struct ServedPort {
    /// What it is for, in one word.
    pub name: &'static str,
    /// The argument that names its address.
    pub flag: &'static str,
    /// Where; port 0 takes a free one.
    pub address: SocketAddr,
    /// All that it answers.
    pub router: Router,
}

/// The parts of a collector that its pages are about.
#[derive(Clone, Debug)]
pub struct Pages {
    /// Pages of the store; without, there are only those of the collector itself.
    pub(crate) site: Option<ServedSite>,
    pub(crate) intake: Intake,
    pub(crate) control: BurstControl,
    pub(crate) doors: Arc<Doors>,
    pub(crate) redaction: Option<Arc<Redaction>>,
    /// Port for gRPC, to name to callers who come to this one with it.
    pub(crate) grpc_port: u16,
    pub(crate) publishing: Option<Arc<PublishCounters>>,
}
