//! The analysis of `examples/ci/argo-rollouts/`, whose job runs as Argo Rollouts runs it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::common::check;
use crate::verdict_files::import_requests;

/// Returns the arguments of the job's container, with the analysis' arguments filled in.
fn job_arguments(given: &[(&str, &str)]) -> Vec<String> {
    let path = "../examples/ci/argo-rollouts/analysis-template.yaml";
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let (declared, metrics) = text.split_once("  metrics:").unwrap();
    let mut values: BTreeMap<&str, &str> = BTreeMap::new();
    let mut names = Vec::new();
    for line in declared.lines() {
        if let Some(name) = line.strip_prefix("    - name: ") {
            names.push(name);
        } else if let Some(value) = line.strip_prefix("      value: ") {
            values.insert(names.last().unwrap(), value);
        }
    }
    values.extend(given.iter().copied());
    assert!(names.iter().all(|name| values.contains_key(name)));
    let arguments = metrics.lines().skip_while(|line| line.trim() != "args:");
    let arguments = arguments
        .skip(1)
        .map_while(|line| line.trim().strip_prefix("- "));
    arguments
        .map(|argument| {
            let filled = values.iter().fold(argument.to_owned(), |filled, of| {
                filled.replace(&format!("{{{{args.{}}}}}", of.0), of.1)
            });
            assert!(!filled.contains("{{"), "{filled}");
            filled
        })
        .collect()
}

#[test]
fn the_analysis_fails_on_a_planted_regression() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    import_requests(at, "base", "page", 10);
    import_requests(at, "alike", "page", 10);
    import_requests(at, "slower", "page", 14);
    for file in ["alike.json", "slower.json"] {
        check(at, &["import", "--data", "base", file], 0);
    }
    for (canary, more, status) in [
        ("slower", ("fail-on", "worse"), 1),
        ("slower", ("worse-by", "90%"), 0),
        ("alike", ("fail-on", "unknown"), 0),
        ("missing", ("fail-on", "worse"), 2),
        ("alike", ("store", "missing"), 2),
    ] {
        let given = [
            ("store", "base"),
            ("stable", "base"),
            ("attribute", "build"),
            ("since", "2023-11-14"),
            ("canary", canary),
            more,
        ];
        let arguments = job_arguments(&given);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        check(at, &arguments, status);
    }
}
