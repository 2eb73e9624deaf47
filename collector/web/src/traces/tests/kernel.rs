//! Tests of waits for locks and futexes on a request's page and in its columns.

use stroboscope_analysis::kernel::event::Window;
use stroboscope_analysis::kernel::marker::RequestId;
use stroboscope_analysis::kernel::timeline::{
    LockWait, OffCpu, Owner, Reason, Release, ReleaseEvidence, ThreadInfo, Timeline, Waker,
};
use stroboscope_analysis::record::{SpanFlags, SpanRecord, TraceId, TraceRecords};
use stroboscope_query::KernelPart;

use super::columns::{decode, request_of};
use crate::traces::awaited_path::AwaitedPath;
use crate::traces::kernel_rows::{RowKind, rows};
use crate::traces::request_columns::columns_of;
use crate::traces::request_page::request_page;

const LOW: u64 = 7;
const OTHER: u64 = 0xbeef;
const FUTEX: u64 = 0x7f10;

fn owner(trace: u64) -> Owner {
    Owner::Request(RequestId { trace, span: 1 })
}

fn wait(lock: u64, by: Option<(u64, ReleaseEvidence)>, is_marked: bool, from_ns: u64) -> LockWait {
    LockWait {
        tid: 12,
        owner: owner(LOW),
        lock,
        is_marked,
        start_ns: from_ns,
        end_ns: Some(from_ns + 1_000),
        releases: by
            .iter()
            .map(|(trace, _)| Release {
                tid: 13,
                owner: owner(*trace),
                ts_ns: from_ns + 900,
                held_ns: 1_000,
            })
            .collect(),
        evidence: by.map(|(_, evidence)| evidence),
    }
}

fn part() -> KernelPart {
    let off = OffCpu {
        tid: 12,
        start_ns: 10_000,
        wake_ns: Some(10_900),
        end_ns: Some(11_000),
        owner: owner(LOW),
        reason: Reason::Futex { address: FUTEX },
        waker: Some(Waker {
            tid: 13,
            owner: owner(OTHER),
            call: Some(202),
            ts_ns: 10_900,
        }),
        is_end_implied: false,
    };
    let info = ThreadInfo {
        process: 9,
        ..ThreadInfo::default()
    };
    KernelPart {
        host: "h0".to_owned(),
        timeline: Timeline {
            windows: vec![Window {
                open_ns: 0,
                close_ns: 1_000_000,
            }],
            off_cpu: vec![off],
            lock_waits: vec![
                wait(FUTEX, Some((OTHER, ReleaseEvidence::Wake)), false, 10_000),
                wait(FUTEX, Some((LOW, ReleaseEvidence::Call)), false, 20_000),
                wait(FUTEX, None, false, 30_000),
                wait(0x55, Some((OTHER, ReleaseEvidence::Marker)), true, 40_000),
            ],
            threads: [(12, info)].into(),
            ..Timeline::default()
        },
        ..KernelPart::default()
    }
}

#[test]
fn a_futex_wait_says_who_woke_and_never_who_held() {
    let (all, left_out) = rows(&part(), LOW, 100);
    assert_eq!(left_out, 0);
    let waits: Vec<_> = all.iter().filter(|row| row.kind == RowKind::Lock).collect();
    let said: Vec<(&str, Option<u64>, Option<&str>)> = waits
        .iter()
        .map(|row| (&*row.text, row.holder, row.lock.as_deref()))
        .collect();
    let futex = Some("9:0x7f10");
    assert_eq!(
        said,
        [
            (
                "futex wait at 0x7f10, woken by request 000000000000beef",
                Some(OTHER),
                futex
            ),
            (
                "futex wait at 0x7f10, most probably woken by request 0000000000000007",
                None,
                futex
            ),
            ("futex wait at 0x7f10, its waker was not seen", None, futex),
            (
                "waits for lock 0x55, held by request 000000000000beef",
                Some(OTHER),
                Some("9:0x55")
            ),
        ]
    );
    // Another request has no rows.
    assert!(rows(&part(), OTHER, 100).0.is_empty());
}

#[test]
fn a_lock_leads_to_all_who_wait_there_and_to_who_was_in_the_way() {
    let span = SpanRecord {
        span_id: 1,
        parent_id: 0,
        service: "store".into(),
        name: "read".into(),
        host: "h0".into(),
        process: 1,
        start_ns: 0,
        end_ns: 100_000,
        flags: SpanFlags(0),
        events: Vec::new(),
    };
    let known = AwaitedPath {
        model: None,
        is_awaited: false,
    };
    let mut request = request_of(
        TraceRecords {
            id: TraceId(u128::from(LOW)),
            spans: vec![span],
            ..TraceRecords::default()
        },
        0,
    );
    let without = request_page(&request, &known).into_string();
    assert!(!without.contains("id=\"locks\""));
    request.kernel = vec![part()];
    let page = request_page(&request, &known).into_string();
    for expected in [
        "<a href=\"/timeline?lock=9%3A0x7f10\">9:0x7f10</a>",
        "<a href=\"/timeline?lock=9%3A0x55\">9:0x55</a>",
        // The link to a waker has the time at which the wait ended, the link to a holder the time
        // at which the wait began.
        "<a href=\"/traces/000000000000beef?at=11000\">request 000000000000beef</a>",
        "<a href=\"/traces/000000000000beef?at=40000\">request 000000000000beef</a>",
        "store:read",
        "data-value=\"3000\"",
    ] {
        assert!(page.contains(expected), "no {expected:?}: {page}");
    }
    // The lock with the longest total wait comes first. An operation that did not wait has an
    // empty cell.
    assert!(page.find("9:0x7f10") < page.find("9:0x55"));
    assert!(
        page.contains("data-label=\"of that waited\"></td>"),
        "{page}"
    );
    let decoded = decode(&columns_of(&request).encode());
    let locks = &decoded.head["locks"];
    assert_eq!(*locks, serde_json::json!(["9:0x7f10", "9:0x55"]));
    let none = f64::from(u32::MAX);
    let of = |kind: f64| {
        let kinds = decoded.columns["kernel.kind"].iter();
        let both = kinds.zip(&decoded.columns["kernel.lock"]);
        both.filter(|(at, _)| **at == kind)
            .map(|(_, lock)| *lock)
            .collect::<Vec<f64>>()
    };
    assert_eq!(of(4.0), [0.0, 0.0, 0.0, 1.0]);
    assert_eq!((of(2.0), of(3.0)), (vec![none], vec![none]));
}
