//! Test that `collector/docs/schemas/` has the JSON schemas of the types that subcommands print.

use std::collections::BTreeSet;
use std::path::Path;

use stroboscope_reports::registry::schema_document;

use super::verbs::{verbs, words};

/// Compares the schema of each subcommand's JSON output with its file in `collector/docs/schemas/`.
/// Writes the files first if `STROBOSCOPE_BLESS` is set. Also rejects files of no subcommand.
#[test]
fn schemas_are_those_in_the_documents() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/schemas");
    let is_blessed = std::env::var_os("STROBOSCOPE_BLESS").is_some();
    let (mut known, mut stale) = (BTreeSet::new(), Vec::new());
    for verb in verbs() {
        let Some(of) = verb.schema else { continue };
        let title = format!("stroboscope {} --json", words(verb.name));
        let schema = schema_document(of, &title);
        let now = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        let file = format!("{}.json", verb.name);
        if is_blessed {
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join(&file), &now).unwrap();
        }
        if std::fs::read_to_string(directory.join(&file)).unwrap_or_default() != now {
            stale.push(file.clone());
        }
        known.insert(file);
    }
    if !cfg!(feature = "demo") {
        known.insert("demo.json".to_owned());
    }
    let kept = std::fs::read_dir(&directory)
        .unwrap()
        .map(|of| of.unwrap().file_name().into_string().unwrap());
    stale.extend(kept.filter(|file| !known.contains(file)));
    assert!(
        stale.is_empty(),
        "{stale:?}: STROBOSCOPE_BLESS=1 cargo test -p stroboscope-collector --lib -- schemas writes them anew"
    );
}
