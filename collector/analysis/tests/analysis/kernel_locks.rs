//! Waits at locks and futexes, found in events, and their sums, compared with naive sums.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use stroboscope_analysis::kernel::attribute;
use stroboscope_analysis::kernel::call::Architecture;
use stroboscope_analysis::kernel::event::{Body, Event, Name, Window};
use stroboscope_analysis::kernel::lock_sums::{LockHolder, LockSpan, LockSum, LockSums, WaitSum};
use stroboscope_analysis::kernel::marker::{MARK, RequestId};
use stroboscope_analysis::kernel::timeline::{
    LockWait, Owner, Release, ReleaseEvidence, ThreadInfo, Timeline,
};

const FUTEX: u32 = 202;
const FUTEX_WAKE: u32 = 454;
const LOCK: u64 = 0x7f10;
const OTHER: u64 = 0x7f80;

fn see(ts_ns: u64, tid: u32, body: Body) -> Event {
    Event {
        ts_ns,
        cpu: tid as u16,
        tid,
        body,
    }
}

fn enter(ts_ns: u64, tid: u32, args: [u64; 6]) -> Event {
    see(ts_ns, tid, Body::Enter { call: FUTEX, args })
}

fn exit(ts_ns: u64, tid: u32, result: i64) -> Event {
    see(
        ts_ns,
        tid,
        Body::Exit {
            call: FUTEX,
            result,
        },
    )
}

/// A marker of this kind, about a lock.
fn mark(ts_ns: u64, tid: u32, kind: u64, trace: u64, lock: u64) -> Event {
    let args = [MARK | kind, trace, trace, u64::from(tid), lock, 0];
    see(ts_ns, tid, Body::Enter { call: 39, args })
}

/// A switch from a thread to the idle task, or from the idle task to a thread. Thread 0 is the idle
/// task.
fn switch(ts_ns: u64, cpu: u32, from: u32, to: u32) -> Event {
    let name = Name::new("t");
    let body = Body::Switch {
        state: u8::from(from != 0),
        process: u32::from(from != 0) * 9,
        name,
        next: to,
        next_process: u32::from(to != 0) * 9,
        next_name: name,
    };
    Event {
        cpu: cpu as u16,
        ..see(ts_ns, from, body)
    }
}

fn waking(ts_ns: u64, by: u32, woken: u32) -> Event {
    let body = Body::Waking {
        woken,
        woken_process: 9,
    };
    see(ts_ns, by, body)
}

/// Wait as (lock, marked, waiter, from, until, holders or wakers, evidence).
type Seen = (
    u64,
    bool,
    u64,
    u64,
    Option<u64>,
    Vec<u64>,
    Option<ReleaseEvidence>,
);

fn waits(events: &[Event]) -> Vec<Seen> {
    let timeline = attribute(events, &[Window::ALWAYS], Architecture::X86_64);
    let trace = |owner: Owner| owner.trace().unwrap_or(0);
    let seen = |wait: &LockWait| {
        let by = wait.releases.iter().map(|release| trace(release.owner));
        (
            wait.lock,
            wait.is_marked,
            trace(wait.owner),
            wait.start_ns,
            wait.end_ns,
            by.collect(),
            wait.evidence,
        )
    };
    timeline.lock_waits.iter().map(seen).collect()
}

/// Returns the events of two requests on two threads. The first waits, and the second wakes it by a
/// call of this operation at this address.
fn asleep_until_woken(operation: u64, address: u64) -> Vec<Event> {
    vec![
        mark(1, 1, 1, 0xa, 0),
        mark(2, 2, 1, 0xb, 0),
        enter(10, 1, [LOCK, 128, 2, 0, 0, 0]),
        switch(11, 1, 1, 0),
        enter(30, 2, [address, operation, 1, 0, 0, 0]),
        waking(31, 2, 1),
        switch(40, 1, 0, 1),
        exit(41, 1, 0),
    ]
}

#[test]
fn a_futex_wait_says_who_woke_it() {
    let expected = |by: Vec<u64>| {
        let evidence = (!by.is_empty()).then_some(ReleaseEvidence::Wake);
        vec![(LOCK, false, 0xa, 11, Some(40), by, evidence)]
    };
    // FUTEX_WAKE and FUTEX_UNLOCK_PI. In the last case, a requeue had moved the sleeper to another
    // futex.
    for (operation, address) in [(129, LOCK), (135, LOCK), (129, OTHER)] {
        assert_eq!(
            waits(&asleep_until_woken(operation, address)),
            expected(vec![0xb])
        );
    }
    // A wake-up outside a call, such as a timeout's interrupt, has no waker.
    let mut timeout = asleep_until_woken(129, LOCK);
    timeout.remove(4);
    assert_eq!(waits(&timeout), expected(vec![]));
    // A wake-up that was not recorded is not guessed.
    let mut unseen = asleep_until_woken(129, LOCK);
    unseen.remove(5);
    assert_eq!(waits(&unseen), expected(vec![]));
}

