//! `import` of other systems' logs, by mapping files, and with times in all units.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/import")
}

fn stroboscope(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stroboscope"))
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap()
}

/// Runs a subcommand, and checks its exit status and parts of both outputs. Returns both outputs.
#[track_caller]
fn check(
    directory: &Path,
    arguments: &[&str],
    status: i32,
    out: &str,
    errors: &str,
) -> (String, String) {
    let output = stroboscope(directory, arguments);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    assert_eq!(
        output.status.code(),
        Some(status),
        "{arguments:?}\n{stdout}\n{stderr}"
    );
    assert!(stdout.contains(out), "{out}\n{stdout}");
    assert!(stderr.contains(errors), "{errors}\n{stderr}");
    (stdout, stderr)
}

/// Returns the segments of a trace: task, start, end, from, to.
fn path(directory: &Path, trace: &str) -> Vec<(String, String, String, i64, i64)> {
    let (out, _) = check(
        directory,
        &[
            "critical-path",
            "--json",
            "--include-incomplete",
            "--trace",
            trace,
        ],
        0,
        "",
        "",
    );
    let answer: Value = serde_json::from_str(&out).unwrap();
    let text = |segment: &Value, key: &str| segment[key].as_str().unwrap().to_owned();
    let time = |segment: &Value, key: &str| segment[key].as_i64().unwrap();
    let segment = |s: &Value| {
        (
            text(s, "task"),
            text(s, "start"),
            text(s, "end"),
            time(s, "start_ns"),
            time(s, "end_ns"),
        )
    };
    answer["segments"]
        .as_array()
        .unwrap()
        .iter()
        .map(segment)
        .collect()
}

#[test]
fn the_examples_are_imported_by_their_mappings() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| examples().join(name).to_str().unwrap().to_owned();
    check(
        directory.path(),
        &["import", "--map", &file("nginx.toml"), &file("nginx.log")],
        0,
        "nginx.log: 4 events, 0 bad lines, 1 line ignored",
        "",
    );
    check(
        directory.path(),
        &["import", "--map", &file("app.toml"), &file("app.log")],
        0,
        "app.log: 3 events, 0 bad lines, 2 lines ignored",
        "",
    );
    // Both logs are of one trace: the request as nginx sees it, around the work of the shop.
    let path = path(directory.path(), "4bf92f3577b34da6a3ce929d0e0e4736");
    let second = 1_767_322_800_000_000_000_i64;
    let nginx = (
        "nginx",
        "GET /cart begin",
        "GET /cart end",
        second + 750_000_000,
        second + 1_000_000_000,
    );
    let shop = (
        "shop/worker",
        "cart requested",
        "cart sent",
        second + 760_000_000,
        second + 975_000_000,
    );
    for (task, start, end, from_ns, to_ns) in [nginx, shop] {
        assert!(
            path.contains(&(task.into(), start.into(), end.into(), from_ns, to_ns)),
            "{path:?}"
        );
    }
    check(
        directory.path(),
        &["import", "--map", &file("app.toml"), &file("app.log")],
        0,
        "",
        "imported before",
    );
    // Read without the mapping, the same bytes are another content, and no events at all.
    check(
        directory.path(),
        &["import", &file("app.log")],
        2,
        "",
        "app.log holds 5 records, the first of them a JSON object with the keys `time`",
    );
}

#[test]
fn wrong_mappings_import_nothing() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("log"), "{}\n").unwrap();
    std::fs::write(
        directory.path().join("map.toml"),
        "trace = \"{id}\"\n\nevnt = \"{msg}\"\n",
    )
    .unwrap();
    check(
        directory.path(),
        &["import", "--map", "map.toml", "log"],
        2,
        "",
        "map.toml:3: unknown field `evnt`, expected one of",
    );
    check(
        directory.path(),
        &["import", "--map", "none.toml", "log"],
        2,
        "",
        "cannot read the mapping none.toml",
    );
    assert!(!directory.path().join("stroboscope-data").exists());
}

