//! Reports of an import about content that has no place in the store.

use std::process::{Command, Output};

const SPAN: &str = r#"{"traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174","name":"pay","kind":2,
    "startTimeUnixNano":"1544712660000000000","endTimeUnixNano":"1544712661000000000"}"#;

fn of_resource(scopes: &str) -> String {
    let service = r#"{"key":"service.name","value":{"stringValue":"shop"}}"#;
    format!(r#"{{"resource":{{"attributes":[{service}]}},"{scopes}":[{{"spans":[{SPAN}]}}]}}"#)
}

#[test]
fn the_command_says_what_is_not_taken() {
    let directory = tempfile::tempdir().unwrap();
    let run = |content: &str| -> Output {
        std::fs::write(directory.path().join("file"), content).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_stroboscope"));
        command
            .args(["import", "file"])
            .current_dir(directory.path())
            .output()
            .unwrap()
    };
    let check = |content: &str, status: i32, out: &str, errors: &[&str]| {
        let output = run(content);
        let [stdout, stderr] =
            [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        assert_eq!(output.status.code(), Some(status), "{stdout}{stderr}");
        assert!(stdout.contains(out), "{stdout}");
        assert!(
            errors.iter().all(|error| stderr.contains(error)),
            "{stderr}"
        );
    };
    let logs = "{\"resourceLogs\":[{\"scopeLogs\":[{\"logRecords\":[{},{}]}]}]}\n";
    let spans = format!(
        "{{\"resourceSpans\":[{}]}}\n",
        of_resource("scopeSpans").replace('\n', "")
    );
    let told = "note: file:1: not taken: OTLP log records, 2 times";
    check(
        &format!("{logs}{spans}"),
        0,
        "file: 1 span, 0 events, 0 bad lines",
        &[told],
    );
    check(
        logs,
        2,
        "",
        &[told, "holds no span and no event that can be used"],
    );
    check(
        "{\"a\":1}\n",
        2,
        "",
        &["error: file holds a JSON object with the keys `a`: unknown format."],
    );
}
