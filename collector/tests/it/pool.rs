//! `pool` over samples from a file, and its output without samples.

use crate::common::{check, json_of};

/// Writes samples of three processes that use about 1.5 cores each, and of one that uses 3 cores
/// together with the first one.
fn samples(directory: &std::path::Path) {
    let mut text = String::from("service,process,ts_ns,value\n");
    let mut state = 7_u64;
    let mut random = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as f64 / (1u64 << 31) as f64
    };
    for second in 0..600_u64 {
        // The sum of twelve random numbers is nearly normal.
        let mut used = || 1.5 + 0.2 * ((0..12).map(|_| random()).sum::<f64>() - 6.0);
        let at_ns = second * 1_000_000_000;
        let own = [used(), used(), used()];
        for (process, used) in own.iter().enumerate() {
            text += &format!("web,w{process},{at_ns},{used}\n");
        }
        text += &format!("store,s,{at_ns},{}\n", 3.0 - own[0]);
    }
    std::fs::write(directory.join("used.csv"), text).unwrap();
}

#[test]
fn independent_processes_are_pooled_and_others_are_not() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    samples(at);
    let file = ["pool", "--samples", "used.csv"];
    let web = json_of(at, &[&file[..], &["--service", "web", "--json"]].concat());
    assert_eq!(
        (&web["is_normal"], &web["samples"]),
        (&true.into(), &1_800.into())
    );
    for (row, expected) in [(0, 3.0), (1, 3.0 + 1.645 * 0.2 * 2.0_f64.sqrt())] {
        for way in ["normal", "independent", "together"] {
            let found = web["percentiles"][row][way].as_f64().unwrap();
            assert!((found / expected - 1.0).abs() < 0.02, "{way}: {web}");
        }
    }
    let (text, _) = check(at, &[&file[..], &["--service", "web"]].concat(), 0);
    assert!(
        text.contains("A larger process would use: p50 ") && text.contains("3 processes of web"),
        "{text}"
    );
    let both = [&file[..], &["--service", "web", "--with", "store"]].concat();
    let (text, _) = check(at, &both, 0);
    for part in [
        "depend on each other",
        "shifted in time",
        "at the same time: p50",
    ] {
        assert!(text.contains(part), "{text} lacks {part}");
    }
    let both = json_of(at, &[&both[..], &["--json"]].concat());
    assert_eq!(both["refused"][0]["kind"], "dependent", "{both}");
}

#[test]
fn what_cannot_be_pooled_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    samples(at);
    let says = |arguments: &[&str], part: &str| {
        let (_, said) = check(at, arguments, 2);
        assert!(said.contains(part), "{arguments:?}: {said} lacks {part}");
    };
    says(&["pool"], "stroboscope-data");
    says(&["pool", "--samples", "none.csv"], "cannot read none.csv");
    let file = ["pool", "--samples", "used.csv"];
    says(&file, "choose a service: store (1), web (3)");
    says(
        &[&file[..], &["--service", "wep"]].concat(),
        "there are: store (1), web (3)",
    );
    says(
        &[&file[..], &["--service", "web", "--until", "1960-01-01"]].concat(),
        "between --since",
    );
    std::fs::write(at.join("bad.csv"), "process,ts_ns,value\na,1,2\na,2,x\n").unwrap();
    says(
        &["pool", "--samples", "bad.csv"],
        "bad.csv:3: value is a number",
    );
    // Spans of OTLP do not have the usage of processes.
    let span = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"00000000000000000000000000000001","spanId":"0000000000000001","name":"a","startTimeUnixNano":"1700000000000000000","endTimeUnixNano":"1700000000001000000"}]}]}]}"#;
    std::fs::write(at.join("spans.json"), span).unwrap();
    check(at, &["import", "spans.json"], 0);
    says(&["pool"], "no process in");
    // One process alone.
    let one = json_of(at, &[&file[..], &["--service", "store", "--json"]].concat());
    assert_eq!(one["refused"][0]["kind"], "untold", "{one}");
}

#[test]
fn bursts_are_planned_by_a_goal() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let goal = "requests up to 30 ms, duty 1 %, 200 whole requests an hour";
    let (_, said) = check(at, &["burst", "plan", "--goal", goal], 2);
    assert!(said.contains("stroboscope-data"), "{said}");
    // Ten requests a second for a minute, of 20 ms.
    let spans: Vec<String> = (0..600_u64)
        .map(|place| {
            let start_ns = 1_700_000_000_000_000_000 + place * 100_000_000;
            format!(
                r#"{{"traceId":"{:032x}","spanId":"0000000000000001","name":"a","kind":2,"startTimeUnixNano":"{start_ns}","endTimeUnixNano":"{}"}}"#,
                place + 1,
                start_ns + 20_000_000
            )
        })
        .collect();
    let all = format!(
        r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{}]}}]}}]}}"#,
        spans.join(",")
    );
    std::fs::write(at.join("spans.json"), all).unwrap();
    check(at, &["import", "spans.json"], 0);
    let plan = json_of(at, &["burst", "plan", "--goal", goal, "--json"]);
    let best = &plan["plans"][0];
    assert_eq!(
        (&best["burst_ms"], &plan["is_reached"]),
        (&512.into(), &true.into()),
        "{plan}"
    );
    let number = |of: &serde_json::Value, key: &str| of[key].as_f64().unwrap();
    assert!(
        number(best, "duty") <= 0.01 && number(best, "whole_per_hour") >= 200.0,
        "{plan}"
    );
    // A window of 512 ms touches requests of 20 ms that begin within 532 ms, and cuts those of two
    // times 20 ms.
    assert!(
        (number(best, "cut_share") - 40.0 / 532.0).abs() < 1e-6,
        "{plan}"
    );
    let more = ["burst", "plan", "--goal", goal, "--whole", "20000"];
    let (text, _) = check(at, &more, 0);
    for part in [
        "No mask reaches",
        "Fewer whole requests: ",
        "More of the time: ",
    ] {
        assert!(text.contains(part), "{text} lacks {part}");
    }
    // The cost of recording is known only for processes with the SDK.
    let cost = [
        "burst",
        "plan",
        "--goal",
        "requests up to 30 ms, overhead 1 %",
    ];
    let (_, said) = check(at, &cost, 2);
    assert!(said.contains("by `duty 1 %`"), "{said}");
    let (_, said) = check(at, &["burst", "plan"], 2);
    assert!(said.contains("--goal 'requests up to 30 ms"), "{said}");
    let (_, said) = check(at, &["burst", "plan", "--goal", "quickly"], 2);
    assert!(said.contains("requests up to 30 ms"), "{said}");
}
