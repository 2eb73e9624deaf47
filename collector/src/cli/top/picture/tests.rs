use std::collections::BTreeMap;

use stroboscope_server::http::Adoption;

use super::super::snapshot::{LatestPath, Operation, Senders, Snapshot, Spread, Totals};
use super::*;

fn operation(name: &str, share: f64, slack_ns: Option<u64>) -> Operation {
    Operation {
        operation: name.to_owned(),
        occurrences: 40,
        share_of_time: share,
        wait_share_of_time: 0.01,
        duration: Spread {
            p50_ns: 1_500_000,
            p99_ns: 20_000_000,
        },
        slack: slack_ns.map(|p50_ns| Spread { p50_ns, p99_ns: 0 }),
        spans: 60,
        failed: if slack_ns.is_some() { 3 } else { 0 },
    }
}

fn seen(operations: Vec<Operation>) -> Snapshot {
    Snapshot {
        path: Some(LatestPath {
            last_seconds: 300,
            requests: 20,
            all_requests: 24,
            failed_requests: 3,
            operations_known: operations.len(),
            operations,
            ..LatestPath::default()
        }),
        senders: Senders {
            processes: 3,
            sending: 2,
            hosts: 1,
            last_ns: Some(1_000_000_000),
        },
        totals: Totals {
            requests: 20,
            records: 100,
            lost: BTreeMap::from([("processes:ring_full".to_owned(), 7)]),
        },
        is_live: true,
        adoption: Some(Adoption {
            live: 2,
            configs: BTreeMap::from([("0b11100 (4ms/32ms)".to_owned(), 2)]),
            ..Adoption::default()
        }),
        at_ns: 4_000_000_000,
    }
}

fn state() -> TopState {
    let mut state = TopState::of("collector at x".to_owned());
    let operations = vec![
        operation("web:page", 0.25, None),
        operation("store:\u{1b}[2Jget", 0.5, Some(3_000)),
    ];
    state.take(Ok(seen(operations)), Duration::ZERO);
    let mut later = seen(state.snapshot.clone().unwrap().path.unwrap().operations);
    (later.totals.requests, later.totals.records) = (30, 150);
    state.take(Ok(later), Duration::from_secs(2));
    state
}

const WIDE: Size = Size {
    columns: 120,
    rows: 12,
};

#[test]
fn a_picture_says_all_of_it() {
    let now = Duration::from_secs(2);
    let lines = picture(&mut state(), WIDE, now);
    let texts: Vec<&str> = lines.iter().map(|line| line.text.trim_end()).collect();
    let expected = [
        "stroboscope top - collector at x",
        "processes: 2 of 3 sent in the last minute, on 1 host; the last records 3 s ago",
        "seen:      5.0 requests/s, 25.0 spans and events/s; 30 requests and 150 records in all",
        "bursts:    no burst-config is set; 2 live processes: 0b11100 (4ms/32ms).",
        "lost:      processes:ring_full 7",
        "failed:    3 of 24 requests of the last 5 min, 12.5%",
        "operations by the critical path of 20 complete requests of the last 5 min; 0.0% of it is after the last of them",
        "    SHAREv    WAIT     P50     P99   SLACK  FAILED   COUNT  OPERATION",
        ">    50.0%    1.0%  1.50ms  20.0ms  3.00µs    5.0%      40  store:\u{fffd}[2Jget",
        "     25.0%    1.0%  1.50ms  20.0ms       -       -      40  web:page",
        "",
        "q quit  s sort  / filter  p pause  h help  1/2 store:\u{fffd}[2Jget",
    ];
    assert_eq!(texts, expected, "{texts:#?}");
    assert_eq!(lines[8].look, Look::Marked);
    assert_eq!(lines[4].look, Look::Bad);
}

/// OpenTelemetry's exporters are not processes that the collector knows.
#[test]
fn data_without_processes_is_no_empty_store() {
    let mut state = state();
    let mut snapshot = state.snapshot.clone().unwrap();
    snapshot.senders = Senders::default();
    state.take(Ok(snapshot.clone()), Duration::from_secs(3));
    let senders =
        |state: &mut TopState| picture(state, WIDE, Duration::from_secs(3))[1].text.clone();
    assert!(senders(&mut state).starts_with("processes: none with Stroboscope's SDK"));
    snapshot.totals = Totals::default();
    state.take(Ok(snapshot), Duration::from_secs(4));
    assert!(senders(&mut state).starts_with("processes: nothing has arrived yet"));
}

