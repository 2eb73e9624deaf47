//! The long help of every verb is what `tests/help/` holds, so that a change of it is seen where it is reviewed.
//!
//! `STROBOSCOPE_UPDATE_HELP=1 cargo test -p stroboscope-collector --test help` writes the files anew.

#![cfg(feature = "demo")] // Without it a verb is missing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/help")
}

fn help(verb: &[String]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_stroboscope")).args(verb).arg("--help").output().unwrap();
    assert!(output.status.success(), "{verb:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The verbs that a help text lists.
fn verbs(help: &str) -> Vec<String> {
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed = commands.take_while(|line| !line.is_empty());
    // Where a verb's text is long, it goes on in lines that are indented further.
    let names = listed.filter_map(|line| line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')));
    names
        .filter_map(|line| line.split_whitespace().next())
        .filter(|verb| *verb != "help")
        .map(str::to_owned)
        .collect()
}

/// This verb and all below it: the name of the file, and the text.
fn walk(verb: &[String], found: &mut Vec<(String, String)>) {
    let text = help(verb);
    let below = verbs(&text);
    let name = if verb.is_empty() { "stroboscope".to_owned() } else { verb.join("-") };
    found.push((format!("{name}.txt"), text));
    for one in below {
        walk(&[verb, &[one]].concat(), found);
    }
}

#[test]
fn help_is_what_was_reviewed() {
    let mut found = Vec::new();
    walk(&[], &mut found);
    assert!(found.len() > 12, "only {} verbs found: this test has gone blind", found.len());
    let update = std::env::var_os("STROBOSCOPE_UPDATE_HELP").is_some();
    if update {
        std::fs::create_dir_all(folder()).unwrap();
    }
    let mut known: BTreeSet<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let mut changed = Vec::new();
    for (name, text) in &found {
        known.remove(name);
        let path = folder().join(name);
        if std::fs::read_to_string(&path).is_ok_and(|reviewed| reviewed == *text) {
            continue;
        }
        if update {
            std::fs::write(&path, text).unwrap();
        } else {
            changed.push(format!("{name} is now:\n{text}"));
        }
    }
    for name in &known {
        match update {
            true => std::fs::remove_file(folder().join(name)).unwrap(),
            false => changed.push(format!("{name} is of no verb")),
        }
    }
    assert!(
        changed.is_empty(),
        "{}\nIf that is as it should be: STROBOSCOPE_UPDATE_HELP=1 cargo test -p stroboscope-collector --test help",
        changed.join("\n")
    );
}
