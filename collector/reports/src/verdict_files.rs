//! Files that show a verdict in CI systems: JUnit XML and Markdown.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use stroboscope_render::checks::{Check, CheckList, CheckOutcome};

use crate::arguments::{SelectionArguments, ShowArguments};
use crate::output::say;
use crate::verb::{Report, give};
use crate::{Failure, Status};

/// Arguments for files that show a verdict in CI systems.
#[derive(Clone, Debug, Default, Args)]
pub struct VerdictFiles {
    /// Also write the verdict to this file as JUnit XML, which GitLab, Jenkins and others show.
    /// Replaces the file
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Also append the verdict to this file as Markdown, such as to $GITHUB_STEP_SUMMARY
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

/// A report with a verdict.
pub trait JudgingReport: Report {
    /// Returns the verdict on everything, and the checks that it consists of.
    fn verdict(&self) -> (String, Vec<Check>);
}

impl VerdictFiles {
    /// Computes a report, prints it, and writes its verdict to the files. If `answer` fails, the
    /// files state the reason, so that a CI system does not show those of an earlier run. Writes
    /// nothing if arguments name one file twice.
    pub fn give<R: JudgingReport>(
        &self,
        verb: &'static str,
        from: &SelectionArguments,
        show: &ShowArguments,
        answer: impl FnOnce() -> Result<R, Failure>,
    ) -> Result<Status, Failure> {
        self.check_paths(show)?;
        let answer = answer();
        let (sentence, checks) = match &answer {
            Ok(report) => report.verdict(),
            Err(failure) => no_result(failure),
        };
        let given = answer.and_then(|report| give(&report, from, show));
        let written = self.write(&CheckList {
            verb,
            sentence,
            checks,
        });
        match (given, written) {
            (Err(failure), Err(of_files)) => {
                say!("error: {of_files}");
                Err(failure)
            }
            (given, written) => written.and(given),
        }
    }

    pub fn are_asked(&self) -> bool {
        self.junit.is_some() || self.markdown.is_some()
    }

    /// Rejects arguments that name one file twice.
    fn check_paths(&self, show: &ShowArguments) -> Result<(), Failure> {
        let all = [
            ("--junit", &self.junit),
            ("--markdown", &self.markdown),
            ("--html", &show.html),
        ];
        let all = all
            .iter()
            .filter_map(|(name, path)| Some((name, path.as_ref()?)));
        let all: Vec<_> = all
            .map(|(name, path)| (name, path, resolved(path)))
            .collect();
        for (place, (name, path, resolved)) in all.iter().enumerate() {
            let mut others = all[..place].iter();
            if let Some((other, ..)) = others.find(|(_, _, other)| other == resolved) {
                return Err(Failure::asked(format!(
                    "{other} and {name} are both {}: name two files",
                    path.display()
                )));
            }
        }
        Ok(())
    }

    fn write(&self, checks: &CheckList) -> Result<(), Failure> {
        let junit = self.junit.as_ref().map_or(Ok(()), |path| {
            said("write", path, replace(path, checks.to_junit().as_bytes()))
        });
        let markdown = self.markdown.as_ref().map_or(Ok(()), |path| {
            said(
                "append to",
                path,
                append(path, checks.to_markdown().as_bytes()),
            )
        });
        match (junit, markdown) {
            (Err(junit), Err(markdown)) => Err(Failure::new(format!("{junit}; {markdown}"))),
            (junit, markdown) => junit.and(markdown),
        }
    }
}

fn no_result(failure: &Failure) -> (String, Vec<Check>) {
    let check = Check {
        name: "result".to_owned(),
        outcome: CheckOutcome::Error,
        reasons: vec![failure.to_string()],
    };
    (format!("No result: {failure}"), vec![check])
}

/// Resolves symbolic links in a path or, if it leads to no file, in its parent. Returns the path
/// unchanged if both fail.
fn resolved(path: &Path) -> PathBuf {
    let parent = path.parent().filter(|of| !of.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new(".")).canonicalize();
    let in_parent = || Some(parent.ok()?.join(path.file_name()?));
    path.canonicalize()
        .ok()
        .or_else(in_parent)
        .unwrap_or_else(|| path.to_owned())
}

fn said(verb: &str, path: &Path, done: io::Result<()>) -> Result<(), Failure> {
    done.map_err(|error| Failure::new(format!("cannot {verb} {}: {error}", path.display())))
}

/// Writes a file as a whole or not at all, unless it is a device or a pipe.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let path = resolved(path);
    let old = match File::options().write(true).open(&path) {
        Ok(old) => Some(old.metadata()?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    if old.as_ref().is_some_and(|old| !old.is_file()) {
        return fs::write(&path, bytes);
    }
    let Some(name) = path.file_name() else {
        return Err(io::ErrorKind::InvalidFilename.into());
    };
    let mut part = OsString::from(".");
    part.push(name);
    part.push(format!(".{}.part", std::process::id()));
    let part = path.with_file_name(part);
    let written = fs::write(&part, bytes)
        .and_then(|()| old.map_or(Ok(()), |old| fs::set_permissions(&part, old.permissions())))
        .and_then(|()| fs::rename(&part, &path));
    written.inspect_err(|_| {
        let _ = fs::remove_file(&part);
    })
}

/// Appends to a file. Several steps of a job may share a summary.
fn append(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::options().append(true).create(true).open(path)?;
    file.write_all(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        replace(&at("a"), b"first").unwrap();
        fs::set_permissions(at("a"), fs::Permissions::from_mode(0o640)).unwrap();
        symlink("a", at("link")).unwrap();
        let reader = File::open(at("a")).unwrap();
        replace(&at("link"), b"2nd").unwrap();
        assert_eq!(fs::read_to_string(at("a")).unwrap(), "2nd");
        assert_eq!(io::read_to_string(reader).unwrap(), "first");
        assert!(at("link").is_symlink());
        let mode = fs::metadata(at("a")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        for name in ["none/a", "", ".", "a/b"] {
            replace(&at(name), b"x").unwrap_err();
        }
        replace(Path::new("/dev/full"), b"x").unwrap_err();
        let left = fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(left, 2);
    }

    #[test]
    fn a_summary_is_appended() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("summary");
        append(&path, b"a").unwrap();
        append(&path, b"b").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "ab");
        append(Path::new("/dev/full"), b"x").unwrap_err();
    }

    #[test]
    fn two_outputs_are_two_files() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("a"), "").unwrap();
        symlink("a", at("link")).unwrap();
        let check = |junit: &str, markdown: &str, html: &str| {
            let path = |name: &str| (!name.is_empty()).then(|| at(name));
            let files = VerdictFiles {
                junit: path(junit),
                markdown: path(markdown),
            };
            let show = ShowArguments {
                html: path(html),
                parquet: None,
                full_names: false,
            };
            files.check_paths(&show).is_ok()
        };
        assert!(check("a", "b", "c"));
        assert!(check("", "", "c"));
        for [junit, markdown, html] in [
            ["a", "a", ""],
            ["new", "./new", ""],
            ["a", "link", ""],
            ["a", "", "a"],
            ["", "b", "b"],
        ] {
            assert!(!check(junit, markdown, html), "{junit} {markdown} {html}");
        }
    }
}
