//! Tests that the committed objects equal those compiled from their source.

use std::path::Path;
use std::process::Command;

/// Compiler that built the objects. Another one may generate different bytes.
const COMPILER: &str = "Debian clang version 14.0.6";

#[test]
fn the_committed_objects_are_what_the_source_makes() {
    const TEST: &str = "the_committed_objects_are_what_the_source_makes";
    let version = match Command::new("clang").arg("--version").output() {
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Err(error) => return eprintln!("SKIPPED: {TEST}: clang: {error}"),
    };
    if !version.starts_with(COMPILER) || !Path::new("/usr/include/bpf/bpf_helpers.h").exists() {
        return eprintln!("SKIPPED: {TEST}: needs {COMPILER} and libbpf-dev, here is {version}");
    }
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("bpf");
    let out = tempfile::tempdir().unwrap();
    let built = Command::new("sh")
        .arg(directory.join("build.sh"))
        .arg(out.path())
        .status()
        .unwrap();
    assert!(built.success());
    for name in ["recorder.x86_64.o", "recorder.aarch64.o"] {
        let (made, committed) = (
            std::fs::read(out.path().join(name)),
            std::fs::read(directory.join(name)),
        );
        assert!(
            made.unwrap() == committed.unwrap(),
            "{name} is out of date: run bpf/build.sh"
        );
    }
}
