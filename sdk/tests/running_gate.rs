//! Compares the gate of a running process with the definition at every millisecond, on the real
//! clock. It covers 12 s, or the number of seconds that `STROBOSCOPE_GATE_SECONDS` sets.

mod collector;

use std::time::Duration;

use collector::{Collector, wait_for};
use stroboscope::{BurstConfig, SampleMode};

const MS: u64 = 1_000_000;

#[test]
fn a_running_gate_agrees_with_the_definition() {
    let seconds = std::env::var("STROBOSCOPE_GATE_SECONDS");
    let seconds: u32 = seconds.map_or(12, |text| text.parse().unwrap());
    let config = BurstConfig::DEFAULT;
    let collector = Collector::default();
    let guard = stroboscope::builder()
        .collector(collector.clone().start())
        .burst_config(config)
        .sample(SampleMode::Burst)
        .init()
        .unwrap();
    wait_for("a window", || stroboscope::stats().windows > 1);
    std::thread::sleep(Duration::from_secs(u64::from(seconds) + 1));
    drop(guard);
    let windows = collector.windows();
    let first_ms = windows[1].0 / MS;
    let (mut inside, mut whole, mut outside) = (0u32, 0u32, 0u32);
    for ms in first_ms..first_ms + u64::from(seconds) * 1_000 {
        let (from_ns, to_ns) = (ms * MS, (ms + 1) * MS);
        let after = windows.partition_point(|&(_, close_ns)| close_ns <= from_ns);
        let touching = windows.get(after).filter(|&&(open_ns, _)| open_ns < to_ns);
        if config.contains_ms(ms) {
            inside += 1;
            whole += u32::from(
                touching
                    .is_some_and(|&(open_ns, close_ns)| open_ns <= from_ns && to_ns <= close_ns),
            );
        } else {
            outside += 1;
            assert!(
                touching.is_none(),
                "{ms} is outside every window, but {touching:?} was recorded"
            );
        }
    }
    println!("{outside} ms outside, none recorded; {inside} ms inside, {whole} recorded whole");
    assert!(inside.abs_diff(seconds * 125) <= 4, "{inside}");
    // On a busy machine a late timer shortens a window, and the recorded window is the shorter one.
    // So a tenth of the milliseconds may be missing.
    assert!(whole * 10 >= inside * 9, "{whole} of {inside}");
}
