//! Tests that set the clock forward and back under a running SDK, using a simulated clock.

#[path = "../tests/collector/mod.rs"]
mod collector;

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use stroboscope_proto::v1::SpanFlag;

use crate::clock::{ClockSource, SystemClock};
use crate::sampling::SampleMode;
use crate::span;
use collector::{Collector, wait_for};
use stroboscope_burst::BurstConfig;

pub(crate) use crate::gate::TURN;

const MS: i64 = 1_000_000;
const S: i64 = 1_000 * MS;

/// Clocks of the machine, with an adjustable offset of the wall clock.
#[derive(Default)]
struct SteppedClock {
    offset_ns: AtomicI64,
}

impl ClockSource for SteppedClock {
    fn wall_ns(&self) -> i64 {
        SystemClock.wall_ns() + self.offset_ns.load(Relaxed)
    }

    fn monotonic_ns(&self) -> i64 {
        SystemClock.monotonic_ns()
    }
}

/// Steps of the wall clock: forward, back, forward by a little, and a jump like the one after a
/// suspend during which the counter and the monotonic clock stood still.
const STEPS_NS: [i64; 4] = [3_600 * S, -7_200 * S, 20 * MS, 8 * 3_600 * S];

#[test]
fn timestamps_follow_within_a_second_and_lengths_do_not() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (collector, clock) = (Collector::default(), Arc::new(SteppedClock::default()));
    let guard = crate::builder()
        .collector(collector.clone().start())
        .burst_config(BurstConfig::ALWAYS_ON)
        .init_with_clock(Arc::clone(&clock) as Arc<dyn ClockSource>)
        .unwrap();
    wait_for("the gate", || crate::stats().windows > 0);
    let mut afterwards = Vec::new();
    let mut across = Vec::new();
    for step_ns in STEPS_NS {
        let begun = Instant::now();
        span!("across").scope(|| {
            std::thread::sleep(Duration::from_millis(20));
            drop(span!("before"));
            clock.offset_ns.fetch_add(step_ns, Relaxed);
            drop(span!("at"));
            std::thread::sleep(Duration::from_millis(1_000));
        });
        across.push(i64::try_from(begun.elapsed().as_nanos()).unwrap());
        let (earliest_ns, span) = (clock.wall_ns(), span!("after"));
        afterwards.push((earliest_ns, clock.wall_ns()));
        drop(span);
    }
    drop(guard);

    let spans = collector.spans();
    let named = |name: &str| {
        spans
            .iter()
            .filter(|span| span.name == name)
            .collect::<Vec<_>>()
    };
    assert!(
        spans
            .iter()
            .all(|span| (0..10 * S).contains(&(span.end_ns - span.start_ns))),
        "{spans:#?}"
    );
    assert!(
        spans.iter().all(|span| !span.has(SpanFlag::Unfinished)),
        "{spans:#?}"
    );
    for (span, (earliest_ns, latest_ns)) in named("after").iter().zip(&afterwards) {
        let is_right = (earliest_ns - MS..=latest_ns + MS).contains(&span.start_ns);
        assert!(
            is_right,
            "{} in {earliest_ns} to {latest_ns}",
            span.start_ns
        );
    }
    for (span, measured_ns) in named("across").iter().zip(&across) {
        let length_ns = span.end_ns - span.start_ns;
        assert!(
            (1_020 * MS..=measured_ns + MS).contains(&length_ns),
            "{length_ns} of {measured_ns}"
        );
    }
    assert_eq!(
        (
            named("across").len(),
            named("after").len(),
            named("at").len()
        ),
        (4, 4, 4)
    );
    let steps: Vec<i64> = collector
        .batches()
        .iter()
        .flat_map(|batch| batch.clock_steps.iter().map(|s| s.step_ns))
        .collect();
    assert_eq!(steps.len(), STEPS_NS.len(), "{steps:?}");
    for (seen_ns, step_ns) in steps.iter().zip(STEPS_NS) {
        assert!((seen_ns - step_ns).abs() < MS, "{seen_ns} for {step_ns}");
    }
    for batch in collector.batches() {
        assert!(batch.from_ns <= batch.to_ns);
        assert!(
            batch
                .windows
                .iter()
                .all(|window| window.open_ns < window.close_ns),
            "{:?}",
            batch.windows
        );
    }
}

#[test]
fn the_gate_follows_within_a_second() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let config: BurstConfig = "256ms/512ms".parse().unwrap();
    let (collector, clock) = (Collector::default(), Arc::new(SteppedClock::default()));
    let guard = crate::builder()
        .collector(collector.clone().start())
        .burst_config(config)
        .sample(SampleMode::Burst)
        .init_with_clock(Arc::clone(&clock) as Arc<dyn ClockSource>)
        .unwrap();
    // Within the period of 512 ms, the steps move the windows by 300, 192 and 384 ms.
    for step_ns in [0, 300 * MS, -1_000_256 * MS, 3_600_256 * MS] {
        clock.offset_ns.fetch_add(step_ns, Relaxed);
        std::thread::sleep(Duration::from_secs(1));
        let (mut looked, mut wrong) = (0, 0);
        let until = Instant::now() + Duration::from_millis(1_100);
        while Instant::now() < until || looked < 300 {
            let now_ms = clock.wall_ns() / MS;
            let is_shut = crate::gate::is_idle();
            let near_an_edge = (now_ms + 20) % 256 < 40 || (clock.wall_ns() / MS + 20) % 256 < 40;
            if !near_an_edge {
                looked += 1;
                wrong += u32::from(is_shut == config.contains_ms(now_ms.cast_unsigned()));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        // A busy machine sometimes runs the gate's thread late. A gate that ignores the step would
        // be wrong at least half of the time.
        assert!(
            wrong * 4 < looked,
            "{wrong} of {looked} after a step of {step_ns} ns"
        );
    }
    drop(guard);
    for window in collector.batches().iter().flat_map(|batch| &batch.windows) {
        let (open_ms, last_ms) = (
            window.open_ns / MS as u64,
            (window.close_ns - 1) / MS as u64,
        );
        assert!(
            config.contains_ms(open_ms) && config.contains_ms(last_ms),
            "{window:?}"
        );
    }
}
