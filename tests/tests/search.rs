//! Searches the records of real services: two requests that meet in one burst, and faults of the
//! newsfeed.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use stroboscope::{BurstConfig, event, span};
use stroboscope_tests::{Program, Server};

#[test]
fn requests_that_meet_are_found_in_their_burst() {
    let program = Program::new();
    let collect = ["collect", "--listen", "127.0.0.1:0"];
    let mut server = Server::start(program.command(&collect));
    let address = format!("http://{}", server.collector_address());
    let service = stroboscope::builder()
        .service("shop")
        .collector(address)
        .burst_config(BurstConfig::ALWAYS_ON)
        .init()
        .expect("it starts");
    let deadline = Instant::now() + Duration::from_secs(20);
    while stroboscope::stats().windows == 0 {
        assert!(Instant::now() < deadline, "the burst never began");
        std::thread::sleep(Duration::from_millis(5));
    }
    let meet = Barrier::new(2);
    std::thread::scope(|scope| {
        for shard in [7_u64, 7] {
            let meet = &meet;
            scope.spawn(move || {
                let _request = span!("order").entered();
                let _held = span!("reserve", shard).entered();
                event!("reserved", shard);
                meet.wait();
                std::thread::sleep(Duration::from_millis(2));
                meet.wait();
            });
        }
    });
    drop(service);
    assert!(server.stop(libc::SIGTERM).success(), "{}", server.said());

    let search = |formula: &str| {
        let found = program.run(&["search", "--bursts", "--json", formula]);
        found.succeeds().json()
    };
    let together = r#"{ name = "reserve" } overlaps { name = "reserve" } with the same .shard in another request"#;
    let found = search(together);
    assert_eq!(
        (found["searched"].as_u64(), found["matched"].as_u64()),
        (Some(1), Some(1)),
        "{found}"
    );
    let witness = found["bursts"][0]["witness"].as_array().expect("spans");
    assert_eq!(witness.len(), 2, "{found}");
    assert_ne!(witness[0]["trace"], witness[1]["trace"]);
    let alone = r#"{ name = "reserve" } overlaps { name = "reserve" } in the same request"#;
    assert_eq!(search(alone)["matched"].as_u64(), Some(0));
    let in_span = search(r#"{ event:name = "reserved" && event.shard = 7 }"#);
    assert_eq!(in_span["matched"].as_u64(), Some(1), "{in_span}");
    // Searches each request by itself.
    let slow = program.run(&[
        "search",
        "--json",
        r#"{ name = "reserve" && duration >= 2ms }"#,
    ]);
    assert_eq!(slow.succeeds().json()["matched"].as_u64(), Some(2));
}

/// Formulas, each with true if bursts are searched.
const MYSTERIES: [(&str, bool); 5] = [
    (
        r#"{ service = "store" && name = "read" } then { service = "store" && name = "read" } with the same .key within 20ms"#,
        false,
    ),
    (
        r#"at least 20 of { service = "web" && kind = client && name =~ ".*Read" } within 5s"#,
        false,
    ),
    (
        r#"{ name = "attempt" && .error = true } then { name = "attempt" } within 5s"#,
        false,
    ),
    (
        r#"at least 3 of ({ name = "read" } overlaps { name = "read" && duration > 35ms }) within 200ms"#,
        false,
    ),
    (
        r#"{ name = "read" && .key =~ "user/.*" } overlaps { name = "read" && .key =~ "story/.*" } with the same .shard in another request"#,
        true,
    ),
];

/// Returns the number of matches of each formula in a run of the newsfeed with these faults.
fn newsfeed(rate: &str, faults: &[&str]) -> Vec<u64> {
    let program = Program::new();
    let mut demo = vec!["demo", "--json", "--seconds", "3", "--rate", rate];
    demo.extend(["--burst-config", "always"]);
    faults
        .iter()
        .for_each(|fault| demo.extend(["--fault", fault]));
    let report = program.run(&demo).succeeds().json();
    let data = report["data"].as_str().expect("a directory").to_owned();
    let search = |(formula, is_of_bursts): &(&str, bool)| {
        let mut arguments = vec!["search", "--json", "--data", &data, formula];
        arguments.extend(is_of_bursts.then_some("--bursts"));
        let found = Program::run_plain(&arguments).succeeds().json();
        found["matched"].as_u64().expect("a number")
    };
    MYSTERIES.iter().map(search).collect()
}

#[test]
fn five_mysteries_of_the_newsfeed_are_found_by_a_line_each() {
    let healthy = newsfeed("4", &[]);
    assert_eq!(healthy, [0, 0, 0, 0, 0]);
    let calls = ["web.read-again", "web.call-loop", "web.late-retry=+100ms"];
    let found = newsfeed("4", &calls);
    assert!(found[..3].iter().all(|count| *count > 0), "{found:?}");
    let found = newsfeed("3", &["store.lock=+20ms", "store.one-shard"]);
    assert!(found[3..].iter().all(|count| *count > 0), "{found:?}");
    assert_eq!(found[..3], [0, 0, 0], "{found:?}");
}
