//! Compares the cost of an annotation of the SDK with that of other libraries:
//! `cargo bench -p stroboscope-bench-rivals`.
//!
//! A process has one global `tracing` subscriber, so each stack runs in a child process of its own.
//! The children live as long as the run. They run one round each in turn, while the others sleep,
//! so that drift of the machine affects all alike. A figure is the median of the rounds that had
//! the core alone (see `alone`). `-- ours layer` runs only the floors and the stacks whose names
//! contain one of the words.

#![allow(missing_docs)]

#[path = "../alone/mod.rs"]
mod alone;
#[path = "../floor/mod.rs"]
mod floor;
mod goals;
mod others;
#[path = "../processor/mod.rs"]
mod processor;
mod stacks;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use alone::{Figure, Round};

const ROUNDS: usize = 61;
/// Pause after a case of a stack that records, in which its drain finishes.
const PAUSE: Duration = Duration::from_millis(12);
/// Name of the case to which the ratios of all cases refer. Goals may refer to other cases.
const FLOOR: &str = "two counter reads";

/// Names of the cases to which the goals for `span!` and `#[trace]` refer.
const BY_HAND: &str = "records of a span by hand";
const BY_HAND_3: &str = "records of a span by hand, 3 integers";

/// Name of a case, and a function that makes the given number of calls.
type Case = (&'static str, fn(u64));

/// One configuration of one library.
struct Stack {
    name: &'static str,
    /// Prepares this process. The result lives as long as the stack is measured.
    start: fn() -> Box<dyn std::any::Any>,
    /// Number of calls per round: as many as fit the buffers of a stack that records, or more if
    /// the stack records nothing.
    calls: u64,
    cases: &'static [Case],
}

fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    match arguments.as_slice() {
        [flag, name] if flag == "--stack" => serve(name),
        words => compare(words),
    }
}

/// Runs a stack in the child process: one round for every line on standard input.
fn serve(name: &str) {
    let stack = stacks::ALL
        .iter()
        .find(|stack| stack.name == name)
        .expect("the parent names a stack");
    let running = (stack.start)();
    for line in std::io::stdin().lines() {
        if line.is_err() {
            break;
        }
        let mut round = String::new();
        for (_, work) in stack.cases {
            // Warms up the caches, from which other stacks have evicted this one's data.
            work(stack.calls / 8);
            let Round { ns, additions_ns } = alone::round(stack.calls, || work(stack.calls));
            round.push_str(&format!("{ns} {additions_ns} "));
            if stack.calls < 100_000 {
                std::thread::sleep(PAUSE);
            }
        }
        println!("{round}");
    }
    drop(running);
}

struct Runner {
    stack: &'static Stack,
    child: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
    rounds: Vec<Vec<Round>>,
}

impl Runner {
    fn spawn(stack: &'static Stack) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program has a path"))
            .args(["--stack", stack.name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child process starts");
        let ask = child.stdin.take().expect("piped above");
        let answers = BufReader::new(child.stdout.take().expect("piped above"));
        Self {
            stack,
            child,
            ask,
            answers,
            rounds: vec![Vec::new(); stack.cases.len()],
        }
    }

    fn round(&mut self) {
        writeln!(self.ask).expect("the child reads");
        let mut line = String::new();
        self.answers
            .read_line(&mut line)
            .expect("the child answers");
        let values: Vec<f64> = line
            .split_whitespace()
            .map(|text| text.parse().expect("a number"))
            .collect();
        for (rounds, pair) in self.rounds.iter_mut().zip(values.chunks_exact(2)) {
            rounds.push(Round {
                ns: pair[0],
                additions_ns: pair[1],
            });
        }
    }

    fn finish(self) -> Vec<(&'static str, &'static str, Vec<Round>)> {
        let Self {
            stack,
            mut child,
            ask,
            rounds,
            ..
        } = self;
        drop(ask);
        child.wait().expect("the child ends");
        stack
            .cases
            .iter()
            .zip(rounds)
            .map(|(&(case, _), rounds)| (stack.name, case, rounds))
            .collect()
    }
}

fn compare(words: &[String]) {
    println!("{}", processor::describe());
    let is_wanted = |stack: &&Stack| {
        words.is_empty()
            || stack.name == stacks::FLOORS
            || words.iter().any(|word| stack.name.contains(word.as_str()))
    };
    let mut runners: Vec<Runner> = stacks::ALL
        .iter()
        .filter(is_wanted)
        .map(Runner::spawn)
        .collect();
    for _ in 0..ROUNDS {
        for runner in &mut runners {
            runner.round();
        }
    }
    let results: Vec<_> = runners.into_iter().flat_map(Runner::finish).collect();
    let least_ns = alone::least_additions_ns(results.iter().flat_map(|(_, _, rounds)| rounds));
    let results: Vec<_> = results
        .into_iter()
        .map(|(stack, case, rounds)| (stack, case, Figure::new(&rounds, least_ns)))
        .collect();
    let medians: BTreeMap<(&str, &str), f64> = results
        .iter()
        .map(|(stack, case, figure)| ((*stack, *case), figure.median()))
        .collect();
    let floor = medians[&(stacks::FLOORS, FLOOR)];
    println!("{ROUNDS} rounds; ns per call: median (10th to 90th percentile); ratio to {FLOOR}");
    let mut last = "";
    for (stack, case, figure) in &results {
        if *stack != last {
            println!("{stack}");
            last = stack;
        }
        let (low, median, high) = (
            figure.percentile(10),
            figure.median(),
            figure.percentile(90),
        );
        let times = median / floor;
        println!(
            "  {case:<34} {median:>9.2} ns  ({low:>8.2} to {high:>8.2})  {times:>7.2} x  {figure}"
        );
    }
    let cases: Vec<_> = results
        .iter()
        .map(|(stack, case, _)| (*stack, *case))
        .collect();
    goals::print(&cases, |stack, case| medians.get(&(stack, case)).copied());
}
