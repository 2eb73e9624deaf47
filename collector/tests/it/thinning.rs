//! `store compact` thins old hours, and reports on the rest estimate those on all requests.

use std::path::Path;

use serde_json::Value;
use stroboscope_fixtures::mixed_requests::{MS_NS, SLOW_MS, requests, write};
use stroboscope_store::tables::Store;

use crate::common::{check, json_of};

const COUNT: usize = 2_400;
const THIN: &str = "store compact --thin-after 48h --thin-ratio 10% --thin-slower 500ms";

fn words(text: &str) -> Vec<&str> {
    text.split(' ').collect()
}

fn json(directory: &Path, verb: &str) -> Value {
    json_of(directory, &words(&format!("{verb} --data data --json")))
}

/// Returns the numbers of all requests and of the failed ones, and the effective sample size.
fn estimates(directory: &Path) -> [f64; 3] {
    let failures = json(directory, "failures");
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{failures:#}"));
    let effective = match &failures["sampling"]["effective_sample"] {
        Value::Null => COUNT as f64,
        effective => number(effective),
    };
    [
        number(&failures["requests"]),
        number(&failures["failed"]),
        effective,
    ]
}

#[test]
fn reports_on_a_thinned_store_estimate_those_on_all_requests() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let store = Store::local(&directory.join("data"), runtime.handle().clone()).unwrap();
    let mut written = requests(8, COUNT);
    written
        .iter_mut()
        .for_each(|request| request.tracestate = None);
    write(&store, written.clone());
    // Without a checkpoint, all segments count as new.
    check(directory, &words("store check --repair --data data"), 0);
    let [all, failed, _] = estimates(directory);
    assert_eq!(all, COUNT as f64);
    let (said, _) = check(directory, &words(&format!("{THIN} --data data")), 0);
    assert!(said.contains("hours were thinned by"), "{said}");
    let [all_after, failed_after, effective] = estimates(directory);
    assert_eq!(failed_after, failed, "failed requests stay whole");
    // The thinned requests are a binomial sample of those that are not exempt.
    let is_exempt = |slow: i64, failed: bool, late: bool| slow >= SLOW_MS * MS_NS || failed || late;
    let exempt = written
        .iter()
        .filter(|it| is_exempt(it.length_ns, it.has_failed, it.late_ns.is_some()));
    let others = (COUNT - exempt.count()) as f64;
    let deviation = (others * 0.9 / 0.1).sqrt();
    let error = all_after - all;
    assert!(error.abs() <= 3.0 * deviation, "{error}, {deviation}");
    assert!((100.0..600.0).contains(&effective), "{effective}");
    let (_, notes) = check(directory, &words("failures --data data"), 0);
    assert!(notes.contains("recorded requests stand for"), "{notes}");
    // A report that counts recorded requests states this.
    let search = ["search", "{ status = error }", "--data", "data"];
    let (_, notes) = check(directory, &search, 0);
    assert!(notes.contains("counts recorded requests"), "{notes}");
    let slow = json(directory, "anomalies");
    let both = slow["outliers"].as_f64().unwrap() + slow["others"].as_f64().unwrap();
    assert!((both - all_after).abs() <= 1.0, "{both}, {all_after}");
    let (text, _) = check(directory, &words("store check --data data"), 0);
    assert!(text.contains("3 hours of spans are thinned"), "{text}");
    let checked = json(directory, "store check");
    assert_eq!(
        (&checked["thinned_hours"], &checked["is_clean"]),
        (&3.into(), &true.into())
    );
    let again = json(directory, THIN);
    assert_eq!(again["thinned_hours"], 0);
    assert_eq!(estimates(directory), [all_after, failed_after, effective]);
}