#[test]
fn a_marked_lock_is_not_counted_by_its_futex_again() {
    let mut events = asleep_until_woken(129, LOCK);
    events.extend([mark(9, 1, 5, 0xa, 77), mark(42, 1, 6, 0xa, 77)]);
    let marked = (
        77,
        true,
        0xa,
        9,
        Some(42),
        vec![0xb],
        Some(ReleaseEvidence::Wake),
    );
    assert_eq!(waits(&events), [marked]);
    // A task that waits leaves its thread to another request, whose own wait is separate.
    let task = [
        mark(1, 1, 3, 0xa, 0),
        mark(2, 1, 5, 0xa, 77),
        mark(3, 1, 4, 0xa, 0),
        mark(4, 1, 3, 0xc, 0),
        enter(10, 1, [LOCK, 128, 2, 0, 0, 0]),
        switch(11, 1, 1, 0),
        switch(40, 1, 0, 1),
        exit(41, 1, 0),
        mark(50, 1, 4, 0xc, 0),
        mark(51, 1, 3, 0xa, 0),
        mark(52, 1, 6, 0xa, 77),
    ];
    assert_eq!(
        waits(&task),
        [
            (77, true, 0xa, 2, Some(52), vec![], None),
            (LOCK, false, 0xc, 11, Some(40), vec![], None),
        ]
    );
}

/// Tests a marked wait that sleeps twice at a futex with many calls, and then at another futex.
#[test]
fn repeated_sleeps_at_one_futex_leave_room_for_another() {
    let mut events = vec![mark(9, 1, 5, 0xa, 77), mark(9_000, 1, 6, 0xa, 77)];
    for (tid, trace) in [(1, 0xa), (2, 0xb), (3, 0xc)] {
        events.push(switch(1, tid, 0, tid));
        events.push(mark(2, tid, 1, trace, 0));
    }
    for (at_ns, address) in [(10, LOCK), (20, LOCK), (30, OTHER)] {
        events.push(enter(at_ns, 1, [address, 128, 2, 0, 0, 0]));
        events.push(switch(at_ns + 1, 1, 1, 0));
        events.push(switch(at_ns + 2, 1, 0, 1));
        events.push(exit(at_ns + 3, 1, 0));
    }
    for call in 0..600 {
        events.push(enter(100 + 10 * call, 2, [LOCK, 129, 1, 0, 0, 0]));
        events.push(exit(101 + 10 * call, 2, 1));
    }
    events.push(enter(8_000, 3, [OTHER, 129, 1, 0, 0, 0]));
    events.sort_by_key(|event| event.ts_ns);
    let by = vec![0xb, 0xc];
    let evidence = Some(ReleaseEvidence::Call);
    assert_eq!(
        waits(&events),
        [(77, true, 0xa, 9, Some(9_000), by, evidence)]
    );
}

/// Tests recordings without scheduling, such as those of strace and `perf record -e
/// raw_syscalls:*`.
#[test]
fn without_switches_the_calls_are_the_waits() {
    let starts = [mark(1, 1, 1, 0xa, 0), mark(2, 2, 1, 0xb, 0)];
    let wait = |result| {
        [
            enter(10, 1, [LOCK, 128, 2, 0, 0, 0]),
            exit(41, 1, result),
            // Calls before the wait, at another futex, and after the wait.
            enter(5, 2, [LOCK, 129, 1, 0, 0, 0]),
            enter(20, 2, [OTHER, 129, 1, 0, 0, 0]),
            enter(60, 2, [LOCK, 129, 1, 0, 0, 0]),
        ]
    };
    let seen = |more: &[Event], result| waits(&[&starts[..], &wait(result), more].concat());
    let of = |by: Vec<u64>, evidence| vec![(LOCK, false, 0xa, 10, Some(41), by, evidence)];
    assert_eq!(seen(&[], 0), of(vec![], None));
    let wake = [enter(30, 2, [LOCK, 129, 1, 0, 0, 0])];
    assert_eq!(
        seen(&wake, 0),
        of(vec![0xb], Some(ReleaseEvidence::Call)),
        "whom it woke was not seen"
    );
    // A call that woke no thread is not the reason.
    let mask = u64::from(u32::MAX);
    for (call, args) in [
        (FUTEX, [LOCK, 129, 1, 0, 0, 0]),
        (FUTEX_WAKE, [LOCK, mask, 1, 130, 0, 0]),
    ] {
        let third = [
            mark(3, 3, 1, 0xc, 0),
            see(35, 3, Body::Enter { call, args }),
            see(36, 3, Body::Exit { call, result: 0 }),
        ];
        let both = [&wake[..], &third].concat();
        assert_eq!(
            seen(&both, 0),
            of(vec![0xb], Some(ReleaseEvidence::Call)),
            "the later one woke nobody"
        );
    }
    // The value of the futex had changed already, so nobody waited.
    assert_eq!(seen(&wake, -11), []);
}

