//! Without input, a collector writes nothing.

use std::process::{Command, Stdio};
use std::time::Duration;

use stroboscope_tests::{Program, Server};

use crate::stored::files;
use crate::{Ports, ask};

/// System calls that sync, write, create, rename or delete.
const CALLS: &str = "trace=fsync,fdatasync,sync_file_range,write,pwrite64,writev,openat,creat,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,ftruncate";

/// Observes an idle collector over several flush intervals: its writes and its system calls.
#[test]
fn an_idle_collector_writes_nothing() {
    let program = Program::new();
    let doors = Ports::free();
    let mut collector = doors.collect(&program.data(), &["--flush-interval", "100ms"]);
    let names = || -> Vec<_> {
        let files = files(&program.data()).into_iter();
        files
            .map(|path| {
                (
                    path.clone(),
                    path.metadata().and_then(|about| about.modified()).ok(),
                )
            })
            .collect()
    };
    let before = names();
    assert_eq!(before.len(), 1, "only the lock: {before:?}");
    let trace = program.file("trace", "");
    let strace = Command::new("strace")
        .args([
            "-f",
            "-y",
            "-e",
            CALLS,
            "-o",
            &trace,
            "-p",
            &collector.pid().to_string(),
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let strace = match strace {
        Ok(mut child) => {
            // strace reports when it is attached.
            let mut said = String::new();
            let mut line = std::io::BufReader::new(child.stderr.take().expect("piped"));
            let _ = std::io::BufRead::read_line(&mut line, &mut said);
            said.contains("attached")
                .then_some((child, line))
                .or_else(|| {
                    eprintln!(
                        "SKIPPED: the system calls of an_idle_collector_writes_nothing: {said}"
                    );
                    None
                })
        }
        Err(error) => {
            eprintln!(
                "SKIPPED: the system calls of an_idle_collector_writes_nothing: strace: {error}"
            );
            None
        }
    };
    // Twenty flush intervals pass without a flush.
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(doors.metric("commits_total"), 0.0);
    assert_eq!(doors.metric("flushes_total"), 0.0);
    assert_eq!(doors.metric("wal_written_bytes_total"), 0.0);
    assert_eq!(names(), before);
    if let Some((mut child, _said)) = strace {
        let stopped = Command::new("kill")
            .args(["-INT", &child.id().to_string()])
            .status();
        assert!(stopped.is_ok_and(|status| status.success()));
        let _ = child.wait();
        let trace = std::fs::read_to_string(&trace).expect("a trace");
        let data = program.data().to_string_lossy().into_owned();
        let is_ours = |line: &&str| line.contains(&data) || line.contains("sync(");
        let touched: Vec<&str> = trace.lines().filter(is_ours).collect();
        assert!(
            touched.is_empty(),
            "an idle collector touched its disk: {touched:#?}"
        );
        // The trace has at least the answer of /metrics, so it is not blind.
        assert!(trace.contains("write"), "{trace}");
    }
    // One request causes one sync.
    let request = br#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"5B8EFFF798038103D269B633813FC60C",
        "spanId":"EEE19B7EC3C1B174","name":"pay","startTimeUnixNano":"1","endTimeUnixNano":"2"}]}]}]}"#;
    let json = ["Content-Type: application/json"];
    let answer = ask(doors.otlp, "POST /v1/traces", &json, request).expect("an answer");
    assert!(answer.0.starts_with("HTTP/1.1 200"), "{answer:?}");
    assert_eq!(doors.metric("commits_total"), 1.0);
    stop(&mut collector);
    // A run without input leaves nothing new.
    let before = names();
    let mut collector = doors.collect(&program.data(), &["--flush-interval", "100ms"]);
    stop(&mut collector);
    assert_eq!(names(), before);
}

fn stop(collector: &mut Server) {
    assert!(
        collector.stop(libc::SIGTERM).success(),
        "{}",
        collector.said()
    );
}
