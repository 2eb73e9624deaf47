//! Reports with `--shard` and `merge`, which together print what one run prints.

use std::path::Path;

use crate::common::{check, others};
use crate::shards::{REPORTS, imported, merged, otlp, parts, parts_of, run, simulated, walk};

/// Infers the model in shards, and saves it for reports.
fn infer(directory: &Path, more: &[&str]) {
    let parts = parts(directory, 3, more);
    let (status, _, said) = merged(directory, &parts, &["--save-inference", "inference"]);
    assert!(status != Some(2), "{said}");
}

/// Compares the merged report with that of one run, byte for byte: text, JSON, page, exit status
/// and standard error.
fn check_merged(verb: &str, directory: &Path, counts: &[usize], more: &[&str]) {
    let forms: [&[&str]; 3] = [&[], &["--json"], &["--top", "2", "--html", "page.html"]];
    let page = || std::fs::read_to_string(directory.join("page.html")).unwrap();
    let one = |form: &&[&str]| run(directory, &[&[verb, "--data", "data"], more, form].concat());
    let expected = forms.each_ref().map(one);
    let expected_page = page();
    assert_eq!(expected[0].0, expected[1].0);
    for &count in counts {
        let with = [more, &["--inference", "inference"]].concat();
        let parts = parts_of(verb, directory, count, &with);
        for (form, expected) in forms.iter().zip(&expected) {
            let found = merged(directory, &parts, form);
            assert!(
                found == *expected,
                "{verb} {count} {form:?}\n{found:?}\n{expected:?}"
            );
        }
        assert!(page() == expected_page, "{verb} {count}");
    }
}

#[test]
fn merged_reports_print_what_one_run_prints() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    simulated(at, 5, 120);
    infer(at, &[]);
    check_merged("critical-path", at, &[1, 2, 3, 7, 16], &[]);
    check_merged("critical-path", at, &[2], &["--category-by", "host"]);
    check_merged("slack", at, &[3], &[]);
    check_merged("operations", at, &[7], &[]);
    check_merged("map", at, &[3], &[]);
    check_merged("anomalies", at, &[7], &[]);
    check_merged("anomalies", at, &[2], &["--slowest", "20%"]);
    let more = [
        "--tolerance",
        "0.05",
        "--include-incomplete",
        "--exclude",
        "rank",
    ];
    infer(at, &more);
    for verb in &REPORTS[1..] {
        check_merged(verb, at, &[3], &more);
    }
}

#[test]
fn reports_on_another_systems_requests_merge() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    imported(at, &otlp(3, 30, 0));
    infer(at, &[]);
    // In the last case, there are more shards than requests.
    check_merged("critical-path", at, &[1, 2, 7, 70], &[]);
    check_merged("slack", at, &[3], &[]);
    check_merged("operations", at, &[16], &[]);
    check_merged("map", at, &[16], &[]);
    check_merged("anomalies", at, &[3], &[]);
    let some = ["--root", "front:page", "--where", "{ duration > 1ms }"];
    infer(at, &some);
    check_merged("critical-path", at, &[3], &some);
    let Some(path) = others("cases/sampled-and-scopes.json") else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    check(at, &["import", path.to_str().unwrap(), "--data", "data"], 0);
    infer(at, &["--include-incomplete"]);
    for verb in &REPORTS[1..] {
        check_merged(verb, at, &[1, 2, 16], &["--include-incomplete"]);
    }
}

/// The inference takes a second round for the clocks; the report uses their final alignment.
#[test]
fn reports_use_the_clocks_of_all_requests() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    imported(at, &otlp(7, 700, 5_000_000));
    let first = parts(at, 2, &[]);
    let (status, _, said) = merged(at, &first, &["--save-inference", "inference"]);
    assert_eq!(status, Some(2), "{said}");
    let (status, ..) = merged(at, &first, &["--save-clocks", "clocks"]);
    assert_eq!(status, Some(0));
    let second = parts(at, 2, &["--clocks", "clocks"]);
    let (status, _, said) = merged(at, &second, &["--save-inference", "inference"]);
    assert_eq!(status, Some(0), "{said}");
    check_merged("critical-path", at, &[3], &[]);
}

/// Changes a byte in the pages of the first file of spans.
pub(crate) fn damage(at: &Path) {
    let mut files = walk(&at.join("data/spans"));
    files.sort();
    let mut bytes = std::fs::read(&files[0]).unwrap();
    let middle = bytes.len() / 3;
    bytes[middle] ^= 0x40;
    std::fs::write(&files[0], bytes).unwrap();
}

#[test]
fn damage_is_reported_as_by_one_run() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    for seed in [6, 7] {
        imported(at, &otlp(seed, 40, 0));
    }
    damage(at);
    let expected = run(at, &["critical-path", "--data", "data"]);
    assert_eq!(expected.0, Some(1), "{expected:?}");
    infer(at, &[]);
    check_merged("critical-path", at, &[3], &[]);
    // No request has the attribute, which `merge` finds without the store.
    let more = ["--category-by", "no-such"];
    let expected = run(
        at,
        &[&["critical-path", "--data", "data"][..], &more].concat(),
    );
    assert_eq!(expected.0, Some(2));
    let parts = parts_of("critical-path", at, 100, &more);
    assert_eq!(merged(at, &parts, &[]), expected);
}

#[test]
fn mistakes_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    simulated(at, 5, 60);
    let check_said = |arguments: &[&str], said: &str| {
        let (out, error) = check(at, arguments, 2);
        assert!(out.is_empty() && error.contains(said), "{error}");
    };
    let shard = ["--data", "data", "--shard", "1/2", "--save", "p"];
    let critical_path = [&["critical-path"], &shard[..]].concat();
    for other in [
        &["--json"][..],
        &["--top", "3"],
        &["--trace", "1"],
        &["--each"],
        &["--by", "host"],
        &["--cdf"],
    ] {
        check_said(&[&critical_path, other].concat(), "cannot be used with");
    }
    for other in ["--validate", "--cdf"] {
        let slack = [&["slack"], &shard[..], &[other]].concat();
        check_said(&slack, "cannot be used with");
    }
    check_said(&critical_path[..5], "--save");
    check_said(&["slack", "--data", "data", "--save", "p"], "--shard");
    let with = [&critical_path[..], &["--inference", "no"]].concat();
    check_said(&with, "cannot read the part no");
    // The shards infer the same model without a file.
    let own = parts_of("critical-path", at, 2, &[]);
    let expected = run(at, &["critical-path", "--data", "data"]);
    assert_eq!(merged(at, &own, &[]), expected);
    check_said(
        &[&["map"], &shard[..], &["--focus", "edge"]].concat(),
        "cannot be used with",
    );
    let slow = |slowest| parts_of("anomalies", at, 2, &["--slowest", slowest]);
    let fifth = std::fs::read(at.join(&slow("20%")[1])).unwrap();
    let tenth = slow("10%");
    std::fs::write(at.join(&tenth[1]), fifth).unwrap();
    check_said(
        &["merge", &tenth[0], &tenth[1]],
        "--slowest is 0.1 in the first, and 0.2 in the second",
    );
    let slack = parts_of("slack", at, 2, &[]);
    check_said(&["merge", &own[0], &slack[0]], "each subcommand");
    check_said(&["merge", &own[0]], "1 of 2 shards");
    for save in ["--save", "--save-inference", "--save-clocks"] {
        let arguments = ["merge", &own[0], &own[1], save, "file"];
        check_said(&arguments, "those of `infer` are needed");
    }
}
