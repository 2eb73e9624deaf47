//! `flows`: categories of requests, and one of them.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use crate::common::{check, json_of, others};

const FROM_NS: u64 = 1_795_255_200_000_000_000;

/// Pages that are read, in 1 ms, and every fourth time also written, in 9 ms more.
fn log(requests: u64) -> String {
    let mut log = String::new();
    for request in 0..requests {
        let begin_ns = FROM_NS + request * 10_000_000;
        let noise_ns = (request * 7_919) % 97 * 1_000;
        let mut line = |after_ns: u64, event: &str| {
            let at_ns = begin_ns + after_ns;
            let _ = writeln!(
                log,
                r#"{{"trace":"{request}","host":"h","ts_ns":{at_ns},"event":"{event}","task":"server"}}"#
            );
        };
        line(0, "begin");
        line(1_000_000 + noise_ns, "read");
        if request % 4 == 0 {
            line(10_000_000 + noise_ns, "written");
        }
    }
    log
}

fn imported(requests: u64) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("log.jsonl"), log(requests)).unwrap();
    check(directory.path(), &["import", "--data", "d", "log.jsonl"], 0);
    directory
}

fn flows(directory: &Path, arguments: &[&str]) -> Value {
    json_of(
        directory,
        &[&["flows", "--json", "--data", "d"], arguments].concat(),
    )
}

#[test]
fn categories_are_ranked_and_add_up() {
    let directory = imported(400);
    let found = flows(directory.path(), &["--top", "0"]);
    let rows = found["categories"].as_array().unwrap();
    assert_eq!(
        (rows.len(), &found["requests"]),
        (2, &400.into()),
        "{found}"
    );
    let sum = |key: &str| {
        rows.iter()
            .map(|row| row[key].as_f64().unwrap())
            .sum::<f64>()
    };
    assert_eq!(sum("requests"), 400.0);
    assert!((sum("total_share") - 1.0).abs() < 1e-9 && (sum("share") - 1.0).abs() < 1e-9);
    // The expected means follow from the noise in the log.
    let noise = |of: &dyn Fn(u64) -> bool| -> f64 {
        let some: Vec<f64> = (0..400)
            .filter(|at| of(*at))
            .map(|at| ((at * 7_919) % 97 * 1_000) as f64)
            .collect();
        some.iter().sum::<f64>() / some.len() as f64
    };
    // By total, the 100 that are written are first: 1 s against 0.3 s.
    assert_eq!(rows[0]["requests"], 100, "{found}");
    let mean_ns = rows[0]["mean_ns"].as_f64().unwrap();
    assert!(
        (mean_ns - (10_000_000.0 + noise(&|at| at % 4 == 0))).abs() < 1.0,
        "{found}"
    );
    for (by, first) in [
        ("count", 300),
        ("mean", 100),
        ("total", 100),
        ("c2", 300),
        ("variance", 100),
    ] {
        let found = flows(directory.path(), &["--by", by]);
        let rows = found["categories"].as_array().unwrap();
        let of = |row: &Value| row["variance_ns2"].as_f64().unwrap();
        if by == "variance" {
            assert!(of(&rows[0]) >= of(&rows[1]), "{found}");
        } else {
            assert_eq!(rows[0]["requests"], first, "by {by}: {found}");
        }
    }
    // Two modes, at about 1 and 10 ms, have three quarters and one quarter of the requests.
    let modes = found["density"]["modes"].as_array().unwrap();
    let at = |mode: &Value| {
        (
            mode["latency_ns"].as_f64().unwrap(),
            mode["share"].as_f64().unwrap(),
        )
    };
    let (first, last) = (at(&modes[0]), at(modes.last().unwrap()));
    assert!(
        (1e6..1.1e6).contains(&first.0) && (9.9e6..10.2e6).contains(&last.0),
        "{found}"
    );
    assert!((last.1 - 0.25).abs() < 0.02, "{found}");
}

