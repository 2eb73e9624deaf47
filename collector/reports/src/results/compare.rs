//! Changes between two periods, as `compare` and `report` show them.

mod before_and_after;
mod evidence;
mod failures;
mod rows;
mod surroundings;

use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::compare::Environment;
use stroboscope_analysis::flow::PeriodFlows;

use super::explain::LeafRow;
use crate::verb::{Report, Top};
use failures::FailureShiftRow;
use rows::{CauseRow, MutationRow, TooFewRow, within_period};
pub use rows::{cause_in_words, mutation_in_words};
use stroboscope_query::{ComparedPeriods, Distinction, EXPLAINED_MAX, FailureShift, Notes};
use stroboscope_render::humanise::{counted, duration};
use stroboscope_render::show::{Doc, Figure};
use surroundings::{MixRow, VariationSays, surroundings};

/// Changes between two periods.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ComparisonReport {
    #[serde(flatten)]
    notes: Notes,
    before: PeriodSummary,
    after: PeriodSummary,
    verdict: Verdict,
    /// Change of the mean latency, in ns.
    change_ns: f64,
    /// Lower end of the 95 % confidence interval of `change_ns` for all requests, recorded or not;
    /// absent if requests have no sampling weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    change_low_ns: Option<f64>,
    /// Upper end of that interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    change_high_ns: Option<f64>,
    /// Part of the change that is due to other shares of root operations, in ns.
    workload_ns: f64,
    /// Share of the change that the causes make up; above 1 or below 0 if other changes are in the
    /// opposite direction, null if nothing changed.
    explained_share: Option<f64>,
    /// Causes that explain the change.
    causes: Vec<CauseRow>,
    /// Causes that differ by more than chance, but explain little of the change.
    also_different: Vec<CauseRow>,
    /// Operations that changed a lot, but in too few requests for a test.
    too_few: Vec<TooFewRow>,
    mutations: Top<MutationRow>,
    /// At most eight root operations with failed requests in either period: those with the most.
    /// Root operations with a changed share come first.
    failures: Vec<FailureShiftRow>,
    /// Attributes that distinguish requests of the cause of rank 1 from others, as in `explain`.
    leaves: Vec<LeafRow>,
    /// True if `causes` or `also_different` is not empty, but `leaves` was not computed, because
    /// there are too many requests; `explain` computes it.
    leaves_not_asked: bool,
    /// Root operations, largest change of the share of requests first.
    mix: Vec<MixRow>,
    /// Variation of latency within categories, in both periods.
    variation: VariationSays,
    /// Changes outside of the services.
    surroundings: Vec<String>,
    /// Usual change of the times in all services, which is no cause; `None` if it is unknown.
    #[serde(skip)]
    environment: Option<Environment>,
    /// Descriptions of causes whose structure begins or ends within a period.
    #[serde(skip)]
    within_periods: Vec<String>,
    /// Picture of requests of the first cause, before and after.
    #[serde(skip)]
    flow: Option<Figure>,
}

/// Verdict on the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    /// There are causes, or the share of failed requests changed.
    Changed,
    /// There is no cause that explains the change.
    NoChange,
    /// There are too few requests for a verdict.
    TooFew,
}

/// Figures of the requests of one period.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct PeriodSummary {
    requests: u64,
    /// Number of recorded requests, if requests have sampling weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    recorded: Option<u64>,
    p50_ns: u64,
    p95_ns: u64,
    p99_ns: u64,
    /// 95 % confidence intervals of p50, p95 and p99 of all requests, recorded or not, in ns;
    /// absent if requests have no sampling weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    percentile_intervals_ns: Option<[[u64; 2]; 3]>,
    mean_ns: f64,
    categories: u64,
    /// Number of requests beyond the limit of categories, whose structure is not distinguished.
    uncategorised: u64,
    /// Mean time from one request to the next, in ns. If samplers recorded at least half of the
    /// requests in bursts, only that time counts; else that of windows, or the whole time if
    /// requests have sampling weights or most began outside of windows. Null with fewer than two
    /// requests, if some start times were not kept, or if samplers' bursts have too few.
    inter_arrival_mean_ns: Option<f64>,
    /// Median time from one recorded request to the next, in ns. Null with fewer than two requests,
    /// if some start times were not kept, or if requests have sampling weights.
    inter_arrival_p50_ns: Option<u64>,
}