const HOSTS: [&str; 2] = ["a", "b"];

fn owner() -> impl Strategy<Value = Owner> {
    prop_oneof![
        6 => (1u64..5, 1u64..4).prop_map(|(trace, span)| Owner::Request(RequestId { trace, span })),
        1 => Just(Owner::Nobody),
        1 => Just(Owner::Unknown),
    ]
}

/// Generates waits as attribution makes them: the shares of the holders add up to the wait.
fn wait() -> impl Strategy<Value = LockWait> {
    let holders = prop::collection::vec((owner(), 0u64..500), 0..3);
    let times = (0u64..1_000_000, prop::option::weighted(0.9, 0u64..5_000));
    (owner(), 1u32..4, 1u64..4, any::<bool>(), times, holders).prop_map(
        |(owner, tid, lock, is_marked, (start_ns, took_ns), holders)| {
            let mut rest_ns = took_ns.unwrap_or(0);
            let last = holders.len().saturating_sub(1);
            let release = |(place, (owner, share_ns)): (usize, (Owner, u64))| {
                let held_ns = if place == last {
                    rest_ns
                } else {
                    rest_ns.min(share_ns)
                };
                rest_ns -= held_ns;
                let ts_ns = start_ns;
                Release {
                    tid: 9,
                    owner,
                    ts_ns,
                    held_ns,
                }
            };
            let releases: Vec<Release> = holders.into_iter().enumerate().map(release).collect();
            LockWait {
                tid,
                owner,
                lock,
                is_marked,
                start_ns,
                end_ns: took_ns.map(|took_ns| start_ns + took_ns),
                evidence: (!releases.is_empty()).then_some(ReleaseEvidence::Wake),
                releases,
            }
        },
    )
}

fn span_of(span: RequestId) -> LockSpan<'static> {
    match span.span {
        1 => LockSpan {
            service: Some("web"),
            operation: "web:page",
        },
        2 => LockSpan {
            service: Some("store"),
            operation: "store:read",
        },
        _ => LockSpan {
            service: None,
            operation: "(not in the store)",
        },
    }
}

/// Returns the waits of requests at the row's lock. The number of each thread is also that of its
/// process.
fn at<'a>(row: &LockSum, all: &'a [(usize, LockWait)]) -> Vec<&'a LockWait> {
    let key = &row.key;
    all.iter()
        .filter(|(host, wait)| {
            HOSTS[*host] == &*key.host
                && (wait.tid, wait.lock, wait.is_marked) == (key.process, key.lock, key.is_marked)
                && wait.owner.request().is_some()
        })
        .map(|(_, wait)| wait)
        .collect()
}

