//! Who knows whom: edges between crates, and between the modules of one crate, are acyclic.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::{code, published, read, root, sources};

/// A cycle in a graph, if there is one.
fn cycle(edges: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    fn walk(
        at: &str,
        edges: &BTreeMap<String, BTreeSet<String>>,
        path: &mut Vec<String>,
        done: &mut BTreeSet<String>,
    ) -> bool {
        if done.contains(at) {
            return false;
        }
        if let Some(first) = path.iter().position(|seen| seen == at) {
            path.drain(..first);
            path.push(at.to_owned());
            return true;
        }
        path.push(at.to_owned());
        if edges
            .get(at)
            .is_some_and(|next| next.iter().any(|next| walk(next, edges, path, done)))
        {
            return true;
        }
        path.pop();
        done.insert(at.to_owned());
        false
    }
    let mut done = BTreeSet::new();
    edges.keys().find_map(|start| {
        let mut path = Vec::new();
        walk(start, edges, &mut path, &mut done).then_some(path)
    })
}

#[test]
fn cycles_are_found() {
    let graph = |edges: &[(&str, &str)]| {
        let mut map: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (from, to) in edges {
            map.entry((*from).to_owned())
                .or_default()
                .insert((*to).to_owned());
        }
        map
    };
    assert_eq!(cycle(&graph(&[("a", "b"), ("b", "c"), ("a", "c")])), None);
    assert!(cycle(&graph(&[("a", "b"), ("b", "c"), ("c", "b")])).is_some());
}

/// Top-level modules of a crate, and which others each of them names.
fn module_edges(crate_folder: &str) -> BTreeMap<String, BTreeSet<String>> {
    let src = root().join(crate_folder).join("src");
    let modules: BTreeSet<String> = std::fs::read_dir(&src)
        .expect("sources")
        .flatten()
        .map(|entry| {
            entry
                .path()
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned()
        })
        .filter(|name| !["lib", "main", "generated", "bin"].contains(&name.as_str()))
        .collect();
    let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in sources(&src) {
        let relative = path.strip_prefix(&src).expect("below src");
        let first = relative.iter().next().unwrap_or_default().to_string_lossy();
        let own = first.trim_end_matches(".rs").to_owned();
        if !modules.contains(&own) {
            continue;
        }
        let code = code(&path);
        let named = edges.entry(own.clone()).or_default();
        for (at, _) in code.match_indices("crate::") {
            let rest = &code[at + "crate::".len()..];
            // `crate::{a, b::c}` names several.
            let list = rest
                .strip_prefix('{')
                .map_or(rest, |list| list.split(';').next().unwrap_or(list));
            let items: Vec<&str> = if rest.starts_with('{') {
                list.split(',').collect()
            } else {
                vec![rest]
            };
            for item in items {
                let name: String = item
                    .trim()
                    .chars()
                    .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
                    .collect();
                if modules.contains(&name) && name != own {
                    named.insert(name);
                }
            }
        }
    }
    edges
}

/// Crates whose top-level modules have an order; the others are one module, or their root knows all of them.
#[test]
fn modules_are_acyclic() {
    for folder in published() {
        let mut edges = module_edges(folder);
        if folder == "sdk" {
            // Macros name what they expand to, in the user's crate.
            edges.remove("macros");
            assert!(edges.len() > 15, "{edges:?}");
        }
        assert_eq!(cycle(&edges), None, "{folder}");
    }
}

