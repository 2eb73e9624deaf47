//! Lock waits, joined with whoever released the lock meanwhile.

use rustc_hash::FxHashMap;

use super::call::FutexOperation;
use super::timeline::{LockWait, OffCpu, Owner, Reason, Release, ReleaseEvidence, Timeline};

/// All that was seen in this window of locks being given up and of waiting for them.
#[derive(Debug, Default)]
pub(super) struct Releases {
    /// Every release, whatever the evidence; the maps below hold indices, in order of time.
    all: Vec<Release>,
    /// By (process, lock of the markers).
    by_marker: FxHashMap<(u32, u64), Vec<usize>>,
    /// By the thread that was woken: the futex's address and the release.
    by_woken: FxHashMap<u32, Vec<(u64, usize)>>,
    /// By (process, address).
    by_call: FxHashMap<(u32, u64), Vec<usize>>,
    /// Futex waits begun, by thread: when, and at which address.
    sleeps: FxHashMap<u32, Vec<(u64, u64)>>,
    /// Marked waits: an index into the lock waits, and the process.
    marked: Vec<(usize, u32)>,
    /// The latest wait for a lock by an owner.
    latest: FxHashMap<(u32, u64, Owner), usize>,
    /// Intervals off the processor that were looked at in earlier windows.
    off_cpu_done: usize,
}

impl Releases {
    fn push(&mut self, tid: u32, owner: Owner, ts_ns: u64) -> usize {
        self.all.push(Release {
            tid,
            owner,
            ts_ns,
            held_ns: 0,
        });
        self.all.len() - 1
    }

    /// The owner of a release has been found later.
    pub(super) fn set_owner(&mut self, release: usize, owner: Owner) {
        if let Some(release) = self.all.get_mut(release) {
            release.owner = owner;
        }
    }

    /// The holder's own marker.
    pub(super) fn marker(
        &mut self,
        lock: u64,
        process: u32,
        tid: u32,
        owner: Owner,
        ts_ns: u64,
    ) -> usize {
        let release = self.push(tid, owner, ts_ns);
        self.by_marker
            .entry((process, lock))
            .or_default()
            .push(release);
        release
    }

    /// The kernel woke a thread from inside the holder's futex call.
    pub(super) fn woke(
        &mut self,
        address: u64,
        by: u32,
        owner: Owner,
        woken: u32,
        ts_ns: u64,
    ) -> usize {
        let release = self.push(by, owner, ts_ns);
        self.by_woken
            .entry(woken)
            .or_default()
            .push((address, release));
        release
    }

    /// A futex call begins; the release, if it is one that wakes.
    pub(super) fn futex_call(
        &mut self,
        operation: FutexOperation,
        address: u64,
        process: u32,
        tid: u32,
        owner: Owner,
        ts_ns: u64,
    ) -> Option<usize> {
        match operation {
            FutexOperation::Wait => {
                self.sleeps.entry(tid).or_default().push((ts_ns, address));
                None
            }
            FutexOperation::Wake => {
                let release = self.push(tid, owner, ts_ns);
                self.by_call
                    .entry((process, address))
                    .or_default()
                    .push(release);
                Some(release)
            }
        }
    }

    /// A marked wait begins.
    pub(super) fn waits(&mut self, wait: usize, process: u32, lock: u64, owner: Owner) {
        self.marked.push((wait, process));
        self.latest.insert((process, lock, owner), wait);
    }

    /// The latest wait for a lock by an owner.
    pub(super) fn open_wait(&self, process: u32, lock: u64, owner: Owner) -> Option<usize> {
        self.latest.get(&(process, lock, owner)).copied()
    }

    /// Fills in the releases of the window's waits, adds its futex waits that no marker speaks of, and forgets the window.
    pub(super) fn join(&mut self, result: &mut Timeline) {
        let mut marked_of: FxHashMap<u32, Vec<(u64, u64)>> = FxHashMap::default();
        for &(index, process) in &self.marked {
            let wait = &mut result.lock_waits[index];
            let end_ns = wait.end_ns.unwrap_or(u64::MAX);
            marked_of
                .entry(wait.tid)
                .or_default()
                .push((wait.start_ns, end_ns));
            self.join_marked(wait, process, end_ns);
        }
        for off in &result.off_cpu[self.off_cpu_done..] {
            let is_marked = marked_of.get(&off.tid).is_some_and(|spans| {
                let after = spans.partition_point(|&(start_ns, _)| start_ns <= off.start_ns);
                after
                    .checked_sub(1)
                    .is_some_and(|place| off.start_ns <= spans[place].1)
            });
            if let Reason::Futex { address } = off.reason
                && !is_marked
            {
                result.lock_waits.push(self.unmarked(off, address));
            }
        }
        *self = Self {
            off_cpu_done: result.off_cpu.len(),
            ..Self::default()
        };
    }

