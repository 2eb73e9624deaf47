//! Tables of results.

use super::fault::{FaultKind, LEVELS};
use super::pair::{Outcome, QuietKind};
use super::verdict::Causes;

/// Results of one system.
#[derive(Debug)]
pub(crate) struct Results {
    pub(crate) seed: u64,
    pub(crate) quiet: Vec<(QuietKind, Causes)>,
    /// Outcomes, with the levels of their sizes.
    pub(crate) power: Vec<(usize, Outcome)>,
}

fn percent(part: usize, whole: usize) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

/// Prints the number of quiet pairs with a cause.
pub(crate) fn print_quiet(results: &[Results]) {
    println!("\nQuiet pairs: pairs with a cause, and with a cause of each sort");
    println!(
        "{:<18}{:>7}{:>8}{:>9}{:>9}{:>9}{:>11}",
        "pairs", "n", "false", "%", "slower", "faster", "structure"
    );
    let rows = QuietKind::ALL
        .map(|kind| (kind.name(), Some(kind)))
        .into_iter()
        .chain([("all", None)]);
    for (name, only) in rows {
        let causes: Vec<&Causes> = results
            .iter()
            .flat_map(|of| &of.quiet)
            .filter(|(kind, _)| only.is_none_or(|only| only == *kind))
            .map(|(_, causes)| causes)
            .collect();
        let count = |has: &dyn Fn(&Causes) -> bool| causes.iter().filter(|of| has(of)).count();
        let with_cause = count(&|of| of.all() > 0);
        println!(
            "{name:<18}{:>7}{with_cause:>8}{:>9.1}{:>9}{:>9}{:>11}",
            causes.len(),
            percent(with_cause, causes.len()),
            count(&|of| of.slower > 0),
            count(&|of| of.faster > 0),
            count(&|of| of.structural > 0),
        );
    }
    for kind in QuietKind::ALL {
        let seeds = results.iter().filter(|of| {
            let mut causes = of.quiet.iter();
            causes.any(|(of_kind, causes)| *of_kind == kind && causes.all() > 0)
        });
        print_list(kind.name(), seeds.map(|of| of.seed.to_string()));
    }
}

/// Returns the largest p-value, at most `rate`, below which the oracle finds a change in at most
/// this fraction of the quiet pairs.
fn cutoff(quiet: &mut [f64], rate: f64) -> f64 {
    quiet.sort_unstable_by(f64::total_cmp);
    let at = (quiet.len() as f64 * rate) as usize;
    quiet.get(at).map_or(rate, |p_value| p_value.min(rate))
}

/// Fraction of the quiet pairs in which the oracle may find a change.
const FALSE_RATE: f64 = 0.05;
/// Minimum material change, as a fraction of the trimmed mean latency.
const EFFECT_MIN: f64 = 0.01;

struct Cutoffs {
    of_time: f64,
    of_structure: f64,
}

impl Cutoffs {
    fn of(results: &[Results], rate: f64) -> Cutoffs {
        let of = |is_structural: bool| {
            let all = results.iter().flat_map(|of| &of.power);
            let mut quiet: Vec<f64> = all
                .filter(|(_, outcome)| outcome.fault.kind.is_structural() == is_structural)
                .map(|(_, outcome)| outcome.oracle_quiet)
                .collect();
            cutoff(&mut quiet, rate)
        };
        Cutoffs {
            of_time: of(false),
            of_structure: of(true),
        }
    }

    fn finds(&self, outcome: &Outcome) -> bool {
        let cutoff = if outcome.fault.kind.is_structural() {
            self.of_structure
        } else {
            self.of_time
        };
        outcome.oracle < cutoff
    }
}

