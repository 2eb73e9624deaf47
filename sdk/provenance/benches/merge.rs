//! Measures merges, tracked values and queries: `cargo bench -p stroboscope-provenance`.
//!
//! One thread measures everything, by its processor time: other programs do not count unless they
//! slow the processor or its caches down. A line with two times has the median and the minimum of
//! the rounds, per call.

#![allow(missing_docs)]

#[path = "../../benches/processor/mod.rs"]
mod processor;

use std::hint::black_box;

use rustix::time::{ClockId, clock_gettime};
use stroboscope_provenance::{
    DataLinkage, Label, LabelKind, Limits, MergeLog, ReadLog, Recording, Tracked, TrackedBuf, sweep,
};

/// Merges of a round with an empty log.
const MERGES: u32 = 1 << 18;
const ROUNDS: usize = 31;

/// Xorshift, for patterns without a period.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (((self.0 >> 32) * u64::from(end)) >> 32) as u32
    }
}

/// Returns the processor time of this thread, in ns.
fn cpu_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Returns the processor time of some work, in ns for each of its calls.
fn round(calls: usize, work: impl FnOnce()) -> f64 {
    let start = cpu_ns();
    work();
    (cpu_ns() - start) / calls as f64
}

/// Prints the median and the minimum of rounds, each of which returns its own timing.
fn report(name: &str, mut round: impl FnMut() -> f64) {
    round();
    let mut rounds: Vec<f64> = (0..ROUNDS).map(|_| round()).collect();
    rounds.sort_by(f64::total_cmp);
    println!("{name:<58} {:9.2} {:9.2} ns", rounds[ROUNDS / 2], rounds[0]);
}

/// Times code whose rounds need no preparation.
fn time(name: &str, calls: usize, mut work: impl FnMut()) {
    report(name, || round(calls, &mut work));
}

fn inputs(log: &mut MergeLog, count: u32) -> impl Fn(u32) -> Label + use<> {
    let labels = log.source(1, 0, count as usize);
    move |input| labels.at(input as usize)
}

/// Merges all pairs.
fn merge_all(log: &mut MergeLog, pairs: &[(Label, Label)]) {
    for (a, b) in pairs {
        black_box(log.merge(*a, *b));
    }
}

/// Merges of a pattern.
enum Merges {
    /// The pairs, and the number of inputs.
    Pairs(Vec<(u32, u32)>, u32),
    /// Number of merges, into words of 4 successive inputs.
    Words(u32),
    /// Number of merges, of every other input into one sum.
    Chain(u32),
}

impl Merges {
    fn near(merges: u32) -> Self {
        let mut random = Random(88_172_645_463_325_252);
        let mut near = |at| at * 2 + random.below(64) * 2;
        let pairs = (0..merges).map(|at| (near(at), 129 + near(at)));
        Self::Pairs(pairs.collect(), merges * 2 + 512)
    }

    fn random(merges: u32) -> Self {
        let mut random = Random(88_172_645_463_325_252);
        let pairs = (0..merges).map(|at| (at * 3, 4 * MERGES + random.below(60_000_000)));
        Self::Pairs(pairs.collect(), 64_352_941)
    }

    /// Times the merges in an empty log. Returns the log, too.
    fn round(&self) -> (f64, MergeLog) {
        let mut log = MergeLog::default();
        let ns = match self {
            Self::Pairs(pairs, count) => {
                let input = inputs(&mut log, *count);
                let labels = pairs.iter().map(|(a, b)| (input(*a), input(*b)));
                let labels: Vec<(Label, Label)> = labels.collect();
                round(labels.len(), || merge_all(&mut log, &labels))
            }
            Self::Words(merges) => {
                let input = inputs(&mut log, merges / 3 * 4);
                round(*merges as usize, || {
                    for word in 0..merges / 3 {
                        let mut sum = input(word * 4);
                        for byte in 1..4 {
                            sum = log.merge(sum, input(word * 4 + byte));
                        }
                        black_box(sum);
                    }
                })
            }
            Self::Chain(merges) => {
                let input = inputs(&mut log, merges * 2);
                round(*merges as usize, || {
                    let mut sum = Label::NULL;
                    for at in 0..*merges {
                        sum = log.merge(sum, input(at * 2));
                    }
                    black_box(sum);
                })
            }
        };
        (ns, log)
    }
}

