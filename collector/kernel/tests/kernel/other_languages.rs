//! Tests programs without the SDK, in C and Python, that set the markers themselves.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use stroboscope::BurstConfig;
use stroboscope_analysis::kernel::call::Architecture;
use stroboscope_kernel_model::{Processes, Settings};

use crate::machine;

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples/markers")
        .join(name)
}

/// Runs a program and checks that its `write` of 6 bytes belongs to the request, and that 3 to 29
/// of its calls do.
fn check(test: &str, program: &str, arguments: &[&Path]) {
    let settings = Settings {
        burst_config: BurstConfig::ALWAYS_ON,
        processes: Processes::Trees(vec![std::process::id()]),
        ..Settings::default()
    };
    // The recorder's own process is not recorded, but the processes that it starts are.
    let Some(mut recorder) = machine::start(test, &settings) else {
        return;
    };
    let mut child = Command::new(program)
        .args(arguments)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut events = Vec::new();
    while child.try_wait().unwrap().is_none() {
        recorder.drain(&mut events);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let timeline = recorder.finish(events).timeline();
    let write = Architecture::native().call_number("write").unwrap();
    let its: Vec<_> = timeline
        .calls
        .iter()
        .filter(|call| call.tid == child.id())
        .collect();
    let hello = its
        .iter()
        .find(|call| call.call == write && call.args.is_some_and(|args| args[2] == 6));
    let hello = hello.unwrap_or_else(|| panic!("{test}: no write among {} calls", its.len()));
    assert_eq!(hello.owner.trace(), Some(0xc0ffee), "{hello:?}");
    let owned = its
        .iter()
        .filter(|call| call.owner.trace() == Some(0xc0ffee))
        .count();
    // Two markers and the write; an interpreter may add some of its own in between.
    assert!(
        (3..30).contains(&owned) && its.len() > owned + 10,
        "{owned} of {}",
        its.len()
    );
}

#[test]
fn five_lines_of_c() {
    const TEST: &str = "five_lines_of_c";
    let _alone = machine::alone();
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("marker");
    match Command::new("cc")
        .arg("-O1")
        .arg("-w")
        .arg(example("marker.c"))
        .arg("-o")
        .arg(&program)
        .status()
    {
        Ok(status) => assert!(status.success()),
        Err(error) => return eprintln!("SKIPPED: {TEST}: cc: {error}"),
    }
    check(TEST, program.to_str().unwrap(), &[]);
}

#[test]
fn five_lines_of_python() {
    const TEST: &str = "five_lines_of_python";
    let _alone = machine::alone();
    // Finds the interpreter itself, because `python3` may be a script of a version manager.
    let found = Command::new("python3")
        .args(["-c", "import sys; print(sys.executable)"])
        .output();
    let python = match found {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        }
        _ => return eprintln!("SKIPPED: {TEST}: no python3"),
    };
    check(TEST, &python, &[&example("marker.py")]);
}
