//! Answers unknown gRPC methods with a hint; logs the first calls of a limited number of clients.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Response, header};
use tonic::Status;
use tonic::transport::server::TcpConnectInfo;

use crate::net::refusal;
use stroboscope_store::flush::Counters;

/// Path prefix of OTLP's services.
const OTLP: &str = "/opentelemetry.proto.collector.";
/// Maximum number of logged calls. Each client is logged once for OTLP and once for other methods;
/// further calls are only counted.
const CALLERS_MAX: usize = 256;
/// Maximum length of a `user-agent` in the log, in characters.
const AGENT_CHARS_MAX: usize = 100;

/// State of the handler for unknown methods. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Strangers {
    counters: Arc<Counters>,
    said: Arc<Mutex<HashSet<Knock>>>,
}

/// Address of a client (`None` on the unix socket), and true for a call of OTLP.
type Knock = (Option<IpAddr>, bool);

impl Strangers {
    pub(super) fn new(counters: Arc<Counters>) -> Self {
        Self {
            counters,
            said: Arc::default(),
        }
    }

    /// Reports whether to log a call: it must be the client's first OTLP call or its first other
    /// call, and at most [`CALLERS_MAX`] calls are logged.
    fn is_news(&self, caller: Option<IpAddr>, is_otlp: bool) -> bool {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.len() < CALLERS_MAX && said.insert((caller, is_otlp))
    }
}

/// Answers a call of an unknown method with a hint, counts it, and logs it if
/// [`Strangers::is_news`] returns true.
pub(super) async fn answer(State(strangers): State<Strangers>, request: Request) -> Response<Body> {
    let path = request.uri().path();
    let peer = request
        .extensions()
        .get::<TcpConnectInfo>()
        .and_then(TcpConnectInfo::remote_addr);
    let signal = path
        .strip_prefix(OTLP)
        .map(|rest| rest.split('.').next().unwrap_or_default());
    strangers.counters.refuse(if signal.is_some() {
        "otlp_grpc"
    } else {
        "unknown_method"
    });
    let message = match signal {
        Some(signal) => otlp_message(signal),
        None => {
            format!("unknown method {path:?}: this port speaks stroboscope.v1.Collector")
        }
    };
    if strangers.is_news(peer.map(|peer| peer.ip()), signal.is_some()) {
        let caller = caller(peer, &request);
        match signal {
            Some(signal) => tracing::warn!(
                signal,
                "{caller} sends OpenTelemetry's {signal:?} over gRPC, which this collector does not accept: each \
                 call is rejected, and this is logged once per address. Configure it to send only traces and \
                 logs (OTEL_METRICS_EXPORTER=none)"
            ),
            None => tracing::warn!(path, "{caller} calls a method that this port does not know"),
        }
    }
    refusal(Status::unimplemented(message))
}

/// Returns the hint for an OpenTelemetry exporter that sends `signal` to the wrong address or sends
/// an unsupported signal.
pub(crate) fn otlp_message(signal: &str) -> String {
    let today = match signal {
        "trace" | "traces" => {
            "send traces over gRPC to the port of --listen (4317 by default), or over HTTP to that of \
             --otlp-http (4318), at /v1/traces"
        }
        "logs" => {
            "send logs over gRPC to the port of --listen (4317 by default), or over HTTP to that of --otlp-http \
             (4318), at /v1/logs"
        }
        _ => "Stroboscope accepts only traces and logs",
    };
    format!("this is a Stroboscope collector: {today}")
}

fn caller(peer: Option<SocketAddr>, request: &Request) -> String {
    let agent = request
        .headers()
        .get(header::USER_AGENT)
        .and_then(|agent| agent.to_str().ok());
    let agent: String = agent
        .unwrap_or("no user-agent")
        .chars()
        .take(AGENT_CHARS_MAX)
        .collect();
    match peer {
        Some(peer) => format!("a client at {peer} ({agent:?})"),
        None => format!("a client on the unix socket ({agent:?})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_is_news_once_and_callers_are_bounded() {
        let strangers = Strangers::new(Arc::default());
        let caller = |n: u32| Some(IpAddr::from(n.to_be_bytes()));
        assert!(strangers.is_news(caller(1), true) && !strangers.clone().is_news(caller(1), true));
        assert!(strangers.is_news(caller(1), false) && strangers.is_news(None, true));
        let told = (2..10_000)
            .filter(|&n| strangers.is_news(caller(n), true))
            .count();
        assert_eq!(told + 3, CALLERS_MAX);
    }
}
