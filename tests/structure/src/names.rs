//! Test that each public name has one meaning.

use std::collections::BTreeMap;

use crate::{code, published, root, sources, test_files};

/// Names that a crate defines several times; the list may only get shorter. `Words` and
/// `PlacePointer` of the SDK, and the names of the server, have one meaning: each is defined for
/// two kinds of build.
const DOUBLED: [(&str, &[&str]); 2] = [
    (
        "collector/server",
        &["ConfigSwitch", "KernelRecording", "PreparedRecording"],
    ),
    ("sdk", &["PlacePointer", "Scope", "Value", "Words"]),
];

/// Returns the type or trait that a line of code makes visible to other modules.
fn visible_name(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("pub")?;
    let rest = if rest.starts_with('(') {
        rest.split_once(')')?.1
    } else {
        rest
    };
    let rest = rest.strip_prefix(' ')?;
    let rest = rest.strip_prefix("unsafe ").unwrap_or(rest);
    let name = ["struct ", "enum ", "trait "]
        .iter()
        .find_map(|kind| rest.strip_prefix(kind))?;
    name.split(|c: char| !c.is_alphanumeric() && c != '_')
        .next()
}

#[test]
fn a_public_name_has_one_meaning() {
    assert_eq!(
        visible_name("    pub(super) struct Cursor<R> {"),
        Some("Cursor")
    );
    assert_eq!(
        visible_name("pub unsafe trait Plain: Copy {"),
        Some("Plain")
    );
    assert_eq!(
        [
            visible_name("struct Own;"),
            visible_name("pub fn struct_of()")
        ],
        [None, None]
    );
    for directory in published() {
        let sources = sources(&root().join(directory).join("src"));
        let test_files = test_files(&sources);
        let mut defined: BTreeMap<String, usize> = BTreeMap::new();
        for path in &sources {
            if !path
                .file_name()
                .is_some_and(|name| test_files.contains(&*name.to_string_lossy()))
            {
                let code = code(path);
                let names = code.lines().filter_map(visible_name);
                names.for_each(|name| *defined.entry(name.to_owned()).or_default() += 1);
            }
        }
        let doubled: Vec<&str> = defined
            .iter()
            .filter(|(_, times)| **times > 1)
            .map(|(name, _)| &**name)
            .collect();
        let known = DOUBLED
            .iter()
            .find(|(of, _)| *of == directory)
            .map_or(&[][..], |(_, names)| *names);
        assert_eq!(
            doubled, known,
            "{directory}: give each its own name; what is no longer doubled leaves DOUBLED"
        );
    }
}
