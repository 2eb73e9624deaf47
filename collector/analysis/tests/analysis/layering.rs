//! The edges between the crate's modules, read from its source: none of them closes a cycle.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

type Edges = BTreeMap<String, BTreeSet<String>>;

/// Adds the top-level modules that a file's code names by `crate::`.
fn read_file(module: &str, source: &str, edges: &mut Edges) {
    let known = edges.entry(module.to_string()).or_default();
    for line in source.lines().filter(|line| !line.trim_start().starts_with("//")) {
        for path in line.split("crate::").skip(1) {
            let name: String = path.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            assert!(
                !name.is_empty(),
                "write one module per `use crate::` in {module}, not `{}`",
                line.trim()
            );
            if name != module {
                known.insert(name);
            }
        }
    }
}

fn read_folder(folder: &Path, module: Option<&str>, edges: &mut Edges) {
    for entry in fs::read_dir(folder).expect("the source folder can be read") {
        let path = entry.expect("the source folder can be read").path();
        let name = path.file_stem().and_then(|stem| stem.to_str()).expect("a name in UTF-8").to_string();
        let module = module.unwrap_or(&name);
        if path.is_dir() {
            read_folder(&path, Some(module), edges);
        } else if module != "lib" {
            read_file(module, &fs::read_to_string(&path).expect("a source file can be read"), edges);
        }
    }
}

#[test]
fn modules_know_each_other_without_cycles() {
    let mut edges = Edges::new();
    read_folder(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), None, &mut edges);
    assert!(
        edges.len() >= 10 && edges["aggregate"].contains("critical_path"),
        "the source was not read: {edges:?}"
    );
    // Takes away what knows nothing that is left, until nothing is.
    while !edges.is_empty() {
        let left: BTreeSet<String> = edges.keys().cloned().collect();
        edges.retain(|_, known| !known.is_disjoint(&left));
        assert!(edges.len() < left.len(), "these modules know each other in a cycle: {edges:?}");
    }
}
