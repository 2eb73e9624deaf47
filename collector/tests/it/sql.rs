//! Results of subcommands in SQL. Only with the feature `sql`.

use serde_json::Value;
use stroboscope_fixtures::workload;
use stroboscope_store::tables::{PartitionRule, Store, write_rows};

use crate::common::check;

/// Some requests in a store.
fn directory() -> tempfile::TempDir {
    const REQUESTS: u64 = 300;
    let (runtime, directory) = (
        tokio::runtime::Runtime::new().unwrap(),
        tempfile::tempdir().unwrap(),
    );
    let store = Store::local(directory.path(), runtime.handle().clone()).unwrap();
    let at_ns = workload::EPOCH_NS as i64;
    for file in 0..workload::files(REQUESTS) {
        let rows = workload::rows(5, REQUESTS, file);
        write_rows(
            &store,
            &format!("seg-{file}"),
            rows,
            &PartitionRule::received(at_ns, at_ns),
        )
        .unwrap();
    }
    directory
}

/// The results of subcommands without arguments are tables in SQL, equal to their JSON.
#[test]
fn what_verbs_say_is_a_table() {
    let directory = directory();
    let run = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_stroboscope"));
        let output = command
            .args(arguments)
            .args(["--json", "--data"])
            .arg(directory.path())
            .output()
            .unwrap();
        assert!(
            output.stderr.is_empty() || output.status.code() != Some(2),
            "{arguments:?} {output:?}"
        );
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect::<Vec<Value>>()
    };
    let shares = run(&[
        "sql",
        "SELECT segment, mean_share FROM critical_path ORDER BY mean_share DESC, segment",
    ]);
    let said = &run(&["critical-path"])[0];
    assert_eq!(shares.len(), said["segments"].as_array().unwrap().len());
    let most = said["segments"]
        .as_array()
        .unwrap()
        .iter()
        .map(|of| of["mean_share"].as_f64().unwrap())
        .fold(0.0, f64::max);
    assert!(
        (shares[0]["mean_share"].as_f64().unwrap() - most).abs() < 1e-12,
        "{shares:?}"
    );
    let slack = &run(&[
        "sql",
        "SELECT count(*) AS n, max(slack_p50_ns) AS most FROM slack",
    ])[0];
    let said = &run(&["slack"])[0]["segments"];
    assert_eq!(slack["n"], said.as_array().unwrap().len());
    assert_eq!(
        slack["most"].as_f64().unwrap(),
        said[0]["slack"]["p50_ns"].as_f64().unwrap()
    );
    for table in ["anomalies", "categories"] {
        assert!(
            !run(&["sql", &format!("SELECT * FROM {table}")]).is_empty(),
            "{table}"
        );
    }
}

/// The rows of a long result are printed as they come, or cut.
#[test]
fn a_table_is_cut_and_json_is_whole() {
    let directory = directory();
    let data = directory.path().display().to_string();
    let numbers = "SELECT value FROM generate_series(1, 20000)";
    let (table, said) = check(directory.path(), &["sql", numbers, "--data", &data], 0);
    let rows = |text: &str| {
        text.lines()
            .filter(|line| line.contains(char::is_numeric))
            .count()
    };
    assert_eq!(rows(&table), 10_000);
    assert!(said.contains("there are more rows"), "{said}");
    let (json, said) = check(
        directory.path(),
        &["sql", numbers, "--json", "--data", &data],
        0,
    );
    assert_eq!(rows(&json), 20_000);
    assert!(!said.contains("more rows"), "{said}");
    let (none, _) = check(
        directory.path(),
        &[
            "sql",
            "SELECT service FROM spans WHERE false",
            "--data",
            &data,
        ],
        0,
    );
    assert!(none.contains("service"), "{none}");
}