fn check_row(row: &LockSum, waits: &[&LockWait]) {
    let took = |wait: &LockWait| Some(wait.end_ns? - wait.start_ns);
    let mut lengths: Vec<u64> = waits.iter().filter_map(|wait| took(wait)).collect();
    lengths.sort_unstable();
    let total_ns: u64 = lengths.iter().sum();
    assert_eq!(
        (row.sum.waits, row.sum.total_ns, row.cut),
        (
            lengths.len() as u64,
            total_ns,
            (waits.len() - lengths.len()) as u64
        )
    );
    let percentile = |percent: usize| {
        let holds = |ns: &&u64| {
            lengths.iter().filter(|at| at <= ns).count() * 100 >= lengths.len() * percent
        };
        lengths.iter().find(holds).copied().unwrap_or(0)
    };
    assert_eq!(
        (row.p50_ns, row.p99_ns, row.max_ns),
        (
            percentile(50),
            percentile(99),
            lengths.last().copied().unwrap_or(0)
        )
    );
    let traces: BTreeSet<Option<u64>> = waits.iter().map(|wait| wait.owner.trace()).collect();
    assert_eq!(row.requests, traces.len() as u64);
    let mut waiting: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let mut holding: BTreeMap<LockHolder, (u64, u64)> = BTreeMap::new();
    for wait in waits {
        let operation = span_of(wait.owner.request().unwrap()).operation.to_owned();
        let of = waiting.entry(operation).or_default();
        let Some(took_ns) = took(wait) else { continue };
        *of = (of.0 + 1, of.1 + took_ns);
        let mut held = |holder, ns| {
            let of: &mut (u64, u64) = holding.entry(holder).or_default();
            *of = (of.0 + 1, of.1 + ns);
        };
        for release in &wait.releases {
            let holder = match release.owner {
                Owner::Request(span) => LockHolder::Operation(span_of(span).operation.to_owned()),
                Owner::Nobody => LockHolder::Nobody,
                Owner::Unknown => LockHolder::Unknown,
            };
            held(holder, release.held_ns);
        }
        if wait.releases.is_empty() {
            held(LockHolder::Unseen, took_ns);
        }
    }
    let pair = |sum: &WaitSum| (sum.waits, sum.total_ns);
    let said: BTreeMap<_, _> = row
        .waiting
        .iter()
        .map(|(what, sum)| (what.clone(), pair(sum)))
        .collect();
    assert_eq!(said, waiting);
    let said: BTreeMap<_, _> = row
        .holding
        .iter()
        .map(|(who, sum)| (who.clone(), pair(sum)))
        .collect();
    assert_eq!(said, holding);
    let held_ns: u64 = row.holding.iter().map(|(_, sum)| sum.total_ns).sum();
    assert_eq!(held_ns, total_ns, "who was in the way is all of the wait");
    assert!(
        row.waiting
            .is_sorted_by(|a, b| a.1.total_ns >= b.1.total_ns)
    );
    let longest: Vec<u64> = row.longest.iter().map(|example| example.took_ns).collect();
    let expected: Vec<u64> = lengths.iter().rev().take(10).copied().collect();
    assert_eq!(longest, expected);
}

proptest! {
    #[test]
    fn sums_are_those_of_all_waits(all in prop::collection::vec((0usize..2, wait()), 0..120), parts in 1usize..4) {
        let mut sums = LockSums::default();
        for part in 0..parts {
            for (at, host) in HOSTS.iter().enumerate() {
                let lock_waits = all.iter().enumerate().filter(|(place, (of, _))| place % parts == part && *of == at);
                let info = |process| ThreadInfo { process, ..ThreadInfo::default() };
                let timeline = Timeline {
                    lock_waits: lock_waits.map(|(_, (_, wait))| wait.clone()).collect(),
                    threads: (1..4).map(|tid| (tid, info(tid))).collect(),
                    ..Timeline::default()
                };
                sums.observe(&Arc::from(*host), &timeline, u64::cast_signed);
            }
        }
        let rows = sums.rows(span_of);
        rows.iter().for_each(|row| check_row(row, &at(row, &all)));
        let of_requests = all.iter().filter(|(_, wait)| wait.owner.request().is_some()).count() as u64;
        prop_assert_eq!(rows.iter().map(|row| row.sum.waits + row.cut).sum::<u64>(), of_requests);
        prop_assert_eq!(sums.of_no_request().waits, all.len() as u64 - of_requests);
        prop_assert!(rows.is_sorted_by(|a, b| a.sum.total_ns >= b.sum.total_ns));
        let named = all.iter().flat_map(|(_, wait)| wait.owner.request()).collect::<BTreeSet<_>>();
        prop_assert!(named.iter().all(|span| sums.spans().contains(span)));
    }
}

#[test]
fn many_waits_keep_their_sum_and_percentiles_of_three_digits() {
    let mut sums = LockSums::default();
    let owner = Owner::Request(RequestId { trace: 1, span: 1 });
    let mut total_ns = 0;
    for part in 0..10 {
        let wait = |at: u64| LockWait {
            tid: 1,
            owner,
            lock: 1,
            is_marked: false,
            start_ns: at,
            end_ns: Some(at + 1_000 * (at % 1_000)),
            releases: Vec::new(),
            evidence: None,
        };
        let lock_waits: Vec<LockWait> = (part * 1_000..(part + 1) * 1_000).map(wait).collect();
        total_ns += lock_waits
            .iter()
            .map(|wait| wait.end_ns.unwrap() - wait.start_ns)
            .sum::<u64>();
        let timeline = Timeline {
            lock_waits,
            ..Timeline::default()
        };
        sums.observe(&Arc::from("a"), &timeline, u64::cast_signed);
    }
    let rows = sums.rows(span_of);
    let row = &rows[0];
    assert_eq!(
        row.sum,
        WaitSum {
            waits: 10_000,
            total_ns
        }
    );
    assert_eq!((row.max_ns, row.key.process), (999_000, 0));
    for (said_ns, exact_ns) in [(row.p50_ns, 499_000_f64), (row.p99_ns, 989_000.0)] {
        assert!((said_ns as f64 / exact_ns - 1.0).abs() < 2e-3, "{said_ns}");
    }
}
