//! How many instructions an annotation takes, which no other work on the machine changes, and whether they are as few as
//! they were: `cargo bench -p stroboscope --bench instructions`. Counted by valgrind; skipped where there is none.
//!
//! Each case runs in a process of its own, with what is recorded discarded. The loop around a call is counted too. A
//! change that takes more than the most that stands here has to say why, by a new number.

#![allow(missing_docs)]

mod processor;

use std::hint::black_box;
use std::process::{Command, ExitCode};
use std::time::Duration;

use stroboscope::{BurstConfig, SampleMode, event, span};

/// Few enough for a thread's ring, so that it is seldom looked at.
const CALLS: u64 = 2_000;

struct Case {
    name: &'static str,
    config: BurstConfig,
    work: fn(u64),
    /// On x86-64: what rustc 1.95 makes of it, and a few more for other compilers.
    most: u64,
}

#[stroboscope::trace]
#[inline(never)]
fn annotated(n: u64) -> u64 {
    black_box(n)
}

const SPAN: fn(u64) = |_| drop(span!("s").entered());
const SPAN_3: fn(u64) = |n| drop(span!("s", a = n, b = n, c = n).entered());
const EVENT: fn(u64) = |_| event!("e");
const EVENT_3: fn(u64) = |n| event!("e", a = n, b = n, c = n);
const TEXT: fn(u64) = |_| event!("e", a = "twelve bytes");
const TRACE: fn(u64) = |n| _ = annotated(n);

const fn case(name: &'static str, config: BurstConfig, work: fn(u64), most: u64) -> Case {
    Case { name, config, work, most }
}

const CLOSED: BurstConfig = BurstConfig::NEVER;
const OPEN: BurstConfig = BurstConfig::ALWAYS_ON;

const CASES: &[Case] = &[
    case("span!, gate closed", CLOSED, SPAN, 27),
    case("event!, gate closed", CLOSED, EVENT, 13),
    case("#[trace] fn, gate closed", CLOSED, TRACE, 21),
    case("span!, no fields", OPEN, SPAN, 130),
    case("span!, 3 integers", OPEN, SPAN_3, 146),
    case("#[trace] fn", OPEN, TRACE, 118),
    case("event!, no fields", OPEN, EVENT, 49),
    case("event!, 3 integers", OPEN, EVENT_3, 62),
    case("event!, a text of 12 bytes", OPEN, TEXT, 100),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match arguments.as_slice() {
        [flag, name] if flag == "--counted" => {
            let case = CASES.iter().find(|case| case.name == name).expect("the parent names a case");
            run(case);
            ExitCode::SUCCESS
        }
        _ => count_all(),
    }
}

/// The child.
fn run(case: &Case) {
    let guard = stroboscope::builder()
        .collector("http://127.0.0.1:9")
        .burst_config(case.config)
        .sample(SampleMode::Burst)
        .shutdown_deadline(Duration::ZERO)
        .init()
        .expect("recording starts");
    while case.config == OPEN && stroboscope::stats().windows == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let root = span!("root").entered();
    // The first looks at the ring are no part of it.
    (case.work)(0);
    counted_calls(case.work);
    drop((root, guard));
}

/// Valgrind counts in here, and in what it calls.
#[inline(never)]
fn counted_calls(work: fn(u64)) {
    for n in 0..CALLS {
        work(black_box(n));
    }
}

fn count_all() -> ExitCode {
    println!("{}", processor::describe());
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("SKIPPED: instructions of annotations (valgrind is not installed)");
        return ExitCode::SUCCESS;
    }
    let mut is_met = true;
    for case in CASES {
        let Some(all) = count(case) else {
            println!("SKIPPED: {} (valgrind cannot run it here)", case.name);
            continue;
        };
        let each = all as f64 / CALLS as f64;
        let is_asked = cfg!(target_arch = "x86_64");
        // Nothing takes no instructions: valgrind did not find the function.
        let verdict = match all {
            0 => "NOT COUNTED: this program has no symbols",
            _ if !is_asked || each <= case.most as f64 => "met",
            _ => "MISSED",
        };
        is_met &= verdict == "met";
        println!("  {:<32} {each:>7.1} instructions   at most {}: {verdict}", case.name, case.most);
    }
    if is_met { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Instructions of all calls of a case.
fn count(case: &Case) -> Option<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=*counted_calls*"])
        .arg(std::env::current_exe().expect("this program has a path"))
        .args(["--counted", case.name])
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stderr);
    let collected = text.lines().find_map(|line| line.split_once("Collected :"))?.1;
    collected.trim().parse().ok().filter(|_| output.status.success())
}