impl PeriodSummary {
    fn of(flows: &PeriodFlows, inter_arrival_mean_ns: Option<f64>) -> Self {
        let percentiles = flows.latency.percentiles();
        let pairs = flows.arrivals_ns.windows(2);
        let mut gaps_ns: Vec<u64> = pairs.map(|pair| pair[0].abs_diff(pair[1])).collect();
        gaps_ns.sort_unstable();
        let all_known = flows.arrivals_left_out == 0;
        let middle = gaps_ns.get(gaps_ns.len() / 2).copied();
        let requests = flows.count();
        Self {
            requests: requests.rounded(),
            recorded: requests.is_weighted().then_some(requests.recorded()),
            p50_ns: percentiles.p50_ns,
            p95_ns: percentiles.p95_ns,
            p99_ns: percentiles.p99_ns,
            percentile_intervals_ns: requests.is_weighted().then(|| {
                [0.5, 0.95, 0.99].map(|quantile| flows.latency.quantile_interval_ns(quantile))
            }),
            mean_ns: flows.latency.mean_ns(),
            categories: flows
                .roots
                .values()
                .map(|root| root.categories.len() as u64)
                .sum(),
            uncategorised: flows.uncategorised_count().rounded(),
            inter_arrival_mean_ns,
            inter_arrival_p50_ns: middle.filter(|_| all_known && !requests.is_weighted()),
        }
    }
}

/// Minimum number of recorded requests in each period, of all root operations or of one, to exclude
/// a change.
const REQUESTS_MIN: u64 = 20;
/// Maximum number of operations to name that have too few requests for a test.
const TOO_FEW_SHOWN: usize = 3;

impl ComparisonReport {
    /// Converts a comparison; shows up to `top` mutations, or all if it is 0.
    pub fn of(found: ComparedPeriods, top: usize) -> Self {
        let compared_requests = found.requests();
        let ComparedPeriods {
            before,
            after,
            comparison,
            inter_arrival_ns,
            notes,
            ..
        } = found;
        let edges = &comparison.edges;
        let change_ns = comparison.change_ns;
        let causes = comparison.causes.iter().zip(1..);
        let causes = causes.map(|(cause, rank)| CauseRow::of(cause, rank, change_ns, edges));
        let mut causes: Vec<CauseRow> = causes.collect();
        let flows = [&before.flows, &after.flows];
        let within_periods = comparison
            .causes
            .iter()
            .zip(1..)
            .filter_map(|(cause, rank)| {
                let is_principal = rank <= comparison.principal;
                let kind = if is_principal { "Cause" } else { "Difference" };
                within_period(cause, &format!("{kind} {rank}"), flows)
            })
            .collect();
        let also_different = causes.split_off(comparison.principal);
        let too_few: Vec<TooFewRow> = comparison.too_few.iter().map(TooFewRow::of).collect();
        let mutations = comparison.mutations.iter().zip(1..);
        let mutations = mutations.map(|(of, rank)| MutationRow::of(of, rank, edges));
        let mutations = Top {
            rows: mutations.collect(),
            top,
        };
        let (old, new) = (
            PeriodSummary::of(&before.flows, inter_arrival_ns[0]),
            PeriodSummary::of(&after.flows, inter_arrival_ns[1]),
        );
        let recorded = before.flows.requests().min(after.flows.requests());
        let is_weighted = old.recorded.or(new.recorded).is_some();
        let verdict = if !causes.is_empty() {
            Verdict::Changed
        } else if !too_few.is_empty() || recorded < REQUESTS_MIN {
            Verdict::TooFew
        } else {
            Verdict::NoChange
        };
        let explained_ns = comparison.explained_ns();
        let mix = MixRow::all(&comparison, flows);
        let surroundings = surroundings([&old, &new], &mix, comparison.environment.as_ref());
        Self {
            flow: before_and_after::figure(&comparison, flows),
            within_periods,
            leaves: Vec::new(),
            leaves_not_asked: !comparison.causes.is_empty() && compared_requests > EXPLAINED_MAX,
            mix,
            environment: comparison.environment,
            surroundings,
            variation: VariationSays::of(&comparison.variation),
            notes,
            before: old,
            after: new,
            verdict,
            change_ns,
            change_low_ns: is_weighted.then_some(comparison.change_interval_ns[0]),
            change_high_ns: is_weighted.then_some(comparison.change_interval_ns[1]),
            workload_ns: comparison.workload_ns,
            explained_share: (change_ns != 0.0).then(|| explained_ns / change_ns),
            causes,
            also_different,
            too_few,
            mutations,
            failures: Vec::new(),
        }
    }