/// Times merges of a pattern in logs of one size, and the mean over eight sizes, of which the
/// largest is 3.4 times the smallest, because the memo grows by three quarters at a time.
fn new_merges(name: &str, pattern: fn(u32) -> Merges) {
    let merges = pattern(MERGES);
    report(&format!("new, {name}"), || merges.round().0);
    let (_, log) = merges.round();
    let per_node = log.bytes() as f64 / f64::from(log.nodes());
    println!("    {} nodes, {per_node:.1} bytes a node", log.nodes());
    let sizes = (0..8).map(|size| (131_072.0 * 2_f64.powf(f64::from(size) / 4.0)) as u32);
    let patterns: Vec<Merges> = sizes.map(pattern).collect();
    report(&format!("new, {name}, mean of eight sizes"), || {
        patterns.iter().map(|merges| merges.round().0).sum::<f64>() / 8.0
    });
    let Merges::Pairs(pairs, count) = merges else {
        return;
    };
    let mut log = log;
    let input = inputs(&mut MergeLog::default(), count);
    let pairs: Vec<(Label, Label)> = pairs.iter().map(|(a, b)| (input(*a), input(*b))).collect();
    let name_of_all = format!("repeated after all others, {name}");
    time(&name_of_all, pairs.len(), || merge_all(&mut log, &pairs));
    time(&format!("repeated, 512 pairs, {name}"), 512 * 512, || {
        for _ in 0..512 {
            merge_all(&mut log, &pairs[..512]);
        }
    });
}

fn merges() {
    new_merges("near inputs", Merges::near);
    new_merges("random inputs of 64 million", Merges::random);
    new_merges("words of 4 successive inputs", Merges::Words);
    new_merges("chain over every other input", Merges::Chain);
    let mut log = MergeLog::default();
    let input = inputs(&mut log, 4096);
    let labels: Vec<Label> = (0..4096).map(input).collect();
    time("null", 4096 * 64, || {
        for _ in 0..64 {
            for label in &labels {
                black_box(log.merge(*label, black_box(Label::NULL)));
            }
        }
    });
    time("equal", 4096 * 64, || {
        for _ in 0..64 {
            for label in &labels {
                black_box(log.merge(*label, *label));
            }
        }
    });
    time("no merge, only the loop", 4096 * 64, || {
        for _ in 0..64 {
            for label in &labels {
                black_box(*label);
            }
        }
    });
}

fn values() {
    let bytes: Vec<u8> = (0..65_536_u32).map(|at| b'0' + (at % 10) as u8).collect();
    let source = TrackedBuf::source(1, 0, bytes.clone());
    time("copy 64 KiB, plain", 100, || {
        for _ in 0..100 {
            black_box(black_box(&bytes).clone());
        }
    });
    time("copy 64 KiB, tracked", 100, || {
        for _ in 0..100 {
            black_box(black_box(&source).clone());
        }
    });
    time("append slices of 32 bytes, plain", 64_000, || {
        for _ in 0..1000 {
            let mut joined = Vec::with_capacity(2048);
            for at in 0..64 {
                joined.extend_from_slice(&bytes[at * 700..at * 700 + 32]);
            }
            black_box(joined);
        }
    });
    time("append slices of 32 bytes, tracked", 64_000, || {
        for _ in 0..1000 {
            let mut joined = TrackedBuf::with_capacity(2048, 64);
            for at in 0..64 {
                let _ = joined.extend_from_range(&source, at * 700..at * 700 + 32);
            }
            black_box(joined);
        }
    });
    let plain: Vec<u64> = (0..4096).collect();
    let untainted: Vec<Tracked<u64>> = plain.iter().map(|value| Tracked::new(*value)).collect();
    let tainted: Vec<Tracked<u64>> = (0..4096)
        .map(|at| Tracked::with_label(at as u64, source.label(at * 3)))
        .collect();
    time("sum, plain", 4096 * 100, || {
        for _ in 0..100 {
            let mut sum = 0;
            for value in &plain {
                sum = black_box(sum + value);
            }
        }
    });
    time("sum, tracked without inputs", 4096 * 100, || {
        for _ in 0..100 {
            let mut sum = Tracked::new(0);
            for value in &untainted {
                sum = black_box(sum + *value);
            }
        }
    });
    time("add, tracked, 512 repeated pairs", 512 * 512, || {
        for _ in 0..512 {
            for (a, b) in tainted[..512].iter().zip(&tainted[700..]) {
                black_box(*a + *b);
            }
        }
    });
    time("parse 8 digits, plain", 8000, || {
        for at in 0..8000 {
            let text = std::str::from_utf8(&bytes[at * 8..at * 8 + 8]).expect("digits");
            let _ = black_box(black_box(text).parse::<u64>());
        }
    });
    let words: Vec<TrackedBuf> = (0..8000)
        .filter_map(|at| source.slice(at * 8..at * 8 + 8))
        .collect();
    time("parse 8 digits, tracked", 8000, || {
        for word in &words {
            let _ = black_box(word.parse::<u64, DataLinkage>());
        }
    });
}

