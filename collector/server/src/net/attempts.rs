//! Counts failed logins through the form, by address.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::pool::Peer;

/// Maximum failed logins of one address per minute; further tokens are not looked up.
const ATTEMPTS: u32 = 5;
const ATTEMPTS_TIME: Duration = Duration::from_secs(60);
/// Maximum addresses with a count of their own; all others share one.
const PEERS_MAX: usize = 1_024;

/// Counts of failed logins by address, for wrong tokens or for tokens without the role `read`. A
/// count restarts a minute after its first attempt.
#[derive(Debug, Default)]
pub(super) struct Attempts(Mutex<HashMap<Peer, (u32, Instant)>>);

impl Attempts {
    /// Counts an attempt before its token is looked up, so that concurrent attempts count too.
    /// Returns false if this address has no attempts left.
    pub(super) fn take(&self, peer: Peer, now: Instant) -> bool {
        self.with(peer, now, |(count, _)| {
            let is_left = *count < ATTEMPTS;
            *count += u32::from(is_left);
            is_left
        })
    }

    /// Reverts the count of an attempt that logged in.
    pub(super) fn give_back(&self, peer: Peer, now: Instant) {
        self.with(peer, now, |(count, _)| *count = count.saturating_sub(1));
    }

    fn with<T>(&self, peer: Peer, now: Instant, what: impl FnOnce(&mut (u32, Instant)) -> T) -> T {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.retain(|_, (_, began)| now.duration_since(*began) < ATTEMPTS_TIME);
        let is_counted = counts.len() < PEERS_MAX || counts.contains_key(&peer);
        let peer = if is_counted { peer } else { Peer::default() };
        what(counts.entry(peer).or_insert((0, now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    #[test]
    fn failed_logins_are_counted_by_address_for_a_minute() {
        let attempts = Attempts::default();
        let peer = |n: u32| Peer::of(Some(IpAddr::V4(Ipv4Addr::from_bits(n))));
        let begin = Instant::now();
        // Logins that succeed do not count, however many there are.
        for _ in 0..2 * ATTEMPTS {
            assert!(attempts.take(peer(1), begin));
            attempts.give_back(peer(1), begin);
        }
        for _ in 0..ATTEMPTS {
            assert!(attempts.take(peer(1), begin));
        }
        assert!(!attempts.take(peer(1), begin));
        assert!(attempts.take(peer(2), begin));
        assert!(attempts.take(peer(1), begin + ATTEMPTS_TIME));
        // The number of counted addresses is bounded; all others share one count.
        for n in 0..5_000 {
            attempts.take(peer(n), begin);
        }
        assert!(attempts.0.lock().unwrap().len() <= PEERS_MAX + 1);
        assert!(!attempts.take(peer(100_000), begin));
    }
}
