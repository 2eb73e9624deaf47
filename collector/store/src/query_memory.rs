//! Memory quota of queries, for each query and for all together.

use std::fmt::{Debug, Formatter};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum reserve that a query holds beyond its use, in bytes, so that it takes memory from the
/// pool less often.
const STEP_BYTES: usize = 256 << 10;

/// Name of the limit of a program that runs a single query.
const OF_ONE: &str = "--memory-limit";

/// Memory quota for queries. Clones share it.
#[derive(Clone, Debug)]
pub struct QueryMemory(Arc<Inner>);

struct Inner {
    all_max: usize,
    query_max: usize,
    /// Name of the limit of one query, for messages.
    bound: &'static str,
    lent: AtomicUsize,
    /// Number of refusals by cause: the limit of one query, or of all.
    refused: [AtomicU64; 2],
    /// Functions that release cached memory.
    reclaimers: Mutex<Vec<Reclaimer>>,
}

type Reclaimer = Arc<dyn Fn() + Send + Sync>;

impl Debug for Inner {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let lent = self.lent.load(Relaxed);
        write!(f, "{lent} of {} bytes lent", self.all_max)
    }
}

/// Reason why a query gets no more memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryLack {
    /// The query would exceed the limit of a single query; contains the limit in MiB, and its name.
    #[error("it needs more than the {0} MiB allowed for one query ({1})")]
    Query(usize, &'static str),
    /// Too little of the memory for all queries is left.
    #[error("other queries use all memory for queries (--query-memory): try again later")]
    All,
}

impl QueryMemory {
    /// Creates a quota of `all_max` bytes for all queries. One query may hold half of it.
    #[must_use]
    pub fn new(all_max: usize) -> Self {
        Self::with(all_max, all_max / 2, "half of --query-memory")
    }

    /// Creates a quota of `max` bytes for a program that runs a single query, which may hold all of
    /// it.
    #[must_use]
    pub fn of_one_query(max: usize) -> Self {
        Self::with(max, max, OF_ONE)
    }

    fn with(all_max: usize, query_max: usize, bound: &'static str) -> Self {
        Self(Arc::new(Inner {
            all_max,
            query_max,
            bound,
            lent: AtomicUsize::new(0),
            refused: Default::default(),
            reclaimers: Mutex::default(),
        }))
    }

    /// Creates a quota that is practically unlimited.
    #[must_use]
    pub fn unbounded() -> Self {
        Self::new(usize::MAX)
    }

    /// Returns the limit of all queries together, in bytes.
    #[must_use]
    pub fn all_max(&self) -> usize {
        self.0.all_max
    }

    /// Returns the limit of one query, in bytes.
    #[must_use]
    pub fn query_max(&self) -> usize {
        self.0.query_max
    }

    /// Registers a function that drops cached shares when memory is short. The function must not
    /// take memory from this quota itself.
    pub fn reclaim_by(&self, reclaim: impl Fn() + Send + Sync + 'static) {
        self.reclaimers().push(Arc::new(reclaim));
    }

    fn reclaimers(&self) -> std::sync::MutexGuard<'_, Vec<Reclaimer>> {
        let reclaimers = self.0.reclaimers.lock();
        reclaimers.unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of bytes that all shares hold.
    #[must_use]
    pub fn lent(&self) -> usize {
        self.0.lent.load(Relaxed)
    }

    /// Returns the number of refusals so far, by cause.
    #[must_use]
    pub fn refused(&self) -> [(&'static str, u64); 2] {
        let [query, all] = &self.0.refused;
        [("query", query.load(Relaxed)), ("all", all.load(Relaxed))]
    }

    /// Creates an empty share for a query.
    #[must_use]
    pub fn share(&self) -> QueryShare {
        QueryShare {
            memory: self.clone(),
            used: 0,
            held: 0,
        }
    }

    fn lend(&self, bytes: usize) -> bool {
        let fits = |lent: usize| {
            let lent = lent.checked_add(bytes);
            lent.filter(|lent| *lent <= self.0.all_max)
        };
        self.0.lent.fetch_update(Relaxed, Relaxed, fits).is_ok()
    }

    /// Takes bytes from the pool. If it has too few, lets caches release their memory and tries
    /// again. Returns false if this does not suffice.
    fn lend_or_reclaim(&self, bytes: usize) -> bool {
        self.lend(bytes) || {
            let reclaimers = self.reclaimers().clone();
            reclaimers.iter().for_each(|reclaim| reclaim());
            self.lend(bytes)
        }
    }

    fn lack_of_one(&self) -> QueryLack {
        QueryLack::Query(self.0.query_max >> 20, self.0.bound)
    }

    fn lack(&self, lack: QueryLack) -> QueryLack {
        let cause = usize::from(lack == QueryLack::All);
        self.0.refused[cause].fetch_add(1, Relaxed);
        lack
    }
}

/// Share of one query in the quota, released when dropped.
#[derive(Debug)]
pub struct QueryShare {
    memory: QueryMemory,
    used: usize,
    /// Bytes taken from the pool: at least `used`.
    held: usize,
}

impl QueryShare {
    /// Returns the bytes that the query uses.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used
    }

    /// Increases the query's use by `bytes`. Takes memory from the pool if the query does not hold
    /// enough.
    ///
    /// # Errors
    /// Returns an error if the quota does not allow it. The query then uses as much as before.
    pub fn take(&mut self, bytes: usize) -> Result<(), QueryLack> {
        let used = self.used.saturating_add(bytes);
        if used > self.held {
            let memory = &self.memory;
            let query_max = memory.query_max();
            if used > query_max {
                return Err(memory.lack(memory.lack_of_one()));
            }
            let held = used.saturating_add(STEP_BYTES).min(query_max);
            if !memory.lend_or_reclaim(held - self.held) {
                // In a program with a single query, the other shares are its own.
                let is_alone = memory.0.bound == OF_ONE;
                let lack = if is_alone {
                    memory.lack_of_one()
                } else {
                    QueryLack::All
                };
                return Err(memory.lack(lack));
            }
            self.held = held;
        }
        self.used = used;
        Ok(())
    }

    /// Reduces the query's use by `bytes`. Returns unused memory to the pool, except a reserve of
    /// at most 256 KiB.
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
        assert_eq!(
            too_much,
            Err(QueryLack::Query(50, "half of --query-memory"))
        );
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
    fn the_one_query_of_a_program_has_all_in_whatever_parts() {
        let memory = QueryMemory::of_one_query(100 * MIB);
        let (mut before, mut after) = (memory.share(), memory.share());
        assert_eq!(before.take(60 * MIB), Ok(()));
        let lack = Err(QueryLack::Query(100, "--memory-limit"));
        assert_eq!(before.take(41 * MIB), lack);
        assert_eq!(after.take(50 * MIB), lack);
    }

    #[test]
    fn what_is_kept_for_later_goes_first() {
        let memory = QueryMemory::new(100 * MIB);
        let mut kept = memory.share();
        kept.take(40 * MIB).unwrap();
        let kept = Arc::new(Mutex::new(Some(kept)));
        let keeper = kept.clone();
        memory.reclaim_by(move || *keeper.lock().unwrap() = None);
        let (mut first, mut second) = (memory.share(), memory.share());
        assert_eq!(first.take(50 * MIB), Ok(()));
        assert!(kept.lock().unwrap().is_some());
        assert_eq!(second.take(40 * MIB), Ok(()));
        assert!(kept.lock().unwrap().is_none());
        assert_eq!(memory.share().take(20 * MIB), Err(QueryLack::All));
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