#[test]
fn one_category_is_shown_and_drawn() {
    let directory = imported(400);
    let found = flows(directory.path(), &["--latency", "5ms.."]);
    assert_eq!(
        (&found["requests"], &found["others"]),
        (&100.into(), &300.into())
    );
    let name = found["categories"][0]["category"]
        .as_str()
        .unwrap()
        .to_owned();
    let (text, _) = check(
        directory.path(),
        &[
            "flows",
            "--data",
            "d",
            "--category",
            &name[..8],
            "--dot",
            "c.dot",
            "--svg",
            "c.svg",
            "--html",
            "c.html",
            "--parquet",
            "tables",
        ],
        0,
    );
    for part in ["Structure", "written", "Train schedule", "server"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let dot = std::fs::read_to_string(directory.path().join("c.dot")).unwrap();
    assert!(
        dot.starts_with("digraph") && dot.contains("written") && dot.contains("9.00ms"),
        "{dot}"
    );
    let svg = std::fs::read_to_string(directory.path().join("c.svg")).unwrap();
    assert!(roxmltree::Document::parse(&svg).is_ok() && svg.contains("server"));
    assert!(directory.path().join("tables/flow_edges.parquet").exists());
    let one = flows(directory.path(), &["--category", &name]);
    let edges = one["edges"].as_array().unwrap().iter();
    let sum_ns: f64 = edges.map(|edge| edge["mean_ns"].as_f64().unwrap()).sum();
    assert!(
        (sum_ns - one["mean_ns"].as_f64().unwrap()).abs() < 2.0,
        "{one}"
    );
}

/// The density of a large category comes from a sample, and the output says so. Sums include all
/// requests.
#[test]
fn a_sample_is_called_one() {
    let directory = imported(4_000);
    let shown = |requests: u64| {
        let list = flows(directory.path(), &["--by", "count"]);
        let mut rows = list["categories"].as_array().unwrap().iter();
        let row = rows.find(|row| row["requests"] == requests).unwrap();
        let name = row["category"].as_str().unwrap();
        check(
            directory.path(),
            &["flows", "--data", "d", "--category", name],
            0,
        )
        .0
    };
    let large = shown(3_000);
    assert!(
        large.contains("a random sample: 2048 of 3000 requests"),
        "{large}"
    );
    let small = shown(1_000);
    assert!(!small.contains("random sample"), "{small}");
}

#[test]
fn what_is_not_there_is_said() {
    let directory = imported(40);
    let refused = |arguments: &[&str], says: &str| {
        let asked = [&["flows", "--data", "d"], arguments].concat();
        let (_, error) = check(directory.path(), &asked, 2);
        assert!(error.contains(says), "{error}");
    };
    refused(
        &["--category", "zz"],
        "there is no category zz; the largest are ",
    );
    refused(&["--category", ""], "2 categories begin with that");
    refused(&["--latency", "5ms..1ms"], "the shorter time first");
    refused(&["--latency", "5"], "a range such as 80ms..200ms");
    refused(
        &["--latency", "5s.."],
        "none of the 40 requests takes a time",
    );
    refused(&["--dot", "x"], "--category");
}

/// Every request that another system recorded has a category, and every category can be shown.
#[test]
fn others_requests_are_shown() {
    for (file, requests) in [
        (
            "dsb/socialNetwork_compose_post_20traces.jaeger.json.zst",
            20,
        ),
        ("zipkin/trainticket_case1_success.json", 1),
        ("jaeger/example_trace.json", 0),
    ] {
        let Some(path) = others(file) else { continue };
        let directory = tempfile::tempdir().unwrap();
        check(
            directory.path(),
            &["import", "--data", "d", &path.display().to_string()],
            0,
        );
        let found = flows(directory.path(), &["--top", "0", "--include-incomplete"]);
        let rows = found["categories"].as_array().unwrap();
        let sum: u64 = rows
            .iter()
            .map(|row| row["requests"].as_u64().unwrap())
            .sum();
        assert_eq!(found["requests"], sum, "{file}: {found}");
        assert!(
            sum > 0 && (requests == 0 || sum == requests),
            "{file}: {found}"
        );
        for row in rows {
            let name = row["category"].as_str().unwrap();
            let one = flows(
                directory.path(),
                &["--include-incomplete", "--category", name],
            );
            let structure = one["structure"].as_array().unwrap();
            assert_eq!(
                structure.len() as u64,
                row["operations"].as_u64().unwrap(),
                "{file}: {one}"
            );
        }
    }
}
