//! An experiment on the newsfeed's real processes: half of its users get slower code, and halves of
//! the others do not differ.

use serde_json::Value;
use stroboscope_newsfeed::{Fleet, FleetOptions};
use stroboscope_tests::{Program, Server};

/// Additional time of the code of partition 1, once per page, in ns. It is large compared with the
/// variation of pages on a busy machine.
const SLOWER_NS: f64 = 150e6;
/// Maximum delay of a timer if other programs use the processors, in ns.
const LATE_NS: f64 = 30e6;

/// Records about 200 whole pages.
async fn record(program: &Program) {
    let mut command = program.command(&["collect"]);
    command.args([
        "--listen",
        "127.0.0.1:0",
        "--otlp-http",
        "none",
        "--http",
        "127.0.0.1:0",
        "--no-live-model",
    ]);
    let mut server = Server::start(command);
    let address = server.collector_address();
    let fault = format!("web.partition=+{}ms", SLOWER_NS / 1e6);
    let mut fleet = Fleet::start(FleetOptions {
        prefix_args: vec!["newsfeed".to_owned()],
        collector: Some(format!("http://{address}")),
        burst_config: Some("always".to_owned()),
        sample: Some("follow".to_owned()),
        faults: vec![fault],
        rate_per_s: 16.0,
        seconds: 12.0,
        ..FleetOptions::new(Program::path())
    })
    .await
    .expect("the newsfeed starts");
    let load = fleet.run_load().await.expect("a report");
    let stopped = fleet.stop().await;
    assert!(stopped.iter().all(|one| one.clean), "{stopped:?}");
    assert!(load.ok >= 100, "{load:?}");
    assert!(server.stop(libc::SIGTERM).success(), "{}", server.said());
}

fn experiment(program: &Program, sides: &[&str]) -> Value {
    let unit = ["--unit", "user", "--certainty", "0.99", "--json"];
    let all = [&["experiment"], sides, &unit[..]].concat();
    program.run(&all).succeeds().json()
}

/// Returns the row of pages, or else the first row of the metric.
fn of_pages<'a>(found: &'a Value, metric: &str) -> &'a Value {
    let rows = found["metrics"].as_array().expect("metrics");
    let of = |root: bool| {
        rows.iter().find(|row| {
            row["metric"] == metric
                && row["root"].as_str().is_some_and(|of| of.contains("page")) == root
        })
    };
    of(true).or(of(false)).expect("a metric")
}

#[tokio::test(flavor = "multi_thread")]
async fn slower_code_of_one_partition_is_found_and_equal_users_do_not_differ() {
    let program = Program::new();
    record(&program).await;
    let found = experiment(
        &program,
        &["--by", "partition", "--control", "0", "--test", "1"],
    );
    let mean = of_pages(&found, "mean");
    assert_eq!(mean["differs"], true, "{found:#}");
    // Each page of the test has that pause, plus at most the delay of a late timer.
    let control_ns = mean["control_ns"].as_f64().expect("a time");
    let end = |key: &str| mean[key].as_f64().expect("bounded");
    let (least, most) = (SLOWER_NS / control_ns, (SLOWER_NS + LATE_NS) / control_ns);
    assert!(
        end("low") <= most && least <= end("high"),
        "{least} to {most}: {mean:#}"
    );

    // Users of the control, by whether their numbers are even: no code differs.
    let users: Vec<String> = (0..480).map(|user| user.to_string()).collect();
    let mut sides = vec!["--where", "{ .partition = 0 }", "--by", "user"];
    for (user, text) in users.iter().enumerate() {
        sides.extend([["--control", "--test"][user % 2], text]);
    }
    let equal = experiment(&program, &sides);
    let differing = |row: &&Value| row["differs"] == true;
    let rows = equal["metrics"].as_array().expect("metrics");
    assert_eq!(rows.iter().find(differing), None, "{equal:#}");
    let mean = of_pages(&equal, "mean");
    assert!(
        mean["low"].as_f64() < Some(0.0) && mean["high"].as_f64().is_none_or(|high| high > 0.0),
        "{mean:#}"
    );

    // The same processes reported their use of processors once a second.
    let pooled = program.run(&["pool", "--service", "web", "--with", "store", "--json"]);
    let pooled = pooled.succeeds().json();
    assert_eq!(pooled["services"][0]["processes"], 1, "{pooled:#}");
    assert!(pooled["samples"].as_u64() >= Some(10), "{pooled:#}");
    assert_eq!(pooled["unit"], "cores");
    assert_eq!(
        pooled["is_normal"], false,
        "seconds are too few: {pooled:#}"
    );
    // The same store serves to plan a burst-config that records more.
    let plan = program.run(&[
        "burst",
        "plan",
        "--goal",
        "requests up to 3 s, duty 50 %, 20 whole requests an hour",
        "--json",
    ]);
    let plan = plan.succeeds().json();
    assert_eq!(plan["is_reached"], true, "{plan:#}");
    let whole = plan["plans"][0]["whole_per_hour"].as_f64();
    assert!(whole >= Some(20.0), "{plan:#}");
}
