//! Complete traces, and the reasons why others are incomplete.

use stroboscope_analysis::completeness::{ProcessLoss, completeness};
use stroboscope_analysis::record::{EventRecord, SpanFlags, SpanRecord, TraceRecords};

fn span(span_id: u64, parent_id: u64, flags: u32) -> SpanRecord {
    SpanRecord {
        span_id,
        parent_id,
        service: "s".into(),
        name: "n".into(),
        host: "h".into(),
        process: 9,
        start_ns: 100,
        end_ns: 200,
        flags: SpanFlags(flags),
        events: Vec::new(),
    }
}

#[track_caller]
fn check(spans: &[(u64, u64, u32)], expected: &str) {
    let spans = spans
        .iter()
        .map(|(id, parent, flags)| span(*id, *parent, *flags))
        .collect();
    let found = completeness(
        &TraceRecords {
            spans,
            ..Default::default()
        },
        &[],
    );
    let shown: Vec<&str> = found.reasons.iter().map(|reason| reason.cause()).collect();
    assert_eq!(shown.join(" "), expected);
    assert_eq!(found.is_complete(), expected.is_empty());
    assert!(
        found
            .reasons
            .iter()
            .all(|reason| !reason.to_string().is_empty())
    );
}

#[test]
fn structure_and_flags() {
    check(&[(1, 0, 0)], "");
    check(&[(1, 0, 8 | 16 | 32 | 64 | 128), (2, 1, 0), (3, 2, 0)], "");
    check(&[], "no_root");
    check(&[(1, 0, 0), (2, 0, 0)], "several_roots");
    check(&[(1, 0, 0), (1, 0, 0)], ""); // one root, delivered twice
    check(&[(2, 1, 0)], "no_root missing_parent");
    check(
        &[(1, 0, 0), (3, 2, 0), (4, 2, 0)],
        "missing_parent missing_parent",
    );
    check(&[(1, 2, 0), (2, 1, 0)], "no_root"); // a cycle has no root
    check(&[(1, 0, 1)], "cut_open");
    check(&[(1, 0, 2), (2, 1, 2)], "cut_close cut_close");
    check(&[(1, 0, 4 | 2 | 1)], "cut_open cut_close unfinished");
}

#[track_caller]
fn check_loss(process: u128, from_ns: i64, to_ns: i64, records: u64, expected: bool) {
    let trace = TraceRecords {
        spans: vec![span(1, 0, 0)],
        ..Default::default()
    };
    let found = completeness(
        &trace,
        &[ProcessLoss {
            process,
            from_ns,
            to_ns,
            records,
        }],
    );
    assert_eq!(
        found.reasons.iter().any(|reason| reason.cause() == "lossy"),
        expected
    );
}

#[test]
fn losses_count_when_they_may_have_hit_the_trace() {
    check_loss(9, 150, 160, 1, true);
    check_loss(8, 150, 160, 1, false); // another process
    check_loss(9, 150, 160, 0, false); // nothing was lost
    check_loss(9, 0, 100, 1, false); // before: a loss's interval is open at its end
    check_loss(9, 0, 101, 1, true);
    check_loss(9, 200, 300, 1, true); // the span's last instant
    check_loss(9, 201, 300, 1, false);
    let trace = TraceRecords {
        spans: vec![span(1, 0, 0)],
        ..Default::default()
    };
    let loss = ProcessLoss {
        process: 9,
        from_ns: 0,
        to_ns: 900,
        records: 3,
    };
    let found = completeness(&trace, &[loss, loss]);
    assert_eq!(found.reasons.len(), 1);
    assert!(
        found.reasons[0].to_string().contains("lost 6 records"),
        "{}",
        found.reasons[0]
    );
}

#[test]
fn an_event_log_is_complete_when_it_says_anything() {
    let event = EventRecord {
        host: "h".into(),
        ts_ns: 0,
        seq: 0,
        event: "e".into(),
        task: "t".into(),
    };
    let trace = TraceRecords {
        events: vec![event],
        ..Default::default()
    };
    assert!(completeness(&trace, &[]).is_complete());
}
