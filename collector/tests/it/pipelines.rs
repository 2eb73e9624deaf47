//! The newsfeed's pagelets are generated, downloaded and executed one after another. `infer` finds
//! that pipeline.

#![cfg(feature = "demo")]

use std::collections::BTreeSet;

use crate::common::{check, json_of};

#[test]
fn the_newsfeeds_pagelets_are_a_pipeline() {
    let directory = tempfile::tempdir().expect("a directory");
    let args = [
        "demo",
        "--data",
        ".",
        "--seconds",
        "5",
        "--rate",
        "5",
        "--burst-config",
        "always",
    ];
    check(directory.path(), &args, 0);
    // The demo creates its own subdirectory.
    let mut made = std::fs::read_dir(directory.path()).expect("readable");
    let made = made.next().expect("a directory").expect("readable").path();
    let found = json_of(&made, &["infer", "--data", ".", "--json"]);
    let last = |task: &serde_json::Value| {
        let task = task.as_str().expect("a task");
        task.rsplit(" > ").next().unwrap_or(task).to_owned()
    };
    let pipelines = found["pipelines"].as_array().expect("pipelines").iter();
    let pipelines: BTreeSet<(String, String)> = pipelines
        .map(|one| (last(&one["first"]), last(&one["second"])))
        .collect();
    for (first, second) in [
        ("web:render", "client:download"),
        ("client:download", "client:execute"),
        ("web:render", "client:execute"),
    ] {
        let expected = (first.to_owned(), second.to_owned());
        assert!(pipelines.contains(&expected), "{expected:?}: {pipelines:?}");
    }
}
