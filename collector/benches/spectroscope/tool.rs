//! Runs the authors' tool, which is written in Perl and calls MATLAB; Octave takes MATLAB's place.
//! The bench copies the user's clone of the tool, and adapts it to current systems.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use regex::Regex;

use crate::Failure;
use crate::process::{Took, watch};

/// Replacements for what the tool calls and current systems lack: MATLAB (by Octave), two of its
/// functions, and three Perl modules.
const SHIMS: [(&str, &str); 6] = [
    ("matlab", include_str!("shims/matlab")),
    ("kstest2.m", include_str!("shims/kstest2.m")),
    ("load.m", include_str!("shims/load.m")),
    (
        "Test/Harness/Assert.pm",
        include_str!("shims/Test/Harness/Assert.pm"),
    ),
    ("define.pm", include_str!("shims/define.pm")),
    (
        "GD/Graph/boxplot.pm",
        include_str!("shims/GD/Graph/boxplot.pm"),
    ),
];
const PROGRAM: &str = "spectroscope/spectroscope.pl";

/// The tool, ready to run.
pub(crate) struct Tool {
    directory: PathBuf,
}

/// Results of the tool.
pub(crate) struct Found {
    pub(crate) took: Took,
    pub(crate) ranked: Vec<Ranked>,
    /// Number of categories in each period.
    pub(crate) categories: [u64; 2],
}

/// Result for one category, in the order of the tool's list.
pub(crate) struct Ranked {
    pub(crate) is_structural: bool,
    /// Sum over all requests, in microseconds.
    pub(crate) cost_us: f64,
    /// Number of requests in each period.
    pub(crate) requests: [u64; 2],
    /// Node of the root.
    pub(crate) root: String,
    pub(crate) nodes: usize,
    /// Edges that the tool marks as changed.
    pub(crate) red: Vec<(String, String)>,
    /// Requests of the later period in this category, by their position in the period's file.
    pub(crate) after: Vec<usize>,
}

impl Tool {
    /// Copies the tool's sources from its repository `from` to `directory`, and prepares the tool
    /// to run.
    pub(crate) fn prepare(from: &Path, directory: &Path) -> Result<Self, Failure> {
        let source = from.join("source");
        if !source.join(PROGRAM).is_file() {
            return Err(format!(
                "{}: the tool's repository is not there: git clone https://github.com/RS1999ent/spectroscope",
                from.display()
            )
            .into());
        }
        let needed = [
            (
                "perl",
                "-MStatistics::Descriptive",
                "perl and libstatistics-descriptive-perl",
            ),
            ("octave-cli", "--quiet", "octave"),
        ];
        for (program, argument, packages) in needed {
            let mut command = Command::new(program);
            command.args([
                argument,
                if program == "perl" {
                    "-e1"
                } else {
                    "--version"
                },
            ]);
            let ran = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
            if !ran.is_ok_and(|status| status.success()) {
                return Err(format!("the tool needs {program}: install {packages}").into());
            }
        }
        copy(&source, &directory.join("source"))?;
        for (name, text) in SHIMS {
            let path = directory.join("shims").join(name);
            fs::create_dir_all(path.parent().ok_or("no directory")?)?;
            fs::write(&path, text)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        }
        // An assignment to `undef` does not compile since Perl 5.36.
        let program = directory.join("source").join(PROGRAM);
        let text = fs::read_to_string(&program)?;
        let assigned = Regex::new(r"(?m)^undef (\$\w+ = )")?;
        fs::write(&program, assigned.replace_all(&text, "$1").as_ref())?;
        Ok(Self {
            directory: directory.to_owned(),
        })
    }