    /// Adds the failures of both periods. Sets the verdict to `Changed` if a share of failed
    /// requests changed.
    pub fn with_failures(self, shifts: &[FailureShift]) -> Self {
        let failures: Vec<FailureShiftRow> = shifts.iter().map(FailureShiftRow::of).collect();
        let verdict = match failures.iter().any(FailureShiftRow::has_changed) {
            true => Verdict::Changed,
            false => self.verdict,
        };
        Self {
            failures,
            verdict,
            ..self
        }
    }

    /// Adds the attributes that distinguish requests of the first cause.
    pub fn explained_by(self, telling: Option<&Distinction>) -> Self {
        Self {
            leaves: telling.map(LeafRow::all).unwrap_or_default(),
            ..self
        }
    }

    fn headline(&self) -> String {
        let sign = if self.change_ns < 0.0 { "−" } else { "+" };
        let change = format!(
            "Mean latency {} → {} ({sign}{}{})",
            duration(self.before.mean_ns),
            duration(self.after.mean_ns),
            duration(self.change_ns.abs()),
            self.change_low_ns
                .zip(self.change_high_ns)
                .map_or(String::new(), |ends_ns| {
                    format!(
                        "; of all requests {} with 95 % certainty",
                        interval_text(ends_ns)
                    )
                }),
        );
        let why = match (self.verdict, self.explained_share) {
            (Verdict::Changed, _) if self.causes.is_empty() => {
                "the share of failed requests changed".to_owned()
            }
            (Verdict::Changed, Some(share)) => {
                explained_text(self.causes.len(), share, self.change_ns)
            }
            (Verdict::Changed, None) => counted(self.causes.len() as u64, "cause"),
            (Verdict::NoChange, _) => no_cause_text(&self.mix, self.also_different.len()),
            (Verdict::TooFew, _) => {
                let unknown = match self.also_different.is_empty() {
                    true => "whether anything changed",
                    false => "what explains half of it or more",
                };
                format!(
                    "too few requests to tell {unknown}: compare longer periods, or record more"
                )
            }
        };
        format!("{change}; {why}.")
    }
}

fn interval_text((low_ns, high_ns): (f64, f64)) -> String {
    let signed = |ns: f64| {
        let sign = if ns < 0.0 { "−" } else { "+" };
        format!("{sign}{}", duration(ns.abs()))
    };
    let (low, high) = (signed(low_ns), signed(high_ns));
    format!("{low} to {high}")
}

/// Describes a comparison without causes. The mean latency of a root operation may still differ,
/// for example if the kinds of its requests alternate within a period. The test of causes considers
/// how a period's parts vary, but the interval of the mean assumes independent requests. Even if
/// nothing changed, the interval therefore often excludes zero, so it proves no change.
fn no_cause_text(mix: &[MixRow], also_different: usize) -> String {
    let asked_most = |a: &&MixRow, b: &&MixRow| a.after.total_cmp(&b.after);
    let changed = mix.iter().filter(|row| row.mean_difference().is_some());
    match changed.max_by(asked_most).and_then(MixRow::mean_difference) {
        Some(change) => format!("no single cause was found; {change}"),
        None if also_different > 0 => {
            "no cause was found that explains half of it or more".to_owned()
        }
        None => "nothing in the services changed by more than chance".to_owned(),
    }
}

/// Describes the causes' share of the change. If other changes are in the opposite direction, gives
/// both times instead of a share.
fn explained_text(causes: usize, share: f64, change_ns: f64) -> String {
    let number = counted(causes as u64, "cause");
    let ending = if causes == 1 { "s" } else { "" };
    let percentage = (100.0 * share).round();
    if (0.0..=100.0).contains(&percentage) {
        return format!("{number} explain{ending} {percentage:.0} % of it");
    }
    let [explained, rest] = [share, 1.0 - share].map(|part| part * change_ns);
    let does = |ns: f64, ending: &str| match ns < 0.0 {
        true => format!("take{ending} off {}", duration(-ns)),
        false => format!("add{ending} {}", duration(ns)),
    };
    format!(
        "{number} {}; all else that changed {}",
        does(explained, ending),
        does(rest, "s")
    )
}

