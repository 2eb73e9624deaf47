//! Joins lock waits with recorded releases, and finds the futex waits that no marker reports.

use rustc_hash::{FxHashMap, FxHashSet};

use super::call::{Architecture, FutexOperation};
use super::timeline::{
    LockWait, OffCpu, Owner, Reason, Release, ReleaseEvidence, SystemCall, Timeline,
};

/// Releases of locks, and waits for locks, in the current window.
#[derive(Debug, Default)]
pub(super) struct Releases {
    /// Releases with any kind of evidence. The next three maps hold indices into this list, in
    /// order of time.
    all: Vec<Release>,
    /// Releases that markers report, by process and by the lock's number in the markers.
    by_marker: FxHashMap<(u32, u64), Vec<usize>>,
    /// Releases that woke a thread, by that thread, each with the futex address of the wake call.
    by_woken: FxHashMap<u32, Vec<(u64, usize)>>,
    /// Releases by futex calls that wake waiters, by process and futex address.
    by_call: FxHashMap<(u32, u64), Vec<usize>>,
    /// Start (ns) and address of futex waits, by thread.
    sleeps: FxHashMap<u32, Vec<(u64, u64)>>,
    /// Waits that markers report: index into the lock waits, and process.
    marked: Vec<(usize, u32)>,
    /// Index of the latest marked wait, by process, lock and owner.
    latest: FxHashMap<(u32, u64, Owner), usize>,
    /// Number of off-processor intervals of earlier windows.
    off_cpu_done: usize,
    /// Number of system calls of earlier windows.
    calls_done: usize,
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

    /// Sets the owner of a release whose owner was unknown when it was added.
    pub(super) fn set_owner(&mut self, release: usize, owner: Owner) {
        if let Some(release) = self.all.get_mut(release) {
            release.owner = owner;
        }
    }

    /// Adds a release from the holder's own marker.
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

    /// Adds a release from a wake-up inside the holder's futex call.
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

    /// Records the beginning of a futex call. Returns the index of the new release if the call
    /// wakes, and `None` if it waits.
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

    /// Records the beginning of a marked wait.
    pub(super) fn waits(&mut self, wait: usize, process: u32, lock: u64, owner: Owner) {
        self.marked.push((wait, process));
        self.latest.insert((process, lock, owner), wait);
    }

    /// Index of the latest marked wait of an owner for a lock; `None` if this window has none.
    pub(super) fn open_wait(&self, process: u32, lock: u64, owner: Owner) -> Option<usize> {
        self.latest.get(&(process, lock, owner)).copied()
    }

