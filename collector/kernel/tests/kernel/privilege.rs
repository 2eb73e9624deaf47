//! Tests the recorder without the necessary rights, and without a file to announce itself by.

use std::path::Path;
use std::process::Command;

use stroboscope_kernel::Recorder;
use stroboscope_kernel_model::Settings;

use crate::machine;

const ENV: &str = "KERNEL_TEST_UNPRIVILEGED";

#[test]
fn without_rights_the_message_says_which_and_what_to_do() {
    const TEST: &str = "without_rights_the_message_says_which_and_what_to_do";
    let output = Command::new("setpriv")
        .args(["--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"])
        .arg(std::env::current_exe().unwrap())
        .args([
            "--ignored",
            "--exact",
            "privilege::is_unprivileged",
            "--nocapture",
        ])
        .env(ENV, "1")
        .output();
    let output = match output {
        Ok(output) if String::from_utf8_lossy(&output.stderr).starts_with("setpriv:") => {
            return eprintln!(
                "SKIPPED: {TEST}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(output) => output,
        Err(error) => return eprintln!("SKIPPED: {TEST}: setpriv: {error}"),
    };
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        said.contains("recording the kernel needs CAP_BPF and CAP_PERFMON; run as root, or"),
        "{said}"
    );
    assert!(said.contains("setcap cap_bpf,cap_perfmon+ep"), "{said}");
}

#[test]
fn a_recorder_that_cannot_announce_itself_records_nevertheless() {
    const TEST: &str = "a_recorder_that_cannot_announce_itself_records_nevertheless";
    let _alone = machine::alone();
    // A file has no directory below it, for any user.
    let settings = Settings {
        announced_by: Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml/recorder"),
        ..Settings::default()
    };
    match Recorder::start(&settings) {
        Ok(recorder) => assert!(recorder.unannounced().is_some()),
        Err(error) if machine::is_not_allowed(&error, settings.facility) => {
            eprintln!("SKIPPED: {TEST}: {error}");
        }
        Err(error) => panic!("{TEST}: {error}"),
    }
}

/// Not a test: tries to record without rights.
#[test]
#[ignore = "what another test starts without rights"]
fn is_unprivileged() {
    if std::env::var_os(ENV).is_some() {
        match Recorder::start(&Settings::default()) {
            Ok(_) => println!("it started"),
            Err(error) => println!("{error}"),
        }
    }
}
