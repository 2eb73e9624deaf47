//! Counts of unclear prose, per crate; they may only fall.

use std::collections::BTreeMap;

use crate::{before_tests, published, root, sources};

/// Words that may not begin the first line of a doc comment, because the sentence after them has no
/// actor.
const OPENINGS: [&str; 21] = [
    "What", "Who", "Whoever", "Whose", "Whether", "Which", "When", "Where", "How", "Why", "That",
    "The same", "Same", "Of", "As", "All", "Those", "Since", "None", "Somebody", "Nobody",
];
/// Words that nine code bases of the field use 40 to 190 times more rarely than this one did.
const RARE: [&str; 14] = [
    "what",
    "who",
    "whoever",
    "says",
    "said",
    "told",
    "somebody",
    "nobody",
    "beside",
    "elsewhere",
    "foretell",
    "foretold",
    "folder",
    "folders",
];
/// Irregular participles that make poor names of types.
const PARTICIPLES: [&str; 30] = [
    "Known", "Seen", "Found", "Said", "Told", "Kept", "Taken", "Given", "Made", "Shown", "Written",
    "Held", "Left", "Lost", "Sent", "Built", "Cut", "Spent", "Drawn", "Chosen", "Torn", "Met",
    "Done", "Gone", "Begun", "Thrown", "Foretold", "Bound", "Brought", "Caught",
];
/// Nouns that end as participles do.
const NOUNS: [&str; 8] = [
    "Drawing",
    "Encoding",
    "Feed",
    "Finding",
    "Recording",
    "Ring",
    "Setting",
    "Timing",
];
/// Maximum columns of a comment's line.
const COLUMNS: usize = 100;

/// Counts of one crate's production code.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    /// Doc comments that begin with one of [`OPENINGS`].
    openings: usize,
    /// Words of comments that are among [`RARE`].
    words: usize,
    /// Types whose names are bare participles.
    participles: usize,
    /// Lines of comments over [`COLUMNS`] columns.
    wide: usize,
}

impl Counts {
    fn of(text: &str) -> Self {
        let mut counts = Self::default();
        let mut in_doc = false;
        for line in text.lines() {
            let trimmed = line.trim_start();
            let doc = ["///", "//!"]
                .iter()
                .find_map(|mark| trimmed.strip_prefix(mark));
            if let Some(first) = doc.filter(|_| !in_doc) {
                counts.openings += usize::from(is_opening(first.trim_start()));
            }
            in_doc = doc.is_some();
            if trimmed.starts_with("//") {
                let words = trimmed.split(|c: char| !c.is_alphanumeric());
                counts.words += words
                    .filter(|word| RARE.contains(&&*word.to_lowercase()))
                    .count();
                counts.wide += usize::from(line.chars().count() > COLUMNS);
            } else {
                counts.participles += usize::from(type_name(line).is_some_and(is_participle));
            }
        }
        counts
    }
}

fn is_opening(first: &str) -> bool {
    OPENINGS.iter().any(|opening| {
        let rest = first.strip_prefix(opening);
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    })
}

/// Returns the type that a line declares; an associated type counts where its trait declares it.
fn type_name(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace().skip_while(|word| {
        word.starts_with("pub")
            || word.starts_with("in ")
            || word.ends_with(')')
            || *word == "unsafe"
    });
    let kind = words.next()?;
    let is_type = ["struct", "enum", "union", "trait", "type"].contains(&kind);
    let is_given = kind == "type" && line.starts_with(' ') && line.contains('=');
    let name = words.next().filter(|_| is_type && !is_given)?;
    name.split(|c: char| !c.is_alphanumeric()).next()
}

fn is_participle(name: &str) -> bool {
    let is_one_word = name.chars().filter(|c| c.is_uppercase()).count() == 1;
    let is_regular = name.ends_with("ed") || name.ends_with("ing");
    is_one_word && !NOUNS.contains(&name) && (is_regular || PARTICIPLES.contains(&name))
}

#[test]
fn counts_are_of_what_they_say() {
    let text = "\
/// What it is.
/// What follows is the second line.
pub(crate) struct Known;
/// Whatever the other sends.
pub enum State {
    /// As of now, nobody is told.
    A,
}
    type Item = Known;
type Seen<T> = Option<T>;
";
    let counts = Counts::of(text);
    let expected = Counts {
        openings: 2,
        words: 4,
        participles: 2,
        wide: 0,
    };
    assert_eq!(counts, expected);
    assert_eq!(Counts::of(&format!("    // {}", "a ".repeat(50))).wide, 1);
    assert!(!is_participle("Ring") && !is_participle("KnownName") && is_participle("Watched"));
}

/// Counts of each crate's production code, in the order of [`Counts`]' fields. Numbers only fall.
const REMAINING: &[(&str, [usize; 4])] = &[
    ("collector", [0, 12, 0, 1]),
    ("collector/analysis", [0, 10, 0, 5]),
    ("collector/cluster", [0, 0, 0, 0]),
    ("collector/import", [0, 2, 0, 8]),
    ("collector/kernel", [0, 1, 0, 0]),
    ("collector/kernel/model", [0, 0, 0, 1]),
    ("collector/otlp", [0, 0, 0, 9]),
    ("collector/query", [0, 7, 0, 2]),
    ("collector/mcp", [0, 0, 0, 0]),
    ("collector/query-api", [0, 0, 0, 0]),
    ("collector/remote", [0, 0, 0, 0]),
    ("collector/render", [0, 4, 0, 0]),
    ("collector/reports", [0, 31, 0, 0]),
    ("collector/search", [0, 1, 0, 2]),
    ("collector/server", [0, 1, 0, 0]),
    ("collector/sql", [0, 0, 0, 0]),
    ("collector/store", [0, 1, 0, 2]),
    ("collector/testkit", [0, 0, 0, 0]),
    ("collector/web", [0, 4, 0, 0]),
    ("examples/newsfeed", [0, 0, 0, 0]),
    ("proto", [0, 0, 0, 0]),
    ("sdk", [0, 8, 0, 34]),
    ("sdk/burst", [0, 0, 0, 0]),
    ("sdk/macros", [0, 0, 0, 0]),
    ("sdk/provenance", [0, 0, 1, 0]),
    ("sdk/tradeoff", [0, 0, 0, 1]),
];

#[test]
fn prose_only_gets_plainer() {
    let mut found = BTreeMap::new();
    for directory in published() {
        let counts = sources(&root().join(directory).join("src"))
            .iter()
            .map(|path| Counts::of(&before_tests(path)))
            .fold([0; 4], |sum, of| {
                let of = [of.openings, of.words, of.participles, of.wide];
                std::array::from_fn(|at| sum[at] + of[at])
            });
        found.insert(directory, counts);
    }
    let remaining: BTreeMap<&str, [usize; 4]> = REMAINING.iter().copied().collect();
    let lines: String = found
        .iter()
        .map(|(directory, counts)| format!("    ({directory:?}, {counts:?}),\n"))
        .collect();
    assert!(
        found == remaining,
        "where a number grew, write plainly; where it fell, so does REMAINING:\n{lines}"
    );
}
