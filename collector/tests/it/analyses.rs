//! Subcommands that interpret a model, on requests with known answers.

use serde_json::Value;

use crate::common::{check, json_of};

const REQUESTS: u64 = 100;

fn segment<'a>(found: &'a Value, task: &str) -> &'a Value {
    found["segments"]
        .as_array()
        .unwrap()
        .iter()
        .find(|segment| segment["task"] == task)
        .unwrap()
}

/// Requests of a server (1000 to 1099 µs), then a page (500 µs) with a parallel logger (300 µs). In
/// the last five requests, the page takes 5000 µs.
fn imported() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let mut log = String::new();
    for request in 0..REQUESTS {
        let begin_us = request * 10_000;
        let sent_us = begin_us + 1_000 + request;
        let shown_us = sent_us + if request >= REQUESTS - 5 { 5_000 } else { 500 };
        for (at_us, task, event) in [
            (begin_us, "server", "begin"),
            (sent_us, "server", "sent"),
            (sent_us, "page", "begin"),
            (shown_us, "page", "shown"),
            (sent_us, "logger", "open"),
            (sent_us + 300, "logger", "close"),
        ] {
            log += &format!(
                r#"{{"trace":"request {request}","host":"h","ts_ns":{},"event":"{event}","task":"{task}"}}"#,
                at_us * 1_000
            );
            log.push('\n');
        }
    }
    std::fs::write(directory.path().join("log.jsonl"), log).unwrap();
    check(directory.path(), &["import", "log.jsonl"], 0);
    directory
}

#[test]
fn anomalies_name_what_makes_slow_requests_slow() {
    let directory = imported();
    let found = json_of(directory.path(), &["anomalies", "--json"]);
    assert_eq!(
        (found["outliers"].as_u64(), found["others"].as_u64()),
        (Some(5), Some(REQUESTS - 5))
    );
    let page = segment(&found, "page");
    assert_eq!(
        (page["rank"].as_u64(), page["significant"].as_bool()),
        (Some(1), Some(true))
    );
    let share = |group: &str| page[group]["mean_share"].as_f64().unwrap();
    assert!(
        (share("outliers") - 0.82).abs() < 0.01 && (share("others") - 0.32).abs() < 0.02,
        "{page}"
    );
    assert!(
        page["critical_share"]["effect_size"].as_f64().unwrap() > 2.0,
        "{page}"
    );
    assert!(
        page["critical_share"]["q_value"].as_f64().unwrap() < 1e-6,
        "{page}"
    );
    let examples: Vec<&str> = page["examples"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e.as_str().unwrap())
        .collect();
    assert_eq!(examples.len(), 3);
    for example in examples {
        let number: u64 = example.strip_prefix("request ").unwrap().parse().unwrap();
        assert!(number >= REQUESTS - 5, "{example} is not slow");
    }
    assert_eq!(segment(&found, "logger")["significant"], false);
    // The table shows one segment, by a name that is unique, and one of its examples.
    let (text, _) = check(directory.path(), &["anomalies", "--top", "1"], 0);
    let row = text
        .lines()
        .find(|line| line.starts_with("page "))
        .expect("a row");
    assert!(
        row.contains("request 9") && !text.lines().any(|line| line.starts_with("server")),
        "{text}"
    );
    assert!(text.contains("critical path (1 of "), "{text}");
    // Segments that may differ by chance are counted and not shown, except with `--top 0`. The JSON
    // has all.
    let (text, _) = check(directory.path(), &["anomalies"], 0);
    assert!(
        !text.contains("\nlogger ")
            && text.contains("3 segments looked at; not shown: 1 may be chance (q above 0.05). --top 0 shows all."),
        "{text}"
    );
    let (all, _) = check(directory.path(), &["anomalies", "--top", "0"], 0);
    assert!(
        all.contains("\nlogger ") && !all.contains("not shown"),
        "{all}"
    );
    assert_eq!(found["segments"].as_array().map(Vec::len), Some(3));
    let (text, _) = check(
        directory.path(),
        &["anomalies", "--top", "1", "--full-names"],
        0,
    );
    assert!(text.contains("\npage     begin … shown "), "{text}");
    // Only the fastest requests are not slow. Latencies with equal three leading digits count as
    // equal.
    let most = json_of(
        directory.path(),
        &["anomalies", "--json", "--slowest", "99%", "--top", "2"],
    );
    let (outliers, others) = (
        most["outliers"].as_u64().unwrap(),
        most["others"].as_u64().unwrap(),
    );
    assert!(
        outliers + others == REQUESTS && (1..=3).contains(&others),
        "{outliers} {others}"
    );
    assert_eq!(most["segments"].as_array().unwrap().len(), 2);
    assert!(
        check(directory.path(), &["anomalies", "--slowest", "0"], 2)
            .1
            .contains("such as 5%")
    );
}

