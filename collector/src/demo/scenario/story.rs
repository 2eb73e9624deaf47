//! Results of a scenario: figures with their goals.

use std::fmt;
use std::path::{Path, PathBuf};

use clap::ValueEnum as _;

use super::Scenario;

/// One measured figure of a scenario, with its verdict.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Text that names the figure.
    pub what: String,
    /// Value of the figure as text.
    pub value: String,
    /// Value as a number; `None` for figures without a goal.
    pub number: Option<f64>,
    /// Value in the paper or dissertation to compare with; `None` if none is given.
    pub paper: Option<String>,
    /// Verdict on the figure; `None` if it has no goal.
    pub verdict: Option<Verdict>,
}

/// Verdict on a figure with a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The goal was met.
    Met,
    /// The goal was missed.
    Missed,
}

/// Results of one or more scenarios.
#[derive(Clone, Debug, PartialEq)]
pub struct Story {
    /// Processor on which the figures were measured.
    pub processor: String,
    /// Figures, in the order of the scenarios.
    pub figures: Vec<Figure>,
    /// Directory of the recording.
    pub data: PathBuf,
}

impl Story {
    pub(super) fn new(data: &Path) -> Self {
        Self {
            processor: processor(),
            figures: Vec::new(),
            data: data.to_owned(),
        }
    }

    /// Adds the name of a scenario as the heading of its figures.
    pub(super) fn begin(&mut self, story: Scenario) {
        let name = story.to_possible_value();
        self.say(
            "",
            name.map_or(String::new(), |name| name.get_name().to_uppercase()),
        );
    }

    /// Adds a figure without a goal.
    pub(super) fn say(&mut self, what: impl Into<String>, value: impl Into<String>) {
        self.figures.push(Figure {
            what: what.into(),
            value: value.into(),
            number: None,
            paper: None,
            verdict: None,
        });
    }

    /// Adds a figure with a goal; `is_met` states whether the figure meets it.
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

impl fmt::Display for Story {
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