/// Who may know whom, by crate. Development dependencies are free.
#[test]
fn crates_know_only_whom_they_may() {
    let may: &[(&str, &[&str])] = &[
        ("proto", &[]),
        ("sdk/macros", &[]),
        ("collector/analysis", &["stroboscope-tradeoff"]),
        ("sdk/burst", &[]),
        ("sdk/tradeoff", &["stroboscope-proto"]),
        (
            "sdk",
            &[
                "stroboscope-burst",
                "stroboscope-proto",
                "stroboscope-macros",
                "stroboscope-tradeoff",
            ],
        ),
        ("examples/newsfeed", &["stroboscope"]),
        (
            "collector",
            &[
                "stroboscope", // quality functions, for the demo's stories
                "stroboscope-burst",
                "stroboscope-tradeoff",
                "stroboscope-analysis",
                "stroboscope-import",
                "stroboscope-kernel-model",
                "stroboscope-newsfeed",
                "stroboscope-present",
                "stroboscope-query",
                "stroboscope-query-api",
                "stroboscope-remote",
                "stroboscope-search",
                "stroboscope-server",
                "stroboscope-sql",
                "stroboscope-store",
                "stroboscope-web",
            ],
        ),
        (
            "collector/server",
            &[
                "stroboscope",
                "stroboscope-analysis",
                "stroboscope-burst",
                "stroboscope-foreign",
                "stroboscope-kernel",
                "stroboscope-kernel-model",
                "stroboscope-present",
                "stroboscope-proto",
                "stroboscope-store",
            ],
        ),
        (
            "collector/sql",
            &[
                "stroboscope-analysis",
                "stroboscope-query",
                "stroboscope-store",
            ],
        ),
        (
            "collector/query",
            &[
                "stroboscope-analysis",
                "stroboscope-kernel-model",
                "stroboscope-search",
                "stroboscope-store",
                "stroboscope-tradeoff",
            ],
        ),
        (
            "collector/query-api",
            &[
                "stroboscope-analysis",
                "stroboscope-foreign",
                "stroboscope-proto",
                "stroboscope-query",
                "stroboscope-search",
                "stroboscope-store",
            ],
        ),
        ("collector/search", &["stroboscope-analysis"]),
        (
            "collector/import",
            &[
                "stroboscope-analysis",
                "stroboscope-foreign",
                "stroboscope-kernel-model",
                "stroboscope-proto",
                "stroboscope-store",
            ],
        ),
        ("collector/present", &["stroboscope-analysis"]),
        (
            "collector/web",
            &[
                "stroboscope-analysis",
                "stroboscope-foreign",
                "stroboscope-kernel-model",
                "stroboscope-present",
                "stroboscope-query",
                "stroboscope-search",
                "stroboscope-store",
            ],
        ),
        ("collector/remote", &["stroboscope-store"]),
        ("collector/foreign", &["stroboscope-proto"]),
        (
            "collector/store",
            &[
                "stroboscope-analysis",
                "stroboscope-foreign",
                "stroboscope-kernel-model",
                "stroboscope-proto",
            ],
        ),
        (
            "collector/kernel",
            &[
                "stroboscope-burst",
                "stroboscope-analysis",
                "stroboscope-kernel-model",
            ],
        ),
        (
            "collector/kernel/model",
            &["stroboscope-burst", "stroboscope-analysis"],
        ),
    ];
    for (folder, allowed) in may {
        let manifest = read(&root().join(folder).join("Cargo.toml"));
        // Also those of one system: `[target.'cfg(…)'.dependencies]`.
        let sections = manifest.split("\n[").filter_map(|section| {
            let (head, lines) = section.split_once("]\n")?;
            (head == "dependencies" || head.ends_with(".dependencies")).then_some(lines)
        });
        let known: Vec<&str> = sections
            .flat_map(str::lines)
            .filter_map(|line| line.split([' ', '=', '.']).next())
            .filter(|name| name.starts_with("stroboscope"))
            .collect();
        assert!(
            allowed.is_empty() || !known.is_empty(),
            "{folder}: this test has gone blind"
        );
        for name in known {
            assert!(allowed.contains(&name), "{folder} must not know {name}");
        }
    }
}

/// Whoever finds a crate in the registry reads what it is, and may use it.
#[test]
fn published_crates_are_presentable() {
    for folder in published() {
        let manifest = read(&root().join(folder).join("Cargo.toml"));
        for key in [
            "description = ",
            "license.workspace",
            "repository.workspace",
            "keywords = ",
            "categories = ",
        ] {
            assert!(
                manifest.contains(&format!("\n{key}")),
                "{folder}/Cargo.toml has no {key}"
            );
        }
        for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
            // Also where links are not followed: a text of one line is no licence.
            assert!(
                read(&root().join(folder).join(licence)).lines().count() > 10,
                "{folder}/{licence}"
            );
        }
    }
}

/// The recorder is a dependency on Linux only, so one module names it, which has a half for other systems.
#[test]
fn only_one_module_knows_the_recorder() {
    let src = root().join("collector/server/src");
    let knows = |path: &PathBuf| code(path).contains("stroboscope_kernel::");
    let (own, others): (Vec<PathBuf>, Vec<PathBuf>) = sources(&src)
        .into_iter()
        .partition(|path| path.starts_with(src.join("kernel_recording")));
    assert!(own.iter().any(knows), "this test has gone blind");
    assert_eq!(others.iter().find(|path| knows(path)), None);
    assert_eq!(
        sources(&root().join("collector/src"))
            .iter()
            .find(|path| knows(path)),
        None
    );
}
