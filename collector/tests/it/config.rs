//! Settings of `collect`: flags override the environment, which overrides the file. Errors name
//! their source.

use std::path::Path;
use std::process::{Command, Output};

fn config(directory: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stroboscope"))
        .arg("config")
        .args(arguments)
        .envs(environment.iter().copied())
        .current_dir(directory)
        .output()
        .unwrap()
}

fn lines(output: &Output) -> Vec<String> {
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(str::to_owned).collect()
}

fn directory(settings: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("s.toml"), settings).unwrap();
    directory
}

const FILE: &str = r#"
[collect]
listen = "127.0.0.1:1001"
http = "127.0.0.1:1002"
flush-interval = "3s"
no-live-model = true
"#;

#[test]
fn each_setting_says_where_it_is_from() {
    let directory = directory(FILE);
    let environment = [
        ("STROBOSCOPE_COLLECT_CONFIG", "s.toml"),
        ("STROBOSCOPE_COLLECT_HTTP", "127.0.0.1:2002"),
        ("STROBOSCOPE_COLLECT_LISTEN", "127.0.0.1:2001"),
        ("STROBOSCOPE_COLLECT_UNIX", ""),
    ];
    let said = lines(&config(
        directory.path(),
        &["--listen", "127.0.0.1:3001"],
        &environment,
    ));
    for line in [
        r#"listen = "127.0.0.1:3001"  # flag"#,
        r#"http = "127.0.0.1:2002"  # STROBOSCOPE_COLLECT_HTTP"#,
        r#"flush-interval = "3s"  # s.toml"#,
        "no-live-model = true  # s.toml",
        "kernel = false  # default",
        r#"live-quiet = "30s"  # default"#,
        "# unix is not set",
    ] {
        assert!(said.iter().any(|said| said == line), "{line}\n{said:#?}");
    }
    // The output is itself a file of settings, and yields the same settings.
    std::fs::write(directory.path().join("again.toml"), said.join("\n")).unwrap();
    let again = lines(&config(directory.path(), &["--config", "again.toml"], &[]));
    let values = |lines: &[String]| -> Vec<String> {
        let before = |line: &String| line.split("  #").next().unwrap_or_default().to_owned();
        lines.iter().map(before).collect()
    };
    assert_eq!(values(&again), values(&said));
}

#[test]
fn mistakes_are_named_where_they_are() {
    let check = |settings: &str, environment: &[(&str, &str)], expected: &[&str]| {
        let directory = directory(settings);
        for verb in ["config", "collect"] {
            let output = Command::new(env!("CARGO_BIN_EXE_stroboscope"))
                .args([verb, "--config", "s.toml"])
                .envs(environment.iter().copied())
                .current_dir(directory.path())
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{verb}: {said}");
            for part in expected {
                assert!(said.contains(part), "{verb}: {part}\n{said}");
            }
        }
    };
    check(
        "[collect]\nlisten = \"nowhere\"",
        &[],
        &["s.toml: listen: ", "'nowhere'"],
    );
    check(
        "[collect]\nlisen = \"127.0.0.1:1\"",
        &[],
        &["s.toml: lisen: ", "did you mean listen?"],
    );
    check(
        "[collect]\nkernel = \"perhaps\"",
        &[],
        &["s.toml: kernel: true or false"],
    );
    check(
        "[collect]\nunix = { a = 1 }",
        &[],
        &["s.toml: unix: a text"],
    );
    check(
        "listen = \"127.0.0.1:1\"",
        &[],
        &["s.toml: listen: ", "section [collect]"],
    );
    check("[collect", &[], &["s.toml is no TOML", "1"]);
    check(
        "",
        &[("STROBOSCOPE_COLLECT_KERNEL", "1")],
        &["STROBOSCOPE_COLLECT_KERNEL: true or false"],
    );
    let missing = config(Path::new("."), &["--config", "/nowhere.toml"], &[]);
    let said = String::from_utf8_lossy(&missing.stderr);
    assert!(
        said.contains("cannot read the settings in /nowhere.toml"),
        "{said}"
    );
}

#[test]
fn a_variable_that_is_none_is_said() {
    let directory = directory("");
    let output = config(directory.path(), &[], &[("STROBOSCOPE_COLLECT_LISTN", "x")]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains("did you mean listen?"),
        "{said}"
    );
}

#[test]
fn its_error_has_the_format_of_the_log() {
    let directory = directory("");
    for verb in [&["config"][..], &["collect", "config"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_stroboscope"))
            .args(verb)
            .args(["--log-format", "json", "--config", "none.toml"])
            .current_dir(directory.path())
            .output()
            .unwrap();
        let line: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
        assert_eq!(line["level"], "error", "{verb:?}: {line}");
    }
}
