//! What is lent for a while and given back: bytes that are received and not durable yet, connections, requests.
//!
//! Nobody gets more than is left free after it. Who comes alone has half of the pool, `n` greedy ones have an `n + 1`th
//! each, and as much is free for the next who comes: so much fairness needs no list of who is who, and nothing to set.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Who is told apart from whom: addresses, as far as one machine has them; all that come by the unix socket are one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Peer(Option<IpAddr>);

impl Peer {
    /// The peer at an address; none: on the unix socket.
    #[must_use]
    pub fn of(address: Option<IpAddr>) -> Self {
        /// A machine has a network of 64 bits for itself.
        const OF_NETWORK: u128 = !0 << 64;
        Self(address.map(|address| match address.to_canonical() {
            IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() & OF_NETWORK).into()),
            v4 @ IpAddr::V4(_) => v4,
        }))
    }
}

/// What there is too little of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// All is lent.
    Pool,
    /// This peer has its share.
    Peer,
}

/// So much of something. Clones are the same pool.
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
    /// A pool of which nothing is lent.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self(Arc::new(Inner {
            max,
            lent: Mutex::default(),
            given_back: Notify::new(),
        }))
    }

    /// How much there is, lent or not.
    #[must_use]
    pub fn max(&self) -> usize {
        self.0.max
    }

    /// How much is lent.
    #[must_use]
    pub fn lent(&self) -> usize {
        self.0.lent().all
    }

    /// A share of nothing yet.
    #[must_use]
    pub fn share(&self, peer: Peer) -> Share {
        Share {
            pool: self.clone(),
            peer,
            held: 0,
        }
    }

    /// A share of so much.
    ///
    /// # Errors
    /// When it cannot be had now.
    pub fn lend(&self, peer: Peer, amount: usize) -> Result<Share, Lack> {
        let mut share = self.share(peer);
        share.resize(amount).map(|()| share)
    }

    /// A share of so much, or of all that there is, when it can be had.
    pub async fn lend_when_free(&self, peer: Peer, amount: usize) -> Share {
        let mut share = self.share(peer);
        loop {
            let mut given_back = pin!(self.0.given_back.notified());
            // Before the look: what is given back in between is not missed.
            given_back.as_mut().enable();
            if share.resize(amount).is_ok() {
                return share;
            }
            given_back.await;
        }
    }
}

impl Inner {
    /// Whoever panicked did not while it counted.
    fn lent(&self) -> MutexGuard<'_, Lent> {
        self.lent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A part of a pool, given back when dropped.
#[derive(Debug)]
pub struct Share {
    pool: Pool,
    peer: Peer,
    held: usize,
}

impl Share {
    /// How much it is.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held
    }

    /// Holds so much from now on. More than the pool has counts as all of it: it passes when nothing else is lent.
    ///
    /// # Errors
    /// When it cannot be had now; then as much is held as before.
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
        // What a peer has alone, and nothing beside it, always passes.
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
            // It never fails to become less.
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
