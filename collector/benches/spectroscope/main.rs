//! Compares `compare` with the tool of the paper's authors (Spectroscope,
//! <https://github.com/RS1999ent/spectroscope>) on equal requests: the rank of the injected change
//! in both lists, and the time of both.
//!
//! `cargo bench -p stroboscope-collector --bench spectroscope -- --tool DIR` simulates requests of
//! six kinds: one period without a fault, and one for each fault. It writes them into stores by the
//! function that the flusher uses, and compares the stores by `stroboscope compare`. It also makes
//! request-flow graphs from the stores, and runs the tool on them. DIR is a clone of the tool's
//! repository. The tool needs Perl with Statistics::Descriptive, and Octave in place of MATLAB
//! (`shims/`). Without `--tool`, only `compare` runs. Comments and output call `compare` *ours*.
//!
//! `--scale` compares 210,669 requests of 60 segments (the paper's largest comparison, SFS97) by
//! `compare`, and a tenth of them by both.
//!
//! Arguments, after `--`: `--tool DIR`; `--requests COUNT` of a period (20,000); `--only NAME,NAME`
//! selects faults; `--runs COUNT` of `compare`, of which the median counts (3); `--top COUNT` lines
//! of each list (3); `--program FILE`, another build of `stroboscope`; `--scale`; `--keep DIR`,
//! which must be empty, keeps stores, graphs and the tool's output; `--stores BEFORE AFTER`
//! compares two existing data directories instead.

mod dot;
mod fault;
mod ours;
mod period;
mod process;
mod requests;
mod scale;
mod service;
mod tool;
#[allow(dead_code, reason = "the other bench has more use for it")]
#[path = "../million/verbs.rs"]
mod verbs;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tokio::runtime::Runtime;

use fault::{Fault, Truth};
use ours::{Compared, is_of, rows};
use period::{graphs_of, period};
use process::Took;
use requests::{EPOCH_NS, Workload};
use tool::{Found, Ranked, Tool};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const SEED: u64 = 20_110_330;
/// Time from the beginning of the earlier period to that of the later one.
const LATER_NS: u64 = 86_400_000_000_000;
/// Number of rows that a reader of a list is assumed to look at.
const FIRST: usize = 10;

/// Arguments of the bench.
struct Arguments {
    tool: Option<PathBuf>,
    requests: u64,
    only: Option<String>,
    runs: usize,
    top: usize,
    program: PathBuf,
    is_scale: bool,
    keep: Option<PathBuf>,
    stores: Option<[PathBuf; 2]>,
}

fn arguments() -> Result<Option<Arguments>, Failure> {
    let mut found = Arguments {
        tool: None,
        requests: 20_000,
        only: None,
        runs: 3,
        top: 3,
        program: env!("CARGO_BIN_EXE_stroboscope").into(),
        is_scale: false,
        keep: None,
        stores: None,
    };
    let (mut all, mut is_bench) = (std::env::args().skip(1), false);
    while let Some(argument) = all.next() {
        let mut value = || {
            all.next()
                .ok_or_else(|| format!("{argument} wants a value"))
        };
        match argument.as_str() {
            "--bench" => is_bench = true,
            "--scale" => found.is_scale = true,
            "--tool" => found.tool = Some(value()?.into()),
            "--requests" => found.requests = value()?.parse::<u64>()?.max(1),
            "--only" => found.only = Some(value()?),
            "--runs" => found.runs = value()?.parse::<usize>()?.max(1),
            "--top" => found.top = value()?.parse()?,
            "--program" => found.program = value()?.into(),
            "--keep" => found.keep = Some(value()?.into()),
            "--stores" => found.stores = Some([value()?.into(), value()?.into()]),
            other => return Err(format!("no such argument: {other}").into()),
        }
    }
    // `cargo test --benches` also runs this program, without `--bench`. It has nothing to test
    // then.
    Ok(is_bench.then_some(found))
}

fn main() -> Result<(), Failure> {
    let Some(arguments) = arguments()? else {
        return Ok(());
    };
    let temporary = tempfile::tempdir()?;
    let directory = arguments.keep.as_deref().unwrap_or(temporary.path());
    stroboscope_fixtures::create_empty(directory)?;
    // The tool runs in a directory of its own, so the path must be absolute.
    let directory = directory.canonicalize()?;
    let runtime = Runtime::new()?;
    let tool = match &arguments.tool {
        Some(from) => Some(Tool::prepare(from, &directory.join("tool"))?),
        None => {
            println!(
                "SKIPPED: the authors' tool (--tool DIR, a clone of https://github.com/RS1999ent/spectroscope)"
            );
            None
        }
    };
    let bench = Bench {
        arguments,
        directory,
        runtime,
        tool,
    };
    match &bench.arguments.stores {
        Some([before, after]) => bench.given(before, after),
        None if bench.arguments.is_scale => scale::scale(&bench),
        None => bench.faults(),
    }
}