impl Report for ComparisonReport {
    fn notes(&self) -> &Notes {
        &self.notes
    }

    fn show(&self, doc: &mut Doc) {
        doc.heading("Changes");
        doc.sentence(self.headline());
        let period = |name: &str, of: &PeriodSummary| {
            format!(
                "{name}: {}, half within {}, 95 % within {}, 99 % within {}{}.",
                counted(of.requests, "request"),
                duration(of.p50_ns as f64),
                duration(of.p95_ns as f64),
                duration(of.p99_ns as f64),
                of.inter_arrival_mean_ns
                    .map_or_else(String::new, |gap| format!(", one every {}", duration(gap)))
            )
        };
        doc.sentence(period("Before", &self.before));
        doc.sentence(period("After", &self.after));
        doc.sentences(&self.surroundings);
        failures::show(&self.failures, doc);
        for few in self.too_few.iter().take(TOO_FEW_SHOWN) {
            doc.sentence(format!("Too few to tell: {}.", few.text()));
        }
        doc.sentences(self.variation.sentence());
        let title = |rows: usize, title: &'static str| if rows == 0 { "" } else { title };
        doc.table(
            title(self.causes.len(), "Causes"),
            &self.causes,
            self.causes.len(),
        );
        doc.sentences(&self.within_periods);
        let first = match self.causes.is_empty() {
            true => "difference",
            false => "cause",
        };
        if let Some(leaf) = self.leaves.first() {
            doc.sentence(format!(
                "Attributes that distinguish those of the first {first}: {}.",
                leaf.sentence
            ));
        } else if self.leaves_not_asked {
            doc.sentence(format!(
                "With so many requests, this report does not look for attributes of the first {first}: `stroboscope \
                 explain` reads them again."
            ));
        }
        doc.table(
            title(self.also_different.len(), "Also different"),
            &self.also_different,
            self.also_different.len(),
        );
        doc.figures(self.flow.clone());
        doc.table(
            title(
                self.mutations.shown(),
                "Categories of requests that changed",
            ),
            &self.mutations.rows,
            self.mutations.shown(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_beyond_the_whole_are_times() {
        let check = |causes: usize, share: f64, change_ns: f64, expected: &str| {
            assert_eq!(explained_text(causes, share, change_ns), expected);
        };
        check(1, 0.92, 5e6, "1 cause explains 92 % of it");
        check(2, 1.004, 5e6, "2 causes explain 100 % of it");
        check(
            1,
            1.47,
            10e6,
            "1 cause adds 14.7ms; all else that changed takes off 4.70ms",
        );
        check(
            2,
            -0.5,
            10e6,
            "2 causes take off 5.00ms; all else that changed adds 15.0ms",
        );
        check(
            1,
            1.5,
            -10e6,
            "1 cause takes off 15.0ms; all else that changed adds 5.00ms",
        );
    }

    /// Checks that a changed mean is stated, unless its interval contains zero or a small change.
    #[test]
    fn another_mean_without_a_cause_is_stated() {
        let row = |root: &str, share: f64, ends_ns: Option<(f64, f64)>| MixRow {
            root: root.to_owned(),
            before: share,
            after: share,
            mean_before_ns: Some(1e7),
            caused_ns: 0.0,
            q_value: None,
            change_low_ns: ends_ns.map(|ends_ns| ends_ns.0),
            change_high_ns: ends_ns.map(|ends_ns| ends_ns.1),
            recorded: [100; 2],
        };
        let nothing = "nothing in the services changed by more than chance";
        for ends_ns in [
            None,
            Some((-1e6, 2e6)),
            Some((-2e6, -4e5)),
            Some((0.0, 0.0)),
        ] {
            assert_eq!(no_cause_text(&[row("a", 1.0, ends_ns)], 0), nothing);
        }
        let mix = [
            row("a", 0.2, Some((1e6, 2e6))),
            row("b", 0.3, Some((-2e6, -1e6))),
            row("c", 0.5, Some((-1e6, 1e6))),
        ];
        assert_eq!(
            no_cause_text(&mix, 1),
            "no single cause was found; the mean of b differs by −2.00ms to −1.00ms (95 % interval, as if requests were \
             independent), which also happens if kinds of requests come in turns or requests of a burst are alike"
        );
    }
}
