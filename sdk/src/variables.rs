//! Detects unknown `STROBOSCOPE_…` environment variables, and misspelled levels in filters.

use std::ffi::OsString;

const PREFIX: &str = "STROBOSCOPE_";
/// Prefix of variables that are set by and for tests, never by mistake.
const OF_TESTS: &str = "STROBOSCOPE_TEST_";
/// Prefix of the collector's settings. The collector may run in the same environment, and checks
/// its own.
const OF_COLLECTOR: &str = "STROBOSCOPE_COLLECT_";

/// Returns a message for each variable in `set` whose name has the SDK's prefix, is Unicode, and is
/// neither known nor like those of tests, the collector or Kubernetes. A misspelled name would
/// otherwise have no effect and no warning.
///
/// This is not an error: a name of a later version, or of another program's script, must not stop a
/// service.
pub(crate) fn unknown(known: &[&str], set: impl Iterator<Item = OsString>) -> Vec<String> {
    let mut unknown: Vec<String> = set
        .filter_map(|name| name.into_string().ok())
        .filter(|name| {
            name.starts_with(PREFIX)
                && !name.starts_with(OF_TESTS)
                && !name.starts_with(OF_COLLECTOR)
                && !is_service_link(name)
                && !known.contains(&name.as_str())
        })
        .collect();
    unknown.sort();
    unknown.iter().map(|name| sentence(name, known)).collect()
}

/// Reports whether Kubernetes may have set a variable because a Service is called `stroboscope…`:
/// `STROBOSCOPE_SERVICE_HOST`, `STROBOSCOPE_PORT`, `STROBOSCOPE_PORT_4317_TCP` and others.
fn is_service_link(name: &str) -> bool {
    name.ends_with("_SERVICE_HOST") || name.ends_with("_PORT") || name.contains("_PORT_")
}

fn sentence(name: &str, known: &[&str]) -> String {
    let nearest = known.iter().min_by_key(|known| distance(name, known));
    match nearest {
        // Names differ only after the prefix, so a distance that is small against the rest suggests
        // a typo, and a larger one does not.
        Some(nearest)
            if distance(name, nearest) <= 1 + nearest.len().saturating_sub(PREFIX.len()) / 3 =>
        {
            format!("{name} is not known, and changes nothing; did you mean {nearest}?")
        }
        _ => format!(
            "{name} is not known, and changes nothing; known are {}",
            known.join(", ")
        ),
    }
}

/// Levels of `tracing` as written in directives.
#[cfg(feature = "tracing")]
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Finds a word without a level that looks like a misspelled level: one letter is wrong, missing,
/// added or moved, or two are swapped. The filter would treat it as a target, which hardly ever
/// exists, so it would match nothing. Returns a message for the first such word, or `None`. This is
/// not an error, because such a target may exist.
#[cfg(feature = "tracing")]
pub(crate) fn misspelt_level(variable: &str, directives: &str) -> Option<String> {
    let sorted = |word: &str| {
        let mut letters: Vec<char> = word.chars().collect();
        letters.sort_unstable();
        letters
    };
    directives.split(',').map(str::trim).find_map(|word| {
        let lower = word.to_lowercase();
        let is_like = |level: &&str| {
            let off = distance(&lower, level);
            off == 1 || (off == 2 && sorted(&lower) == sorted(level))
        };
        let is_target = word.contains(['=', ':']) || word.parse::<u8>().is_ok() || LEVELS.contains(&&*lower);
        let level = LEVELS.iter().find(|level| !is_target && is_like(level))?;
        Some(format!(
            "{variable}: {word} is read as a target, not a level; did you mean {level}? Write {word}=trace if it \
             is a target"
        ))
    })
}

/// Returns the Levenshtein distance: the least number of letters to insert, delete or replace.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, a) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::names::KNOWN;

    fn check(set: &[&str], expected: &[(&str, &str)]) {
        let said = unknown(&KNOWN, set.iter().map(OsString::from));
        assert_eq!(said.len(), expected.len(), "{said:?}");
        for (said, (name, advice)) in said.iter().zip(expected) {
            assert!(
                said.starts_with(&format!("{name} is not known")) && said.ends_with(advice),
                "{said}"
            );
        }
    }

    #[test]
    fn misspelt_names_are_named_with_the_nearest() {
        check(&KNOWN, &[]);
        check(
            &["PATH", "STROBOSCOPE", "RUST_LOG", "STROBOSCOPE_TEST_ROLE"],
            &[],
        );
        let of_kubernetes = [
            "STROBOSCOPE_PORT",
            "STROBOSCOPE_PORT_4317_TCP_ADDR",
            "STROBOSCOPE_SERVICE_HOST",
            "STROBOSCOPE_SERVICE_PORT_GRPC",
        ];
        check(&of_kubernetes, &[]);
        check(
            &[
                "STROBOSCOPE_SAMPEL",
                "STROBOSCOPE_BURSTCONFIG",
                "STROBOSCOPE_BURST_CONFIG",
            ],
            &[
                (
                    "STROBOSCOPE_BURSTCONFIG",
                    "did you mean STROBOSCOPE_BURST_CONFIG?",
                ),
                ("STROBOSCOPE_SAMPEL", "did you mean STROBOSCOPE_SAMPLE?"),
            ],
        );
        check(
            &["STROBOSCOPE_BURST_CONFIGS"],
            &[(
                "STROBOSCOPE_BURST_CONFIGS",
                "did you mean STROBOSCOPE_BURST_CONFIG?",
            )],
        );
        check(
            &["STROBOSCOPE_COLECTOR"],
            &[(
                "STROBOSCOPE_COLECTOR",
                "did you mean STROBOSCOPE_COLLECTOR?",
            )],
        );
        check(
            &["STROBOSCOPE_LOG_LEVEL"],
            &[("STROBOSCOPE_LOG_LEVEL", &KNOWN.join(", "))],
        );
        check(&["STROBOSCOPE_"], &[("STROBOSCOPE_", &KNOWN.join(", "))]);
    }

    /// Checks that `KNOWN` lists every variable.
    #[test]
    fn every_constant_is_known() {
        let constants = [
            include_str!("config/names.rs"),
            include_str!("../burst/src/marker.rs"),
        ]
        .concat();
        let named: Vec<&str> = constants
            .split("pub const ENV_")
            .skip(1)
            .filter_map(|rest| rest.split('"').nth(1))
            .collect();
        assert_eq!(named.len(), KNOWN.len(), "{named:?}");
        assert!(named.iter().all(|name| KNOWN.contains(name)), "{named:?}");
    }

    #[cfg(feature = "tracing")]
    #[test]
    fn levels_that_are_misspelt_are_told() {
        let check = |directives: &str, level: Option<&str>| {
            let said = misspelt_level("V", directives);
            assert_eq!(said.is_some(), level.is_some(), "{directives}: {said:?}");
            assert!(
                level.is_none_or(|level| said.unwrap().contains(&format!("did you mean {level}?")))
            );
        };
        check("inof", Some("info"));
        check("info,debg", Some("debug"));
        check("shop=debug, Tracee", Some("trace"));
        for fine in [
            "",
            "info",
            "WARN",
            "off,shop",
            "shop::cart",
            "trade=info",
            "information",
            "1",
            "5",
        ] {
            check(fine, None);
        }
    }

    #[test]
    fn distances() {
        for (a, b, expected) in [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("kitten", "sitting", 3),
            ("ab", "ba", 2),
        ] {
            assert_eq!(distance(a, b), expected, "{a} {b}");
        }
    }
}
