//! Mistakes that people make first: none is silent, and none is answered in a parser's words.

use crate::common::check;
use crate::requests;
use crate::viewing::Viewing;

/// Words of the standard library's and the engine's parsers.
const PARSERS_WORDS: [&str; 8] = [
    "invalid digit",
    "invalid float",
    "invalid socket",
    "ParserError",
    "Error during planning",
    "datafusion",
    "Utf8Error",
    "Error {",
];

/// Commands, each with a part of the expected error.
const MISTAKES: [(&str, &str); 46] = [
    ("requests --top x", "a whole number"),
    (
        "requests --top 99999999999999999999",
        "a smaller whole number",
    ),
    ("requests --top -3", "unexpected argument '-3'"),
    ("requests --min 5", "a number and a unit"),
    ("requests --from yesterday", "unexpected argument '--from'"),
    ("requests --since yesterday", "yesterday"),
    (
        "overview --data nosuch",
        "there is no data directory nosuch",
    ),
    ("overview --data file", "not a directory"),
    ("overview --where tenant=t2", "{ .tenant = \"t2\" }"),
    ("slack --root nosuch", "there are: "),
    (
        "critical-path --by nosuch",
        "no request has the attribute nosuch",
    ),
    ("critical-path --since 1h", "began in the requested time"),
    ("compare", "compare needs two periods"),
    ("compare --after 2023-01-30", "a range such as 2h..1h"),
    (
        "compare --before nosuch --after x",
        "an attribute and its value",
    ),
    ("search foo", "expected a formula"),
    ("search {status=eror}", "expected `error`, `ok` or `unset`"),
    ("search {nam=\"x\"}", "attributes begin with a dot"),
    ("what-if --operation nosuch --scale 0.5", "lists operations"),
    ("what-if --operation shop:charge --scale 50%", "such as 0.5"),
    ("import nosuch.json", "cannot read nosuch.json"),
    ("import file", "unknown format"),
    ("collect --keep-bytes 20", "20 needs a unit, such as 20GiB"),
    ("collect --thin-after 24h --thin-ratio 5%", "at least 25h"),
    ("collect --thin-after 48h", "--thin-ratio <SHARE>"),
    (
        "collect --thin-after 48h --thin-ratio 1e-300",
        "at least 0.000001%",
    ),
    (
        "collect --thin-after 48h --thin-ratio 5% --forward http://localhost:1",
        "cannot be used with",
    ),
    ("collect --keep 30d --forward h:1", "cannot be used with"),
    (
        "collect --live-window 1h --forward h:1",
        "cannot be used with",
    ),
    (
        "collect --no-compaction --forward h:1",
        "cannot be used with",
    ),
    ("collect --thin-ratio 5%", "--thin-after <AGE>"),
    ("collect --thin-slower 1s", "--thin-after <AGE>"),
    (
        "store compact --thin-after 48h --thin-ratio 0",
        "such as 5%",
    ),
    (
        "store compact --thin-after 48h --thin-ratio 200%",
        "such as 5%",
    ),
    (
        "store compact --thin-after 48 --thin-ratio 5%",
        "a number and a unit",
    ),
    ("collect --listen 4317", "an address and a port"),
    ("collect --listen localhost", "an address and a port"),
    (
        "worker --allowed-host example.com",
        "unexpected argument '--allowed-host'",
    ),
    ("view --http 80x", "an address and a port"),
    ("timeline --trace zz", "there is no trace zz"),
    ("sql select+1+from+nosuch", "there is no table nosuch"),
    ("sql selct+1", "cannot read the query"),
    ("kernel record --seconds x", "a number"),
    ("burst plan --goal", "a value is required"),
    ("experiment", "--by <ATTRIBUTE>"),
    ("operatons", "'operations'"),
];

#[test]
fn errors_say_what_is_wrong_and_what_to_do() {
    let store = requests::imported();
    std::fs::write(store.path().join("file"), "neither JSON nor a store\n").unwrap();
    for (mistake, expected) in MISTAKES {
        if mistake.starts_with("sql") && !cfg!(feature = "sql") {
            continue;
        }
        let arguments: Vec<String> = mistake
            .split(' ')
            .map(|word| word.replace('+', " "))
            .collect();
        let arguments: Vec<&str> = arguments.iter().map(|word| &**word).collect();
        let (_, error) = check(store.path(), &arguments, 2);
        assert!(error.contains(expected), "{mistake}: {error}");
        for word in PARSERS_WORDS {
            assert!(!error.contains(word), "{mistake}: {error}");
        }
    }
}

#[test]
fn what_is_not_there_is_said() {
    let store = requests::imported();
    for empty in ["requests --since 1h", "failures --since 1h"] {
        let arguments: Vec<&str> = empty.split(' ').collect();
        let (said, _) = check(store.path(), &arguments, 0);
        assert!(
            said.contains("No request in the store matches the requested time"),
            "{empty}: {said}"
        );
    }
}

#[test]
fn view_shows_the_newest_demo_where_there_is_no_other_store() {
    let store = requests::imported();
    let data = store.path().join("stroboscope-data");
    let demos = store.path().join("demos/stroboscope-data");
    std::fs::create_dir_all(demos.join("demo-9")).unwrap();
    std::fs::rename(&data, demos.join("demo-10")).unwrap();
    let viewing = Viewing::of_default_data(&store.path().join("demos"), &[]);
    let (_, page) = viewing.ask("GET /operations", "");
    assert!(page.contains("shop:charge"), "{page}");
}

/// Checks that a demo creates nothing among files of another program.
#[cfg(feature = "demo")]
#[test]
fn a_demo_leaves_other_directories_alone() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("thesis.tex"), "").unwrap();
    for arguments in [
        &["demo", "--data", "."][..],
        &["demo", "--data", ".", "--scenario", "models"],
    ] {
        let (_, errors) = check(directory.path(), arguments, 2);
        assert!(
            errors.contains("it holds thesis.tex") && errors.contains("--data"),
            "{errors}"
        );
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
