//! Evaluates `compare` on the newsfeed with known changes, in the form of Spectroscope's table.
//!
//! `cargo bench -p stroboscope-collector --bench newsfeed` does the following for each injected
//! change and run. It records a period without the change and a period with it, of real processes
//! (`stroboscope demo`). It compares them by `stroboscope compare`, and judges the answer: how many
//! of the ten highest mutations are relevant, how many of all are irrelevant, how many of the
//! affected requests relevant mutations include, and whether the first cause is the injected one.
//! For the client's parameter, it also runs `stroboscope explain`.
//!
//! With `--pairs COUNT`, it instead compares pairs of periods without a change, at different loads,
//! and counts the pairs with a cause. The goal is set for 40 pairs.
//!
//! Arguments, after `--`: `--runs COUNT` (3); `--seconds SECONDS` of a period (20); `--rate RATE`
//! in requests per second (30); `--only NAME,NAME` selects changes; `--pairs COUNT`; `--program
//! FILE`, another build of the program; `--keep DIR`, which must be empty, keeps data directories
//! and answers.

mod change;
mod check;
mod judge;
mod program;

use std::path::{Path, PathBuf};

use change::Change;
use judge::{Judged, Share};
use program::Program;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Loads of the pairs without a change, as factors of `--rate`.
const LOADS: [f64; 5] = [0.25, 0.5, 0.75, 1.0, 1.5];

/// Arguments of the bench.
struct Arguments {
    runs: usize,
    pairs: usize,
    seconds: f64,
    rate_per_s: f64,
    only: Option<String>,
    program: PathBuf,
    keep: Option<PathBuf>,
}

fn arguments() -> Result<Option<Arguments>, Failure> {
    let mut found = Arguments {
        runs: 3,
        pairs: 0,
        seconds: 20.0,
        rate_per_s: 30.0,
        only: None,
        program: env!("CARGO_BIN_EXE_stroboscope").into(),
        keep: None,
    };
    let (mut all, mut is_bench) = (std::env::args().skip(1), false);
    while let Some(argument) = all.next() {
        let mut value = || {
            all.next()
                .ok_or_else(|| format!("{argument} wants a value"))
        };
        match argument.as_str() {
            "--bench" => is_bench = true,
            "--runs" => found.runs = value()?.parse::<usize>()?.max(1),
            "--pairs" => found.pairs = value()?.parse()?,
            "--seconds" => found.seconds = value()?.parse()?,
            "--rate" => found.rate_per_s = value()?.parse()?,
            "--only" => found.only = Some(value()?),
            "--program" => found.program = value()?.into(),
            "--keep" => found.keep = Some(value()?.into()),
            other => return Err(format!("no such argument: {other}").into()),
        }
    }
    Ok(is_bench.then_some(found))
}

fn main() -> Result<(), Failure> {
    let Some(arguments) = arguments()? else {
        // `cargo test --benches` runs this program without `--bench`. It then tests the judge.
        return check::judge_is_right();
    };
    let temporary = tempfile::tempdir()?;
    let directory = arguments.keep.as_deref().unwrap_or(temporary.path());
    stroboscope_fixtures::create_empty(directory)?;
    let bench = Bench {
        program: Program::new(&arguments.program, arguments.seconds),
        directory: directory.to_owned(),
        arguments,
    };
    match bench.arguments.pairs {
        0 => bench.changes(),
        pairs => bench.pairs(pairs),
    }
}

struct Bench {
    arguments: Arguments,
    program: Program,
    directory: PathBuf,
}

