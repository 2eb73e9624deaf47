//! Test that the page of promises names existing tests.

use std::collections::BTreeSet;
use std::path::Path;

use super::{read, root};

/// Removes the names that a function below the directory has.
fn take_away(directory: &Path, names: &mut BTreeSet<&str>) {
    for entry in std::fs::read_dir(directory).expect("a directory").flatten() {
        let path = entry.path();
        if path.is_dir() && !path.ends_with("target") {
            take_away(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = read(&path);
            names.retain(|name| !text.contains(&format!("fn {name}(")));
        }
    }
}

#[test]
fn each_promise_names_its_tests() {
    let page = read(&root().join("collector/docs/promises.md"));
    let promised = page.split("## Not promised").next().expect("a first part");
    let rows: Vec<&str> = promised
        .lines()
        .filter(|line| line.starts_with("| ") && !line.ends_with("Tests |"))
        .collect();
    assert!(rows.len() > 10, "{rows:?}");
    let mut named = BTreeSet::new();
    for row in rows {
        let last = row
            .trim_end_matches(" |")
            .rsplit(" | ")
            .next()
            .expect("a column");
        let tests: Vec<&str> = last
            .split(", ")
            .map(|name| name.trim_matches('`'))
            .collect();
        assert!(last.starts_with('`') && !tests.is_empty(), "no test: {row}");
        named.extend(tests);
    }
    let mut missing = named.clone();
    for directory in ["sdk", "collector", "tests"] {
        take_away(&root().join(directory), &mut missing);
    }
    assert_eq!(missing, BTreeSet::new(), "of {} named tests", named.len());
}
