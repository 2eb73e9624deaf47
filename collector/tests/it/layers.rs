//! The rooms of the crate know each other only downwards.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// From the bottom up; a room may name only rooms before it. Rooms of one line do not know each other.
const LAYERS: [&[&str]; 12] = [
    &["limits", "progress", "humanise", "suggest"],
    &["record", "show"],
    &["wal", "decode"],
    &["ledger", "store"],
    &["live"],
    &["intake", "recording"],
    &["ingest", "import", "query"],
    &["report"],
    &["http"],
    &["collect"],
    &["demo"],
    &["cli"],
];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Rooms that a source names: `crate::room`, also in `use crate::{a, b}`.
fn named(text: &str) -> BTreeSet<String> {
    let mut rooms = BTreeSet::new();
    for part in text.split("crate::").skip(1) {
        let group = part.strip_prefix('{').and_then(|inner| inner.split_once('}'));
        let names = group.map_or_else(|| vec![part], |(inner, _)| inner.split(',').map(str::trim).collect());
        for name in names {
            rooms.insert(name.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect());
        }
    }
    rooms
}

#[test]
fn edges_point_down() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let layer_of: BTreeMap<&str, usize> = LAYERS
        .iter()
        .enumerate()
        .flat_map(|(layer, rooms)| rooms.iter().map(move |room| (*room, layer)))
        .collect();
    let mut edges = 0;
    for file in files {
        let relative = file.strip_prefix(&root).unwrap();
        let first = relative
            .components()
            .next()
            .unwrap()
            .as_os_str()
            .to_str()
            .unwrap()
            .trim_end_matches(".rs")
            .to_owned();
        if ["lib", "main"].contains(&first.as_str()) {
            continue;
        }
        let own = *layer_of
            .get(&*first)
            .unwrap_or_else(|| panic!("{first} is in no layer; give it a place in LAYERS"));
        for room in named(&std::fs::read_to_string(&file).unwrap()) {
            if room == first {
                continue;
            }
            let other = layer_of
                .get(&*room)
                .unwrap_or_else(|| panic!("{}: crate::{room} is no room", relative.display()));
            assert!(*other < own, "{}: {first} must not know {room}", relative.display());
            edges += 1;
        }
    }
    assert!(edges > 20, "only {edges} edges found: this test has gone blind");
}

#[test]
fn files_stay_small() {
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    for file in files {
        let lines = std::fs::read_to_string(&file).unwrap().lines().count();
        assert!(lines <= 500, "{} has {lines} lines", file.display());
    }
}
