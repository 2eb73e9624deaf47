//! Memory that queries may hold: each of them, and all together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Smallest amount that is taken from the pool of all queries, in bytes.
const STEP_BYTES: usize = 256 << 10;

/// Memory for queries. Clones share it.
#[derive(Clone, Debug)]
pub struct QueryMemory(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    all_max: usize,
    lent: AtomicUsize,
    /// By the place of their cause.
    refused: [AtomicU64; 2],
}

/// The reason why a query gets no more memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryLack {
    /// It would hold more than one query may.
    #[error("it takes more than the {0} MiB that one query may (half of --query-memory)")]
    Query(usize),
    /// The others hold what is left.
    #[error("other queries hold the memory that there is for queries (--query-memory): come again")]
    All,
}

impl QueryMemory {
    /// So many bytes for all queries; one may hold half of them.
    #[must_use]
    pub fn new(all_max: usize) -> Self {
        Self(Arc::new(Inner {
            all_max,
            lent: AtomicUsize::new(0),
            refused: Default::default(),
        }))
    }

    /// Memory without a bound.
    #[must_use]
    pub fn unbounded() -> Self {
        Self::new(usize::MAX)
    }

    /// Most bytes of one query.
    #[must_use]
    pub fn query_max(&self) -> usize {
        self.0.all_max / 2
    }

    /// Bytes that queries hold.
    #[must_use]
    pub fn lent(&self) -> usize {
        self.0.lent.load(Relaxed)
    }

    /// Queries refused so far, by cause.
    #[must_use]
    pub fn refused(&self) -> [(&'static str, u64); 2] {
        let [query, all] = &self.0.refused;
        [("query", query.load(Relaxed)), ("all", all.load(Relaxed))]
    }

    /// The share of a query that holds nothing yet.
    #[must_use]
    pub fn share(&self) -> QueryShare {
        QueryShare {
            memory: self.clone(),
            used: 0,
            held: 0,
        }
    }

    fn lack(&self, lack: QueryLack) -> QueryLack {
        let cause = usize::from(lack == QueryLack::All);
        self.0.refused[cause].fetch_add(1, Relaxed);
        lack
    }
}

/// The memory of one query, given back when dropped.
#[derive(Debug)]
pub struct QueryShare {
    memory: QueryMemory,
    used: usize,
    /// Of the pool: `used`, in steps.
    held: usize,
}

impl QueryShare {
    /// Bytes that the query uses.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used
    }

    /// Takes more bytes.
    ///
    /// # Errors
    /// When they cannot be had; then the query uses as much as before.
    pub fn take(&mut self, bytes: usize) -> Result<(), QueryLack> {
        let used = self.used.saturating_add(bytes);
        if used > self.held {
            let query_max = self.memory.query_max();
            if used > query_max {
                return Err(self.memory.lack(QueryLack::Query(query_max >> 20)));
            }
            let held = used.saturating_add(STEP_BYTES).min(query_max);
            let more = held - self.held;
            let all_max = self.memory.0.all_max;
            let fits = |lent: usize| lent.checked_add(more).filter(|lent| *lent <= all_max);
            let lent = self.memory.0.lent.fetch_update(Relaxed, Relaxed, fits);
            lent.map_err(|_| self.memory.lack(QueryLack::All))?;
            self.held = held;
        }
        self.used = used;
        Ok(())
    }

    /// Gives bytes back.
    pub fn give_back(&mut self, bytes: usize) {
        self.used = self.used.saturating_sub(bytes);
        let less = self.held.saturating_sub(self.used + STEP_BYTES);
        self.held -= less;
        self.memory.0.lent.fetch_sub(less, Relaxed);
    }
}

impl Drop for QueryShare {
    fn drop(&mut self) {
        self.memory.0.lent.fetch_sub(self.held, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn one_query_has_half_and_all_have_all() {
        let memory = QueryMemory::new(100 * MIB);
        let mut shares: Vec<_> = (0..3).map(|_| memory.share()).collect();
        let too_much = shares[0].take(51 * MIB);
        assert_eq!(too_much, Err(QueryLack::Query(50)));
        assert_eq!(shares[0].take(50 * MIB), Ok(()));
        assert_eq!(shares[1].take(40 * MIB), Ok(()));
        assert_eq!(shares[2].take(20 * MIB), Err(QueryLack::All));
        assert_eq!(shares[2].used(), 0);
        shares[0].give_back(30 * MIB);
        assert_eq!(shares[2].take(20 * MIB), Ok(()));
        assert!(memory.lent() >= 80 * MIB && memory.lent() <= 81 * MIB);
        assert_eq!(memory.refused(), [("query", 1), ("all", 1)]);
        drop(shares);
        assert_eq!(memory.lent(), 0);
    }

    #[test]
    fn small_amounts_add_up() {
        let memory = QueryMemory::new(2 * MIB);
        let mut share = memory.share();
        let taken = (0..).take_while(|_| share.take(1_000).is_ok()).count();
        assert_eq!(taken, MIB / 1_000);
        assert_eq!(memory.lent(), MIB);
    }
}
