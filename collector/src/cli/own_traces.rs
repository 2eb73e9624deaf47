//! `--own-traces`: traces of the collector itself.

use std::path::Path;

use stroboscope_reports::Failure;
use stroboscope_server::collect::Collector;
use stroboscope_server::self_tracing::{SelfTracing, own_address};

use super::net::NetArguments;

/// Destination of the collector's own traces.
#[derive(Clone, Debug)]
pub(super) enum OwnTracesTo {
    Itself,
    Address(String),
}

pub(super) fn parse_own_traces(text: &str) -> Result<OwnTracesTo, String> {
    match text {
        "self" => Ok(OwnTracesTo::Itself),
        address if address.starts_with("http://") || address.starts_with("unix:") => {
            Ok(OwnTracesTo::Address(address.to_owned()))
        }
        _ => Err("write self, http://HOST:PORT or unix:/PATH".to_owned()),
    }
}

/// Starts to ship own traces to `to`, if it is given; an empty address means this collector's gRPC
/// port.
pub(super) fn start_own_traces(
    to: Option<String>,
    collector: &Collector,
) -> Result<Option<SelfTracing>, Failure> {
    let Some(address) = to else {
        return Ok(None);
    };
    let is_itself = address.is_empty();
    let address = if is_itself {
        own_address(collector.grpc_address())
    } else {
        address
    };
    tracing::info!(address, "shipping own traces");
    SelfTracing::start(&address)
        .map(Some)
        .map_err(|error| Failure::new(format!("--own-traces: {error}")))
}

/// Returns the address to which to ship own traces, empty for this collector's gRPC port; `None`
/// if they are not recorded. Returns an error if `self` would need TLS or a token that is not set.
pub(super) fn checked_own_traces(
    to: Option<&OwnTracesTo>,
    unix: Option<&Path>,
    doors: &NetArguments,
) -> Result<Option<String>, Failure> {
    let to_itself = match to {
        None => return Ok(None),
        Some(OwnTracesTo::Address(address)) => return Ok(Some(address.clone())),
        Some(OwnTracesTo::Itself) => match unix {
            Some(path) => format!(
                "unix:{}",
                std::path::absolute(path).map_err(Failure::of)?.display()
            ),
            None => String::new(),
        },
    };
    if to_itself.is_empty() && doors.scheme() == "https" {
        return Err(Failure::new(
            "--own-traces self with --tls-cert needs a unix socket, --unix PATH: own traces are shipped without TLS"
                .to_owned(),
        ));
    }
    if doors.asks_for_tokens() && std::env::var_os("STROBOSCOPE_TOKEN").is_none() {
        return Err(Failure::new(
            "--own-traces self with --token-file needs a token of the role write, in STROBOSCOPE_TOKEN".to_owned(),
        ));
    }
    Ok(Some(to_itself))
}
