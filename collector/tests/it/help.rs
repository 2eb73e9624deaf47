//! Compares the long help of every subcommand with `tests/help/`, so that changes are reviewed.
//! `docs/cli.md` is generated from it.
//!
//! `STROBOSCOPE_BLESS=1 cargo test -p stroboscope-collector --test it -- help::` writes these
//! files.

#![cfg(feature = "demo")] // Without it a verb is missing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/help")
}

fn help(verb: &[String]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_stroboscope"))
        .args(verb)
        .arg("--help")
        .output()
        .unwrap();
    assert!(output.status.success(), "{verb:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The verbs that a help text lists.
fn verbs(help: &str) -> Vec<String> {
    let after_usage = help.lines().skip_while(|line| !line.starts_with("Usage:"));
    let listed = after_usage.take_while(|line| *line != "Options:");
    // Where a verb's text is long, it goes on in lines that are indented further.
    let names = listed.filter_map(|line| {
        line.strip_prefix("  ")
            .filter(|rest| !rest.starts_with(' '))
    });
    names
        .filter_map(|line| line.split_whitespace().next())
        .filter(|verb| *verb != "help" && !verb.starts_with(['<', '[']))
        .map(str::to_owned)
        .collect()
}

/// A verb, by the words it is called with, and its help.
struct Page {
    verb: Vec<String>,
    text: String,
}

impl Page {
    fn file_name(&self) -> String {
        let name = if self.verb.is_empty() {
            "stroboscope".to_owned()
        } else {
            self.verb.join("-")
        };
        format!("{name}.txt")
    }

    fn heading(&self) -> String {
        [&["stroboscope".to_owned()], &self.verb[..]]
            .concat()
            .join(" ")
    }

    /// Returns the first line, which describes the subcommand.
    fn about(&self) -> &str {
        self.text.lines().next().unwrap_or_default()
    }
}

/// This verb and all below it.
fn walk(verb: &[String], found: &mut Vec<Page>) {
    let text = help(verb);
    let below = verbs(&text);
    found.push(Page {
        verb: verb.to_owned(),
        text,
    });
    for one in below {
        walk(&[verb, &[one]].concat(), found);
    }
}

fn pages() -> Vec<Page> {
    let mut found = Vec::new();
    walk(&[], &mut found);
    assert!(
        found.len() > 12,
        "only {} verbs found: this test has gone blind",
        found.len()
    );
    found
}

fn is_blessing() -> bool {
    std::env::var_os("STROBOSCOPE_BLESS").is_some()
}

/// Longest line of the reference, in characters: browsers do not break lines of code.
const WIDTH: usize = 100;

/// Breaks a long line at spaces. Continuation lines align with the text, or with the second column
/// of a list.
fn wrapped(line: &str) -> String {
    let indented = line.len() - line.trim_start().len();
    let second = line[indented..].find("  ").map(|gap| {
        let rest = &line[indented + gap..];
        indented + gap + rest.len() - rest.trim_start().len()
    });
    let below = match second {
        Some(column) if column < WIDTH / 2 => column,
        _ if line[indented..].starts_with("- ") => indented + 2,
        _ => indented,
    };
    let mut lines = vec![line[..indented].to_owned()];
    for (number, word) in line[indented..].split(' ').enumerate() {
        let last = lines.last_mut().expect("there is a first");
        if number == 0 {
            last.push_str(word);
        } else if last.chars().count() + 1 + word.chars().count() <= WIDTH || last.trim().is_empty()
        {
            *last += " ";
            last.push_str(word);
        } else {
            lines.push(" ".repeat(below) + word);
        }
    }
    lines
        .iter()
        .map(|line| line.trim_end())
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn long_lines_are_broken_below_their_text() {
    let check = |line: &str, expected: &str| assert_eq!(wrapped(line), expected);
    let (a, b) = ("a".repeat(60), "b".repeat(60));
    check("", "");
    check("  x  y", "  x  y");
    check("          ", "");
    check(&format!("    {a} {b}"), &format!("    {a}\n    {b}"));
    check(
        &format!("  verb   {a} {b}"),
        &format!("  verb   {a}\n         {b}"),
    );
    check(
        &format!("    - s: {a} {b}"),
        &format!("    - s: {a}\n      {b}"),
    );
}

/// Returns all help as one page.
fn reference(pages: &[Page]) -> String {
    let mut page = "# The command line\n\n\
        Made of the program's own help by `collector/tests/it/help.rs`; change that, and run\n\
        `STROBOSCOPE_BLESS=1 cargo test -p stroboscope-collector --test it -- help::`.\n\n"
        .to_owned();
    for one in pages {
        let heading = one.heading();
        page += &format!(
            "- [`{heading}`](#{}): {}\n",
            heading.replace(' ', "-"),
            one.about()
        );
    }
    for one in pages {
        let text: String = one
            .text
            .trim_end()
            .lines()
            .map(|line| wrapped(line) + "\n")
            .collect();
        assert!(!text.contains("```"), "{:?} would end its block", one.verb);
        page += &format!("\n## {}\n\n```text\n{text}```\n", one.heading());
    }
    page
}

#[test]
fn the_reference_is_made_of_the_help() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/cli.md");
    let reference = reference(&pages());
    if is_blessing() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &reference).unwrap();
    }
    assert!(
        std::fs::read_to_string(&path).is_ok_and(|kept| kept == reference),
        "docs/cli.md is stale; run STROBOSCOPE_BLESS=1 cargo test -p stroboscope-collector --test it -- help::"
    );
}

#[test]
fn help_is_what_was_reviewed() {
    let found: Vec<(String, String)> = pages()
        .into_iter()
        .map(|page| (page.file_name(), page.text))
        .collect();
    let update = is_blessing();
    if update {
        std::fs::create_dir_all(directory()).unwrap();
    }
    let mut known: BTreeSet<String> = std::fs::read_dir(directory())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let mut changed = Vec::new();
    for (name, text) in &found {
        known.remove(name);
        let path = directory().join(name);
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
            true => std::fs::remove_file(directory().join(name)).unwrap(),
            false => changed.push(format!("{name} is of no verb")),
        }
    }
    assert!(
        changed.is_empty(),
        "{}\nIf that is as it should be: STROBOSCOPE_BLESS=1 cargo test -p stroboscope-collector --test it -- help::",
        changed.join("\n")
    );
}
