//! Tests the attribution of calls where the recorder's programs could confuse two threads: threads
//! that reuse the stack of one that ended, and a thread that gets its process's id because it
//! executes a program.

#![allow(unsafe_code)]

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use stroboscope::BurstConfig;
use stroboscope_analysis::kernel::call::Architecture;
use stroboscope_analysis::kernel::event::Body;
use stroboscope_kernel_model::{Processes, Settings};

use crate::machine;

const STAGE: &str = "STROBOSCOPE_IDENTITY_STAGE";
/// First argument of the calls that count. The second argument identifies the caller.
const SIGN: u64 = 0x1dea;
const THREADS: usize = 2000;
const CALLS: usize = 5;

fn call() {
    for _ in 0..CALLS {
        // SAFETY: both take no arguments, and ignore these.
        unsafe { libc::syscall(libc::SYS_getppid, SIGN, libc::syscall(libc::SYS_gettid)) };
    }
}

#[test]
#[ignore = "the program that another test watches"]
fn is_the_program() {
    let Ok(stage) = std::env::var(STAGE) else {
        return;
    };
    call();
    if stage != "threads" {
        return;
    }
    // On this processor, the last caller is usually the previous thread. The new thread usually
    // reuses that thread's stack.
    let alone = |then: fn()| std::thread::spawn(move || (pin(0), call(), then()));
    for _ in 0..THREADS {
        alone(|| {}).join().unwrap();
    }
    let executing = alone(|| panic!("executing: {}", program("program").exec()));
    let _ = executing.join();
}

/// Keeps this thread, and those it starts, on one processor.
fn pin(number: usize) {
    // SAFETY: a set of processors consists of bits, and may be all zeros. It is valid during the
    // call.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(number, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}

fn program(stage: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--ignored", "--exact", "identity::is_the_program"])
        .env(STAGE, stage);
    command
}

#[test]
fn a_call_is_never_taken_for_another_threads() {
    const TEST: &str = "a_call_is_never_taken_for_another_threads";
    let _alone = machine::alone();
    // Keeps the recorder and what it starts off the processor of the watched threads, where it
    // would otherwise be the last caller.
    std::thread::spawn(|| {
        pin(1);
        watch(TEST);
    })
    .join()
    .unwrap();
}

fn watch(test: &str) {
    let settings = Settings {
        burst_config: BurstConfig::ALWAYS_ON,
        processes: Processes::Trees(vec![std::process::id()]),
        events_per_cpu: 1 << 18,
        ..Settings::default()
    };
    let Some(mut recorder) = machine::start(test, &settings) else {
        return;
    };
    let mut child = program("threads").stdout(Stdio::null()).spawn().unwrap();
    let mut events = Vec::new();
    while child.try_wait().unwrap().is_none() {
        recorder.drain(&mut events);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(child.wait().unwrap().success());
    let recording = recorder.finish(events);
    assert!(
        recording.losses.iter().all(|lost| lost.total() == 0),
        "{:?}",
        recording.losses
    );
    let getppid = Architecture::native().call_number("getppid").unwrap();
    let mut said = Vec::new();
    for event in &recording.events {
        match event.body {
            Body::Enter { call, args } if call == getppid && args[0] == SIGN => {
                assert_eq!(u64::from(event.tid), args[1], "{event:?}");
                said.push((event.ts_ns, event.tid));
            }
            _ => {}
        }
    }
    // The thread that runs the test in either program, the short-lived ones, and the one that
    // executes the second program.
    assert_eq!(said.len(), CALLS * (THREADS + 3));
    said.sort_unstable();
    let (executing, executed) = (said[said.len() - CALLS - 1].1, child.id());
    let is_named = |body: &Body| matches!(body, Body::Named { .. });
    let its = recording
        .events
        .iter()
        .filter(|event| event.tid == executed && is_named(&event.body));
    let named = its.map(|event| event.ts_ns);
    let last_named_ns = named.max().expect("the second program's name");
    let is_late = |body: &Body| matches!(body, Body::Enter { .. } | Body::Exit { .. });
    let late = recording
        .events
        .iter()
        .find(|e| e.tid == executing && e.ts_ns > last_named_ns && is_late(&e.body));
    assert_eq!(late, None, "{executing} has become {executed}");
}
