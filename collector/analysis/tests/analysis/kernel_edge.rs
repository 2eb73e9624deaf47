//! Openings that a recorder saw slightly earlier than the combined samples of its clocks place
//! them.

use stroboscope_analysis::kernel::attribute;
use stroboscope_analysis::kernel::call::Architecture;
use stroboscope_analysis::kernel::event::{Body, Event, LossCounts, Name, Window};
use stroboscope_analysis::kernel::marker::MARK;

const GETPID: u32 = 39;
const READ: u32 = 0;
const OPEN_NS: u64 = 100_000_000;

fn event(ts_ns: u64, body: Body) -> Event {
    Event {
        ts_ns,
        cpu: 0,
        tid: 5,
        body,
    }
}

fn introduced(ts_ns: u64) -> Event {
    let body = Body::Thread {
        trace: 0xa,
        span: 1,
        known: true,
        process: 1,
        tid_in_process: 0,
        name: Name::new("t"),
    };
    event(ts_ns, body)
}

fn enter(ts_ns: u64, call: u32, args: [u64; 6]) -> Event {
    event(ts_ns, Body::Enter { call, args })
}

/// Returns the owner of a call within the window, after the events `before`.
fn owner(before: &[Event]) -> Option<u64> {
    let mut events = before.to_vec();
    events.push(enter(OPEN_NS + 5_000, READ, [0; 6]));
    let windows = [
        Window {
            open_ns: 1_000,
            close_ns: 2_000,
        },
        Window {
            open_ns: OPEN_NS,
            close_ns: OPEN_NS + 1_000_000,
        },
    ];
    let timeline = attribute(&events, &windows, Architecture::X86_64);
    assert_eq!(timeline.calls.len(), 1, "what is outside is not used");
    timeline.calls[0].owner.trace()
}

#[test]
fn introduced_shortly_before_is_introduced() {
    let read = |ts_ns| enter(ts_ns, READ, [0; 6]);
    let shortly = OPEN_NS - 1_200;
    assert_eq!(owner(&[introduced(shortly), read(shortly)]), Some(0xa));
    assert_eq!(owner(&[introduced(OPEN_NS)]), Some(0xa));
    // Markers may have been missed since.
    assert_eq!(owner(&[introduced(OPEN_NS - 20_000_000)]), None);
}

#[test]
fn what_came_after_the_introduction_is_not_hidden_by_it() {
    let shortly = OPEN_NS - 1_200;
    let marker = enter(OPEN_NS - 700, GETPID, [MARK | 1, 0xb, 2, 5, 0, 0]);
    assert_eq!(owner(&[introduced(shortly), marker]), None);
    let lost = Body::Lost {
        first_ns: OPEN_NS - 900,
        counts: LossCounts {
            others: 1,
            ..LossCounts::default()
        },
    };
    assert_eq!(
        owner(&[introduced(shortly), event(OPEN_NS - 700, lost)]),
        None
    );
}

/// A recorder reports lost events once there is room again, which may be after the window.
#[test]
fn a_gap_lasts_from_its_first_lost_event_to_its_report() {
    let windows = [(1_000, 2_000), (OPEN_NS, OPEN_NS + 1_000)]
        .map(|(open_ns, close_ns)| Window { open_ns, close_ns });
    let check = |first_ns: u64, ts_ns: u64, is_reported: bool, is_lost_in_second_window: bool| {
        let counts = LossCounts {
            others: 1,
            ..LossCounts::default()
        };
        let left_ns = OPEN_NS + 500;
        let switch = Body::Switch {
            state: 1,
            process: 1,
            name: Name::new("t"),
            next: 0,
            next_process: 0,
            next_name: Name::new("idle"),
        };
        let events = [
            event(ts_ns, Body::Lost { first_ns, counts }),
            event(left_ns, switch),
            introduced(left_ns),
        ];
        let timeline = attribute(&events, &windows, Architecture::X86_64);
        let gaps = timeline.gaps.iter().map(|gap| (gap.start_ns, gap.end_ns));
        let expected = is_reported.then_some((first_ns, ts_ns));
        assert_eq!(gaps.collect::<Vec<_>>(), Vec::from_iter(expected));
        let on_cpu = timeline.on_cpu.iter().map(|on| (on.start_ns, on.end_ns));
        let expected = (!is_lost_in_second_window).then_some((OPEN_NS, left_ns));
        assert_eq!(on_cpu.collect::<Vec<_>>(), Vec::from_iter(expected));
    };
    check(500, 900, false, false);
    check(500, 1_500, true, false);
    check(1_500, 1_800, true, false);
    check(1_500, 5_000, true, false);
    check(1_500, OPEN_NS + 800, true, true);
    check(3_000, 5_000, false, false);
    check(3_000, OPEN_NS + 800, true, true);
    check(OPEN_NS + 600, OPEN_NS + 5_000, true, false);
    check(OPEN_NS + 2_000, OPEN_NS + 5_000, false, false);
}

#[test]
fn a_marker_of_an_unknown_kind_is_counted_and_names_no_request() {
    let getpid = |ts_ns, first| enter(ts_ns, GETPID, [first, 0xa, 0xb, 5, 0, 0]);
    let events = [
        getpid(1, MARK | 0x8001),
        getpid(2, MARK | 0x60),
        getpid(3, MARK | 0x7f),
        getpid(4, MARK | 1),
    ];
    let timeline = attribute(&events, &[Window::ALWAYS], Architecture::X86_64);
    let owners = timeline.calls.iter().map(|call| call.owner.trace());
    assert_eq!(owners.collect::<Vec<_>>(), [None, None, None, Some(0xa)]);
    assert_eq!(timeline.unknown_markers, 1);
}
