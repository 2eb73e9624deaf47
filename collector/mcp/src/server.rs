//! The protocol's server, over standard input and output or over HTTP.

use std::sync::Arc;

use axum::Router;
use axum::http::header::HOST;
use axum::http::request::Parts;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{RequestContext, ServerInitializeError};
use rmcp::transport::stdio;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt as _};
use tokio::sync::Semaphore;

use crate::tools::Tools;

/// Path of the protocol over HTTP.
pub const PATH: &str = "/mcp";
/// Maximum length of a request's body over HTTP, in bytes.
const BODY_BYTES_MAX: usize = 64 << 10;
/// Maximum number of calls that are answered at a time; others wait.
const CALLS_MAX: usize = 4;
/// Description of the server for agents.
const INSTRUCTIONS: &str = "Stroboscope records distributed requests in short coordinated bursts. These tools read its \
    store, and change nothing. To find why requests are slow: `overview` has the time since when they are slow (`step`), \
    and the operations that requests wait for most; `compare` with before and after (FROM..UNTIL, such as the two sides \
    of the step) names the causes; `explain` with the same arguments names the hosts or attributes that distinguish the \
    slow requests; `critical-path` with `trace` shows one request. Operations are written service:name, times are UTC, \
    durations in JSON are in nanoseconds. Messages write an argument as --NAME.";

/// Server of the protocol.
#[derive(Clone, Debug)]
pub struct ToolServer {
    tools: Arc<Tools>,
    site: Site,
    turns: Arc<Semaphore>,
}

/// Address of the pages, for links.
#[derive(Clone, Debug)]
enum Site {
    /// Address without a slash at its end, if there are pages.
    Known(Option<String>),
    /// The address that requests use, with this scheme.
    OfRequest(&'static str),
}

/// Failure to serve standard input and output.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The first messages are not those of the protocol.
    #[error("the client did not begin as the protocol requires: {0}")]
    Begin(#[from] Box<ServerInitializeError>),
    /// The server's task panicked.
    #[error("the server has failed: {0}")]
    Task(#[from] tokio::task::JoinError),
}

impl ToolServer {
    /// Serves the tools over standard input and output, until the client closes its end. `site` is
    /// the address of the pages.
    ///
    /// # Errors
    /// Fails if the client does not begin as the protocol requires, or if the server's task panics.
    pub async fn serve_stdio(tools: Tools, site: Option<String>) -> Result<(), ServeError> {
        let server = Self::new(tools, Site::Known(site));
        match server.serve(stdio()).await {
            Ok(running) => {
                running.waiting().await?;
                Ok(())
            }
            Err(ServerInitializeError::ConnectionClosed(_)) => Ok(()),
            Err(error) => Err(Box::new(error).into()),
        }
    }

    /// Returns a router that serves the tools at [`PATH`]. It does not control access, and keeps no
    /// state between requests. `scheme` is that of the pages on the same port.
    pub fn router(tools: Tools, scheme: &'static str) -> Router {
        let server = Self::new(tools, Site::OfRequest(scheme));
        // The server of the router checks hosts and origins.
        let config = StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_json_response(true)
            .with_max_request_body_bytes(BODY_BYTES_MAX)
            .disable_allowed_hosts();
        let sessions = Arc::new(NeverSessionManager::default());
        let service = StreamableHttpService::new(move || Ok(server.clone()), sessions, config);
        Router::new().route_service(PATH, service)
    }

    fn new(tools: Tools, site: Site) -> Self {
        Self {
            tools: Arc::new(tools),
            site,
            turns: Arc::new(Semaphore::new(CALLS_MAX)),
        }
    }

    /// Returns the address of the pages; `None` if there are none, or the request states no host.
    fn site_of(&self, context: &RequestContext<RoleServer>) -> Option<String> {
        match &self.site {
            Site::Known(site) => site.clone(),
            Site::OfRequest(scheme) => {
                let parts: &Parts = context.extensions.get()?;
                let host = parts.headers.get(HOST).and_then(|host| host.to_str().ok());
                let authority = || parts.uri.authority().map(|authority| authority.as_str());
                Some(format!("{scheme}://{}", host.or_else(authority)?))
            }
        }
    }
}

impl ServerHandler for ToolServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        let program = Implementation::new("stroboscope", env!("CARGO_PKG_VERSION"));
        ServerConfig::new(capabilities)
            .with_server_info(program)
            .with_instructions(INSTRUCTIONS)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        let found = self.tools.definitions().find(|tool| tool.name == name);
        found.cloned()
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = self.tools.definitions().cloned().collect();
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let failed = |text: String| ErrorData::internal_error(text, None);
        let site = self.site_of(&context);
        // A call that the client gives up keeps its turn until its thread ends.
        let turn = self.turns.clone().acquire_owned().await;
        let turn = turn.map_err(|error| failed(error.to_string()))?;
        let (tools, name) = (self.tools.clone(), request.name.clone());
        let arguments = request.arguments.unwrap_or_default();
        let answered = tokio::task::spawn_blocking(move || {
            let answer = tools.call(&name, arguments, site.as_deref());
            drop(turn);
            answer
        });
        let answered: Option<CallToolResult> =
            answered.await.map_err(|error| failed(error.to_string()))?;
        answered.map(CallToolResponse::from).ok_or_else(|| {
            let names: Vec<&str> = self.tools.definitions().map(|tool| &*tool.name).collect();
            let text = format!(
                "there is no tool {:?}; there are {}",
                request.name,
                names.join(", ")
            );
            ErrorData::invalid_params(text, None)
        })
    }
}
