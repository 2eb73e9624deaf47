//! Changes of the burst-config across processes behind agents. `STROBOSCOPE_SWITCH_AGENTS` and
//! `STROBOSCOPE_SWITCH_PROCESSES` set the number of agents, and of processes of each.

use std::time::Duration;

use serde_json::Value;
use stroboscope_tests::Program;

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
