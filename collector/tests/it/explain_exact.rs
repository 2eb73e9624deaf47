//! `explain` against stores in which the truth is counted.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use crate::common::{check, json_of};

/// Beginnings of the periods, in ns since the Unix epoch: 2026-11-21T10:00 and 11:00, UTC.
const BEGIN_NS: [u64; 2] = [1_795_255_200_000_000_000, 1_795_258_800_000_000_000];

const PERIODS: [&str; 4] = [
    "--before",
    "2026-11-21T10:00..2026-11-21T10:30",
    "--after",
    "2026-11-21T11:00..2026-11-21T11:30",
];

fn noise(of: u64) -> u64 {
    let mixed = of.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed >> 40
}

/// The `leaves` of `explain` and those of `compare`, which are the same.
fn leaves(directory: &Path) -> (Value, Value) {
    let asked = |verb: &str| {
        let arguments = [&[verb, "--json", "--data", "d"], &PERIODS[..]].concat();
        json_of(directory, &arguments)
    };
    let (compared, explained) = (asked("compare"), asked("explain"));
    assert_eq!(compared["leaves"], explained["leaves"]);
    (explained["leaves"].clone(), explained)
}

fn import(directory: &Path, log: &str) {
    std::fs::write(directory.join("log.jsonl"), log).unwrap();
    check(directory, &["import", "--data", "d", "log.jsonl"], 0);
}

/// Adds a line to a log.
fn line(log: &mut String, trace: &str, ts_ns: u64, event: &str, attributes: &str) {
    let _ = writeln!(
        log,
        r#"{{"trace":"{trace}","host":"h","ts_ns":{ts_ns},"event":"{event}","task":"server","attrs":{{{attributes}}}}}"#
    );
}

/// A few later requests take another path: most of those with a count up to a threshold. Both
/// categories that the explanation separates have more requests than its sample keeps.
#[test]
fn precision_and_threshold_are_those_of_the_store() {
    let mut log = String::new();
    let (mut changed, mut others) = (Vec::new(), Vec::new());
    for (period, begin_ns) in BEGIN_NS.into_iter().enumerate() {
        for request in 0..3_000 {
            let draw = |what: u64| noise(request * 10 + what + 77_777 * period as u64);
            let count = draw(1) as f64 % 100_000.0 + 0.25;
            let is_changed = period == 1 && count <= 7_331.25 && draw(2) % 8 > 0;
            if is_changed {
                &mut changed
            } else {
                &mut others
            }
            .push(count);
            let trace = format!("{period} {request}");
            let mut at_ns = begin_ns + request * 10_000_000;
            line(
                &mut log,
                &trace,
                at_ns,
                "begin",
                &format!(r#""count":{count}"#),
            );
            if is_changed {
                at_ns += 900_000 + draw(3) % 100_000;
                line(&mut log, &trace, at_ns, "block read", "");
            }
            at_ns += 500_000 + draw(4) % 100_000;
            line(&mut log, &trace, at_ns, "written", "");
        }
    }
    let directory = tempfile::tempdir().unwrap();
    import(directory.path(), &log);
    let (leaves, explained) = leaves(directory.path());
    let best = changed.iter().copied().fold(0.0, f64::max);
    let below = |counts: &[f64]| counts.iter().filter(|count| **count <= best).count();
    let right = below(&changed) as f64;
    let truth = right / (right + below(&others) as f64);
    assert!((0.2..0.6).contains(&truth), "{truth}");
    let leaf = &leaves[0];
    assert_eq!(
        leaf["conditions"],
        serde_json::json!([format!("count <= {best} (server:begin)")]),
        "{explained}"
    );
    assert_eq!(leaf["precision"].as_f64(), Some(truth), "{explained}");
    assert_eq!(leaf["recall"].as_f64(), Some(1.0), "{explained}");
    assert_eq!(explained["requests"]["others"], others.len(), "{explained}");
    let such = below(&changed) + below(&others);
    assert_eq!(leaf["requests"], such, "{explained}");
    assert!(such > 300 && others.len() > 5_000, "{explained}");
}

/// All later requests are slower, because a cache was switched off. A deploy restarted all
/// processes, so attributes that name a process also separate the periods.
#[test]
fn what_names_a_process_explains_nothing() {
    let mut log = String::new();
    for (period, begin_ns) in BEGIN_NS.into_iter().enumerate() {
        for request in 0..400_u64 {
            let draw = |what: u64| noise(request * 10 + what + 77_777 * period as u64);
            let process = draw(1) % 3 + 3 * period as u64;
            // One request in fifty differs from the others of its period.
            let is_off = (period == 1) != (draw(2) % 50 == 0);
            let attributes = format!(
                r#""process.pid":{},"resource.service.instance.id":"i{process}","k8s.pod.name":"web-{process}","worker":"w{process}","container":"{:012x}","cache":"{}""#,
                4_000 + 7 * process,
                noise(process) * 0xfffff + 0xa00000000000,
                if is_off { "off" } else { "on" }
            );
            let trace = format!("{period} {request}");
            let mut at_ns = begin_ns + request * 10_000_000;
            line(&mut log, &trace, at_ns, "begin", &attributes);
            at_ns += 900_000 + draw(3) % 100_000 + 2_000_000 * period as u64;
            line(&mut log, &trace, at_ns, "written", "");
        }
    }
    let directory = tempfile::tempdir().unwrap();
    import(directory.path(), &log);
    let (leaves, explained) = leaves(directory.path());
    let conditions = leaves[0]["conditions"].to_string();
    assert_eq!(
        conditions, r#"["cache = \"off\" (server:begin)"]"#,
        "{explained}"
    );
    let left_out = explained["left_out"].to_string();
    for name in [
        "process.pid",
        "resource.service.instance.id",
        "k8s.pod.name",
        "worker",
        "container",
    ] {
        assert!(
            left_out.contains(&format!("{name} (server:begin)")),
            "{explained}"
        );
    }
}
