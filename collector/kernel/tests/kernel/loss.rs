//! Tests recordings with buffers that are too small: captured, lost and skipped events add up to
//! all events.

use std::time::Duration;

use stroboscope::BurstConfig;
use stroboscope_analysis::kernel::event::{Body, LossCounts};
use stroboscope_kernel_model::{Processes, Recording, Settings};

use crate::machine;
use crate::workload::{Plan, What, Workload};

fn captured(recording: &Recording) -> LossCounts {
    let mut counts = LossCounts::default();
    for event in &recording.events {
        match event.body {
            Body::Enter { .. } => counts.enters += 1,
            Body::Exit { .. } => counts.exits += 1,
            Body::Switch { .. } => counts.switches += 1,
            _ => {}
        }
    }
    counts
}

/// Reports whether the kernel counts skipped runs of this process's programs, as it does since
/// Linux 5.12.
fn kernel_counts_what_it_skips() -> bool {
    let open = std::fs::read_dir("/proc/self/fdinfo").unwrap();
    let mut about = open
        .flatten()
        .filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
    about.any(|text| text.contains("prog_id:") && text.contains("recursion_misses:"))
}

#[test]
fn captured_and_lost_make_up_the_truth() {
    const TEST: &str = "captured_and_lost_make_up_the_truth";
    let _alone = machine::alone();
    let mut workload = Workload::start(Plan {
        threads: 4,
        request_us: 500,
        run_ms: 1_000,
        pairs: false,
    });
    // Gives the program time to reach its wait for the start signal, so that both recorders see the
    // same events.
    std::thread::sleep(Duration::from_millis(300));
    let settings = |events_per_cpu| Settings {
        burst_config: BurstConfig::ALWAYS_ON,
        processes: Processes::Trees(vec![workload.id()]),
        events_per_cpu,
        ..Settings::default()
    };
    let Some(mut large) = machine::start(TEST, &settings(1 << 18)) else {
        return;
    };
    let Some(mut small) = machine::start(TEST, &settings(256)) else {
        return;
    };
    let (mut all, mut some) = (Vec::new(), Vec::new());
    workload.go();
    while !workload.has_ended() {
        large.drain(&mut all);
        small.drain(&mut some);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(
        kernel_counts_what_it_skips(),
        "no recursion_misses in fdinfo: the next lines would prove nothing"
    );
    let (small, large) = (small.finish(some), large.finish(all));
    let truth = workload.truth();
    let calls = truth
        .iter()
        .filter(|line| matches!(line.what, What::Call(_)))
        .count() as u64;

    assert!(
        large.losses.iter().all(|lost| lost.total() == 0),
        "the large buffers lose nothing: {:?}",
        large.losses
    );
    let (whole, part) = (captured(&large), captured(&small));
    let lost = |of: fn(&LossCounts) -> u64| small.losses.iter().map(of).sum::<u64>();
    println!(
        "{TEST}: truth {whole:?}, captured {part:?}, lost {:?}",
        small.losses
    );
    assert!(
        whole.enters >= calls && calls > 10_000,
        "the program itself counts {calls} of {}",
        whole.enters
    );
    assert!(
        lost(LossCounts::total) > 10_000,
        "nothing was lost, the test shows nothing"
    );
    let (skipped, also) = (small.skipped, large.skipped);
    assert_eq!(
        part.enters + lost(|counts| counts.enters) + skipped.enters,
        whole.enters + also.enters
    );
    assert_eq!(
        part.exits + lost(|counts| counts.exits) + skipped.exits,
        whole.exits + also.exits
    );
    assert_eq!(
        part.switches + lost(|counts| counts.switches) + skipped.switches,
        whole.switches + also.switches
    );

    // Every loss has a time, and every attribution made in spite of the losses is right.
    let timeline = small.timeline();
    let placed: u64 = timeline.gaps.iter().map(|gap| gap.counts.total()).sum();
    assert_eq!(placed, lost(LossCounts::total));
    assert!(timeline.gaps.iter().all(|gap| gap.start_ns <= gap.end_ns));
    let mut right = 0;
    let mut wrong = Vec::new();
    for line in &truth {
        let What::Call(number) = line.what else {
            continue;
        };
        let from = timeline
            .calls
            .partition_point(|call| call.start_ns < line.from_ns);
        let its = timeline.calls[from..]
            .iter()
            .take_while(|call| call.start_ns <= line.to_ns)
            .find(|call| call.tid == line.tid && call.call == number && call.args.is_some());
        if let Some(call) = its {
            match call.owner.trace() {
                owner if owner.unwrap_or(0) == line.trace => right += 1,
                // After a loss, the owner may be unknown.
                None => {}
                Some(_) => wrong.push((line, call)),
            }
        }
    }
    println!(
        "{TEST}: in spite of it {right} calls right, {} wrong",
        wrong.len()
    );
    assert!(
        right > 100 && wrong.is_empty(),
        "{right} right, wrong: {:#x?}",
        &wrong[..wrong.len().min(3)]
    );
}
