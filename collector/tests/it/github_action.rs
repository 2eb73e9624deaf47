//! The action of `examples/ci/github-action/`, whose step runs as a runner of GitHub runs it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::verdict_files::import_requests;

/// Inputs with their defaults, variables of the step with their inputs, and script of the step.
struct Action {
    inputs: BTreeMap<String, Option<String>>,
    env: BTreeMap<String, String>,
    script: String,
}

impl Action {
    fn read() -> Self {
        let path = "../examples/ci/github-action/action.yml";
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        let text = fs::read_to_string(path).unwrap();
        // Returns the lines of a block below a key, without their indentation.
        let block = |key: &str, indent: usize| -> Vec<String> {
            let prefix = " ".repeat(indent);
            let lines = text
                .lines()
                .skip_while(|line| !line.trim().starts_with(key));
            let own = |line: &&str| line.is_empty() || line.starts_with(&prefix);
            let lines = lines.skip(1).take_while(own);
            lines
                .map(|line| line.get(indent..).unwrap_or_default().to_owned())
                .collect()
        };
        let mut inputs: BTreeMap<String, Option<String>> = BTreeMap::new();
        let mut last = String::new();
        for line in block("inputs:", 2) {
            if let Some(default) = line.strip_prefix("  default: ") {
                inputs.insert(last.clone(), Some(default.trim_matches('"').to_owned()));
            } else if let Some(name) = line.strip_suffix(':').filter(|name| !name.starts_with(' '))
            {
                name.clone_into(&mut last);
                inputs.insert(last.clone(), None);
            }
        }
        let env = block("env:", 8).into_iter().map(|line| {
            let (name, input) = line.split_once(": ").unwrap();
            let input = input.strip_prefix("${{ inputs.").unwrap();
            (
                name.to_owned(),
                input.strip_suffix(" }}").unwrap().to_owned(),
            )
        });
        Self {
            env: env.collect(),
            script: block("run: |", 8).join("\n"),
            inputs,
        }
    }

    /// Runs the step in a directory, and checks its status, as that of the process and as output.
    /// Returns its output and the summary.
    #[track_caller]
    fn check(&self, at: &Path, inputs: &[(&str, &str)], status: i32) -> (String, String) {
        fs::write(at.join("script.sh"), &self.script).unwrap();
        for file in ["output", "summary"] {
            fs::write(at.join(file), "").unwrap();
        }
        let mut command = Command::new("bash");
        command.args(["--noprofile", "--norc", "-eo", "pipefail", "script.sh"]);
        command.current_dir(at);
        command.env("GITHUB_OUTPUT", "output");
        command.env("GITHUB_STEP_SUMMARY", "summary");
        let program = ("program", env!("CARGO_BIN_EXE_stroboscope"));
        for (variable, input) in &self.env {
            let mut given = inputs.iter().chain([&program]);
            let given = given.find(|given| given.0 == *input);
            let default = self.inputs[input].as_deref();
            command.env(variable, given.map(|given| given.1).or(default).unwrap());
        }
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert_eq!(output.status.code(), Some(status), "{inputs:?}\n{text}");
        let read = |file: &str| fs::read_to_string(at.join(file)).unwrap();
        assert_eq!(read("output"), format!("status={status}\n"));
        (text, read("summary"))
    }
}

fn junit(at: &Path) -> Vec<String> {
    let files = fs::read_dir(at.join("stroboscope-junit")).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

#[test]
fn the_action_fails_on_a_planted_regression() {
    let action = Action::read();
    let used: Vec<&String> = action.env.values().collect();
    assert_eq!(used.len(), action.inputs.len(), "{used:?}");
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    // A runner would obey a name that is a command.
    let name = "page\n::add-mask::page";
    import_requests(at, "base", name, 10);
    import_requests(at, "alike", name, 10);
    import_requests(at, "slower", name, 14);
    let compared = |data, baseline| [("data", data), ("baseline", baseline)];
    let (text, summary) = action.check(at, &compared("slower", "base"), 1);
    assert!(summary.contains("| ❌ failed | web:page"), "{summary}");
    let (before, after) = text.split_once("::stop-commands::").unwrap();
    let (token, report) = after.split_once('\n').unwrap();
    assert!(
        before.is_empty() && report.contains(&format!("::{token}::")),
        "{text}"
    );
    let (_, summary) = action.check(at, &compared("alike", "base"), 0);
    assert!(summary.contains("| ✅ passed | web:page"), "{summary}");
    let (_, summary) = action.check(at, &compared("alike", "missing"), 2);
    assert!(summary.contains("| ❓ unknown | result"), "{summary}");
    assert_eq!(junit(at), ["stroboscope-compare.xml"]);
    let limit = [&compared("slower", "base")[..], &[("worse-by", "90%")]].concat();
    action.check(at, &limit, 0);
}

#[test]
fn the_action_checks_formulas() {
    let action = Action::read();
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    import_requests(at, "d", "page", 10);
    let formulas = "{ name = \"page\" }\n\n  never { status = error }\n";
    let data = ("data", "d");
    let (_, summary) = action.check(at, &[data, ("assert-all", formulas)], 0);
    assert_eq!(summary.matches("✅ passed").count(), 2, "{summary}");
    assert_eq!(
        junit(at),
        ["stroboscope-all-1.xml", "stroboscope-all-2.xml"]
    );
    let slow = "{ duration > 5ms }";
    // A failure counts more than a doubt. `$(…)` in an input is no command.
    let none = format!("{slow}\n$(touch injected)");
    let (text, _) = action.check(at, &[data, ("assert-none", &none)], 1);
    assert!(
        text.contains("Violated: ") && text.contains("column 1"),
        "{text}"
    );
    assert!(!at.join("injected").exists());
    action.check(at, &[data, ("assert-all", "$(touch injected)")], 2);
    action.check(at, &[("data", "missing"), ("assert-none", slow)], 2);
    action.check(at, &[data, ("assert-none", slow), ("program", "./none")], 2);
    let (text, _) = action.check(at, &[data], 2);
    assert!(text.contains("nothing to judge"), "{text}");
}
