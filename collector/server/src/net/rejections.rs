//! Counters of rejections, by port and cause.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Kind of port at which a connection or request was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortName {
    Grpc,
    Unix,
    OtlpHttp,
    Pages,
    /// Port of a worker, which runs shards of reports.
    Worker,
}

impl PortName {
    /// List of a collector's ports.
    const ALL: [Self; 4] = [Self::Grpc, Self::Unix, Self::OtlpHttp, Self::Pages];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::Unix => "unix",
            Self::OtlpHttp => "otlp_http",
            Self::Pages => "pages",
            Self::Worker => "worker",
        }
    }
}

/// Cause of a rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectionCause {
    /// The maximum number of connections is open.
    Connections,
    /// The peer already has its fair share of the connections.
    PeerConnections,
    /// The system cannot accept a connection, for example because it has no sockets left.
    Accept,
    /// The handshake failed, but not because of the client certificate. For example, the first
    /// bytes are not TLS.
    TlsHandshake,
    /// The handshake took too long.
    TlsTimeout,
    /// The client certificate is missing or invalid.
    ClientCertificate,
    TokenMissing,
    TokenUnknown,
    /// The token is known, but lacks the role.
    TokenRole,
    /// The token or the login became invalid during the request.
    TokenWithdrawn,
    /// Too many wrong tokens came through the login form.
    LoginAttempts,
    /// The request names no host, or one that is not known to be this collector.
    Host,
    /// A page of another origin requests a change or sends OTLP.
    Origin,
    /// No request came, or its head took too long.
    SlowHead,
    HeaderSize,
    SlowBody,
    /// The client violates HTTP.
    BrokenProtocol,
    /// The maximum number of requests is open.
    Requests,
    PeerRequests,
    /// The pool of request bytes has no room for the request.
    Bytes,
    PeerBytes,
}

impl RejectionCause {
    const ALL: [Self; 21] = [
        Self::Connections,
        Self::PeerConnections,
        Self::Accept,
        Self::TlsHandshake,
        Self::TlsTimeout,
        Self::ClientCertificate,
        Self::TokenMissing,
        Self::TokenUnknown,
        Self::TokenRole,
        Self::TokenWithdrawn,
        Self::LoginAttempts,
        Self::Host,
        Self::Origin,
        Self::SlowHead,
        Self::HeaderSize,
        Self::SlowBody,
        Self::BrokenProtocol,
        Self::Requests,
        Self::PeerRequests,
        Self::Bytes,
        Self::PeerBytes,
    ];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::PeerConnections => "peer_connections",
            Self::Accept => "accept",
            Self::TlsHandshake => "tls_handshake",
            Self::TlsTimeout => "tls_timeout",
            Self::ClientCertificate => "client_certificate",
            Self::TokenMissing => "token_missing",
            Self::TokenUnknown => "token_unknown",
            Self::TokenRole => "token_role",
            Self::TokenWithdrawn => "token_withdrawn",
            Self::LoginAttempts => "login_attempts",
            Self::Host => "host",
            Self::Origin => "origin",
            Self::SlowHead => "slow_head",
            Self::HeaderSize => "header_size",
            Self::SlowBody => "slow_body",
            Self::BrokenProtocol => "broken_protocol",
            Self::Requests => "requests",
            Self::PeerRequests => "peer_requests",
            Self::Bytes => "bytes",
            Self::PeerBytes => "peer_bytes",
        }
    }
}

/// Number of all kinds of ports.
const PORTS: usize = PortName::Worker as usize + 1;

/// Counters of rejections. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct RejectionCounters(Arc<[[AtomicU64; RejectionCause::ALL.len()]; PORTS]>);

impl RejectionCounters {
    /// Counts a rejection. Logs the first, second, fourth, eighth, … rejection of each cause at
    /// each port, so that clients cannot fill the log.
    pub(crate) fn count(&self, door: PortName, cause: RejectionCause, who: &dyn std::fmt::Display) {
        let count = self.0[door as usize][cause as usize].fetch_add(1, Relaxed) + 1;
        if count.is_power_of_two() {
            let (door, cause) = (door.name(), cause.name());
            tracing::warn!(door, cause, count, peer = %who, "rejected");
        }
    }

    /// Returns all counters of a collector's ports, as port, cause and count.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> + '_ {
        let of_door = move |door: PortName| {
            let of_cause = move |cause: RejectionCause| {
                let count = self.0[door as usize][cause as usize].load(Relaxed);
                (door.name(), cause.name(), count)
            };
            RejectionCause::ALL.into_iter().map(of_cause)
        };
        PortName::ALL.into_iter().flat_map(of_door)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_listed_once() {
        let refused = RejectionCounters::default();
        for (place, cause) in RejectionCause::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, place);
            for door in PortName::ALL {
                refused.count(door, cause, &"a test");
            }
        }
        assert!(refused.counts().all(|(_, _, count)| count == 1));
        let mut names: Vec<_> = refused
            .counts()
            .map(|(door, cause, _)| (door, cause))
            .collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), RejectionCause::ALL.len() * PortName::ALL.len());
    }
}
