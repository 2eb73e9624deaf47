//! Quotas on bytes of requests that arrive or are not durable yet, on connections, and on requests.
//!
//! A pool denies an allocation after which the peer would hold more than stays free. So a single
//! peer with several shares gets at most half of the pool. In equilibrium, `n` greedy peers get one
//! part in `n + 1` each, and one such part stays free for the next peer. A peer's only share is
//! exempt: it may take all that is free. This fairness needs no configuration.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Identity of a client for quotas: its IPv4 address, or its 64-bit IPv6 network. All clients of
/// the unix socket are one peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Peer(Option<IpAddr>);

impl Peer {
    /// Returns the peer with an address; `None` means the unix socket.
    #[must_use]
    pub fn of(address: Option<IpAddr>) -> Self {
        /// Mask of the network part, as one machine may own a whole 64-bit network.
        const OF_NETWORK: u128 = !0 << 64;
        Self(address.map(|address| match address.to_canonical() {
            IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() & OF_NETWORK).into()),
            v4 @ IpAddr::V4(_) => v4,
        }))
    }
}

/// Reason why a pool does not allocate an amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// The pool has too few free units.
    Pool,
    /// The peer would hold more than its fair part.
    Peer,
}

/// Quota of `max` units, such as bytes or connections. Clones share it.
#[derive(Clone, Debug)]
pub struct Pool(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    max: usize,
    lent: Mutex<Lent>,
    given_back: Notify,
}

#[derive(Debug, Default)]
struct Lent {
    all: usize,
    by_peer: HashMap<Peer, usize>,
}

impl Pool {
    /// Creates a pool in which nothing is allocated.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self(Arc::new(Inner {
            max,
            lent: Mutex::default(),
            given_back: Notify::new(),
        }))
    }

    /// Returns the total amount, allocated or not.
    #[must_use]
    pub fn max(&self) -> usize {
        self.0.max
    }

    /// Returns the allocated amount.
    #[must_use]
    pub fn lent(&self) -> usize {
        self.0.lent().all
    }

    /// Returns a share of zero units, which can be resized.
    #[must_use]
    pub fn share(&self, peer: Peer) -> Share {
        Share {
            pool: self.clone(),
            peer,
            held: 0,
        }
    }

    /// Allocates a share of `amount`, or of the whole pool if that is less.
    ///
    /// # Errors
    /// Returns an error if the pool cannot provide it now.
    pub fn lend(&self, peer: Peer, amount: usize) -> Result<Share, Lack> {
        let mut share = self.share(peer);
        share.resize(amount).map(|()| share)
    }

    /// Allocates a share like [`Self::lend`], and waits until the pool can provide it.
    pub async fn lend_when_free(&self, peer: Peer, amount: usize) -> Share {
        let mut share = self.share(peer);
        loop {
            let mut given_back = pin!(self.0.given_back.notified());
            // Registers before the check, so that no release in between is missed.
            given_back.as_mut().enable();
            if share.resize(amount).is_ok() {
                return share;
            }
            given_back.await;
        }
    }
}

impl Inner {
    /// Locks the counts. It ignores poisoning, as no code that updates them can panic halfway.
    fn lent(&self) -> MutexGuard<'_, Lent> {
        self.lent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An allocated part of a pool, released when dropped.
#[derive(Debug)]
pub struct Share {
    pool: Pool,
    peer: Peer,
    held: usize,
}

impl Share {
    /// Returns the allocated amount.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held
    }

    /// Changes the allocated amount. An amount above the pool's total counts as the total, which is
    /// granted if nothing else is allocated.
    ///
    /// # Errors
    /// Returns an error if the pool cannot provide it now. The share then stays unchanged.
    pub fn resize(&mut self, amount: usize) -> Result<(), Lack> {
        let max = self.pool.0.max;
        let amount = amount.min(max);
        let mut lent = self.pool.0.lent();
        if amount <= self.held {
            let less = self.held - amount;
            lent.take_back(self.peer, less);
            self.held = amount;
            drop(lent);
            if less > 0 {
                self.pool.0.given_back.notify_waiters();
            }
            return Ok(());
        }
        let more = amount - self.held;
        let all = lent.all + more;
        if all > max {
            return Err(Lack::Pool);
        }
        let of_peer = lent.by_peer.get(&self.peer).copied().unwrap_or(0);
        // The fair part does not limit a peer's only share.
        if of_peer > self.held && of_peer + more > max - all {
            return Err(Lack::Peer);
        }
        lent.all = all;
        *lent.by_peer.entry(self.peer).or_default() += more;
        self.held = amount;
        Ok(())
    }
}

impl Lent {
    fn take_back(&mut self, peer: Peer, amount: usize) {
        self.all -= amount;
        if let Entry::Occupied(mut of_peer) = self.by_peer.entry(peer) {
            *of_peer.get_mut() -= amount;
            if *of_peer.get() == 0 {
                of_peer.remove();
            }
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.held > 0 {
            // Shrinking never fails.
            let _ = self.resize(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(number: u8) -> Peer {
        Peer::of(Some([10, 0, 0, number].into()))
    }

    #[test]
    fn one_has_half_and_others_find_room() {
        let pool = Pool::new(100);
        let take = |number: u8| -> Vec<Share> {
            std::iter::from_fn(|| pool.lend(peer(number), 1).ok()).collect()
        };
        let (first, second, third) = (take(1), take(2), take(3));
        let counts = [first.len(), second.len(), third.len()];
        assert_eq!(counts, [50, 25, 12], "each as much as is left");
        assert_eq!(pool.lend(peer(1), 1).unwrap_err(), Lack::Peer);
        assert_eq!(pool.lend(peer(1), 99).unwrap_err(), Lack::Pool);
        assert!(pool.lend(peer(4), 1).is_ok());
        drop((first, second, third));
        assert_eq!(pool.lent(), 0);
        assert!(pool.0.lent().by_peer.is_empty(), "nobody is remembered");
    }

    #[test]
    fn what_is_larger_than_all_passes_alone() {
        let pool = Pool::new(100);
        let mut share = pool.share(peer(1));
        for amount in [10, 60, 1_000, 20] {
            share.resize(amount).unwrap();
            assert_eq!(pool.lent(), amount.min(100));
        }
        let _other = pool.lend(peer(2), 1).unwrap();
        assert_eq!(share.resize(1_000).unwrap_err(), Lack::Pool);
        assert_eq!(share.held(), 20);
    }

    #[test]
    fn machines_are_told_apart_by_their_network() {
        let of = |text: &str| Peer::of(Some(text.parse().unwrap()));
        assert_eq!(of("2001:db8::1"), of("2001:db8::2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("127.0.0.1"), of("127.0.0.2"));
    }

    #[tokio::test]
    async fn who_waits_is_woken() {
        let pool = Pool::new(100);
        let first = pool.lend(peer(1), 90).unwrap();
        let waiting = tokio::spawn({
            let pool = pool.clone();
            async move { pool.lend_when_free(peer(2), 1_000).await.held() }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(first);
        assert_eq!(waiting.await.unwrap(), 100);
    }
}
