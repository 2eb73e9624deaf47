//! Tests of the sources themselves: edges between crates and modules have no cycle, documents name
//! files that exist, names have one meaning, and no file is too long to keep in mind.

#![cfg(test)]

mod commands;
mod crates;
mod messages;
mod modules;
mod names;
mod promises;
mod prose;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    let above = directory.ancestors().nth(2);
    above.expect("the tests lie in the workspace").to_owned()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the documents for people, from the root: guides, and the pages of crates in the
/// registry.
fn documents() -> Vec<String> {
    let mut found: Vec<String> = [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "CHANGELOG.md",
    ]
    .map(Into::into)
    .into();
    for directory in ["sdk/docs", "collector/docs"] {
        let entries = std::fs::read_dir(root().join(directory))
            .expect("a directory of documents")
            .flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        found.extend(
            names
                .filter(|name| name.ends_with(".md"))
                .map(|name| format!("{directory}/{name}")),
        );
    }
    found.extend(published().map(|directory| format!("{directory}/README.md")));
    found.sort();
    found
}

/// Returns the directories of published crates.
fn published() -> impl Iterator<Item = &'static str> {
    [
        "proto",
        "sdk",
        "sdk/burst",
        "sdk/macros",
        "sdk/provenance",
        "sdk/tradeoff",
        "collector",
        "collector/analysis",
        "collector/cluster",
        "collector/otlp",
        "collector/import",
        "collector/kernel",
        "collector/kernel/model",
        "collector/render",
        "collector/query",
        "collector/mcp",
        "collector/query-api",
        "collector/remote",
        "collector/reports",
        "collector/search",
        "collector/server",
        "collector/sql",
        "collector/store",
        "collector/testkit",
        "collector/web",
        "examples/newsfeed",
    ]
    .into_iter()
}

