//! A search for a trace by id skips files that cannot contain it.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use stroboscope_query::{Selection, Source};
use stroboscope_store::tables::AttributeKeys;

fn run(directory: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stroboscope"));
    let output = command
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap();
    (
        output.status.code(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

/// Imports 3,000 requests with ids from this number on.
fn import(directory: &Path, first: u64) {
    let span = |request: u64| {
        json!({"traceId": format!("{request:032x}"), "id": format!("{request:016x}"), "name": "page", "kind": "SERVER",
            "timestamp": 1_700_000_000_000_000u64 + request * 1_003, "duration": 700 + request % 7,
            "localEndpoint": {"serviceName": "web"}})
    };
    let spans: Vec<_> = (first..first + 3_000).map(span).collect();
    let name = format!("{first}.json");
    std::fs::write(directory.join(&name), json!(spans).to_string()).unwrap();
    assert_eq!(run(directory, &["import", &name]).0, Some(0));
}

fn spans(directory: &Path) -> Vec<PathBuf> {
    let mut directories = vec![directory.join("stroboscope-data/spans")];
    let mut found = Vec::new();
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else {
                found.push(path);
            }
        }
    }
    found
}

#[test]
fn what_cannot_hold_the_trace_is_not_read() {
    let directory = tempfile::tempdir().unwrap();
    import(directory.path(), 1);
    let before = spans(directory.path());
    import(directory.path(), 1_000_000);
    let second: Vec<PathBuf> = spans(directory.path())
        .into_iter()
        .filter(|path| !before.contains(path))
        .collect();
    assert_eq!(second.len(), 1);
    // Damages the pages of the second file, but not its page index.
    let mut bytes = std::fs::read(&second[0]).unwrap();
    let upto = bytes.len() / 2;
    bytes[4..upto].fill(0xff);
    std::fs::write(&second[0], bytes).unwrap();

    let runtime = tokio::runtime::Runtime::new().unwrap();
    let source = Source::open(
        &directory.path().join("stroboscope-data"),
        runtime.handle().clone(),
    )
    .unwrap();
    let all = Selection {
        include_incomplete: true,
        ..Selection::default()
    };
    let look = |id: u128| source.trace(id, all, &AttributeKeys::none()).unwrap();
    let (found, notes) = look(7);
    assert_eq!((found.unwrap().id.0, notes.damage.len()), (7, 0));
    let (found, notes) = look(4_000);
    assert_eq!((found.is_none(), notes.damage.len()), (true, 0));
    let (found, notes) = look(1_000_007);
    assert_eq!((found.is_none(), notes.damage.len()), (true, 1));
    let everything = source
        .for_each_trace("reading", all, &AttributeKeys::none(), |_, _| true)
        .unwrap();
    assert_eq!(everything.damage.len(), 1);

    // `timeline --trace` skips the file as well.
    let (_, said) = run(directory.path(), &["timeline", "--trace", "7"]);
    assert!(
        said.contains("nothing of the kernel was recorded meanwhile") && !said.contains("error:"),
        "{said}"
    );
}
