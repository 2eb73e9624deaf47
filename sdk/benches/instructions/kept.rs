//! Counts in the committed file `instructions.txt`.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Tolerated differences from a committed count: a fraction of the count, but at least
/// `TOLERANCE_INSTRUCTIONS`. Another layout of the same code, or another version of a dependency,
/// causes such differences.
const TOLERANCE: f64 = 0.02;
const TOLERANCE_INSTRUCTIONS: f64 = 1.0;

const BLESS: &str = "STROBOSCOPE_BLESS=1 cargo bench -p stroboscope --bench instructions";

pub(crate) fn is_blessing() -> bool {
    std::env::var_os("STROBOSCOPE_BLESS").is_some()
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/instructions.txt")
}

/// Returns the version of the compiler and its host, for which counts are valid; `None` if `rustc`
/// does not report them.
fn compiler() -> Option<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc)
        .arg("-vV")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "))?;
    Some(format!("{} {host}", text.lines().next()?))
}

/// Instructions per call of a case: in total, and the part that is committed.
pub(crate) struct Counted {
    pub(crate) name: &'static str,
    pub(crate) whole: f64,
    pub(crate) kept: f64,
}

impl std::fmt::Display for Counted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:<44} {:>8.1} instructions, {:>6.1} its own",
            self.name, self.whole, self.kept
        )
    }
}

pub(crate) fn write(counted: &[Counted]) {
    let compiler = compiler().expect("rustc says its version");
    let mut text = format!(
        "# Instructions of one annotation, with the loop around it, or beyond what it is compared with; kept by `{BLESS}`.\n{compiler}\n"
    );
    for Counted { name, kept, .. } in counted {
        text.push_str(&format!("{kept:>8.1}  {name}\n"));
    }
    std::fs::write(path(), text).expect("the counts can be kept");
}

/// Counts in `instructions.txt`, by the name of the case.
pub(crate) struct Kept(Vec<(String, f64)>);

impl Kept {
    /// Reads the counts.
    ///
    /// # Errors
    /// Returns a description if the file cannot be read, or is of another compiler, or if
    /// `RUSTFLAGS` is set.
    pub(crate) fn read() -> Result<Self, String> {
        let text = std::fs::read_to_string(path())
            .map_err(|error| format!("{}: {error}", path().display()))?;
        let mut lines = text.lines().filter(|line| !line.starts_with('#'));
        let theirs = lines.next().unwrap_or_default();
        let ours = compiler().ok_or("rustc does not say its version")?;
        if theirs != ours {
            return Err(format!(
                "those that are kept are of {theirs}, and this is {ours}"
            ));
        }
        if std::env::var_os("RUSTFLAGS").is_some_and(|flags| !flags.is_empty()) {
            return Err("those that are kept are of no RUSTFLAGS".into());
        }
        let count = |line: &str| {
            let (count, name) = line.trim().split_once("  ")?;
            Some((name.to_owned(), count.parse().ok()?))
        };
        lines
            .map(|line| count(line).ok_or_else(|| format!("{line:?} is no count")))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Prints the counts with those in the file. Returns a failure if a count rose, or if the file
    /// lacks it.
    pub(crate) fn compare(&self, counted: &[Counted]) -> ExitCode {
        let (mut rose, mut fell) = (0, 0);
        for one in counted {
            let each = one.kept;
            let verdict = match self.0.iter().find(|(kept, _)| kept == one.name) {
                None => {
                    rose += 1;
                    "NOT KEPT".to_owned()
                }
                Some((_, was)) => {
                    let tolerated = (was * TOLERANCE).max(TOLERANCE_INSTRUCTIONS);
                    let (more, less) = (each - was > tolerated, was - each > tolerated);
                    rose += u32::from(more);
                    fell += u32::from(less);
                    format!(
                        "kept: {was:.1}{}",
                        if more {
                            " ROSE"
                        } else if less {
                            " fell"
                        } else {
                            ""
                        }
                    )
                }
            };
            println!("  {one}   {verdict}");
        }
        if fell > 0 {
            println!("{fell} fell: keep them, so that they stay so few: {BLESS}");
        }
        if rose == 0 {
            return ExitCode::SUCCESS;
        }
        println!("{rose} rose, or are not kept. If that is as it should be: {BLESS}");
        ExitCode::FAILURE
    }
}
