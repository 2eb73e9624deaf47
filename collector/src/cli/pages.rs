//! Site that `collect` and `view` serve: pages, the query APIs of Jaeger and Tempo, and tools for
//! agents.

use std::net::SocketAddr;
use std::sync::Arc;

use clap::Args;
use stroboscope_mcp::server::ToolServer;
use stroboscope_mcp::tools::{ANSWER_BYTES_MAX, ToolStore, Tools};
use stroboscope_query_api::store::Traces;
use stroboscope_query_api::{jaeger, tempo};
use stroboscope_render::page::NavLink;
use stroboscope_reports::Failure;
use stroboscope_server::http::{ServedPort, ServedSite};
use stroboscope_store::tables::Store;
use stroboscope_web::store_verbs::StoreVerbs;
use stroboscope_web::{SiteOptions, navigation, site};

/// Builds the pages of a data directory, with the query APIs of Jaeger and Tempo, and the tools for
/// agents. Each page links to `others`, which are paths and names of pages that the caller serves.
/// `scheme` is that of the pages' addresses. With `reads_ahead`, starts to compute the chart of
/// requests over time at once, so that the first page need not wait for it.
///
/// # Errors
/// Returns an error if the directory cannot be used.
pub(super) fn served_site(
    verbs: StoreVerbs,
    others: &[(&str, &str)],
    readers: ReaderPorts,
    scheme: &'static str,
    reads_ahead: bool,
) -> Result<ServedSite, Failure> {
    let memory = verbs.memory().clone();
    let mut options = SiteOptions::of(verbs.data(), &memory);
    options.links = others
        .iter()
        .map(|&(path, name)| NavLink {
            path: path.to_owned(),
            name: name.to_owned(),
            group: "Recording",
        })
        .collect();
    options.reads_ahead = reads_ahead.then(|| verbs.runtime().clone());
    let store = Store::local(verbs.data(), verbs.runtime().clone()).map_err(Failure::of)?;
    let traces = Traces::of(store, memory.clone());
    let tools = Tools::of(ToolStore {
        data: verbs.data().to_owned(),
        runtime: verbs.runtime().clone(),
        memory: memory.clone(),
        answer_bytes_max: ANSWER_BYTES_MAX,
    });
    let verbs = Arc::new(verbs);
    let router = site(verbs.clone(), options.clone())
        .merge(stroboscope_query_api::router(&traces))
        .merge(ToolServer::router(tools, scheme));
    Ok(ServedSite {
        navigation: navigation(&*verbs, &options),
        name: options.name.clone(),
        router,
        ports: readers.served(&traces),
        memory,
    })
}

/// Additional ports for clients of Jaeger and Tempo. The port of the pages serves both APIs, too.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct ReaderPorts {
    /// Additional address for Jaeger's query API, such as 127.0.0.1:16686. --http serves it, too
    #[arg(long, value_name = "ADDRESS")]
    jaeger: Option<SocketAddr>,
    /// Additional address for Tempo's query API, such as 127.0.0.1:3200. --http serves it below
    /// /tempo, too
    #[arg(long, value_name = "ADDRESS")]
    tempo: Option<SocketAddr>,
}

impl ReaderPorts {
    /// Returns the addresses with their flags.
    pub(super) fn addresses(self) -> impl Iterator<Item = (&'static str, SocketAddr)> {
        let jaeger = self.jaeger.map(|address| ("--jaeger", address));
        jaeger
            .into_iter()
            .chain(self.tempo.map(|address| ("--tempo", address)))
    }

    fn served(self, traces: &Traces) -> Vec<ServedPort> {
        let jaeger = self.jaeger.map(|address| ServedPort {
            name: "jaeger",
            flag: "--jaeger",
            address,
            router: jaeger::alone(traces),
        });
        let tempo = self.tempo.map(|address| ServedPort {
            name: "tempo",
            flag: "--tempo",
            address,
            router: tempo::router(traces),
        });
        jaeger.into_iter().chain(tempo).collect()
    }
}