#[test]
fn every_picture_fits_its_screen() {
    let mut state = state();
    for has_help in [false, true] {
        state.has_help = has_help;
        for columns in 0..100 {
            for rows in 0..20 {
                let size = Size { columns, rows };
                let lines = picture(&mut state, size, Duration::ZERO);
                assert!(lines.len() <= rows, "{size:?}: {}", lines.len());
                for line in lines {
                    assert!(line.text.chars().count() <= columns, "{size:?}: {line:?}");
                    assert!(!line.text.contains(char::is_control), "{line:?}");
                }
            }
        }
    }
}

#[test]
fn the_marked_row_is_in_sight() {
    let mut state = TopState::of("x".to_owned());
    let operations = (0..100).map(|i| operation(&format!("s:{i:02}"), 1.0, None));
    state.take(Ok(seen(operations.collect())), Duration::ZERO);
    for row in [0, 3, 50, 99] {
        state.row = row;
        let lines = picture(&mut state, WIDE, Duration::ZERO);
        let marked: Vec<_> = lines.iter().filter(|of| of.look == Look::Marked).collect();
        assert_eq!(marked.len(), 1);
        assert!(marked[0].text.ends_with(&format!("s:{row:02}")));
    }
}

#[test]
fn what_is_stale_says_since_when_and_why() {
    let mut state = state();
    state.take(Err("nobody answers".to_owned()), Duration::from_secs(9));
    let lines = picture(&mut state, WIDE, Duration::from_secs(12));
    let text = "STALE, of 10 s ago: nobody answers; trying again";
    assert_eq!((&*lines[1].text, lines[1].look), (text, Look::Bad));
    assert!(lines.iter().any(|line| line.text.contains("web:page")));
    let mut first = TopState::of("x".to_owned());
    first.take(Err("nobody answers".to_owned()), Duration::ZERO);
    let lines = picture(&mut first, WIDE, Duration::ZERO);
    assert_eq!(lines[1].text, "waiting: nobody answers; trying again");
}

#[test]
fn names_that_differ_read_differently() {
    let [begin, end] = ["frontend:GET /catalogue/", "/of-the-warehouse:price"];
    let names = ["books", "book", "bookshelves", "tools"]
        .map(|kind| format!("{begin}{}{kind}{end}", "long-".repeat(9)));
    for columns in 0..160 {
        let mut state = TopState::of("x".to_owned());
        let operations = names.iter().map(|name| operation(name, 1.0, None));
        state.take(Ok(seen(operations.collect())), Duration::ZERO);
        let size = Size { columns, rows: 20 };
        let lines = picture(&mut state, size, Duration::ZERO);
        let rows = lines.iter().filter(|of| of.text.contains("100.0%"));
        let mut shown: Vec<&str> = rows.map(|of| &of.text[1..]).collect();
        shown.sort_unstable();
        shown.dedup();
        // In 68 columns, a name has room for eight characters.
        assert!(
            columns < 68 || shown.len() == names.len(),
            "{columns}: {shown:#?}"
        );
    }
}

#[test]
fn text_marks_no_row_and_cuts_nothing() {
    let text = text(&state(), None, Duration::from_secs(2));
    assert!(text.ends_with("      40  web:page"), "{text}");
    assert!(text.contains("\n     50.0%"), "{text}");
    assert!(text.contains("by the critical path of 20 complete requests"));
    assert!(!text.contains("quit"));
}

#[test]
fn every_loss_is_named_or_counted() {
    let mut snapshot = seen(Vec::new());
    let causes = (1..=9).map(|i| (format!("cause_{i}"), 100 - i));
    snapshot.totals.lost = causes.collect();
    let check = |columns: usize, expected: &[&str]| {
        let lines = losses_lines(&snapshot, columns);
        let texts: Vec<&str> = lines.iter().map(|line| &*line.text).collect();
        assert_eq!(texts, expected, "{columns}");
    };
    check(
        70,
        &[
            "lost:      cause_1 99, cause_2 98, cause_3 97, cause_4 96, cause_5 95,",
            "           cause_6 94, cause_7 93, cause_8 92, cause_9 91",
        ],
    );
    check(
        34,
        &[
            "lost:      cause_1 99, cause_2 98,",
            "           cause_3 97, cause_4 96,",
            "           cause_5 95, cause_6 94,",
            "           and 3 more; /metrics has all",
        ],
    );
}
