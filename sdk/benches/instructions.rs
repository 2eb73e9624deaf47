//! Counts the instructions of an annotation, which do not depend on other work of the machine:
//! `cargo bench -p stroboscope --bench instructions`. It needs valgrind, and is skipped without it.
//!
//! Each case runs in a process of its own, whose records are discarded. The count includes the loop
//! around the call. The counts are compared with those in `instructions.txt`, if the compiler is
//! the one named there and `RUSTFLAGS` is not set, because another compiler makes other code.
//! `STROBOSCOPE_BLESS=1` replaces the file if all cases are counted. For an annotation around other
//! code, the file has the difference from that code.

#![allow(missing_docs)]

#[path = "instructions/cases.rs"]
mod cases;
#[path = "instructions/kept.rs"]
mod kept;
mod processor;

use std::collections::BTreeMap;
use std::process::{Command, ExitCode};
use std::time::Duration;

use cases::{CASES, Case, is_floor};
use kept::{Counted, Kept};
use stroboscope::{BurstConfig, SampleMode, span};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    match arguments.as_slice() {
        [flag, name] if flag == "--counted" => {
            let case = CASES
                .iter()
                .find(|case| case.name == name)
                .expect("the parent names a case");
            run(case);
            ExitCode::SUCCESS
        }
        words => count_all(words),
    }
}

/// Runs one case in the child process.
fn run(case: &Case) {
    (case.install)();
    let guard = stroboscope::builder()
        .collector("http://127.0.0.1:9")
        .burst_config(case.config)
        .sample(SampleMode::Burst)
        .shutdown_deadline(Duration::ZERO)
        .init()
        .expect("recording starts");
    while case.config == BurstConfig::ALWAYS_ON && stroboscope::stats().windows == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let root = span!("root").entered();
    // Registers the callsites, and lets the ring grow, before the calls are counted.
    for _ in 0..4 {
        (case.work)(case.calls);
    }
    counted_calls(case.work, case.calls);
    drop((root, guard));
}

/// Runs the calls; valgrind counts in this function and in all functions that it calls.
#[inline(never)]
fn counted_calls(work: fn(u64), calls: u64) {
    work(calls);
}

/// Counts and compares the cases whose names contain one of the words, or all cases without words.
fn count_all(words: &[String]) -> ExitCode {
    println!("{}", processor::describe());
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("SKIPPED: instructions of annotations (valgrind is not installed)");
        return ExitCode::SUCCESS;
    }
    let is_wanted =
        |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word.as_str()));
    let mut counted = Vec::new();
    let mut floors = BTreeMap::new();
    for case in CASES {
        let needs_floor = |other: &Case| other.floor == Some(case.name) && is_wanted(other.name);
        if !is_wanted(case.name) && !CASES.iter().any(needs_floor) {
            continue;
        }
        let Some(all) = count(case) else {
            println!("SKIPPED: {} (valgrind cannot run it here)", case.name);
            continue;
        };
        // A count of 0 means that valgrind did not find the function.
        assert_ne!(
            all, 0,
            "{}: not counted, as this program has no symbols",
            case.name
        );
        let each = all as f64 / case.calls as f64;
        if is_floor(case) {
            println!("  {:<44} {each:>8.1} instructions", case.name);
            floors.insert(case.name, each);
            continue;
        }
        match case.floor.map(|floor| floors.get(floor)) {
            None => counted.push(Counted {
                name: case.name,
                whole: each,
                kept: each,
            }),
            Some(Some(floor)) => counted.push(Counted {
                name: case.name,
                whole: each,
                kept: each - floor,
            }),
            Some(None) => println!(
                "SKIPPED: {} (what it is compared with was not counted)",
                case.name
            ),
        }
    }
    let is_whole = counted.len() + floors.len() == CASES.len();
    if kept::is_blessing() && is_whole {
        kept::write(&counted);
    }
    match Kept::read() {
        Ok(kept) => kept.compare(&counted),
        Err(why) => {
            for one in &counted {
                println!("  {one}");
            }
            println!("SKIPPED: whether they are as few as they were ({why})");
            ExitCode::SUCCESS
        }
    }
}

/// Returns the number of instructions of all calls of a case; `None` if valgrind cannot run it.
fn count(case: &Case) -> Option<u64> {
    let output = Command::new("valgrind")
        .args([
            "--tool=callgrind",
            "--callgrind-out-file=/dev/null",
            "--toggle-collect=*counted_calls*",
        ])
        .arg(std::env::current_exe().expect("this program has a path"))
        .args(["--counted", case.name])
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stderr);
    let collected = text
        .lines()
        .find_map(|line| line.split_once("Collected :"))?
        .1;
    collected
        .trim()
        .parse()
        .ok()
        .filter(|_| output.status.success())
}
