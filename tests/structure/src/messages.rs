//! Messages and metrics that the documents quote: the program has them.

use crate::{read, root, sources};

/// Returns the code in the first cell of each row of a document's tables.
fn quoted(text: &str) -> Vec<&str> {
    let rows = text.lines().filter_map(|line| line.strip_prefix("| "));
    let cells = rows.filter_map(|row| row.split(" | ").next());
    cells
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .collect()
}

#[test]
fn quoted_messages_are_in_the_sources() {
    let files = ["sdk", "collector"]
        .into_iter()
        .flat_map(|directory| sources(&root().join(directory)));
    let texts: Vec<String> = files.map(|path| read(&path)).collect();
    let page = read(&root().join("collector/docs/troubleshooting.md"));
    let mut looked = 0;
    // The page shortens messages by an ellipsis.
    for part in quoted(&page).iter().flat_map(|message| message.split('…')) {
        if part.split_whitespace().count() < 3 {
            continue;
        }
        looked += 1;
        let is_there = texts.iter().any(|text| text.contains(part.trim()));
        assert!(is_there, "no source has {part:?}");
    }
    assert!(looked > 10, "{looked}");
}

#[test]
fn alerts_are_on_metrics_that_exist() {
    let guide = read(&root().join("collector/docs/operations.md"));
    let known = quoted(&guide);
    let page = read(&root().join("collector/docs/production.md"));
    let words = quoted(&page)
        .into_iter()
        .flat_map(|code| code.split(|c: char| !c.is_alphanumeric() && c != '_'))
        .filter(|word| word.contains('_') && *word != "pushed_back");
    let mut looked = 0;
    for word in words {
        looked += 1;
        assert!(known.contains(&word), "the guide has no metric {word}");
    }
    assert!(looked > 8, "{looked}");
    for file in ["prometheus-rules.yaml", "grafana-dashboard.json"] {
        let text = read(&root().join("examples/deploy").join(file));
        let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
        let names = words.filter_map(|word| match word.strip_prefix("stroboscope_") {
            None => Some(word).filter(|word| word.starts_with("traces_")),
            ours => ours,
        });
        let mut looked = 0;
        for name in names {
            let parts = ["_bucket", "_count", "_sum"];
            let part_of = parts.iter().find_map(|part| name.strip_suffix(part));
            let name = part_of.unwrap_or(name);
            looked += 1;
            assert!(
                known.contains(&name),
                "{file}: the guide has no metric {name}"
            );
        }
        assert!(looked > 4, "{file}: {looked}");
    }
}
