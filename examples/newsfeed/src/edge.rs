//! The edge role: passes requests on to the web server, and its pagelets back.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tonic::service::Routes;
use tonic::{Request, Response, Status, Streaming, async_trait};

use crate::copies;
use crate::cpu::Cpu;
use crate::fault::{Fault, FaultPoint, Faults};
use crate::role_error::RoleError;
use crate::server::{Before, serve_behind};
use crate::stop::Stop;
use crate::upstream::{Upstream, connect};
use crate::wire::page_client::PageClient;
use crate::wire::page_server::{Page as PageService, PageServer};
use crate::wire::{PageRequest, Pagelet};

/// Cost of choosing a web server.
const ROUTE_TIME: Duration = Duration::from_micros(100);

/// Command-line flags of the edge.
#[derive(Debug, clap::Args)]
pub struct EdgeOptions {
    /// Address to listen on; port 0 picks a free one.
    #[arg(long, env = "NEWSFEED_LISTEN", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// URL of the web server.
    #[arg(long, env = "NEWSFEED_WEB")]
    web: String,
    /// Longest wait for the web server at start-up, in milliseconds.
    #[arg(long, default_value_t = 5_000)]
    patience_ms: u64,
    /// URL of a second web server that receives copies of requests, marked as copies, to explore
    /// tradeoffs.
    #[arg(long, value_name = "URL")]
    duplicate: Option<String>,
    /// Share of requests to copy, 0 to 1.
    #[arg(
        long,
        value_name = "SHARE",
        default_value_t = 0.1,
        requires = "duplicate"
    )]
    duplicate_share: f64,
    /// Fault to inject, as POINT=+DURATION[@PERCENT%], or POINT[@PERCENT%] if it takes no duration;
    /// repeatable.
    #[arg(long = "fault", value_name = "FAULT")]
    faults: Vec<Fault>,
}

pub(crate) async fn run(options: EdgeOptions, stop: &Stop) -> Result<(), RoleError> {
    let web = connect(
        "web",
        &options.web,
        Duration::from_millis(options.patience_ms),
    )
    .await?;
    let proxy = Proxy {
        web: PageClient::new(web),
        cpu: Cpu::calibrate(),
        faults: Faults::new(options.faults),
    };
    let edge = Edge {
        proxy: Arc::new(proxy),
    };
    let before = match &options.duplicate {
        Some(url) => Before::Copies(copies::to(url, options.duplicate_share)?),
        None => Before::Nothing,
    };
    let routes = Routes::new(PageServer::new(edge));
    Ok(serve_behind(options.listen, routes, before, stop).await?)
}

struct Edge {
    proxy: Arc<Proxy>,
}

struct Proxy {
    web: PageClient<Upstream>,
    cpu: Cpu,
    faults: Faults,
}

#[async_trait]
impl PageService for Edge {
    /// The web server's stream, unchanged: a pagelet passes through when it is ready.
    type LoadStream = Streaming<Pagelet>;

    async fn load(
        &self,
        request: Request<PageRequest>,
    ) -> Result<Response<Self::LoadStream>, Status> {
        let request = request.into_inner();
        self.proxy.route(&request).await;
        Ok(Response::new(
            self.proxy.web.clone().load(request).await?.into_inner(),
        ))
    }
}

impl Proxy {
    #[stroboscope::trace(name = "proxy")]
    async fn route(&self, request: &PageRequest) {
        self.faults.wait(FaultPoint::EdgeProxy).await;
        self.cpu.work(ROUTE_TIME, request.user);
    }
}