/// Resolves as many outputs as Ghostscript has in the paper, with about as many dependencies.
fn resolve() {
    let mut random = Random(77);
    let mut log = MergeLog::new(Limits::with_nodes((1 << 24) - 1));
    let input = inputs(&mut log, 2_600_000);
    let mut outputs = Vec::new();
    for request in 0..800_u32 {
        let (mut sum, mut sums) = (Label::NULL, Vec::new());
        for at in 0..8088_u32 {
            let within = (at.wrapping_mul(2_654_435_u32.wrapping_mul(at | 1)) >> 3) % 25_000;
            sum = log.merge(sum, input(request * 3142 + within));
            sums.push(sum);
        }
        outputs.extend((0..220).map(|_| sums[random.below(8088) as usize]));
    }
    let mut dependencies = vec![0_u64; log.nodes() as usize];
    let ns = round(1, || {
        sweep(&log, &outputs, |label, inputs| {
            if let LabelKind::Node(index) = label.kind() {
                dependencies[index as usize] = inputs.len();
            }
        });
    });
    let of = |label: &Label| match label.kind() {
        LabelKind::Node(index) => dependencies[index as usize],
        _ => 1,
    };
    println!(
        "resolve {} outputs with {} dependencies, {} nodes: {:.3} s",
        outputs.len(),
        outputs.iter().map(of).sum::<u64>(),
        log.nodes(),
        ns / 1e9
    );
}

/// Resolves each sum of a chain over every other input: more than a trillion dependencies.
fn resolve_chain() {
    let mut log = MergeLog::new(Limits::with_nodes((1 << 24) - 1));
    let input = inputs(&mut log, 3_000_000);
    let (mut sum, mut sums) = (Label::NULL, Vec::new());
    for at in 0..1_500_000 {
        sum = log.merge(sum, input(at * 2));
        sums.push(sum);
    }
    let mut dependencies = 0;
    let ns = round(1, || {
        sweep(&log, &sums, |_, inputs| dependencies += inputs.len());
    });
    let outputs = sums.len();
    println!(
        "resolve {outputs} outputs with {dependencies} dependencies: {:.1} s",
        ns / 1e9
    );
}

/// Merges into a log with many nodes, with the pauses in which the memo grows.
fn large() {
    let mut log = MergeLog::new(Limits::with_nodes((1 << 24) - 1));
    let input = inputs(&mut log, 64_000_000);
    let mut random = Random(88_172_645_463_325_252);
    let (mut longest, mut all) = (0.0_f64, 0.0);
    for at in 0..15_000 {
        let ns = round(1, || {
            for within in 0..1000 {
                let a = (at * 1000 + within) * 4;
                black_box(log.merge(input(a), input(a + 2 + random.below(1000) * 2)));
            }
        });
        (longest, all) = (longest.max(ns), all + ns);
    }
    let nodes = log.nodes();
    println!(
        "new, {nodes} nodes: mean {:.2} ns, {:.1} bytes a node; longest 1,000 merges {:.1} ms",
        all / f64::from(nodes),
        log.bytes() as f64 / f64::from(nodes),
        longest / 1e6
    );
}

fn main() {
    println!("{}", processor::describe());
    merges();
    Recording::default().run(values);
    for _ in 0..3 {
        resolve();
    }
    large();
    resolve_chain();
}