    /// Fills in the releases of the window's marked waits, and adds its unmarked waits: the futex
    /// waits, except for those that begin during the last marked wait that the same thread and
    /// owner began by then. Then forgets the window's releases and waits.
    ///
    /// If a recording has no switches, as with strace, the unmarked waits are the futex calls that
    /// wait, except for those that fail with EAGAIN. Otherwise, they are the sleeps in such calls.
    pub(super) fn join(
        &mut self,
        result: &mut Timeline,
        architecture: Architecture,
        has_switches: bool,
    ) {
        // The owner is part of the key, because a task that waits for a lock may leave its thread
        // to other tasks.
        let mut marked_of: FxHashMap<(u32, Owner), Vec<(u64, u64)>> = FxHashMap::default();
        for &(index, process) in &self.marked {
            let wait = &mut result.lock_waits[index];
            let end_ns = wait.end_ns.unwrap_or(u64::MAX);
            marked_of
                .entry((wait.tid, wait.owner))
                .or_default()
                .push((wait.start_ns, end_ns));
            self.join_marked(wait, process, end_ns);
        }
        let is_marked = |tid: u32, owner: Owner, start_ns: u64| {
            marked_of.get(&(tid, owner)).is_some_and(|spans| {
                let after = spans.partition_point(|&(from_ns, _)| from_ns <= start_ns);
                after
                    .checked_sub(1)
                    .is_some_and(|place| start_ns <= spans[place].1)
            })
        };
        for off in &result.off_cpu[self.off_cpu_done..] {
            if let Reason::Futex { address } = off.reason
                && !is_marked(off.tid, off.owner, off.start_ns)
            {
                result.lock_waits.push(self.unmarked(off, address));
            }
        }
        let calls = match has_switches {
            true => &[],
            false => &result.calls[self.calls_done..],
        };
        let woke_nobody: FxHashSet<(u32, u64)> = calls
            .iter()
            .filter(|call| woke_nobody(call, architecture))
            .map(|call| (call.tid, call.start_ns))
            .collect();
        for call in calls {
            let futex = call
                .args
                .and_then(|args| architecture.futex(call.call, &args));
            if let Some((FutexOperation::Wait, address)) = futex
                && call.result != Some(NOTHING_TO_WAIT_FOR)
                && !is_marked(call.tid, call.owner, call.start_ns)
            {
                let process = result.threads.get(&call.tid).map_or(0, |info| info.process);
                let wakes = self.by_call.get(&(process, address));
                let wakes = wakes.map_or(&[][..], Vec::as_slice);
                result
                    .lock_waits
                    .push(self.of_call(call, address, wakes, &woke_nobody));
            }
        }
        *self = Self {
            off_cpu_done: result.off_cpu.len(),
            calls_done: result.calls.len(),
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
        let until_end = |index: &usize| self.all[*index].ts_ns <= end_ns;
        // A wait may sleep several times at one address.
        let mut addresses = FxHashSet::default();
        let called = sleeps
            .iter()
            .take_while(|&&(ts_ns, _)| ts_ns <= end_ns)
            .filter(|&&(_, address)| addresses.insert(address))
            .flat_map(|&(_, address)| {
                let of_address = self.by_call.get(&(process, address));
                let since = of_address.map_or(&[][..], |all| self.since(all, wait));
                &since[..since.partition_point(until_end)]
            });
        let first_woken =
            woken.partition_point(|&(_, index)| self.all[index].ts_ns < wait.start_ns);
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
            // The release's address may differ from the one waited for: FUTEX_REQUEUE moves
            // sleepers.
            let &(_, index) = woken.get(place)?;
            (self.all[index].ts_ns == waker.ts_ns).then_some(self.all[index])
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

    /// Builds a wait from a futex call. Its holder is the last other thread that called to wake
    /// waiters of the futex between the call's start and end (only at the start if the end is
    /// unknown). Calls whose result shows that they woke no thread do not count.
    fn of_call(
        &self,
        call: &SystemCall,
        address: u64,
        wakes: &[usize],
        woke_nobody: &FxHashSet<(u32, u64)>,
    ) -> LockWait {
        let end_ns = call.end_ns.unwrap_or(call.start_ns);
        let before = wakes.partition_point(|&index| self.all[index].ts_ns <= end_ns);
        let last = wakes[..before]
            .iter()
            .rev()
            .map(|&index| self.all[index])
            .take_while(|release| release.ts_ns >= call.start_ns)
            .filter(|release| !woke_nobody.contains(&(release.tid, release.ts_ns)))
            .find(|release| release.tid != call.tid);
        let took_ns = end_ns.saturating_sub(call.start_ns);
        LockWait {
            tid: call.tid,
            owner: call.owner,
            lock: address,
            is_marked: false,
            start_ns: call.start_ns,
            end_ns: call.end_ns,
            releases: last
                .into_iter()
                .map(|release| Release {
                    held_ns: took_ns,
                    ..release
                })
                .collect(),
            evidence: last.map(|_| ReleaseEvidence::Call),
        }
    }
}

/// Reports whether the result of a wake call shows that it woke no thread.
fn woke_nobody(call: &SystemCall, architecture: Architecture) -> bool {
    let returns_woken = |args| architecture.returns_woken(call.call, &args);
    call.result == Some(0) && call.args.is_some_and(returns_woken)
}

/// Result of a futex wait that returned at once because the futex's value had changed (EAGAIN).
const NOTHING_TO_WAIT_FOR: i64 = -11;

/// Maximum number of wake calls considered for one marked wait. A contended lock may have very
/// many.
const CALLS_MAX: usize = 1_000;

/// Divides a wait among the holders of the lock. Assumes one holder at a time: the thread of each
/// release held the lock since the previous release or the wait's start. The last holder's share
/// lasts until the wait ends, or until the last release if the end is unknown. Returns each holder
/// once, with its total share as `held_ns`.
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