fn event(time: &str) -> String {
    format!(r#"{{"trace":"r1","host":"h",{time},"event":"e","task":"t"}}"#) + "\n"
}

fn times(directory: &Path) -> Vec<i64> {
    let found = path(directory, "r1");
    let mut times: Vec<i64> = found
        .iter()
        .flat_map(|segment| [segment.3, segment.4])
        .collect();
    times.sort_unstable();
    times.dedup();
    times
}

#[test]
fn times_of_all_units_are_the_same_instants() {
    let (first, second) = (1_767_322_800_123_000_000_i64, 1_767_322_800_456_000_000_i64);
    for (one, other) in [
        (
            "\"ts_ns\":1767322800123000000",
            "\"ts_ns\":1767322800456000000",
        ),
        ("\"ts\":1767322800123000000", "\"ts\":1767322800456000000"),
        ("\"ts\":1767322800123000", "\"ts\":\"1767322800456000\""),
        ("\"ts\":1767322800123", "\"ts\":1767322800456.0"),
        ("\"ts\":1767322800.123", "\"ts\":1767322800.456"),
        (
            "\"ts\":\"2026-01-02T03:00:00.123Z\"",
            "\"ts\":\"2026-01-02 05:00:00,456+02:00\"",
        ),
    ] {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("log"), event(one) + &event(other)).unwrap();
        check(
            directory.path(),
            &["import", "log"],
            0,
            "2 events, 0 bad lines",
            "",
        );
        assert_eq!(times(directory.path()), [first, second], "{one}");
    }
}

#[test]
fn wrong_and_mixed_units_are_diagnosed() {
    let at = |directory: &tempfile::TempDir, lines: &[&str]| {
        let log: String = lines.iter().map(|time| event(time)).collect();
        std::fs::write(directory.path().join("log"), log).unwrap();
    };
    let directory = tempfile::tempdir().unwrap();
    at(
        &directory,
        &[
            "\"ts\":1767322800123",
            "\"ts\":1767322800",
            "\"ts\":\"soon\"",
            "\"ts\":7",
            "\"ts\":1767322800456",
            "\"x\":1",
        ],
    );
    let (_, errors) = check(
        directory.path(),
        &["import", "log"],
        1,
        "2 events, 4 bad lines",
        "",
    );
    for told in [
        "log:2: the time 1767322800 looks like s, but the times since line 1 are ms",
        "log:3: `soon` is not a time: expected a number, or a date and time of RFC 3339",
        "log:4: the size of the time 7 does not determine its unit",
        "log:6: missing field `ts_ns`",
    ] {
        assert!(errors.contains(told), "{told}\n{errors}");
    }
    let directory = tempfile::tempdir().unwrap();
    at(
        &directory,
        &[
            "\"ts_ns\":1767322800123000000",
            "\"ts_ns\":1767322800123",
            "\"ts_ns\":1767322800456000000",
        ],
    );
    let told = "log:2: the time 1767322800123 looks like ms, but the times since line 1 are ns";
    check(
        directory.path(),
        &["import", "log"],
        1,
        "2 events, 1 bad line",
        told,
    );
    // All times are in another unit: a note says so, and the option corrects it.
    let directory = tempfile::tempdir().unwrap();
    at(
        &directory,
        &["\"ts_ns\":1767322800123", "\"ts_ns\":1767322800456"],
    );
    check(
        directory.path(),
        &["import", "log"],
        0,
        "2 events",
        "note: log: all times lie before March 1973; if they are in ms, import it",
    );
    let directory = tempfile::tempdir().unwrap();
    at(
        &directory,
        &["\"ts_ns\":1767322800123", "\"ts_ns\":1767322800456"],
    );
    check(
        directory.path(),
        &["import", "--time-unit", "ms", "log"],
        0,
        "2 events",
        "",
    );
    assert_eq!(
        times(directory.path()),
        [1_767_322_800_123_000_000, 1_767_322_800_456_000_000]
    );
    check(
        directory.path(),
        &["import", "--time-unit", "s", "log"],
        2,
        "",
        "log:1: the time is 1767322800123 s: times must be below",
    );
    // The format of spans determines their unit.
    let span = json!({"data": [{"traceID": "1", "spans": []}]}).to_string();
    std::fs::write(directory.path().join("jaeger.json"), span).unwrap();
    check(
        directory.path(),
        &["import", "--time-unit", "s", "jaeger.json"],
        2,
        "",
        "leave --time-unit out",
    );
}

#[test]
fn mapped_lines_come_from_standard_input_too() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_stroboscope"))
        .args([
            "import",
            "--map",
            examples().join("app.toml").to_str().unwrap(),
            "-",
        ])
        .current_dir(directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let log = std::fs::read(examples().join("app.log")).unwrap();
    child.stdin.take().unwrap().write_all(&log).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "standard input: 3 events, 0 bad lines, 2 lines ignored\n"
    );
}