struct Bench {
    arguments: Arguments,
    directory: PathBuf,
    runtime: Runtime,
    tool: Option<Tool>,
}

/// Rank of the first correct row in a list, from 1, and the number of correct ones among the first
/// rows.
#[derive(Default)]
struct Place {
    rank: Option<usize>,
    of_first: usize,
    first: usize,
}

impl Place {
    fn of(is_right: impl Iterator<Item = bool>) -> Self {
        let is_right: Vec<bool> = is_right.collect();
        let first = is_right.len().min(FIRST);
        Self {
            rank: is_right.iter().position(|is| *is).map(|at| at + 1),
            of_first: is_right[..first].iter().filter(|is| **is).count(),
            first,
        }
    }

    fn text(&self) -> String {
        let rank = self.rank.map_or("-".to_owned(), |rank| rank.to_string());
        format!("{rank} ({}/{})", self.of_first, self.first)
    }
}

impl Bench {
    fn faults(&self) -> Result<(), Failure> {
        let is_asked = |fault: &Fault| {
            let only = self.arguments.only.as_deref();
            only.is_none_or(|only| only.split(',').any(|name| name == fault.name()))
        };
        let workload = |fault, seed, epoch_ns| Workload {
            seed,
            fault,
            requests: match fault {
                Fault::MoreRequests => self.arguments.requests * 3 / 2,
                _ => self.arguments.requests,
            },
            epoch_ns,
            segments: None,
        };
        let before = period(
            workload(Fault::None, SEED, EPOCH_NS),
            &self.directory.join("before"),
            &self.runtime,
        )?;
        println!(
            "{} requests before and after, of {:.0} segments",
            self.arguments.requests, before.segments
        );
        let before_dot = self.graphs(&before.directory)?;
        let mut table = Vec::new();
        for fault in Fault::ALL.into_iter().filter(is_asked) {
            let after = period(
                workload(fault, SEED + 1 + fault as u64, EPOCH_NS + LATER_NS),
                &self.directory.join(fault.name()),
                &self.runtime,
            )?;
            println!("\n{}: in {} requests", fault.name(), after.touched.len());
            let stores = [before.directory.as_path(), &after.directory];
            let ours = ours::compare(&self.arguments.program, stores, self.arguments.runs)?;
            let truth = fault.truth();
            let mut line = format!("{:<15} {}", fault.name(), judge_ours(&ours, &truth));
            self.show_ours(&ours.json);
            if let (Some(tool), Some((before_dot, _))) = (&self.tool, &before_dot)
                && let Some((after_dot, ids)) = self.graphs(&after.directory)?
            {
                let output = self.directory.join(fault.name()).join("tool");
                let found = tool.run([before_dot, &after_dot], &output)?;
                let is_right = |ranked| is_right(ranked, &truth, &ids, &after.touched);
                let place = Place::of(found.ranked.iter().map(is_right));
                let (listed, took) = (found.ranked.len(), cells(&found.took));
                line += &format!(" | {:>9} {listed:>9} {took}", place.text());
                self.show_theirs(&found.ranked);
                self.show_categories(stores, &found)?;
            }
            table.push(line);
            if self.arguments.keep.is_none() {
                std::fs::remove_dir_all(&after.directory)?;
            }
        }
        println!(
            "\nours: rank of the injected cause, and of the first mutation by it (and how many of the first {FIRST} are); \
             theirs: rank of the first category that has it and is said to (and how many of the first {FIRST})"
        );
        let measured = format!("{:>8} {:>8} {:>6}", "s", "CPU s", "MiB");
        println!(
            "{:<15} {:>6} {:>9} {:>9} {measured} | {:>9} {:>9} {measured}",
            "fault", "cause", "mutation", "of", "theirs", "of"
        );
        table.iter().for_each(|line| println!("{line}"));
        Ok(())
    }

    /// Compares two existing stores.
    fn given(&self, before: &Path, after: &Path) -> Result<(), Failure> {
        let ours = ours::compare(
            &self.arguments.program,
            [before, after],
            self.arguments.runs,
        )?;
        self.show_ours(&ours.json);
        println!("ours: {} s, CPU s, MiB", cells(&ours.took));
        let Some(tool) = &self.tool else {
            return Ok(());
        };
        let mut files = Vec::new();
        for (name, store) in [("before", before), ("after", after)] {
            let file = self.directory.join(name).with_extension("dot");
            let (ids, left_out) = graphs_of(store, &file, &self.runtime)?;
            println!(
                "{name}: graphs of {} requests, {left_out} left out",
                ids.len()
            );
            if ids.is_empty() {
                return Err(format!("{}: no request has a graph", store.display()).into());
            }
            files.push(file);
        }
        let found = tool.run([&files[0], &files[1]], &self.directory.join("output"))?;
        self.show_theirs(&found.ranked);
        println!("theirs: {} s, CPU s, MiB", cells(&found.took));
        self.show_categories([before, after], &found)
    }