impl Bench {
    fn changes(&self) -> Result<(), Failure> {
        let only = self.arguments.only.as_deref();
        let is_asked =
            |name: &str| only.is_none_or(|only| only.split(',').any(|asked| asked == name));
        if let Some(unknown) = only
            .into_iter()
            .flat_map(|only| only.split(','))
            .find(|asked| Change::ALL.iter().all(|change| change.name != *asked))
        {
            return Err(format!(
                "--only {unknown}: no such change; there are {}",
                Change::ALL.map(|change| change.name).join(", ")
            )
            .into());
        }
        let mut all = Vec::new();
        for change in Change::ALL.iter().filter(|change| is_asked(change.name)) {
            let judged = (0..self.arguments.runs)
                .map(|run| self.judged(change, run))
                .collect::<Result<Vec<_>, _>>()?;
            all.push((change, judged));
        }
        println!(
            "\n{:<20} {:>12} {:>12} {:>12} {:>12} {:>6}  explained",
            "change", "of first 10", "false", "coverage", "first cause", "rank"
        );
        println!(
            "{:<20} {:>12} {:>12} {:>12} {:>12} {:>6}",
            "goal", "100 %", "<= 5 %", ">= 95 %", "all", "1"
        );
        for (change, judged) in &all {
            println!("{:<20} {}", change.name, row(judged));
        }
        Ok(())
    }

    fn judged(&self, change: &Change, run: usize) -> Result<Judged, Failure> {
        let directory = self.directory.join(format!("{}-{run}", change.name));
        let rate = self.arguments.rate_per_s;
        let before = self.program.record(&directory.join("before"), rate, None)?;
        let after = self
            .program
            .record(&directory.join("after"), rate, Some(change.fault))?;
        let answer = self.program.compare(&before, &after)?;
        std::fs::write(directory.join("compare.json"), answer.to_string())?;
        let mut judged = judge::judge(&answer, change)?;
        if let Some(parameter) = change.parameter {
            judged.explained = match self.program.explain(&before, &after)? {
                Some(said) => {
                    std::fs::write(directory.join("explain.json"), said.to_string())?;
                    Some(judge::names(&said, parameter))
                }
                None => {
                    println!("SKIPPED: explain (this build of the program has no such verb)");
                    None
                }
            };
        }
        println!("{} run {run}: {judged}", change.name);
        self.forget(&directory)?;
        Ok(judged)
    }

    fn pairs(&self, pairs: usize) -> Result<(), Failure> {
        let mut with_cause = 0;
        for pair in 0..pairs {
            let directory = self.directory.join(format!("pair-{pair}"));
            let rate = self.arguments.rate_per_s * LOADS[pair % LOADS.len()];
            let before = self.program.record(&directory.join("before"), rate, None)?;
            let after = self.program.record(&directory.join("after"), rate, None)?;
            let answer = self.program.compare(&before, &after)?;
            std::fs::write(directory.join("compare.json"), answer.to_string())?;
            let causes = judge::rows(&answer, "causes")?;
            with_cause += usize::from(!causes.is_empty());
            let first = causes.first().map_or(String::new(), judge::name_of);
            println!(
                "pair {pair} at {rate:.1}/s: {}, {} causes {first}",
                answer["verdict"],
                causes.len()
            );
            self.forget(&directory)?;
        }
        println!(
            "{with_cause} of {pairs} pairs without a change report a cause (goal: at most 2 of 40)"
        );
        Ok(())
    }

    /// Removes the recordings, unless the user keeps them.
    fn forget(&self, directory: &Path) -> Result<(), Failure> {
        if self.arguments.keep.is_none() {
            std::fs::remove_dir_all(directory)?;
        }
        Ok(())
    }
}

/// Returns the row of a change, over all of its runs.
fn row(judged: &[Judged]) -> String {
    let total = |share: fn(&Judged) -> Share| judged.iter().map(share).sum::<Share>();
    let first = judged
        .iter()
        .filter(|judged| judged.rank == Some(1))
        .count();
    let ranks = judged
        .iter()
        .map(|judged| judged.rank.map_or("-".to_owned(), |rank| rank.to_string()));
    let explained: Vec<bool> = judged
        .iter()
        .filter_map(|judged| judged.explained)
        .collect();
    let explained = if explained.is_empty() {
        "-".to_owned()
    } else {
        let right = explained.iter().filter(|is| **is).count();
        format!("{right}/{}", explained.len())
    };
    format!(
        "{:>12} {:>12} {:>12} {:>12} {:>6}  {explained}",
        total(|judged| judged.of_first_ten).to_string(),
        total(|judged| judged.false_positives).to_string(),
        total(|judged| judged.coverage).to_string(),
        format!("{first}/{}", judged.len()),
        ranks.collect::<Vec<_>>().join(",")
    )
}
