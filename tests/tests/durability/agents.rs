//! Agents between services and a gateway: kills of both under load, a gateway that is unreachable,
//! a full buffer, and chains that form a loop. `STROBOSCOPE_KILL_ROUNDS` sets the number of kills.

use std::path::Path;
use std::time::Duration;

use stroboscope_tests::{Program, Random, Server};

use crate::acknowledgements::{Acknowledgements, check};
use crate::senders::{self, Fleet, Role};
use crate::stored::Stored;
use crate::{Ports, ask};

const ROUNDS: u64 = 8;
/// Intervals at which an agent forwards and a gateway flushes.
pub(crate) const AGENT: [&str; 2] = ["--forward-interval", "200ms"];
pub(crate) const GATEWAY: [&str; 2] = ["--flush-interval", "300ms"];

/// Starts an agent of the gateway behind these ports.
pub(crate) fn agent(doors: &Ports, data: &Path, gateway: &Ports, more: &[&str]) -> Server {
    let forward = format!("http://{}", gateway.grpc);
    let arguments = [&["--forward", &forward], &AGENT[..], more].concat();
    doors.collect(data, &arguments)
}

#[test]
fn agents_and_gateway_are_killed_and_acknowledged_is_stored_once() {
    let rounds = std::env::var("STROBOSCOPE_KILL_ROUNDS").ok();
    let rounds = rounds
        .and_then(|rounds| rounds.parse().ok())
        .unwrap_or(ROUNDS);
    let python = senders::python("agents_and_gateway_are_killed_and_acknowledged_is_stored_once");
    let program = Program::new();
    let gateway_doors = Ports::free();
    let mut random = Random::new(11);
    let mut gateway = gateway_doors.collect(&program.data(), &GATEWAY);
    let mut fleet = Fleet::default();
    let mut agents: Vec<(Ports, std::path::PathBuf, Server)> = (0..3)
        .map(|number| {
            let (doors, data) = (
                Ports::free(),
                program.data().with_extension(format!("agent{number}")),
            );
            let agent = agent(&doors, &data, &gateway_doors, &[]);
            for role in [Role::Protocol, Role::Sdk] {
                fleet.start(role, &doors, None);
            }
            let protocol = ["grpc", "http", "http"][number];
            fleet.start(Role::Otlp(protocol), &doors, python.as_deref());
            (doors, data, agent)
        })
        .collect();
    let mut kills = [0; 2];
    for round in 0..rounds {
        std::thread::sleep(Duration::from_millis(100 + random.below(900)));
        if round % 4 == 3 {
            let said = gateway.killed();
            assert!(!said.contains("panicked"), "{said}");
            std::thread::sleep(Duration::from_millis(random.below(1_500)));
            gateway = gateway_doors.collect(&program.data(), &GATEWAY);
            kills[1] += 1;
        } else {
            let at = random.below(3) as usize;
            let (doors, data, killed) = agents.swap_remove(at);
            let said = killed.killed();
            assert!(!said.contains("panicked"), "{said}");
            let fresh = agent(&doors, &data, &gateway_doors, &[]);
            agents.push((doors, data, fresh));
            kills[0] += 1;
        }
    }
    fleet.wait_for_acknowledgements();
    while !fleet.running.is_empty() {
        fleet.kill(0);
    }
    for (_, _, agent) in &mut agents {
        assert!(agent.stop(libc::SIGTERM).success(), "{}", agent.said());
    }
    assert!(gateway.stop(libc::SIGTERM).success(), "{}", gateway.said());
    let mut told = Acknowledgements::default();
    fleet
        .said
        .iter()
        .for_each(|(role, said)| told.hear(*role, said));
    println!("{} kills of agents, {} of the gateway", kills[0], kills[1]);
    check(
        &told,
        &Stored::read(&program.data()),
        if python.is_some() { 100 } else { 0 },
    );
}