#[test]
fn excluded_segments_are_in_no_result() {
    let directory = imported();
    let at = directory.path();
    let tasks = |found: &Value| -> Vec<String> {
        let segments = found["segments"].as_array().unwrap().iter();
        segments
            .map(|segment| segment["task"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        tasks(&json_of(at, &["infer", "--json"])),
        ["logger", "page", "server"]
    );
    for verb in ["infer", "model", "critical-path", "slack", "anomalies"] {
        let found = json_of(at, &[verb, "--json", "--exclude", r"^(page|debug) \["]);
        let mut left = tasks(&found);
        left.sort();
        assert_eq!(left, ["logger", "server"], "{verb}");
        assert_eq!(found["excluded_segments"], REQUESTS, "{verb}");
    }
    // The request is as long as before. The time of the page counts as not logged.
    let all = ["critical-path", "--json", "--exclude", "page|logger"];
    let (without, with) = (json_of(at, &all), json_of(at, &all[..2]));
    assert_eq!(without["latency"], with["latency"]);
    assert!(
        without["mean_tail_share"].as_f64().unwrap() > 0.3,
        "{without}"
    );
    let (text, note) = check(at, &["infer", "--exclude", "page"], 0);
    assert!(
        text.contains("\n2 segments\n")
            && note.contains("left out by --exclude: 100 segments in the traces used")
    );
    let (dot, _) = check(at, &["model", "--dot", "--exclude", "page"], 0);
    assert!(dot.contains("logger") && !dot.contains("page"), "{dot}");
    assert!(
        check(at, &["infer", "--exclude", "("], 2)
            .1
            .contains("unclosed group")
    );
}

#[test]
fn infer_shows_how_the_model_converged() {
    let directory = imported();
    let points = |every: &str| {
        let found = json_of(
            directory.path(),
            &["infer", "--json", "--convergence-every", every],
        );
        let numbers = (
            found["happens_before"].as_array().unwrap().len(),
            found["convergence"].clone(),
        );
        (numbers.0, numbers.1.as_array().unwrap().clone())
    };
    let (relations, series) = points("30");
    let traces: Vec<u64> = series
        .iter()
        .map(|point| point["traces"].as_u64().unwrap())
        .collect();
    assert_eq!(traces, [30, 60, 90, 100]);
    assert_eq!(series[0]["happens_before_added"], relations);
    assert_eq!(
        (&series[3]["happens_before"], &series[3]["segments"]),
        (&relations.into(), &3.into())
    );
    assert_eq!(
        (
            &series[3]["happens_before_added"],
            &series[3]["happens_before_removed"]
        ),
        (&0.into(), &0.into())
    );
    assert_eq!(points("0").1.len(), 0);
}

/// One request of a sender and a shower that process the same four items in the same order. If
/// `named`, the names of events contain the item.
fn pipeline(named: bool) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let mut log = String::new();
    for (task, first_ns) in [("sender", 0), ("shower", 1_500)] {
        for item in 0..4 {
            for (event, at_ns) in [("begin", 0), ("end", 1_000)] {
                let ts_ns = first_ns + item * 1_000 + at_ns;
                let (event, attrs) = if named {
                    (format!("{event}-{item}"), "{}".to_owned())
                } else {
                    (
                        event.to_owned(),
                        format!(r#"{{"element":{item},"size":"{item} kB"}}"#),
                    )
                };
                log += &format!(
                    r#"{{"trace":"1","host":"h","ts_ns":{ts_ns},"event":"{event}","task":"{task}","attrs":{attrs}}}"#
                );
                log.push('\n');
            }
        }
    }
    std::fs::write(directory.path().join("log.jsonl"), log).unwrap();
    check(directory.path(), &["import", "log.jsonl"], 0);
    directory
}

#[test]
fn pipelines_are_inferred_of_elements() {
    let pipelines = |directory: &tempfile::TempDir, more: &[&str]| {
        let found = json_of(directory.path(), &[&["infer", "--json"], more].concat());
        let pipelines = found["pipelines"].as_array().unwrap().iter();
        pipelines.map(ToString::to_string).collect::<Vec<_>>()
    };
    let expected = [r#"{"first":"sender","second":"shower","elements":4}"#];
    assert_eq!(pipelines(&pipeline(false), &[]), expected);
    assert_eq!(
        pipelines(&pipeline(true), &["--trailing-elements"]),
        expected
    );
    assert!(pipelines(&pipeline(true), &[]).is_empty());
    // The shower waits for its item only, and not for all earlier items.
    let paths = json_of(pipeline(false).path(), &["critical-path", "--json"]);
    assert!(
        segment(&paths, "shower")["mean_share"].as_f64().unwrap() > 0.0,
        "{paths}"
    );
}

#[test]
fn categories_show_summed_delay_beside_the_critical_path() {
    let directory = imported();
    let found = json_of(directory.path(), &["critical-path", "--json"]);
    // Event logs have no kinds of spans, so all time is server time.
    let categories = found["categories"].as_array().unwrap();
    assert_eq!(categories.len(), 1);
    assert_eq!(categories[0]["category"], "server");
    assert!(
        (categories[0]["mean_share"].as_f64().unwrap() - 1.0).abs() < 1e-9,
        "{found}"
    );
    let (mut summed_ns, mut critical_ns) = (0, 0);
    for request in 0..REQUESTS {
        let page_us = if request >= REQUESTS - 5 { 5_000 } else { 500 };
        critical_ns += (1_000 + request + page_us) * 1_000;
        summed_ns += (1_000 + request + page_us + 300) * 1_000;
    }
    assert_eq!(categories[0]["critical_ns"], critical_ns);
    assert_eq!(categories[0]["summed_delay_ns"], summed_ns);
    let (text, _) = check(directory.path(), &["critical-path"], 0);
    assert!(
        text.contains("summed delay") && text.contains("\nserver "),
        "{text}"
    );
}

#[test]
fn what_if_replays_requests_by_the_model() {
    let directory = imported();
    let at = directory.path();
    let what_if = |more: &[&str]| json_of(at, &[&["what-if", "--json"], more].concat());
    let p50 = |found: &Value, of: &str| found[of]["p50_ns"].as_i64().unwrap();
    // Nothing changes.
    for which in [["--segment", "."], ["--operation", "page"]] {
        let same = what_if(&[which[0], which[1], "--scale", "1"]);
        assert_eq!(
            (&same["before"], &same["faster"], &same["slower"]),
            (&same["after"], &0.into(), &0.into())
        );
        assert_eq!(same["used_traces"], REQUESTS);
        for change in same["latency_change"].as_object().unwrap().values() {
            assert_eq!(change.as_f64(), Some(0.0));
        }
    }
    // The page takes 500 µs of the median request; the logger runs in parallel for 300 µs of these.
    let half = what_if(&["--operation", "page", "--scale", "0.5"]);
    assert!(
        (p50(&half, "latency_change") + 200_000).abs() < 2_000,
        "{half}"
    );
    assert_eq!(
        (&half["faster"], &half["slower"]),
        (&REQUESTS.into(), &0.into())
    );
    for of in ["mean_ns", "p50_ns", "p95_ns", "p99_ns"] {
        let at = |end: &str| half[end][of].as_f64().unwrap();
        assert!(at("latency_change_low") <= at("latency_change"), "{half}");
        assert!(at("latency_change") <= at("latency_change_high"), "{half}");
        assert!(at("after_low") <= at("after") && at("after") <= at("after_high"));
    }
    let capped = what_if(&["--segment", r"^page \[", "--cap", "1ms"]);
    assert_eq!(
        (&capped["faster"], p50(&capped, "latency_change")),
        (&5.into(), 0)
    );
    assert!(
        (capped["latency_change"]["p99_ns"].as_i64().unwrap() + 4_000_000).abs() < 10_000,
        "{capped}"
    );
    // The logger has 200 µs of slack, except in requests with slow pages, where it has more.
    let added = what_if(&["--segment", "logger", "--add", "300us"]);
    assert_eq!(
        (&added["slower"], &added["faster"]),
        (&(REQUESTS - 5).into(), &0.into())
    );
    assert!(
        (p50(&added, "latency_change") - 100_000).abs() < 2_000,
        "{added}"
    );
    let change = ["what-if", "--operation", "logger", "--scale", "0"];
    let (text, _) = check(at, &change, 0);
    assert!(
        text.contains("\nlogger\n") && text.contains("Of 100 requests, 0 would be faster"),
        "{text}"
    );
    let (text, _) = check(at, &[&change[..], &["--full-names"]].concat(), 0);
    assert!(text.contains("\nlogger   open … close\n"), "{text}");
}

#[test]
fn what_if_wants_one_change_of_something_that_is_there() {
    let directory = imported();
    let wrong = |arguments: &[&str], error: &str| {
        let (_, stderr) = check(directory.path(), &[&["what-if"], arguments].concat(), 2);
        assert!(stderr.contains(error), "{arguments:?}: {stderr}");
    };
    wrong(
        &["--segment", "pag[e", "--scale", "2"],
        "unclosed character class",
    );
    wrong(
        &["--segment", "nowhere", "--scale", "2"],
        "none of the 3 segments",
    );
    wrong(&["--segment", "page"], "--scale");
    wrong(&["--scale", "2"], "--segment");
    wrong(
        &["--segment", "page", "--scale", "2", "--cap", "1ms"],
        "cannot be used with",
    );
    wrong(&["--segment", "page", "--scale=-1"], "such as 0.5");
    wrong(&["--segment", "page", "--scale=nan"], "such as 0.5");
}

#[test]
fn long_help_says_what_the_figures_mean() {
    let directory = tempfile::tempdir().unwrap();
    for (verb, meaning) in [
        ("anomalies", "Cohen's d"),
        ("what-if", "replayed by the model"),
        ("critical-path", "Summed delay"),
        ("infer", "Drops each hypothesis that a trace contradicts"),
    ] {
        assert!(
            check(directory.path(), &[verb, "--help"], 0)
                .0
                .contains(meaning),
            "{verb}"
        );
    }
}