    fn join_marked(&self, wait: &mut LockWait, process: u32, end_ns: u64) {
        let is_meanwhile =
            |release: &Release| wait.start_ns <= release.ts_ns && release.ts_ns <= end_ns;
        let is_other = |release: &Release| release.tid != wait.tid || release.owner != wait.owner;
        let pick = |indices: &mut dyn Iterator<Item = usize>| {
            each_holder_once(
                indices
                    .map(|index| self.all[index])
                    .filter(|release| is_meanwhile(release) && is_other(release)),
                wait,
            )
        };
        let marked = self
            .by_marker
            .get(&(process, wait.lock))
            .map_or(&[][..], |all| self.since(all, wait));
        let woken = self.by_woken.get(&wait.tid).map_or(&[][..], Vec::as_slice);
        let sleeps = self.sleeps.get(&wait.tid).map_or(&[][..], Vec::as_slice);
        let sleeps = &sleeps[sleeps.partition_point(|&(ts_ns, _)| ts_ns < wait.start_ns)..];
        let called = sleeps
            .iter()
            .take_while(|&&(ts_ns, _)| ts_ns <= end_ns)
            .flat_map(|&(_, address)| {
                self.by_call
                    .get(&(process, address))
                    .map_or(&[][..], |all| self.since(all, wait))
            });
        let first_woken =
            woken.partition_point(|&(_, index)| self.all[index].ts_ns < wait.start_ns);
        let until_end = |index: &usize| self.all[*index].ts_ns <= end_ns;
        let found = [
            (
                ReleaseEvidence::Marker,
                pick(&mut marked.iter().copied().take_while(until_end)),
            ),
            (
                ReleaseEvidence::Wake,
                pick(
                    &mut woken[first_woken..]
                        .iter()
                        .map(|&(_, index)| index)
                        .take_while(until_end),
                ),
            ),
            (
                ReleaseEvidence::Call,
                pick(&mut called.copied().take(CALLS_MAX)),
            ),
        ];
        if let Some((evidence, releases)) =
            found.into_iter().find(|(_, releases)| !releases.is_empty())
        {
            wait.releases = releases;
            wait.evidence = Some(evidence);
        }
    }

    fn since<'a>(&self, indices: &'a [usize], wait: &LockWait) -> &'a [usize] {
        &indices[indices.partition_point(|&index| self.all[index].ts_ns < wait.start_ns)..]
    }

    fn unmarked(&self, off: &OffCpu, address: u64) -> LockWait {
        let woken = self.by_woken.get(&off.tid).map_or(&[][..], Vec::as_slice);
        let waker = off.waker.and_then(|waker| {
            let place = woken.partition_point(|&(_, index)| self.all[index].ts_ns < waker.ts_ns);
            let &(at, index) = woken.get(place)?;
            (at == address && self.all[index].ts_ns == waker.ts_ns).then_some(self.all[index])
        });
        let took_ns = off
            .end_ns
            .map_or(0, |end_ns| end_ns.saturating_sub(off.start_ns));
        LockWait {
            tid: off.tid,
            owner: off.owner,
            lock: address,
            is_marked: false,
            start_ns: off.start_ns,
            end_ns: off.end_ns,
            releases: waker
                .into_iter()
                .map(|release| Release {
                    held_ns: took_ns,
                    ..release
                })
                .collect(),
            evidence: waker.map(|_| ReleaseEvidence::Wake),
        }
    }
}

/// A hot lock may be woken for very often during one wait; past this many calls the evidence says nothing any more.
const CALLS_MAX: usize = 1_000;

/// A lock has one holder at a time, so between two releases it was held by who gave it up at the second; the last one's
/// share goes on until the waiter has it.
fn each_holder_once(releases: impl Iterator<Item = Release>, wait: &LockWait) -> Vec<Release> {
    let mut sorted: Vec<Release> = releases.collect();
    sorted.sort_by_key(|release| release.ts_ns);
    let mut holders: Vec<Release> = Vec::new();
    let mut since_ns = wait.start_ns;
    let last = sorted.len().saturating_sub(1);
    for (place, release) in sorted.into_iter().enumerate() {
        let until_ns = if place == last {
            wait.end_ns.unwrap_or(release.ts_ns)
        } else {
            release.ts_ns
        };
        let held_ns = until_ns.saturating_sub(since_ns);
        since_ns = release.ts_ns;
        match holders
            .iter_mut()
            .find(|known| known.tid == release.tid && known.owner == release.owner)
        {
            Some(known) => known.held_ns += held_ns,
            None => holders.push(Release { held_ns, ..release }),
        }
    }
    holders
}