#[test]
fn a_gateway_that_is_away_delays_and_a_full_buffer_pushes_back() {
    let program = Program::new();
    let gateway_doors = Ports::free();
    let doors = Ports::free();
    let data = program.data().with_extension("agent");
    // The buffer is full after a few segments.
    let mut agent = agent(&doors, &data, &gateway_doors, &["--buffer-bytes", "64KiB"]);
    let mut fleet = Fleet::default();
    let roles = [Role::Protocol, Role::Sdk];
    for role in roles {
        fleet.start(role, &doors, None);
    }
    let reason = doors.wait_for_health("503");
    assert!(reason.contains("cannot be forwarded"), "{reason}");
    assert!(reason.contains(&gateway_doors.grpc.to_string()), "{reason}");
    // The agent accepts batches nevertheless, until its buffer is full.
    let (head, body) = loop {
        let (head, body) = ask(doors.pages, "GET /readyz", &[], b"").expect("the pages");
        if head.contains("503") {
            break (head, body);
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(body.contains("--buffer-bytes"), "{head} {body}");
    assert!(doors.metric("wal_bytes") > 65_536.0);
    let mut gateway = gateway_doors.collect(&program.data(), &GATEWAY);
    doors.wait_for_health("200");
    assert!((gateway_doors.metric("agents") - 1.0).abs() < 0.1);
    fleet.wait_for_acknowledgements();
    while !fleet.running.is_empty() {
        fleet.kill(0);
    }
    assert!(agent.stop(libc::SIGTERM).success(), "{}", agent.said());
    assert!(gateway.stop(libc::SIGTERM).success(), "{}", gateway.said());
    let mut told = Acknowledgements::default();
    let said = fleet.said.iter();
    said.for_each(|(role, said)| told.hear(*role, said));
    check(&told, &Stored::read(&program.data()), 0);
}

#[test]
fn the_burst_config_is_set_at_the_gateway_and_reaches_the_agent() {
    let program = Program::new();
    let gateway_doors = Ports::free();
    let doors = Ports::free();
    let _gateway = gateway_doors.collect(&program.data(), &["--burst-config", "4ms/32ms"]);
    let _agent = agent(
        &doors,
        &program.data().with_extension("agent"),
        &gateway_doors,
        &[],
    );
    let wait_for = |config: &str| {
        for _ in 0..200 {
            let (_, body) = ask(doors.pages, "GET /burst-config", &[], b"").expect("the pages");
            if body.contains(config) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("the agent does not have {config}");
    };
    wait_for("4ms/32ms");
    let (head, _) =
        ask(gateway_doors.pages, "POST /burst-config", &[], b"8ms/64ms").expect("the pages");
    assert!(head.contains("200"), "{head}");
    wait_for("8ms/64ms");
    let (head, body) = ask(doors.pages, "POST /burst-config", &[], b"1ms/32ms").expect("the pages");
    assert!(
        head.contains("400") && body.contains("is an agent"),
        "{head} {body}"
    );
}

/// A request that the agent accepts, but not the gateway, which has less memory, blocks no later
/// request.
#[test]
fn data_too_large_for_the_gateway_is_counted_and_the_rest_arrives() {
    let program = Program::new();
    let gateway_doors = Ports::free();
    let doors = Ports::free();
    let memory = [&GATEWAY[..], &["--memory-limit", "256MiB"]].concat();
    let mut gateway = gateway_doors.collect(&program.data(), &memory);
    let data = program.data().with_extension("agent");
    let mut agent = agent(&doors, &data, &gateway_doors, &[]);
    let request = |spans: std::ops::Range<usize>, text: &str| {
        let span = |n: usize| {
            format!(
                r#"{{"traceId":"{n:032x}","spanId":"{n:016x}","name":"large","kind":2,"startTimeUnixNano":"1700000000000000000",
                "endTimeUnixNano":"1700000000001000000","attributes":[{{"key":"text","value":{{"stringValue":"{text}"}}}}]}}"#
            )
        };
        let spans: Vec<String> = spans.map(span).collect();
        format!(
            r#"{{"resourceSpans":[{{"resource":{{"attributes":[]}},"scopeSpans":[{{"spans":[{}]}}]}}]}}"#,
            spans.join(",")
        )
    };
    let send = |body: String| {
        let json = ["Content-Type: application/json"];
        let (head, said) =
            ask(doors.otlp, "POST /v1/traces", &json, body.as_bytes()).expect("the agent");
        assert!(head.contains("200"), "{head} {said}");
    };
    // 12 MB. A gateway with 256 MiB accepts requests of less than half that size.
    send(request(1..201, &"x".repeat(60_000)));
    send(request(1_000..1_010, "small"));
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    let forwarded =
        |outcome: &str| doors.metric(&format!("forwarded_total{{outcome=\"{outcome}\"}}"));
    while forwarded("stored") < 1.0 || forwarded("refused") < 1.0 {
        assert!(std::time::Instant::now() < deadline, "{:?}", doors.health());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(agent.stop(libc::SIGTERM).success(), "{}", agent.said());
    assert!(gateway.stop(libc::SIGTERM).success(), "{}", gateway.said());
    assert!(agent.said().contains("rejected"), "{}", agent.said());
    assert_eq!(Stored::read(&program.data()).spans.len(), 10);
}

#[test]
fn agents_that_forward_to_each_other_say_so() {
    let program = Program::new();
    let [one, other] = [Ports::free(), Ports::free()];
    let [first, second] = [1, 2].map(|n| program.data().with_extension(format!("agent{n}")));
    let _first = agent(&one, &first, &other, &[]);
    let _second = agent(&other, &second, &one, &[]);
    let mut fleet = Fleet::default();
    fleet.start(Role::Protocol, &one, None);
    for _ in 0..400 {
        let (_, body) = one.health();
        if body.contains("in a loop") {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!(
        "no word of a loop: {:?}, {:?}",
        one.health(),
        other.health()
    );
}

#[test]
fn what_cannot_be_a_gateway_is_refused_at_the_start() {
    let program = Program::new();
    let check = |arguments: &[&str], words: &[&str]| {
        let arguments = [&["collect", "--listen", "127.0.0.1:0"], arguments].concat();
        program.run(&arguments).fails_with(2, words);
    };
    check(
        &["--forward", "collector:4317"],
        &["--forward", "http://HOST:PORT"],
    );
    check(&["--forward", "http://collector"], &["it has no port"]);
    check(
        &[
            "--forward",
            "http://h:1",
            "--forward-token-file",
            "/nothing",
        ],
        &["--forward-token-file /nothing", "No such file"],
    );
    check(
        &["--forward", "http://h:1", "--forward-ca", "/nothing"],
        &["--forward-ca needs an https address"],
    );
    check(&["--forward", "http://h:1", "--kernel"], &["--kernel"]);
    check(&["--buffer-bytes", "20MiB"], &["--forward"]);
    // The data directory of a collector cannot be an agent's.
    let doors = Ports::free();
    let mut collector = doors.collect(&program.data(), &[]);
    let mut fleet = Fleet::default();
    fleet.start(Role::Protocol, &doors, None);
    fleet.wait_for_acknowledgements();
    assert!(collector.stop(libc::SIGTERM).success());
    check(&["--forward", "http://127.0.0.1:1"], &["holds a store"]);
}
