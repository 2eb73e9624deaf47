//! Subcommands reuse cached results of earlier ones while these are valid.

use std::path::Path;

use serde_json::Value;
use stroboscope_query::{
    BreakdownQuestion, InferSettings, OverviewQuestion, Selection, Source, StrataRule, Study,
};

use crate::common::{check, json_of};

const DATA: &str = "stroboscope-data";

/// Imports `requests` requests of a server, then a page, from second `from` on. The requests have
/// one of three users.
fn import(directory: &Path, name: &str, from: u64, requests: u64) {
    let mut log = String::new();
    for request in from..from + requests {
        let at = |us: u64| (1_700_000_000_000_000 + request * 1_000_000 + us) * 1000;
        let lines = [
            (0, "server", "begin"),
            (80 + request, "server", "sent"),
            (90 + request, "page", "begin"),
        ];
        for (us, task, event) in lines
            .into_iter()
            .chain([(120 + 2 * request, "page", "shown")])
        {
            log += &format!(
                "{{\"trace\":\"r{request}\",\"host\":\"h\",\"ts_ns\":{},\"event\":\"{event}\",\"task\":\"{task}\",\
                 \"attrs\":{{\"user\":\"u{}\"}}}}\n",
                at(us),
                request % 3
            );
        }
    }
    std::fs::write(directory.join(name), log).unwrap();
    check(directory, &["import", name], 0);
}

fn entries(directory: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(directory.join(DATA).join("cache")) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn verbs_say_the_same_whether_the_model_was_kept_or_not() {
    let directory = tempfile::tempdir().unwrap();
    import(directory.path(), "log", 0, 60);
    let verbs: [&[&str]; 9] = [
        &["infer", "--convergence-every", "7"],
        &["model"],
        &["critical-path"],
        &["critical-path", "--by", "user"],
        &["critical-path", "--exclude", "page", "--tolerance", "0.1"],
        &["slack"],
        &["anomalies"],
        &["what-if", "--category", "server", "--scale", "0.5"],
        &["predict", "--key", "user"],
    ];
    let say = |verb: &[&str]| {
        (
            check(directory.path(), verb, 0),
            json_of(directory.path(), &[verb, &["--json"]].concat()),
        )
    };
    let cold = verbs.map(|verb| {
        let _ = std::fs::remove_dir_all(directory.path().join(DATA).join("cache"));
        check(directory.path(), verb, 0)
    });
    let warm = verbs.map(say);
    for ((verb, cold), (warm, _)) in verbs.iter().zip(cold).zip(&warm) {
        assert_eq!(*warm, cold, "{verb:?}");
    }
    assert_eq!(verbs.map(say), warm);
}

#[test]
fn a_kept_model_spares_the_reading_until_there_is_more() {
    let directory = tempfile::tempdir().unwrap();
    import(directory.path(), "log", 0, 40);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let study = |tolerance: f64| {
        let source =
            Source::open_cached(&directory.path().join(DATA), runtime.handle().clone()).unwrap();
        Study::new(
            source,
            Selection::default(),
            InferSettings {
                tolerance,
                ..InferSettings::default()
            },
        )
    };
    let first = study(0.0);
    let parts = first.inference().unwrap().model.parts();
    assert_eq!(first.source().readings(), 1);
    // Another tolerance is another belief about the same model.
    let again = study(0.5);
    assert_eq!(again.inference().unwrap().model.parts(), parts);
    assert_eq!(again.source().readings(), 0);
    again.ask(&OverviewQuestion::default()).unwrap();
    assert_eq!(again.source().readings(), 1, "paths only");
    let by = StrataRule {
        attribute: "user".to_owned(),
        quantiles: None,
    };
    again
        .ask(&BreakdownQuestion {
            by: Some(by),
            ..BreakdownQuestion::default()
        })
        .unwrap();
    assert_eq!(again.source().readings(), 3, "what records say, and paths");
    let before = entries(directory.path());
    assert_eq!(
        before.len(),
        2,
        "the model, and which operations are inner ones: {before:?}"
    );

    import(directory.path(), "more", 40, 10);
    let more = study(0.0);
    assert_eq!(more.inference().unwrap().model.traces(), 50);
    assert_eq!(more.source().readings(), 1);
    let after = entries(directory.path());
    assert!(
        after.len() == 2 && after.iter().all(|name| !before.contains(name)),
        "{before:?} {after:?}"
    );
}

#[test]
fn a_directory_that_cannot_be_written_is_read() {
    let directory = tempfile::tempdir().unwrap();
    import(directory.path(), "log", 0, 10);
    // A file where the directory would be: also root cannot write there.
    std::fs::write(directory.path().join(DATA).join("cache"), "").unwrap();
    let found: Value = json_of(directory.path(), &["critical-path", "--json"]);
    assert_eq!(found["used_traces"], 10);
}