/// Returns the Rust files below a directory, without tests and generated code.
fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).expect("a directory").flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() && !["tests", "benches", "generated", "target"].contains(&name.as_str()) {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") && name != "tests.rs"
        {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Returns the text of a file up to its tests.
fn before_tests(path: &Path) -> String {
    let text = read(path);
    // Includes tests under a further condition: `#[cfg(all(test, …))]`.
    let is_tests = |(before, line): (&str, &str)| {
        let is_module = line.starts_with("mod ") || line.starts_with("pub(super) mod ");
        is_module && before.starts_with("#[cfg(") && before.contains("test")
    };
    let lines = || text.lines();
    let tests_start = std::iter::zip(lines(), lines().skip(1)).position(is_tests);
    let before = lines().take(tests_start.unwrap_or(usize::MAX));
    before.collect::<Vec<_>>().join("\n")
}

/// Returns the code before a file's tests, without comments.
fn code(path: &Path) -> String {
    let text = before_tests(path);
    let lines = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn documents_name_files_that_exist() {
    let mut named = 0;
    // The changelog describes older versions, and may name files that are gone.
    for document in documents()
        .into_iter()
        .filter(|document| document != "CHANGELOG.md")
    {
        // Below a heading that names a directory, bare names of files are in that directory.
        let mut directory = PathBuf::new();
        for line in read(&root().join(&document)).lines() {
            let words: Vec<&str> = line.split('`').skip(1).step_by(2).collect();
            if line.starts_with('#') {
                directory = words.first().map_or_else(PathBuf::new, PathBuf::from);
            }
            for word in words {
                // `NAME.rs` stands for any name.
                let is_any = word.contains([' ', '…', '*', '=', ':', '<', '{', '$'])
                    || word
                        .rsplit('/')
                        .next()
                        .is_some_and(|name| matches!(name, "NAME.rs" | "VERB.rs"));
                if is_any || word.starts_with('/') {
                    continue;
                }
                let first = word.split('/').next().unwrap_or_default();
                let from_root =
                    ["proto", "sdk", "collector", "examples", "tests", ".ci"].contains(&first);
                let path = if word.contains('/') && from_root {
                    root().join(word)
                } else if word.ends_with(".rs") {
                    root().join(&directory).join(word)
                } else {
                    continue;
                };
                named += 1;
                assert!(
                    path.exists(),
                    "{document} names {word}, which does not exist"
                );
            }
        }
    }
    assert!(named > 20, "{named}");
}

/// Returns the anchor that GitHub gives a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = kept
        .chars()
        .filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn links_lead_somewhere() {
    let mut followed = 0;
    for document in documents() {
        let path = root().join(&document);
        for target in read(&path)
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split_once(')').map(|(to, _)| to))
        {
            if target.contains("://") {
                continue;
            }
            let (file, place) = target.split_once('#').unwrap_or((target, ""));
            let to = if file.is_empty() {
                path.clone()
            } else {
                path.with_file_name("").join(file)
            };
            assert!(
                to.exists(),
                "{document} links to {target}, which does not exist"
            );
            let headings = |text: &str| -> Vec<String> {
                text.lines()
                    .filter(|line| line.starts_with('#'))
                    .map(anchor)
                    .collect()
            };
            assert!(
                place.is_empty() || headings(&read(&to)).iter().any(|anchor| anchor == place),
                "{document} links to {target}, and no heading there is called so"
            );
            followed += 1;
        }
    }
    assert!(followed > 50, "{followed}");
}

/// Maximum number of lines of a source file; a longer file must be split.
const LINES_MAX: usize = 500;

#[test]
fn no_file_is_too_long() {
    for directory in [
        "proto/src",
        "sdk",
        "collector",
        "examples",
        "tests/src",
        "tests/simulation/src",
    ] {
        for path in sources(&root().join(directory)) {
            let lines = read(&path).lines().count();
            assert!(lines <= LINES_MAX, "{} has {lines} lines", path.display());
        }
    }
}

/// Returns the names of the files that contain tests only: modules declared as
/// `#[cfg(test)] mod name;`.
fn test_files(sources: &[PathBuf]) -> BTreeSet<String> {
    let declared = |path: &PathBuf| -> Vec<String> {
        let text = read(path);
        let after = text.split("#[cfg(test)]\n").skip(1);
        after
            .filter_map(|rest| Some(rest.strip_prefix("mod ")?.split_once(';')?.0.to_owned()))
            .collect()
    };
    sources
        .iter()
        .flat_map(declared)
        .map(|name| format!("{name}.rs"))
        .collect()
}

/// Rejects code of the SDK that may panic in a user's service, outside its tests.
#[test]
fn the_sdk_does_not_unwrap() {
    let sources = sources(&root().join("sdk/src"));
    let test_files = test_files(&sources);
    for path in sources {
        if path
            .file_name()
            .is_some_and(|name| test_files.contains(&*name.to_string_lossy()))
        {
            continue;
        }
        let code = code(&path);
        for word in [
            ".unwrap()",
            ".expect(",
            "panic!(",
            "unreachable!(",
            "todo!(",
            "unimplemented!(",
            // They panic if the reader is gone: `sys::say` does not.
            "println!(",
            "print!(",
        ] {
            assert!(!code.contains(word), "{} has {word}", path.display());
        }
    }
}

/// Requires that only the SDK's module `sys` has code that depends on the operating system.
#[test]
fn only_one_module_of_the_sdk_knows_the_operating_system() {
    let src = root().join("sdk/src");
    let words = [
        "libc::",
        "std::os::",
        "/proc/",
        "cfg(unix",
        "cfg(not(unix",
        "target_os",
        "target_family",
    ];
    let has = |path: &Path| words.into_iter().find(|word| code(path).contains(word));
    let (own, others): (Vec<PathBuf>, Vec<PathBuf>) = sources(&src)
        .into_iter()
        .partition(|path| path.starts_with(src.join("sys")) || path == &src.join("sys.rs"));
    assert!(
        own.iter().any(|path| has(path).is_some()),
        "this test has gone blind"
    );
    for path in others {
        assert_eq!(has(&path), None, "{}", path.display());
    }
}

/// Counts the cells of a table's row as rustdoc and GitHub do: a bar ends a cell, even inside
/// code, unless a backslash precedes it.
fn cells(row: &str) -> usize {
    row.trim()
        .trim_matches('|')
        .replace("\\|", "")
        .matches('|')
        .count()
        + 1
}

/// Returns the rows whose number of cells differs from that of their table's head. GitHub and
/// rustdoc drop surplus cells.
fn uneven_rows(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| {
        let line = line.trim_start();
        line.strip_prefix("//!")
            .or_else(|| line.strip_prefix("///"))
            .unwrap_or(line)
            .trim()
    });
    let (mut head, mut uneven) = (None, Vec::new());
    for row in lines {
        if row.starts_with('|') && row.ends_with('|') && row.len() > 1 {
            let expected = *head.get_or_insert(cells(row));
            if cells(row) != expected {
                uneven.push(row.to_owned());
            }
        } else {
            head = None;
        }
    }
    uneven
}

#[test]
fn tables_are_whole() {
    let table = "| a | b |\n|---|---|\n";
    assert_eq!(
        uneven_rows(&format!("{table}| `x(\\|\\| y)` | z |\n\n| alone |")),
        [""; 0]
    );
    assert_eq!(
        uneven_rows(&format!("{table}| `x(|| y)` | z |")),
        ["| `x(|| y)` | z |"]
    );
    let mut files: Vec<PathBuf> = ["sdk", "collector", "examples", "proto"]
        .into_iter()
        .flat_map(|directory| sources(&root().join(directory)))
        .collect();
    files.extend(documents().into_iter().map(|name| root().join(name)));
    let uneven: Vec<(PathBuf, Vec<String>)> = files
        .into_iter()
        .map(|path| (path.clone(), uneven_rows(&read(&path))))
        .filter(|(_, rows)| !rows.is_empty())
        .collect();
    assert!(
        uneven.is_empty(),
        "a bar in a cell is written \\|: {uneven:#?}"
    );
}

/// Requires `--locked` in all instructions to install, so that an installation gets the tested
/// versions.
#[test]
fn installations_are_locked() {
    let texts: Vec<String> = documents()
        .iter()
        .map(|name| read(&root().join(name)))
        .collect();
    let lines: Vec<&str> = texts
        .iter()
        .flat_map(|text| text.lines())
        .filter(|line| line.contains("cargo install"))
        .collect();
    assert!(
        !lines.is_empty() && lines.iter().all(|line| line.contains("--locked")),
        "{lines:?}"
    );
}

/// Requires that each line of Rust code in the documents listed here, except imports and comments,
/// occurs in a compiled example.
#[test]
fn code_in_the_documents_is_that_of_the_examples() {
    let code_of = |line: &str| {
        line.split(" // ")
            .next()
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    let mut examples = sources(&root().join("examples/examples"));
    examples.extend(sources(&root().join("collector/testkit/examples")));
    examples.extend(sources(&root().join("examples/sqlx/src")));
    let compiled: BTreeSet<String> = examples
        .iter()
        .flat_map(|path| read(path).lines().map(code_of).collect::<Vec<_>>())
        .collect();
    let mut looked = 0;
    for document in [
        "README.md",
        "sdk/README.md",
        "sdk/macros/README.md",
        "sdk/docs/guide.md",
        "collector/docs/tutorial.md",
        "collector/testkit/README.md",
    ] {
        let text = read(&root().join(document));
        for block in text
            .split("```rust\n")
            .skip(1)
            .filter_map(|rest| rest.split_once("```"))
        {
            for line in block
                .0
                .lines()
                .map(code_of)
                .filter(|line| !line.is_empty() && !line.starts_with("//"))
            {
                // A file may import more, or less, than the excerpt does.
                looked += 1;
                assert!(
                    line.starts_with("use ") || compiled.contains(&line),
                    "no example has {line:?} of {document}"
                );
            }
        }
    }
    assert!(looked > 50, "{looked}");
}

/// Requires that the tutorial shows the program that `.ci/tutorial` runs.
#[test]
fn the_tutorial_has_the_program_in_python() {
    let text = read(&root().join("collector/docs/tutorial.md"));
    let block = text.split("```python\n").nth(1);
    let block = block.and_then(|rest| rest.split_once("```"));
    let program = read(&root().join("examples/tutorial/shop.py"));
    assert_eq!(block.map(|(code, _)| code), Some(program.as_str()));
}

/// Requires that the guide lists every example.
#[test]
fn examples_are_in_the_guide() {
    let guide = read(&root().join("sdk/docs/guide.md"));
    for path in sources(&root().join("examples/examples")) {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        assert!(
            guide.contains(&format!("](../../examples/examples/{name})")),
            "the guide knows no {name}"
        );
    }
}
