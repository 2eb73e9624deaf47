//! SIGKILL under load, to the collector and to senders. `STROBOSCOPE_KILL_ROUNDS` sets the number
//! of rounds, such as 200.

use std::time::Duration;

use stroboscope_tests::{Program, Random, Server};

use crate::Ports;
use crate::acknowledgements::{Acknowledgements, check};
use crate::senders::{self, Fleet, Role};
use crate::stored::Stored;

const ROUNDS: u64 = 10;

#[test]
fn whoever_is_killed_acknowledged_is_stored_once() {
    let rounds = std::env::var("STROBOSCOPE_KILL_ROUNDS").ok();
    let rounds = rounds
        .and_then(|rounds| rounds.parse().ok())
        .unwrap_or(ROUNDS);
    let python = senders::python("whoever_is_killed_acknowledged_is_stored_once");
    let program = Program::new();
    let doors = Ports::free();
    let mut random = Random::new(7);
    let mut fleet = Fleet::default();
    let mut collector = doors.collect(&program.data(), &["--flush-interval", "300ms"]);
    let roles = [
        Role::Protocol,
        Role::Protocol,
        Role::Sdk,
        Role::Otlp("grpc"),
        Role::Otlp("http"),
    ];
    for role in roles {
        fleet.start(role, &doors, python.as_deref());
    }
    let (mut torn, mut early, mut senders_killed) = (0, 0, 0);
    for round in 0..rounds {
        std::thread::sleep(Duration::from_millis(100 + random.below(900)));
        let said = collector.killed();
        assert!(
            !said.contains("are damaged") && !said.contains("panicked"),
            "{said}"
        );
        torn += said.matches("an unfinished record at its end").count();
        if round % 3 == 0 {
            let at = random.below(fleet.running.len() as u64) as usize;
            let is_python = matches!(fleet.running[at].0, Role::Otlp(_));
            // Python takes a second to start.
            if !is_python || round % 9 == 0 {
                let role = fleet.kill(at);
                fleet.start(role, &doors, python.as_deref());
                senders_killed += 1;
            }
        }
        // Also kills collectors that recover the log of the one before.
        while random.below(3) == 0 {
            let mut command = program.command(&["collect", "--http", "127.0.0.1:0"]);
            command.args(["--listen", &doors.grpc.to_string(), "--otlp-http", "none"]);
            let starting = Server::start(command);
            std::thread::sleep(Duration::from_millis(random.below(120)));
            drop(starting.killed());
            early += 1;
        }
        collector = doors.collect(&program.data(), &["--flush-interval", "300ms"]);
    }
    // Gives the senders time to send unacknowledged messages again.
    std::thread::sleep(Duration::from_secs(3));
    while !fleet.running.is_empty() {
        fleet.kill(0);
    }
    assert!(
        collector.stop(libc::SIGTERM).success(),
        "{}",
        collector.said()
    );

    let mut told = Acknowledgements::default();
    fleet
        .said
        .iter()
        .for_each(|(role, said)| told.hear(*role, said));
    println!(
        "{rounds} rounds, {early} kills of a collector that started, {senders_killed} of senders, {torn} torn tails"
    );
    check(
        &told,
        &Stored::read(&program.data()),
        if python.is_some() { 100 } else { 0 },
    );
}
