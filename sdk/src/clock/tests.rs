//! Tests of `clock.rs`.

use super::*;

fn anchor(ticks: u64, wall_ns: i64, monotonic_ns: i64) -> Anchor {
    Anchor {
        ticks,
        wall_ns,
        monotonic_ns,
    }
}

#[test]
fn interpolates_and_extends() {
    let mut timeline = Timeline::default();
    assert_eq!(timeline.push(anchor(1_000, 10_000, 0)), None);
    assert_eq!(timeline.push(anchor(3_000, 11_000, 1_000)), None);
    for (ticks, wall) in [
        (1_000, 10_000),
        (2_000, 10_500),
        (3_000, 11_000),
        (4_000, 11_500),
        (0, 9_500),
    ] {
        assert_eq!(timeline.wall_ns(ticks), wall, "{ticks}");
    }
    assert_eq!(timeline.duration_ns(1_000, 2_000), 500);
    assert_eq!(timeline.duration_ns(2_000, 1_000), 0);
}

#[test]
fn a_step_is_seen_and_lengths_ignore_it() {
    let s = 1_000_000_000;
    let mut timeline = Timeline::default();
    timeline.push(anchor(0, 100 * s, 0));
    timeline.push(anchor(1_000_000_000, 101 * s, s));
    // One second later by the monotonic clock, but the wall clock was set back by ten.
    let step = timeline.push(anchor(2_000_000_000, 92 * s, 2 * s));
    assert_eq!(
        step,
        Some(ClockStep {
            at_ns: 92 * s,
            step_ns: -10 * s
        })
    );
    timeline.push(anchor(3_000_000_000, 93 * s, 3 * s));
    assert_eq!(
        timeline.wall_ns(1_500_000_000),
        101 * s + s / 2,
        "before the step: the old line"
    );
    assert_eq!(
        timeline.wall_ns(2_500_000_000),
        92 * s + s / 2,
        "after the step: the new line"
    );
    assert_eq!(timeline.duration_ns(1_500_000_000, 2_500_000_000), s as u64);
}

/// Checks durations across a gap that the counter and the monotonic clock measure alike or
/// differently, and after which the counter may be faster. Durations on both sides are exact to
/// 1 µs, and the gap has the length that the monotonic clock measures.
#[test]
fn lengths_survive_suspend_and_migration() {
    let s: i64 = 1_000_000_000;
    // (ticks, monotonic) after one second at one tick per ns, after the gap, and one second later.
    let check = |gap_ticks: i64, gap_ns: i64, ticks_per_ns: f64| {
        let mut timeline = Timeline::default();
        let (t1, m1) = (10 * s, s);
        timeline.push(anchor(9_000_000_000, 0, 0));
        timeline.push(anchor(t1 as u64, m1, m1));
        let (t2, m2) = (t1 + gap_ticks, m1 + gap_ns);
        timeline.push(anchor(t2 as u64, m2, m2));
        let (t3, m3) = (t2 + (s as f64 * ticks_per_ns) as i64, m2 + s);
        timeline.push(anchor(t3 as u64, m3, m3));
        let near = |got: u64, expected: i64| {
            assert!((got as i64 - expected).abs() <= 1_000, "{got} {expected}");
        };
        near(
            timeline.duration_ns(t1 as u64 - 1_000_000, t1 as u64),
            1_000_000,
        );
        near(timeline.duration_ns(t2 as u64, t3 as u64), s);
        near(
            timeline.duration_ns((t2 + (t3 - t2) / 2) as u64, t3 as u64),
            s / 2,
        );
        near(timeline.duration_ns(t1 as u64, t2 as u64), gap_ns);
        near(timeline.duration_ns(t1 as u64, t3 as u64), gap_ns + s);
        near(
            timeline.duration_ns(t3 as u64, t3 as u64 + (5e6 * ticks_per_ns) as u64),
            5_000_000,
        );
    };
    check(100_000_000, 100_000_000, 1.0);
    check(3_600 * s, 5_000_000, 1.0);
    check(5_000_000, 3_600 * s, 1.0);
    check(3_600 * s, 5_000_000, 2.5);
}

#[test]
fn a_counter_set_back_gives_no_negative_lengths() {
    let mut timeline = Timeline::default();
    for (ticks, ns) in [
        (1_000_000, 0),
        (2_000_000, 1_000_000),
        (5_000, 2_000_000),
        (1_005_000, 3_000_000),
    ] {
        timeline.push(anchor(ticks, ns, ns));
    }
    assert_eq!(timeline.wall_ns(505_000), 2_500_000);
    assert_eq!(timeline.duration_ns(5_000, 505_000), 500_000);
    assert_eq!(timeline.duration_ns(1_900_000, 6_000), 0);
}

#[test]
fn a_line_says_the_same_wherever_it_holds() {
    let mut timeline = Timeline::default();
    let mut seen = 0;
    for n in 0..40u64 {
        // Slewing, and a step now and then.
        let wall_ns = 1_000_000 * n.cast_signed() + (n % 7).cast_signed()
            - 30_000_000 * (n / 9).cast_signed();
        timeline.push(anchor(10_000 * n, wall_ns, 1_000_000 * n.cast_signed()));
        let ticks: Vec<u64> = (0..420_000)
            .step_by(2_500)
            .flat_map(|at| [at, at + 1, at + 2_499])
            .collect();
        for &at in ticks.iter().step_by(17) {
            let line = timeline.line_at(at);
            assert!(line.holds_at(at));
            for &other in ticks.iter().filter(|&&other| line.holds_at(other)) {
                assert_eq!(
                    line.wall_ns(other),
                    timeline.wall_ns(other),
                    "{n} {at} {other}"
                );
                seen += 1;
            }
        }
    }
    assert!(seen > 10_000, "{seen}");
}

#[test]
fn slewing_is_no_step() {
    let mut timeline = Timeline::default();
    timeline.push(anchor(0, 0, 0));
    assert_eq!(
        timeline.push(anchor(1_000, 1_000_500_000, 1_000_000_000)),
        None
    );
}

#[test]
fn real_clocks_agree() {
    let clock = SystemClock;
    let mut timeline = Timeline::default();
    timeline.push(Anchor::take(&clock));
    std::thread::sleep(std::time::Duration::from_millis(20));
    let (tick, wall) = (ticks(), sys::wall_ns());
    std::thread::sleep(std::time::Duration::from_millis(20));
    timeline.push(Anchor::take(&clock));
    let error_ns = (timeline.wall_ns(tick) - wall).abs();
    assert!(error_ns < 1_000_000, "{error_ns} ns");
}
