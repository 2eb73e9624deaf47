//! Tests of crates and their manifests: published crates depend on no crates of the workspace but
//! those in their lists, and have the metadata of the registry. Only one module uses the kernel
//! recorder.

use std::path::PathBuf;

use crate::{code, published, read, root, sources};

/// Rejects dependencies on crates of the workspace that the list does not allow. Development
/// dependencies are free.
#[test]
fn crates_know_only_whom_they_may() {
    let may: &[(&str, &[&str])] = &[
        ("proto", &[]),
        ("sdk/macros", &[]),
        ("collector/analysis", &["stroboscope-tradeoff"]),
        ("sdk/burst", &[]),
        ("sdk/provenance", &[]),
        ("sdk/tradeoff", &["stroboscope-proto"]),
        (
            "sdk",
            &[
                "stroboscope-burst",
                "stroboscope-proto",
                "stroboscope-macros",
                "stroboscope-provenance",
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
                "stroboscope-cluster",
                "stroboscope-import",
                "stroboscope-kernel-model",
                "stroboscope-mcp",
                "stroboscope-newsfeed",
                "stroboscope-render",
                "stroboscope-query",
                "stroboscope-query-api",
                "stroboscope-remote",
                "stroboscope-reports",
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
                "stroboscope-otlp",
                "stroboscope-kernel",
                "stroboscope-kernel-model",
                "stroboscope-render",
                "stroboscope-proto",
                "stroboscope-provenance",
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
                "stroboscope-burst",
                "stroboscope-kernel-model",
                "stroboscope-provenance",
                "stroboscope-search",
                "stroboscope-store",
                "stroboscope-tradeoff",
            ],
        ),
        (
            "collector/query-api",
            &[
                "stroboscope-analysis",
                "stroboscope-otlp",
                "stroboscope-proto",
                "stroboscope-query",
                "stroboscope-search",
                "stroboscope-store",
            ],
        ),
        ("collector/cluster", &[]),
        (
            "collector/reports",
            &[
                "stroboscope-analysis",
                "stroboscope-burst",
                "stroboscope-cluster",
                "stroboscope-otlp",
                "stroboscope-kernel-model",
                "stroboscope-render",
                "stroboscope-query",
                "stroboscope-remote",
                "stroboscope-search",
                "stroboscope-store",
                "stroboscope-tradeoff",
            ],
        ),
        ("collector/search", &["stroboscope-analysis"]),
        (
            "collector/import",
            &[
                "stroboscope-analysis",
                "stroboscope-otlp",
                "stroboscope-kernel-model",
                "stroboscope-proto",
                "stroboscope-store",
            ],
        ),
        ("collector/render", &["stroboscope-analysis"]),
        (
            "collector/web",
            &[
                "stroboscope-analysis",
                "stroboscope-otlp",
                "stroboscope-render",
                "stroboscope-query",
                "stroboscope-reports",
                "stroboscope-search",
                "stroboscope-store",
            ],
        ),
        (
            "collector/mcp",
            &[
                "stroboscope-render",
                "stroboscope-reports",
                "stroboscope-store",
            ],
        ),
        (
            "collector/testkit",
            &[
                "stroboscope",
                "stroboscope-analysis",
                "stroboscope-render",
                "stroboscope-search",
                "stroboscope-server",
                "stroboscope-store",
            ],
        ),
        ("collector/remote", &["stroboscope-store"]),
        ("collector/otlp", &["stroboscope-proto"]),
        (
            "collector/store",
            &[
                "stroboscope-analysis",
                "stroboscope-otlp",
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
    for (directory, allowed) in may {
        let manifest = read(&root().join(directory).join("Cargo.toml"));
        // Includes those of one system: `[target.'cfg(…)'.dependencies]`.
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
            "{directory}: this test has gone blind"
        );
        for name in known {
            assert!(allowed.contains(&name), "{directory} must not know {name}");
        }
    }
}

/// Requires a description, keywords and licences of each published crate, for readers of the
/// registry.
#[test]
fn published_crates_are_presentable() {
    for directory in published() {
        let manifest = read(&root().join(directory).join("Cargo.toml"));
        for key in [
            "description = ",
            "license.workspace",
            "repository.workspace",
            "keywords = ",
            "categories = ",
        ] {
            assert!(
                manifest.contains(&format!("\n{key}")),
                "{directory}/Cargo.toml has no {key}"
            );
        }
        for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
            // A link that is not followed counts as missing: a text of one line is no licence.
            assert!(
                read(&root().join(directory).join(licence)).lines().count() > 10,
                "{directory}/{licence}"
            );
        }
    }
}

/// Requires that only the module `kernel_recording` of the server names the kernel recorder, which
/// is a dependency on Linux only.
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
