//! Changes of the burst-config across processes behind agents, and across recorders of the kernel.
//! `STROBOSCOPE_SWITCH_AGENTS` and `STROBOSCOPE_SWITCH_PROCESSES` set the number of agents, and of
//! processes of each.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use stroboscope_analysis::kernel::event::Body;
use stroboscope_burst::BurstConfig;
use stroboscope_store::tables::{Store, list_kernel, read_kernel};
use stroboscope_tests::{Program, Server};

use crate::agents::{GATEWAY, agent};
use crate::senders::{Fleet, Role};
use crate::{Ports, ask};

fn number(variable: &str, default: u64) -> u64 {
    let set = std::env::var(variable).ok();
    set.and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn adoption(gateway: &Ports) -> Value {
    let (_, body) = ask(gateway.pages, "GET /api/burst-config", &[], b"").expect("the pages");
    serde_json::from_str(&body).expect("JSON")
}

#[test]
fn all_processes_switch_at_one_instant_and_a_straggler_is_named() {
    let agent_count = number("STROBOSCOPE_SWITCH_AGENTS", 2);
    let per_agent = number("STROBOSCOPE_SWITCH_PROCESSES", 3);
    let processes = agent_count * per_agent;
    let program = Program::new();
    let gateway_doors = Ports::free();
    let arguments = [&GATEWAY[..], &["--burst-config", "4ms/32ms"]].concat();
    let mut gateway = gateway_doors.collect(&program.data(), &arguments);
    let mut fleet = Fleet::default();
    let mut agents = Vec::new();
    for at in 0..agent_count {
        let doors = Ports::free();
        let data = program.data().with_extension(format!("agent{at}"));
        agents.push(agent(&doors, &data, &gateway_doors, &[]));
        for _ in 0..per_agent {
            fleet.start(Role::Quiet, &doors, None);
        }
    }
    let all = Some(processes);
    for _ in 0..1_200 {
        if adoption(&gateway_doors)["applied"].as_u64() == all {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(adoption(&gateway_doors)["applied"].as_u64(), all);
    let http = gateway_doors.pages.to_string();
    let set = |config: &str, wait: &str| {
        let arguments = ["burst", "set", "--config", config, "--http", &http];
        Program::run_plain(&[&arguments[..], &["--wait", wait, "--json"]].concat())
    };
    let switched = set("8ms/64ms", "60s").succeeds().json();
    println!("switched: {switched}");
    assert_eq!(switched["applied"].as_u64(), all);
    assert_eq!(switched["others"].as_array().map(Vec::len), Some(0));
    // A wrong instant would be a second late. A busy machine wakes a thread late.
    let late_ns = switched["late_ns"].as_u64().expect("the lateness");
    assert!(late_ns < 500_000_000, "{late_ns}");
    let (_, known) = ask(gateway_doors.pages, "GET /api/processes", &[], b"").expect("the pages");
    let known: Value = serde_json::from_str(&known).expect("JSON");
    let at_ns = switched["at_ns"].as_u64().expect("the instant");
    for process in known["processes"].as_array().expect("processes") {
        let since_ns = process["burst_config_since_ns"].as_u64();
        let after_ns = since_ns.and_then(|since_ns| since_ns.checked_sub(at_ns));
        assert!(
            after_ns.is_some_and(|after_ns| after_ns <= late_ns),
            "{process}"
        );
    }

    // A process that stands still is named, and switches as soon as it goes on.
    let stopped = &fleet.running[0].1;
    stopped.signal(libc::SIGSTOP);
    let pid = stopped.pid();
    let partly = set("16ms/128ms", "6s");
    let said = &partly.stderr;
    assert_eq!(partly.status.code(), Some(1), "{said}");
    let straggler = format!("process {pid}: recorded by ");
    assert!(
        said.contains(&straggler) && said.contains("(8ms/64ms)"),
        "{said}"
    );
    assert!(said.contains("has sent nothing since the change"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    stopped.signal(libc::SIGCONT);
    let whole = set("16ms/128ms", "60s").succeeds().json();
    assert_eq!(whole["applied"].as_u64(), all);

    // Those that end are no stragglers, although they never reported the next config.
    let (_, mut ending) = fleet.running.swap_remove(1);
    ending.signal(libc::SIGTERM);
    ending.wait_for("the end", |said| said.contains("ended").then_some(()));
    let rest = set("off", "60s").succeeds().json();
    assert_eq!(rest["applied"].as_u64(), Some(processes - 1), "{rest}");

    while !fleet.running.is_empty() {
        fleet.kill(0);
    }
    for agent in &mut agents {
        assert!(agent.stop(libc::SIGTERM).success(), "{}", agent.said());
    }
    assert!(gateway.stop(libc::SIGTERM).success(), "{}", gateway.said());
}

/// A collector that records the kernel, and a separate recorder that follows the collector, switch
/// at the instant of the change: the windows in their stores are those of the config of their time.
#[test]
fn recorders_of_the_kernel_switch_with_the_services() {
    let program = Program::new();
    let tried = program.run(&["kernel", "record", "--seconds", "0.05"]);
    if !tried.status.success() {
        let reason = tried.stderr.trim();
        eprintln!("SKIPPED: recorders_of_the_kernel_switch_with_the_services: {reason}");
        return;
    }
    let [before, after] = ["8ms/32ms", "64ms/256ms"];
    let doors = Ports::free();
    let own = program.data().with_extension("own");
    let arguments = ["--kernel", "--burst-config", before];
    let mut collector = doors.collect(&program.data(), &arguments);
    let mut record = Command::new(Program::path());
    record.args(["kernel", "record", "--burst-config", before]);
    record.arg("--data").arg(&own).stdin(Stdio::null());
    record.args(["--collector", &format!("http://{}", doors.grpc)]);
    let mut recorder = Server::start(record);
    recorder.wait_for("its start", |said| {
        said.contains("recording the kernel").then_some(())
    });
    for _ in 0..1_200 {
        if doors.metric("agents") > 0.0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    // Something to record at any time.
    let ends = Instant::now() + Duration::from_secs(4);
    let http = doors.pages.to_string();
    let arguments = ["burst", "set", "--http", &http, "--config", after, "--json"];
    let set = Program::run_plain(&arguments).succeeds().json();
    let at_ns = set["at_ns"].as_i64().expect("the instant");
    while Instant::now() < ends {
        let _ = std::fs::metadata("/");
        std::thread::sleep(Duration::from_micros(200));
    }
    assert!(
        recorder.stop(libc::SIGTERM).success(),
        "{}",
        recorder.said()
    );
    assert!(
        collector.stop(libc::SIGTERM).success(),
        "{}",
        collector.said()
    );
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    for data in [program.data(), own] {
        let store = Store::local(&data, runtime.handle().clone()).expect("the store opens");
        let mut events = [0; 2];
        let mut recorded_ns = [0; 2];
        for file in list_kernel(&store).expect("files") {
            let (chunk, damage) = read_kernel(&store, &file);
            assert!(damage.is_none(), "{damage:?}");
            let config = BurstConfig::from_bits(chunk.burst_config);
            let is_after = config == BurstConfig::parse(after).expect("a config").config;
            for window in &chunk.windows {
                let [open_ns, close_ns] =
                    [window.open_ns, window.close_ns].map(|ns| chunk.clocks.wall_ns(ns));
                // The clock's offset differs by some microseconds between two readings.
                assert!(
                    !is_after || open_ns >= at_ns - 50_000,
                    "{} ns early",
                    at_ns - open_ns
                );
                assert!(
                    is_after || close_ns <= at_ns + 50_000,
                    "{} ns late",
                    close_ns - at_ns
                );
                let middle_ms = i64::midpoint(open_ns, close_ns) / 1_000_000;
                assert!(config.contains_ms(middle_ms.cast_unsigned()), "{config}");
                recorded_ns[usize::from(is_after)] += close_ns - open_ns;
            }
            let is_inside = |at_ns: u64| {
                let mut windows = chunk.windows.iter();
                windows.any(|window| window.open_ns <= at_ns && at_ns < window.close_ns)
            };
            for event in &chunk.events {
                if !matches!(event.body, Body::Lost { .. }) {
                    assert!(is_inside(event.ts_ns), "{event:?}");
                    events[usize::from(is_after)] += 1;
                }
            }
        }
        println!("events before and after: {events:?}, ns of windows: {recorded_ns:?}");
        assert!(events.iter().all(|&count| count > 100), "{events:?}");
        // About 2 s follow the change, and a quarter of them is recorded, if the machine is not
        // busy.
        assert!(recorded_ns[1] > 100_000_000, "{recorded_ns:?}");
    }
}
