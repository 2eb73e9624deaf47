//! Tests that, after a recorder has stopped, no thread takes the slow path into the kernel.

use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use aya::programs::Iter;
use aya::{Btf, Ebpf};
use stroboscope::BurstConfig;
use stroboscope_kernel_model::Settings;

use crate::machine;

/// `SYSCALL_WORK_SYSCALL_TRACEPOINT`, a flag of every thread while system calls are traced.
const TRACED: u64 = 1 << 1;

fn counting_program(directory: &Path) -> Result<Ebpf, String> {
    if cfg!(not(target_arch = "x86_64")) {
        return Err("other processors keep the flag elsewhere".into());
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernel/threads.bpf.c");
    let object = directory.join("threads.o");
    let mut clang = Command::new("clang");
    clang
        .args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-c"])
        .arg(source)
        .arg("-o")
        .arg(&object);
    if !clang
        .status()
        .map_err(|error| format!("clang: {error}"))?
        .success()
    {
        return Err("clang and libbpf-dev do not make the program".into());
    }
    let mut ebpf = Ebpf::load_file(&object).map_err(|error| error.to_string())?;
    let program: &mut Iter = ebpf.program_mut("threads").unwrap().try_into().unwrap();
    let btf = Btf::from_sys_fs().map_err(|error| error.to_string())?;
    program
        .load("task", &btf)
        .map_err(|error| error.to_string())?;
    Ok(ebpf)
}

/// Returns the number of threads of the machine, and how many of them are traced.
fn threads(ebpf: &mut Ebpf) -> (usize, usize) {
    let program: &mut Iter = ebpf.program_mut("threads").unwrap().try_into().unwrap();
    let link = program.attach().unwrap();
    let mut bytes = Vec::new();
    program
        .take_link(link)
        .unwrap()
        .into_file()
        .unwrap()
        .read_to_end(&mut bytes)
        .unwrap();
    let all = bytes
        .chunks_exact(8)
        .map(|word| u64::from_ne_bytes(word.try_into().unwrap()));
    (
        bytes.len() / 8,
        all.filter(|work| work & TRACED != 0).count(),
    )
}

#[test]
fn no_thread_goes_on_being_traced() {
    const TEST: &str = "no_thread_goes_on_being_traced";
    let _alone = machine::alone();
    let directory = tempfile::tempdir().unwrap();
    let settings = Settings {
        burst_config: BurstConfig::ALWAYS_ON,
        ..Settings::default()
    };
    let Some(recorder) = machine::start(TEST, &settings) else {
        return;
    };
    let mut ebpf = match counting_program(directory.path()) {
        Ok(ebpf) => ebpf,
        Err(error) => return eprintln!("SKIPPED: {TEST}: {error}"),
    };
    let (all, traced) = threads(&mut ebpf);
    assert!(
        all > 10 && traced == all,
        "while recording: {traced} of {all}"
    );
    // Starts processes while the recorder stops.
    let mut forking = Command::new("sh")
        .args(["-c", "for i in $(seq 300); do /bin/true; done"])
        .spawn()
        .unwrap();
    drop(recorder);
    let until = Instant::now() + Duration::from_secs(30);
    let (all, traced) = loop {
        let (all, traced) = threads(&mut ebpf);
        if traced == 0 || Instant::now() > until {
            break (all, traced);
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(forking.wait().unwrap().success());
    if all == traced {
        return eprintln!(
            "SKIPPED: {TEST}: somebody else traces the machine's system calls all the time"
        );
    }
    assert_eq!(traced, 0, "of {all} threads");
}