    /// Writes the graphs of a store's requests next to the store. Returns the file, and the ids of
    /// the requests in order; `None` without the tool.
    fn graphs(&self, store: &Path) -> Result<Option<(PathBuf, Vec<u128>)>, Failure> {
        if self.tool.is_none() {
            return Ok(None);
        }
        let file = store.with_extension("dot");
        let (ids, left_out) = graphs_of(store, &file, &self.runtime)?;
        if left_out > 0 {
            return Err(format!("{left_out} requests have no graph").into());
        }
        Ok(Some((file, ids)))
    }

    fn show_ours(&self, json: &Value) {
        let ms = |value: &Value| value.as_f64().unwrap_or_default() / 1e6;
        println!(
            "  ours: {}, {:+.3} ms",
            json["verdict"].as_str().unwrap_or("?"),
            ms(&json["change_ns"])
        );
        for cause in rows(json, "causes").iter().take(self.arguments.top) {
            println!(
                "    {}. {:+.3} ms {}:{} ({}) {}",
                cause["rank"],
                ms(&cause["contribution_ns"]),
                cause["service"].as_str().unwrap_or("?"),
                cause["operation"].as_str().unwrap_or("?"),
                cause["kind"].as_str().unwrap_or("?"),
                cause["edge"].as_str().unwrap_or_default(),
            );
        }
    }

    /// Prints the number of categories in both, which shows whether both consider the same requests
    /// equal.
    fn show_categories(&self, stores: [&Path; 2], found: &Found) -> Result<(), Failure> {
        let ours = ours::categories(&self.arguments.program, stores)?;
        println!(
            "  categories before and after: ours, without folding, {ours:?}, theirs {:?}",
            found.categories
        );
        Ok(())
    }

    fn show_theirs(&self, ranked: &[Ranked]) {
        println!("  theirs:");
        for (at, ranked) in ranked.iter().take(self.arguments.top).enumerate() {
            let red: Vec<String> = ranked
                .red
                .iter()
                .take(2)
                .map(|(from, to)| format!("{from} → {to}"))
                .collect();
            println!(
                "    {}. {:+.3} s in all, {} of {} ({} nodes), {} requests before and {} after{}{}",
                at + 1,
                ranked.cost_us / 1e6,
                if ranked.is_structural {
                    "structure"
                } else {
                    "response time"
                },
                ranked.root,
                ranked.nodes,
                ranked.requests[0],
                ranked.requests[1],
                if ranked.is_structural {
                    ""
                } else {
                    "; responsible: "
                },
                if ranked.is_structural {
                    String::new()
                } else {
                    format!("{}, {} in all", red.join(", "), ranked.red.len())
                },
            );
        }
    }
}

fn cells(took: &Took) -> String {
    format!(
        "{:>8.2} {:>8.2} {:>6}",
        took.wall_s,
        took.cpu_s,
        took.peak_bytes >> 20
    )
}

/// Formats the ranks in the output of `compare`: of the first correct cause, and of the first
/// mutation that has a correct cause. Adds the lengths of both lists, and the cost.
fn judge_ours(ours: &Compared, truth: &Truth) -> String {
    let causes = rows(&ours.json, "causes");
    let right: Vec<&Value> = causes
        .iter()
        .filter(|cause| is_of(cause, truth.operations))
        .map(|cause| &cause["rank"])
        .collect();
    let rank = causes
        .iter()
        .position(|cause| is_of(cause, truth.operations))
        .map_or_else(
            || format!("- of {}", causes.len()),
            |at| format!("{} of {}", at + 1, causes.len()),
        );
    let mutations = rows(&ours.json, "mutations");
    let place = Place::of(mutations.iter().map(|mutation| {
        rows(mutation, "causes")
            .iter()
            .any(|cause| right.contains(&cause))
    }));
    format!(
        "{rank:>6} {:>9} {:>9} {}",
        place.text(),
        mutations.len(),
        cells(&ours.took)
    )
}

/// Reports whether at least half of a category's later requests have the injected change, and the
/// category is listed for this change.
fn is_right(ranked: &Ranked, truth: &Truth, ids: &[u128], touched: &HashSet<u128>) -> bool {
    let has = ranked
        .after
        .iter()
        .filter(|at| ids.get(**at).is_some_and(|id| touched.contains(id)))
        .count();
    let is_said = match &truth.edge {
        None => ranked.is_structural,
        Some([from, to]) => {
            let name = |(service, operation, is_end): &(&str, &str, bool)| {
                dot::node_name(service, operation, *is_end)
            };
            !ranked.is_structural && ranked.red.contains(&(name(from), name(to)))
        }
    };
    is_said && has > 0 && 2 * has >= ranked.after.len()
}
