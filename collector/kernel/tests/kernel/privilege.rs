//! Without the necessary rights, the recorder fails with a clear message.

use std::process::Command;

use stroboscope_kernel::Recorder;
use stroboscope_kernel_model::Settings;

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