/// Prints the number of planted changes that are found.
pub(crate) fn print_power(results: &[Results]) {
    let usual = Cutoffs::of(results, FALSE_RATE);
    let pairs = || results.iter().flat_map(|of| &of.quiet);
    let with_cause = pairs().filter(|(_, causes)| causes.all() > 0).count();
    let calm_rate = with_cause as f64 / pairs().count().max(1) as f64;
    let calm = Cutoffs::of(results, calm_rate);
    println!("\nPlanted changes");
    for (name, rate, cutoffs) in [("oracle", FALSE_RATE, &usual), ("calm", calm_rate, &calm)] {
        println!(
            "{name}: the oracle that is wrong in {:.1} % of quiet pairs (p < {:.1e} of times, {:.1e} of structure)",
            100.0 * rate,
            cutoffs.of_time,
            cutoffs.of_structure
        );
    }
    println!(
        "{:<14}{:>6}{:>8}{:>8}{:>8}{:>9}{:>8}{:>8}{:>9}{:>8}{:>8}{:>8}{:>10}",
        "change",
        "n",
        "oracle",
        "calm",
        "causes",
        "service",
        "right",
        "first",
        "of all%",
        "power%",
        "calm%",
        "naive",
        "n. right"
    );
    let all = || results.iter().flat_map(|of| &of.power);
    let row = |name: &str, is_meant: &dyn Fn(usize, &Outcome) -> bool| {
        let meant: Vec<&Outcome> = all()
            .filter(|(level, outcome)| is_meant(*level, outcome))
            .map(|(_, outcome)| outcome)
            .collect();
        let count = |is: &dyn Fn(&Outcome) -> bool| meant.iter().filter(|of| is(of)).count();
        let oracle = count(&|of| usual.finds(of));
        let of_calm = count(&|of| calm.finds(of));
        let right = count(&|of| of.names_service);
        println!(
            "{name:<14}{:>6}{oracle:>8}{of_calm:>8}{:>8}{right:>9}{:>8}{:>8}{:>9.1}{:>8.1}{:>8.1}{:>8}{:>10}",
            meant.len(),
            count(&|of| of.causes.all() > 0),
            count(&|of| of.names_operation),
            count(&|of| of.lists_first),
            percent(right, meant.len()),
            percent(right, oracle),
            percent(right, of_calm),
            count(&|of| of.naive_service),
            count(&|of| of.naive_operation),
        );
    };
    for kind in FaultKind::ALL {
        row(kind.name(), &|_, of| of.fault.kind == kind);
    }
    for level in 0..LEVELS {
        row(&format!("size {level}"), &|at, _| at == level);
    }
    row("times", &|_, of| !of.fault.kind.is_structural());
    row("structure", &|_, of| of.fault.kind.is_structural());
    row("effect >= 1 %", &|_, of| of.effect.abs() >= EFFECT_MIN);
    row("all", &|_, _| true);
    println!(
        "causes: any; service: the first cause names the right service; right: the right operation as well; first: or, without causes, the first operation with too few requests is right; power and calm%: service of oracle and of calm"
    );
    print_failures(results, &usual);
}

fn print_failures(results: &[Results], cutoffs: &Cutoffs) {
    type Failure<'a> = (&'a str, &'a dyn Fn(&Outcome) -> bool);
    let kinds: [Failure<'_>; 3] = [
        ("missed", &|of| {
            cutoffs.finds(of) && of.causes.all() == 0 && of.effect.abs() >= EFFECT_MIN
        }),
        ("wrong", &|of| of.causes.all() > 0 && !of.names_service),
        ("lost to the naive", &|of| {
            of.naive_operation && !of.names_operation && of.effect.abs() >= EFFECT_MIN
        }),
    ];
    for (name, is_failure) in kinds {
        for kind in FaultKind::ALL {
            let cases = results.iter().flat_map(|of| {
                let power = of.power.iter();
                let failed =
                    power.filter(|(_, outcome)| outcome.fault.kind == kind && is_failure(outcome));
                failed.map(|(level, _)| format!("{}/{level}", of.seed))
            });
            print_list(&format!("{name}, {}", kind.name()), cases);
        }
    }
}

fn print_list(name: &str, items: impl Iterator<Item = String>) {
    let items: Vec<String> = items.collect();
    if !items.is_empty() {
        println!("{name} ({}): {}", items.len(), items.join(" "));
    }
}
