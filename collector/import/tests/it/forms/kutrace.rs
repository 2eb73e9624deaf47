//! KUtrace's JSON as a file to import.

use super::{made, spans};

/// Thread 7 takes a lock and, while holding it, is switched out inside a futex call. Thread 8 waits
/// for the lock.
const KUTRACE: &str = r#"{"Comment":"V2","axisLabelX":"Time (sec)","title":"demo","tracebase":"2026-01-02_03:00:00","version":3,"events":[
[ 1.00000000, 0.00001000, 0, 7, 0, 65543, 0, 0, 0, "server.7"],
[ 1.00001000, 0.00100000, -1, 7, 0, 642, 99, 0, 0, "queue"],
[ 1.00001000, 0.00000200, 0, 7, 0, 2250, 1, 0, 0, "futex"],
[ 1.00001200, 0.00000100, 0, 7, 0, 2559, 0, 0, 0, "-sched-"],
[ 1.00001300, 0.00050000, -1, 7, 0, 770, 0, 0, 0, "wait_cpu"],
[ 1.00001300, 0.00050000, 0, 0, 0, 65536, 0, 0, 0, "-idle-"],
[ 1.00002000, 0.00010000, 1, 8, 0, 643, 99, 0, 0, "queue"],
[ 1.00005000, 0.00000100, 1, 0, 0, -3, 0, 7, 0, "-wakeup-"],
[ 1.00051300, 0.00000000, 0, 7, 0, 65543, 0, 0, 0, "server.7"],
[ 1.00051300, 0.00000300, 0, 7, 0, 2250, 0, 65426, 0, "futex"],
[ 1.00051600, 0.00001000, 0, 7, 0, 65543, 0, 0, 0, "server.7"],
[ 1.00052600, 0.00000300, 0, 7, 5, 2049, 1, 9, 0, "write"],
[ 1.00060000, 0.00010000, 0, 0, 0, 641, 1, 0, 0, "PC=ffff"],
[999.0, 0.0, 0, 0, 0, 0, 0, 0, 0, ""]]}"#;

#[test]
fn a_holder_that_is_switched_out_inside_its_futex_shows() {
    let made = made(KUTRACE);
    assert!(made.bad.is_empty(), "{:?}", made.bad);
    let expected = [
        ("-idle-", 1),
        ("Comment", 1),
        ("axisLabelX", 1),
        ("samples of the program counter", 1),
        ("title", 1),
        ("version", 1),
    ];
    assert_eq!(made.not_taken(), expected);
    let [rpc, trace] = &{
        let mut traces = made.traces;
        traces.sort_by_key(|trace| trace.spans.len());
        traces
    }[..] else {
        panic!()
    };
    assert!(
        rpc.name.as_deref().unwrap().ends_with(" rpc 5"),
        "{:?}",
        rpc.name
    );
    let base = 1_767_322_801_000_000_000;
    let of = |service: &str, name: &str, parent: &str, start: i64, end: i64| {
        (
            name.to_owned(),
            service.to_owned(),
            parent.to_owned(),
            base + start,
            base + end,
        )
    };
    let expected = [
        of("server", "-sched-", "futex", 12_000, 13_000),
        of("server", "futex", "queue", 10_000, 516_000),
        of("server", "queue", "recording", 10_000, 1_010_000),
        of("thread", "queue", "recording", 20_000, 120_000),
        of("machine", "recording", "", 0, 1_010_000),
        of("server", "server", "futex", 513_000, 513_000),
        of("server", "server", "queue", 516_000, 526_000),
        of("server", "server", "recording", 0, 10_000),
        of("server", "wait_cpu", "futex", 13_000, 513_000),
    ];
    assert_eq!(spans(trace), expected);
    // The RPC's root has no name of a method, because no row contains its request.
    let expected = [
        of("server", "rpc", "", 526_000, 529_000),
        of("server", "write", "rpc", 526_000, 529_000),
    ];
    assert_eq!(spans(rpc), expected);
    assert_eq!(
        (&*trace.events[0].event, &*trace.events[0].task),
        ("-wakeup-", "kernel")
    );
}
