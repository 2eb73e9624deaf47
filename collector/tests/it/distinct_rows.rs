//! Rows of reports that differ read differently, however narrow the terminal is.

use std::collections::HashMap;
use std::path::Path;

use clap::Command;
use stroboscope_render::show::{Doc, Part, Table, TextView};
use stroboscope_reports::registry::{pages, tables};
use stroboscope_reports::study::{NamedStudy, Reader};
use tokio::runtime::Runtime;

use crate::common::{check, others};
use crate::snapshots::SAID;
use crate::{attributes, clocks, failures, requests};

const WIDTHS: [Option<usize>; 4] = [None, Some(160), Some(110), Some(80)];

/// Stores of the tests, by the names that [`SAID`] uses, and further ones.
fn stores() -> Vec<(&'static str, tempfile::TempDir)> {
    let mut stores = vec![
        ("shop", requests::imported()),
        ("failing", failures::imported()),
        ("users", attributes::imported()),
        ("hosts", clocks::stored()),
    ];
    for name in [
        "dsb/socialNetwork_compose_post_20traces.jaeger.json.zst",
        "cases/verif-baseline.json.zst",
        "cases/verif-fault05.json.zst",
    ] {
        let Some(file) = others(name) else { continue };
        let directory = tempfile::tempdir().unwrap();
        let file = file.display().to_string();
        check(directory.path(), &["import", &file], 0);
        stores.push((name, directory));
    }
    stores
}

/// Returns the tables whose different rows read the same.
fn ambiguous(of: &str, doc: &Doc) -> Vec<String> {
    let tables = doc.parts().iter().filter_map(|part| match part {
        Part::Table(table) if table.shown > 0 => Some(table),
        _ => None,
    });
    tables.flat_map(|table| ambiguous_rows(of, table)).collect()
}

fn ambiguous_rows(of: &str, table: &Table) -> Vec<String> {
    let table = Table {
        shown: table.rows.len(),
        ..table.clone()
    };
    let mut found = Vec::new();
    for width in WIDTHS {
        let view = TextView {
            width,
            ..TextView::default()
        };
        let lines = view.lines(&table).rows;
        let mut known = HashMap::new();
        for (row, text) in table.rows.iter().zip(lines) {
            let first = *known.entry(text.clone()).or_insert(row);
            if first != row {
                let name = table.spec.name;
                found.push(format!("{of}: {name} in {width:?} columns: {text:?}"));
                break;
            }
        }
    }
    found
}

/// The documents of all reports without arguments, and of those of the snapshots with theirs.
fn documents(name: &str, store: &Path, runtime: &Runtime) -> Vec<(String, Doc)> {
    let data = store.join("stroboscope-data");
    let study = NamedStudy::of_directory(&data, runtime.handle()).unwrap();
    let mut documents = Vec::new();
    for tables in tables() {
        if let Ok(doc) = (tables.document)(&data, &study) {
            let report = tables.specs.first().map_or("", |spec| spec.name);
            documents.push((format!("{name}: {report}"), doc));
        }
    }
    let pages = pages();
    let reader = Reader::of_terminal(runtime.handle());
    for (_, _, said) in SAID.iter().filter(|(of, _, _)| *of == name) {
        let Some(page) = pages.iter().find(|page| said.starts_with(page.words)) else {
            continue;
        };
        let data = data.display().to_string();
        let arguments = said[page.words.len()..].split_whitespace();
        let arguments = [page.name, "--data", &data].into_iter().chain(arguments);
        let matches = (page.command)(Command::new(page.name)).try_get_matches_from(arguments);
        if let Ok(matches) = matches {
            let served = (page.serve)(&matches, &reader, &mut |report| {
                documents.push((format!("{name}: {said}"), report.document()));
                Ok(())
            });
            served.unwrap();
        }
    }
    documents
}

#[test]
fn different_rows_read_differently() {
    let runtime = Runtime::new().unwrap();
    let mut found = Vec::new();
    let mut looked_at = 0;
    for (name, store) in stores() {
        for (of, doc) in documents(name, store.path(), &runtime) {
            found.extend(ambiguous(&of, &doc));
            looked_at += 1;
        }
    }
    assert!(looked_at > 40, "{looked_at} documents");
    assert!(found.is_empty(), "{}", found.join("\n"));
}
