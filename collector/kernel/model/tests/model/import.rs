//! Text that the tools themselves write.

use std::process::Command;

use stroboscope_analysis::kernel::call::Architecture;
use stroboscope_kernel_model::import::{self, ImportedEvents};

/// Builds the example, or prints why the test is skipped.
fn example(test: &str, directory: &std::path::Path) -> Option<std::path::PathBuf> {
    let source =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/markers/marker.c");
    let program = directory.join("marker");
    match Command::new("cc")
        .arg("-w")
        .arg(source)
        .arg("-o")
        .arg(&program)
        .status()
    {
        Ok(status) if status.success() => Some(program),
        other => {
            eprintln!("SKIPPED: {test}: cc: {other:?}");
            None
        }
    }
}

fn check_hello(imported: &ImportedEvents) {
    let write = imported.architecture.call_number("write").unwrap();
    let timeline = imported.timeline();
    let hello = timeline
        .calls
        .iter()
        .find(|call| call.call == write && call.args.is_some_and(|args| args[2] == 6));
    assert_eq!(
        hello.and_then(|call| call.owner.trace()),
        Some(0xc0ffee),
        "{hello:?}"
    );
    assert!(
        imported.problem_count * 100 <= imported.lines,
        "{:?}",
        imported.problems
    );
}

#[test]
fn what_perf_says_is_owned() {
    const TEST: &str = "what_perf_says_is_owned";
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = example(TEST, directory.path()) else {
        return;
    };
    let data = directory.path().join("perf.data");
    let recorded = Command::new("perf")
        .args([
            "record",
            "-q",
            "-a",
            "-e",
            "raw_syscalls:*,sched:sched_switch,sched:sched_waking,task:*",
            "-o",
        ])
        .arg(&data)
        .arg("--")
        .arg(&program)
        .output();
    match recorded {
        Ok(output) if output.status.success() => {}
        other => return eprintln!("SKIPPED: {TEST}: perf: {other:?}"),
    }
    let script = Command::new("perf")
        .args([
            "script",
            "--ns",
            "-F",
            "comm,pid,tid,cpu,time,event,trace",
            "-i",
        ])
        .arg(&data)
        .output()
        .unwrap();
    let text = script.stdout.as_slice();
    let imported = import::perf_script(text, Architecture::native(), 1 << 20);
    assert!(
        imported.has_scheduling && imported.lines > 100,
        "{}",
        imported.lines
    );
    check_hello(&imported);
}

#[test]
fn what_strace_says_is_owned() {
    const TEST: &str = "what_strace_says_is_owned";
    let directory = tempfile::tempdir().unwrap();
    let (source, program, text) = (
        directory.path().join("m.c"),
        directory.path().join("m"),
        directory.path().join("text"),
    );
    // strace shows the text of a failed `write`, but not the arguments of `getpid`.
    let program_text = "#include <unistd.h>\nint main(void) { write(-1, \"STROBE 1 c0ffee 0 0 0 0\", 23); \
                        write(1, \"hello\\n\", 6); write(-1, \"STROBE 2 c0ffee 0 0 0 0\", 23); }\n";
    std::fs::write(&source, program_text).unwrap();
    let built = Command::new("cc")
        .arg("-w")
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .status();
    if !built.is_ok_and(|status| status.success()) {
        return eprintln!("SKIPPED: {TEST}: no cc");
    }
    let traced = Command::new("strace")
        .args(["-f", "-ttt", "-T", "-o"])
        .arg(&text)
        .arg(&program)
        .output();
    match traced {
        Ok(output) if output.status.success() => {}
        other => return eprintln!("SKIPPED: {TEST}: strace: {other:?}"),
    }
    let text = std::fs::read(&text).unwrap();
    let imported = import::strace(text.as_slice(), Architecture::native(), 1 << 20);
    check_hello(&imported);
}
