//! What is turned away at a door, by name.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Where it knocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoorName {
    Grpc,
    Unix,
    OtlpHttp,
    Pages,
}

impl DoorName {
    const ALL: [Self; 4] = [Self::Grpc, Self::Unix, Self::OtlpHttp, Self::Pages];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::Unix => "unix",
            Self::OtlpHttp => "otlp_http",
            Self::Pages => "pages",
        }
    }
}

/// Why it was turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoorCause {
    /// As many connections are open as may be.
    Connections,
    /// This peer has its share of them.
    PeerConnections,
    /// The system has no socket left.
    Accept,
    /// What came first is no TLS, or none that is spoken here.
    TlsHandshake,
    /// The handshake took too long.
    TlsTimeout,
    /// There is none, or it is unknown or expired.
    ClientCertificate,
    TokenMissing,
    TokenUnknown,
    /// The token is known, and for something else.
    TokenRole,
    /// It was good when the request began, and is not any more.
    TokenWithdrawn,
    /// Too many wrong tokens came by the form of the login.
    LoginAttempts,
    /// The request is for a host that this is not.
    Host,
    /// A page of somebody else's asks for a change.
    Origin,
    /// No request came, or its head took too long.
    SlowHead,
    HeaderSize,
    SlowBody,
    /// It is no HTTP.
    BrokenProtocol,
    /// As many requests are open as may be.
    Requests,
    PeerRequests,
    /// As many bytes are being received as may be.
    Bytes,
    PeerBytes,
}

impl DoorCause {
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

/// Counts what is turned away. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Refused(Arc<[[AtomicU64; DoorCause::ALL.len()]; DoorName::ALL.len()]>);

impl Refused {
    /// Counts one, and says so: the first, the second, the fourth …, so that nobody fills the log.
    pub(crate) fn count(&self, door: DoorName, cause: DoorCause, who: &dyn std::fmt::Display) {
        let count = self.0[door as usize][cause as usize].fetch_add(1, Relaxed) + 1;
        if count.is_power_of_two() {
            let (door, cause) = (door.name(), cause.name());
            tracing::warn!(door, cause, count, peer = %who, "turned away");
        }
    }

    /// All that there are: door, cause, count.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> + '_ {
        let of_door = move |door: DoorName| {
            let of_cause = move |cause: DoorCause| {
                let count = self.0[door as usize][cause as usize].load(Relaxed);
                (door.name(), cause.name(), count)
            };
            DoorCause::ALL.into_iter().map(of_cause)
        };
        DoorName::ALL.into_iter().flat_map(of_door)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_listed_once() {
        let refused = Refused::default();
        for (place, cause) in DoorCause::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, place);
            for door in DoorName::ALL {
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
        assert_eq!(names.len(), DoorCause::ALL.len() * DoorName::ALL.len());
    }
}
