//! Queries across merge logs that two services wrote.

use std::fs;
use std::path::Path;

use stroboscope_provenance::{DataLinkage, LogWriter, Recording, TrackedBuf};

use crate::common::check;

/// Writes the log of a service that tracks an answer.
fn write_log(path: &Path, output: u64, answer: impl FnOnce() -> TrackedBuf) {
    let mut recording = Recording::default();
    recording.run(|| answer().record_output(output, 0));
    let file = LogWriter::new(Vec::new()).unwrap();
    fs::write(path, file.finish(&recording.finish()).unwrap()).unwrap();
}

#[test]
fn bytes_are_followed_from_service_to_service() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    // The store answers with two bytes of a row, and the web service adds a number of the request.
    write_log(&at.join("store.log"), 2, || {
        TrackedBuf::source(1, 100, "abcdef").slice(2..4).unwrap()
    });
    write_log(&at.join("web.log"), 7, || {
        let request = TrackedBuf::source(3, 0, "width=20");
        let width = request
            .slice(6..8)
            .unwrap()
            .parse::<u64, DataLinkage>()
            .unwrap();
        let mut answer = TrackedBuf::source(2, 0, "cd");
        answer.push_text(&width.map(|width| width * 2));
        answer
    });
    let said = |arguments: &[&str], status| {
        let all = [&["provenance"], arguments, &["web.log", "store.log"]].concat();
        check(at, &all, status).0
    };
    let json = |arguments: &[&str]| -> serde_json::Value {
        let all = [arguments, &["--json"]].concat();
        serde_json::from_str(&said(&all, 0)).unwrap()
    };
    let ranges = |items: &serde_json::Value| -> Vec<(String, String)> {
        let items = items.as_array().unwrap();
        let pair = |item: &serde_json::Value| {
            let id = item["id"]
                .as_str()
                .unwrap()
                .trim_start_matches('0')
                .to_owned();
            (id, item["ranges"].to_string())
        };
        items.iter().map(pair).collect()
    };
    let pair = |id: &str, ranges: &str| (id.to_owned(), ranges.to_owned());
    let why = json(&["why", "7"]);
    let ends = [pair("1", "[[102,104]]"), pair("3", "[[6,8]]")];
    assert_eq!(ranges(&why["ends"]), ends);
    assert_eq!(ranges(&why["through"]), [pair("2", "[[0,2]]")]);
    let of_one = json(&["why", "0000000000000007:1"]);
    assert_eq!(ranges(&of_one["ends"]), [pair("1", "[[103,104]]")]);
    let of = json(&["of", "1:102..103"]);
    assert_eq!(ranges(&of["ends"]), [pair("7", "[[0,1]]")]);
    assert_eq!(ranges(&json(&["of", "1:100"])["ends"]), []);
    let map = json(&["map"]);
    let pairs = map["pairs"].as_array().unwrap();
    let sources: Vec<_> = pairs.iter().map(|pair| pair["source"].clone()).collect();
    assert!(
        pairs
            .iter()
            .all(|pair| pair["output"]["id"] == why["item"]["id"])
    );
    assert_eq!(ranges(&sources.into()), ends);
    let map = json(&["map", "--between", "--dot", "map.dot"]);
    assert_eq!(
        map["pairs"].as_array().unwrap().len(),
        4,
        "1 to 2, and 1, 2 and 3 to 7: {map}"
    );
    let dot = fs::read_to_string(at.join("map.dot")).unwrap();
    let edge = r#""0000000000000001" -> "0000000000000002" [label="2 B"];"#;
    assert!(
        dot.starts_with("digraph \"provenance\"") && dot.contains(edge),
        "{dot}"
    );
    said(&["map", "--parquet", "tables"], 0);
    assert!(at.join("tables/provenance_map.parquet").exists());
    let text = said(&["why", "7:2..4"], 0);
    assert!(
        text.contains("6..8") && text.contains("0000000000000003"),
        "{text}"
    );
}

#[test]
fn bad_questions_and_files_are_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    write_log(&at.join("web.log"), 7, || TrackedBuf::source(3, 0, "abcd"));
    let fails = |arguments: &[&str], problem: &str| {
        let (_, error) = check(at, &[&["provenance"], arguments].concat(), 2);
        assert!(error.contains(problem), "{arguments:?}: {error}");
    };
    fails(
        &["why", "8", "web.log"],
        "no log has the output 0000000000000008; there are: 0000000000000007",
    );
    fails(&["why", "7:9", "web.log"], "the logs have 0..4");
    fails(&["why", "7:4..4", "web.log"], "bytes must be");
    fails(&["why", "seven", "web.log"], "16 hexadecimal digits");
    fails(&["why", "7", "missing.log"], "cannot read missing.log");
    fails(
        &["map", "--source", "row of *", "web.log"],
        "no source matches row of *; none has a name",
    );
    fails(
        &["map", "--output", "page", "web.log"],
        "no output that no log read (--between adds others) matches page; none has a name",
    );
    let of_span = "{ service = \"web\" }";
    fails(
        &["map", "--output", of_span, "web.log"],
        "files of logs have no spans",
    );
    fails(
        &["map", "--output", "{ .a = 1 } then { .b = 2 }", "web.log"],
        "only braces about spans",
    );
    fs::write(
        at.join("text"),
        "no log, although it is long enough for a header",
    )
    .unwrap();
    fails(
        &["why", "7", "text"],
        "text: this is no file of a provenance log",
    );
    // The rest of a damaged log is used.
    let whole = fs::read(at.join("web.log")).unwrap();
    fs::write(at.join("cut.log"), &whole[..whole.len() - 1]).unwrap();
    let (text, _) = check(at, &["provenance", "why", "7", "cut.log"], 1);
    assert!(text.contains("cut.log: "), "{text}");
    let (text, _) = check(at, &["provenance", "show", "cut.log"], 1);
    assert!(
        text.contains("0000000000000007") && text.contains("cut.log: "),
        "{text}"
    );
    // A large file is no reason to use more memory than is allowed.
    let large = fs::File::create(at.join("large.log")).unwrap();
    large.set_len(64 << 20).unwrap();
    fails(
        &["why", "7", "large.log", "--memory-limit", "32MiB"],
        "large.log: it needs more than the 32 MiB allowed for one query (--memory-limit); give fewer files",
    );
    // An error states the damage, after which the log may have had the output.
    fs::write(at.join("cut.log"), &whole[..16]).unwrap();
    fails(
        &["why", "7", "cut.log"],
        "there are: none; cut.log: the provenance log is cut off",
    );
}
