//! What a story tells: figures with what they are measured against.

use std::fmt;
use std::path::{Path, PathBuf};

use clap::ValueEnum as _;

use super::Scenario;

/// One figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// What it is of.
    pub what: String,
    /// Its value, in words.
    pub value: String,
    /// The same as a number, where it is one.
    pub number: Option<f64>,
    /// The paper's.
    pub paper: Option<String>,
    /// Whether it is what it should be.
    pub verdict: Option<Verdict>,
}

/// Whether a goal was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was.
    Met,
    /// It was not.
    Missed,
}

/// A story.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// The processor that the figures are of.
    pub processor: String,
    /// In order.
    pub figures: Vec<Figure>,
    /// Where everything is recorded.
    pub data: PathBuf,
}

impl Told {
    pub(super) fn new(data: &Path) -> Self {
        Self {
            processor: processor(),
            figures: Vec::new(),
            data: data.to_owned(),
        }
    }

    /// A story begins.
    pub(super) fn begin(&mut self, story: Scenario) {
        let name = story.to_possible_value();
        self.say(
            "",
            name.map_or(String::new(), |name| name.get_name().to_uppercase()),
        );
    }

    /// Notes a figure that is what it is.
    pub(super) fn say(&mut self, what: impl Into<String>, value: impl Into<String>) {
        self.figures.push(Figure {
            what: what.into(),
            value: value.into(),
            number: None,
            paper: None,
            verdict: None,
        });
    }

    /// Notes a figure with a goal.
    pub(super) fn judge(
        &mut self,
        what: impl Into<String>,
        (value, number): (String, f64),
        paper: &str,
        is_met: bool,
    ) {
        self.figures.push(Figure {
            what: what.into(),
            value,
            number: Some(number),
            paper: (!paper.is_empty()).then(|| paper.to_owned()),
            verdict: Some(if is_met {
                Verdict::Met
            } else {
                Verdict::Missed
            }),
        });
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.processor)?;
        let width = self
            .figures
            .iter()
            .map(|figure| figure.what.chars().count())
            .max();
        let width = width.unwrap_or_default();
        for figure in &self.figures {
            write!(f, "{:width$}  {}", figure.what, figure.value)?;
            if let Some(paper) = &figure.paper {
                write!(f, "  [paper: {paper}]")?;
            }
            match figure.verdict {
                Some(Verdict::Met) => writeln!(f, "  met")?,
                Some(Verdict::Missed) => writeln!(f, "  MISSED")?,
                None => writeln!(f)?,
            }
        }
        write!(f, "recorded in {}", self.data.display())
    }
}

fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let value = |key: &str| {
        let line = text.lines().find(|line| {
            line.split(':')
                .next()
                .is_some_and(|name| name.trim() == key)
        })?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    match (value("model name"), value("cpu family"), value("model")) {
        (Some(name), Some(family), Some(model)) => {
            format!("{name} (family {family}, model {model}), {cores} processors")
        }
        _ => format!("{}, {cores} processors", std::env::consts::ARCH),
    }
}