    /// Compares two files of requests, with the tool's own settings.
    pub(crate) fn run(&self, [before, after]: [&Path; 2], output: &Path) -> Result<Found, Failure> {
        let program = self.directory.join("source").join(PROGRAM);
        let shims = self.directory.join("shims");
        let path = std::env::var("PATH").unwrap_or_default();
        fs::create_dir_all(output)?;
        let log = fs::File::create(output.join("log"))?;
        let mut command = Command::new("perl");
        command
            .current_dir(program.parent().ok_or("no directory")?)
            .env("PATH", format!("{}:{path}", shims.display()))
            .env("PERL5LIB", &shims)
            .env("PERL5OPT", "-MGD::Graph::boxplot")
            // The tool numbers categories in the order of a hash.
            .env("PERL_HASH_SEED", "0")
            .env("PERL_PERTURB_KEYS", "0")
            .arg("spectroscope.pl")
            .arg("--output_dir")
            .arg(output)
            .arg("--snapshot0")
            .arg(before)
            .arg("--snapshot1")
            .arg(after)
            .stdout(log.try_clone()?)
            .stderr(log);
        let took = watch(&mut command).map_err(|error| {
            let said = fs::read_to_string(output.join("log")).unwrap_or_default();
            let last: Vec<&str> = said.lines().rev().take(8).collect();
            let last: Vec<&str> = last.into_iter().rev().collect();
            format!(
                "the tool failed ({error}); it said last:\n{}",
                last.join("\n")
            )
        })?;
        Ok(Found {
            took,
            ranked: ranking(output, count(before)?)?,
            categories: categories(output)?,
        })
    }
}

fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}

/// Returns the number of requests in a file.
fn count(file: &Path) -> Result<usize, Failure> {
    Ok(fs::read_to_string(file)?
        .lines()
        .filter(|line| line.starts_with("# "))
        .count())
}

/// Returns the number of categories in each period.
fn categories(output: &Path) -> Result<[u64; 2], Failure> {
    let mut found = [0; 2];
    // Each line describes a category: its requests before and after, and its string.
    for line in fs::read_to_string(output.join("convert_data/input_vector.dat"))?.lines() {
        for (count, said) in found.iter_mut().zip(line.split_whitespace()) {
            *count += u64::from(said != "0");
        }
    }
    Ok(found)
}

/// Returns the tool's list in the paper's order, weighted by likeness.
fn ranking(output: &Path, before: usize) -> Result<Vec<Ranked>, Failure> {
    let members = fs::read_to_string(output.join("convert_data/input_vec_to_global_ids.dat"))?;
    let members: Vec<Vec<usize>> = members
        .lines()
        .map(|line| {
            line.split_whitespace()
                .map(str::parse)
                .collect::<Result<_, _>>()
        })
        .collect::<Result<_, _>>()?;
    let summary = Regex::new(
        r"Cluster ID: (\d+)\\nSpecific Mutation Type: ([\w ]+)\\nCost: (-?\d+)\\n.*requests: (\d+) ; (\d+)",
    )?;
    let node = Regex::new(r#"^([\d.]+) \[label="(\w+)\\nDEFAULT"\]"#)?;
    let edge = Regex::new(r#"^([\d.]+) -> ([\d.]+) \[color="(\w+)""#)?;
    let mut found: Vec<Ranked> = Vec::new();
    let mut names = std::collections::HashMap::new();
    for line in fs::read_to_string(output.join("weighted_combined_ranked_graphs.dot"))?.lines() {
        if let Some(said) = summary.captures(line) {
            let of_cluster = members
                .get(said[1].parse::<usize>()?.wrapping_sub(1))
                .ok_or_else(|| format!("no category {}", &said[1]))?;
            names.clear();
            found.push(Ranked {
                is_structural: said[2].starts_with("Structural"),
                cost_us: said[3].parse()?,
                requests: [said[4].parse()?, said[5].parse()?],
                root: String::new(),
                nodes: 0,
                red: Vec::new(),
                // The tool numbers requests from 1 through both files.
                after: of_cluster
                    .iter()
                    .filter(|id| **id > before)
                    .map(|id| id - before - 1)
                    .collect(),
            });
        } else if let (Some(said), Some(last)) = (node.captures(line), found.last_mut()) {
            last.nodes += 1;
            if last.root.is_empty() {
                last.root = said[2].to_owned();
            }
            names.insert(said[1].to_owned(), said[2].to_owned());
        } else if let (Some(said), Some(last)) = (edge.captures(line), found.last_mut())
            && &said[3] == "red"
        {
            let name = |id: &str| names.get(id).cloned().unwrap_or_default();
            last.red.push((name(&said[1]), name(&said[2])));
        }
    }
    for ranked in &mut found {
        let mut seen = HashSet::new();
        ranked.red.retain(|edge| seen.insert(edge.clone()));
    }
    Ok(found)
}
