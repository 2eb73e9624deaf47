//! Builds commands that messages propose, as they can be typed in the directory where this process
//! was started.

use std::ffi::OsString;
use std::path::Path;

/// Default data directory.
pub const DATA_DEFAULT: &str = "./stroboscope-data";

/// Returns this program's name: the path if the user called it by a path
/// (`target/release/stroboscope`), else `stroboscope`.
fn program(called: Option<OsString>) -> String {
    let called = called.map(|name| name.to_string_lossy().into_owned());
    called
        .filter(|name| name.contains('/'))
        .map_or_else(|| "stroboscope".to_owned(), |path| quoted(&path))
}

/// Puts this program's name before a subcommand and its arguments.
fn command(words: &str) -> String {
    format!("{} {words}", program(std::env::args_os().next()))
}

/// Puts this program's name before a subcommand, and adds the data directory unless it is the
/// default.
pub fn command_on(words: &str, data: &Path) -> String {
    if data == Path::new(DATA_DEFAULT) {
        return command(words);
    }
    format!(
        "{} --data {}",
        command(words),
        quoted(&data.to_string_lossy())
    )
}

/// Quotes a word for a shell.
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_called_as_they_were() {
        assert_eq!(program(Some("stroboscope".into())), "stroboscope");
        assert_eq!(
            program(Some("target/release/stroboscope".into())),
            "target/release/stroboscope"
        );
        assert_eq!(
            program(Some("/a b/stroboscope".into())),
            "'/a b/stroboscope'"
        );
        assert_eq!(program(None), "stroboscope");
    }

    #[test]
    fn words_are_quoted_for_the_shell() {
        assert_eq!(quoted("./data-1"), "./data-1");
        assert_eq!(quoted("it's here"), "'it'\\''s here'");
        assert_eq!(quoted(""), "''");
        assert!(command_on("model", Path::new("x")).ends_with(" model --data x"));
        assert!(command_on("model", Path::new(DATA_DEFAULT)).ends_with(" model"));
    }
}
