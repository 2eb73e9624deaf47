//! Tests the recording of a service with the SDK: its spans, tasks and locks.

#![allow(unsafe_code)]

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use stroboscope::{BurstConfig, FutureExt, marked, marker, span};
use stroboscope_kernel_model::{Processes, Settings};

use crate::machine;
use crate::workload::now_ns;

const ENV: &str = "KERNEL_TEST_SERVICE";

type Truth = Mutex<Vec<String>>;

const LOCK_WAITS: usize = 100;

/// Makes a system call, and logs the request that it serves.
fn call(truth: &Truth, context: stroboscope::SpanContext) {
    let from_ns = now_ns();
    // SAFETY: both have no arguments.
    let tid = unsafe {
        libc::syscall(libc::SYS_getppid);
        libc::gettid()
    };
    let to_ns = now_ns();
    let (trace, span) = (context.trace_id() as u64, context.span_id());
    truth
        .lock()
        .unwrap()
        .push(format!("call {tid} {from_ns} {to_ns} {trace} {span}"));
}

fn spans(truth: &Truth) {
    for _ in 0..200 {
        let outer = span!("outer").entered();
        call(truth, outer.context());
        {
            let inner = span!("inner").entered();
            call(truth, inner.context());
        }
        call(truth, outer.context());
        drop(outer);
        call(truth, stroboscope::SpanContext::NONE);
    }
}

async fn task(truth: Arc<Truth>) {
    for _ in 0..20 {
        call(&truth, stroboscope::current());
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
}

fn tasks(truth: &Arc<Truth>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let all: Vec<_> = (0..20)
        .map(|_| runtime.spawn(task(Arc::clone(truth)).in_span(span!("task"))))
        .collect();
    runtime.block_on(async {
        for one in all {
            one.await.unwrap();
        }
    });
}

/// Reports whether this thread of this process is asleep.
fn is_asleep(tid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| rest.starts_with('S'))
}

/// Makes one thread hold a lock, for one request, until a second thread, for another request,
/// sleeps while it waits for the lock.
fn locks(truth: &Truth) {
    let lock = marked::Mutex::new(());
    for _ in 0..LOCK_WAITS {
        let span = span!("holder").entered();
        let holder = span.context().trace_id() as u64;
        let waiting = AtomicU32::new(0);
        let held = lock.lock().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let span = span!("waiter").entered();
                let own = span.context().trace_id() as u64;
                let from_ns = now_ns();
                // SAFETY: gettid has no arguments. From here until the lock is taken, only the lock
                // makes this thread sleep.
                waiting.store(unsafe { libc::gettid() }.cast_unsigned(), Release);
                let got = lock.lock().unwrap();
                let to_ns = now_ns();
                drop(got);
                truth
                    .lock()
                    .unwrap()
                    .push(format!("lock 0 {from_ns} {to_ns} {own} {holder}"));
            });
            while waiting.load(Acquire) == 0 || !is_asleep(waiting.load(Acquire)) {
                std::thread::sleep(Duration::from_micros(50));
            }
            drop(held);
        });
    }
}

/// Not a test: the service.
#[test]
#[ignore = "the service that another test watches"]
fn is_the_service() {
    if std::env::var_os(ENV).is_none() {
        return;
    }
    let guard = stroboscope::builder()
        .service("watched")
        .burst_config(BurstConfig::ALWAYS_ON)
        .collector("http://127.0.0.1:9")
        .shutdown_deadline(Duration::ZERO)
        .init()
        .unwrap();
    let wait_for = |on: bool| {
        let until = Instant::now() + Duration::from_secs(60);
        while marker::is_on() != on && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        marker::is_on()
    };
    println!("before {}", marker::is_on());
    println!("ready");
    // The recorder cannot record what happens before it has started.
    std::io::stdin().read_line(&mut String::new()).unwrap();
    println!("during {}", wait_for(true));
    let truth = Arc::new(Truth::default());
    spans(&truth);
    tasks(&truth);
    locks(&truth);
    for line in truth.lock().unwrap().iter() {
        println!("{line}");
    }
    println!("done");
    println!("after {}", wait_for(false));
    drop(guard);
}

#[test]
fn a_services_spans_tasks_and_locks_are_seen_from_the_kernel() {
    const TEST: &str = "a_services_spans_tasks_and_locks_are_seen_from_the_kernel";
    let _alone = machine::alone();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "sdk::is_the_service", "--nocapture"])
        .env(ENV, "1")
        .env(marker::ENV_KERNEL_RECORDER, machine::announced_by())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let mut said: Vec<String> = lines.by_ref().take_while(|line| line != "ready").collect();
    let settings = Settings {
        burst_config: BurstConfig::ALWAYS_ON,
        processes: Processes::Trees(vec![child.id()]),
        events_per_cpu: 1 << 17,
        ..Settings::default()
    };
    let Some(recorder) = machine::start(TEST, &settings) else {
        child.kill().unwrap();
        child.wait().unwrap();
        return;
    };
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    said.extend(lines.by_ref().take_while(|line| line != "done"));
    let recording = recorder.finish(Vec::new());
    said.extend(lines);
    assert!(child.wait().unwrap().success());
    let _ = std::io::stdout().flush();
    for expected in ["before false", "during true", "after false"] {
        assert!(said.iter().any(|line| line == expected), "no {expected:?}");
    }
    assert!(
        recording.losses.iter().all(|lost| lost.total() == 0),
        "{:?}",
        recording.losses
    );
    let timeline = recording.timeline();
    let (mut calls, mut waits) = (0, 0);
    for line in &said {
        let mut parts = line.split(' ');
        let kind = parts.next().unwrap();
        let n: Vec<u64> = parts.map_while(|part| part.parse().ok()).collect();
        match (kind, n.as_slice()) {
            ("call", &[tid, from_ns, to_ns, trace, span]) => {
                calls += 1;
                let at = timeline
                    .calls
                    .partition_point(|call| call.start_ns < from_ns);
                let call = timeline.calls[at..]
                    .iter()
                    .find(|call| u64::from(call.tid) == tid)
                    .unwrap();
                assert!(call.start_ns <= to_ns, "{line}: {call:?}");
                let owner = call
                    .owner
                    .request()
                    .map_or((0, 0), |request| (request.trace, request.span));
                assert_eq!(
                    owner,
                    if trace == 0 { (0, 0) } else { (trace, span) },
                    "{line}: {call:?}"
                );
            }
            ("lock", &[_, from_ns, to_ns, own, before]) => {
                let wait = timeline.lock_waits.iter().find(|wait| {
                    wait.is_marked
                        && wait.owner.trace() == Some(own)
                        && (from_ns..=to_ns).contains(&wait.start_ns)
                });
                let holders: Vec<_> = wait
                    .map(|wait| &wait.releases)
                    .into_iter()
                    .flatten()
                    .collect();
                waits += 1;
                assert!(
                    matches!(holders.as_slice(), [holder] if holder.owner.trace() == Some(before)),
                    "{line}: {wait:?}"
                );
            }
            _ => {}
        }
    }
    println!("{TEST}: {calls} calls and {waits} lock waits, all right");
    assert!(
        calls == 200 * 4 + 20 * 20 && waits == LOCK_WAITS,
        "{calls} calls, {waits} waits"
    );
}
