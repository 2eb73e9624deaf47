//! The `burst plan` subcommand.

mod goal;

use std::time::Duration;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_analysis::burst_plan::{BurstGoal, GivingWay, PlannedBursts, plan_bursts, planned};
use stroboscope_burst::BurstConfig;
use tokio::runtime::Runtime;

use self::goal::{GoalArguments, parse_goal};
use crate::arguments::{
    ReadingArguments, SelectionArguments, ShowArguments, parse_duration, parse_share, to_ns,
};
use crate::study::NamedStudy;
use crate::verb::{Report, give};
use crate::{Failure, Status};
use stroboscope_query::{BurstBasis, BusiestProcess, Notes, burst_basis};
use stroboscope_render::humanise::{counted, duration, percent};
use stroboscope_render::rows;
use stroboscope_render::show::Doc;

/// Plan bursts from the rate and latency of the requests in the store
///
/// A goal states the longest requests of interest, the maximum cost of recording, and how many
/// whole requests to record:
///
///   stroboscope burst plan --goal 'requests up to 30 ms, overhead 1 %, 200 whole requests an hour'
///
/// Overhead is recording's share of the CPU time of the process that it costs most, over all time;
/// `duty 1 %` bounds the share of time that is recorded. Among masks that reach the goal, those
/// with bursts and periods at least ten times as long as a request come first. If none reaches it,
/// the output shows how one part of the goal could give way while the others stay.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct PlanVerb {
    #[command(flatten)]
    from: SelectionArguments,
    #[command(flatten)]
    show: ShowArguments,
    /// Goal: parts such as `requests up to 30 ms`, `overhead 1 %`, `duty 1 %`, `200 whole requests
    /// an hour` (a minute, a day), separated by commas
    #[arg(long, value_name = "GOAL", value_parser = parse_goal)]
    goal: Option<GoalArguments>,
    /// Longest requests of interest; by default the 95th percentile
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    longest: Option<Duration>,
    /// Maximum share of a process's CPU time that recording may take
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    overhead: Option<f64>,
    /// Maximum share of time that may be recorded
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    duty: Option<f64>,
    /// Number of whole requests to record per hour
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    whole: Option<u64>,
    /// Cost of a record to the process
    #[arg(long, value_name = "DURATION", default_value = "64ns", value_parser = parse_duration)]
    record_cost: Duration,
}

impl PlanVerb {
    pub(super) fn run(self, runtime: &Runtime) -> Result<Status, Failure> {
        let own = GoalArguments {
            longest: self.longest,
            overhead: self.overhead,
            duty: self.duty,
            whole_per_hour: self.whole.map(|whole| whole as f64),
        };
        let wanted = self.goal.unwrap_or_default().and(own);
        if wanted == GoalArguments::default() {
            return Err(Failure::needs_more(
                "state the goal: --goal 'requests up to 30 ms, overhead 1 %, 200 whole requests an hour'",
            ));
        }
        let reading = ReadingArguments::of(self.from);
        let study = NamedStudy::of(&reading, runtime.handle())?;
        let basis = burst_basis(study.source(), study.selection()).map_err(Failure::of)?;
        let record_ns = to_ns(self.record_cost) as f64;
        let said = BurstPlanSays::of(basis, &wanted, record_ns).map_err(Failure::new)?;
        give(&said, &reading.from, &self.show)
    }
}

/// Plan of bursts for a goal, and the data that the plan is based on.
#[derive(Debug, Serialize, JsonSchema)]
pub struct BurstPlanSays {
    #[serde(flatten)]
    notes: Notes,
    /// Latency of the longest requests of interest, in ns.
    longest_ns: f64,
    /// Maximum share of time that may be recorded: the stricter bound of duty and overhead.
    duty_max: f64,
    /// Number of whole requests per hour that the goal asks for; 1 if it names none.
    whole_per_hour_wanted: f64,
    /// Number of requests with a root span that the plan is based on; `recorded_ns` is the time in
    /// which they were recorded.
    requests: u64,
    recorded_ns: u64,
    /// True if `recorded_ns` is the time of bursts; otherwise it runs from the first request to the
    /// last.
    is_of_bursts: bool,
    /// Number of requests that begin per hour; `of_interest_per_hour` counts those up to the
    /// longest of interest.
    begin_per_hour: f64,
    of_interest_per_hour: f64,
    busiest: Option<Busiest>,
    is_reached: bool,
    /// Masks that reach the goal, the best one first.
    plans: Vec<PlanRow>,
    /// Ways to relax the goal, if no mask reaches it.
    gives_way: Vec<GivesWay>,
}

/// Process that recording costs most.
#[derive(Debug, Serialize, JsonSchema)]
struct Busiest {
    service: String,
    /// Number of spans and events per second of a burst.
    records_per_second: f64,
    /// CPU usage in cores; null if unknown or 0, and then one core is assumed.
    cpu_cores: Option<f64>,
    /// Assumed cost of a record, in ns.
    record_ns: f64,
    /// Share of the process's CPU time that recording takes in a burst.
    cost_in_burst: f64,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
struct PlanRow {
    /// Burst-config as a mask.
    config: u64,
    config_binary: String,
    burst_ms: u64,
    period_ms: u64,
    duty: f64,
    /// Share of the CPU time of the process that recording costs most; null if unknown.
    overhead: Option<f64>,
    /// Number of whole requests of interest per hour, if recording begins and ends with bursts.
    whole_per_hour: f64,
    /// Number of whole requests of interest per hour, if requests that enter during a burst are
    /// recorded to their end, which is the SDK's default.
    followed_per_hour: f64,
    /// Share of requests that the edges of bursts cut, among the requests of interest in bursts.
    cut_share: f64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct GivesWay {
    /// Part of the goal to relax: `whole_requests`, `duty`, `overhead` or `longest`.
    part: &'static str,
    said: String,
    plan: Option<PlanRow>,
}

impl BurstPlanSays {
    /// Plans bursts for the goal `wanted`; `record_ns` is the cost of a record.
    ///
    /// # Errors
    /// Returns an error if the goal bounds the overhead, and the store has no data on it.
    fn of(basis: BurstBasis, wanted: &GoalArguments, record_ns: f64) -> Result<Self, String> {
        let busiest = basis.busiest.as_ref();
        let cost = busiest.map(|busiest| busiest.cost(record_ns));
        let by_overhead = match (wanted.overhead, cost) {
            (None, _) => 1.0,
            (Some(overhead), Some(cost)) if cost > 0.0 => (overhead / cost).min(1.0),
            (Some(_), Some(_)) => 1.0,
            (Some(_), None) => {
                return Err(
                    "no process with the SDK recorded this, so the cost of recording is unknown: bound the share of \
                     time instead, by `duty 1 %`"
                        .to_owned(),
                );
            }
        };
        let duty_max = wanted.duty.unwrap_or(1.0);
        let is_by_overhead = by_overhead < duty_max;
        let usual_ns = || basis.arrivals.percentile_ns(0.95).unwrap_or(0.0);
        let goal = BurstGoal {
            longest_ns: wanted
                .longest
                .map_or_else(usual_ns, |longest| to_ns(longest) as f64),
            duty_max: duty_max.min(by_overhead),
            duty_max_relaxed: duty_max.max(by_overhead),
            whole_per_hour: wanted.whole_per_hour.unwrap_or(1.0),
        };
        let plans = plan_bursts(&basis.arrivals, &goal);
        let row = |bursts: &PlannedBursts| PlanRow::of(bursts, cost);
        let of_interest = planned(&basis.arrivals, goal.longest_ns, 1, 1).whole_per_hour;
        let ways = |giving| gives_way(&giving, &goal, of_interest, cost, is_by_overhead);
        Ok(Self {
            notes: basis.notes,
            longest_ns: goal.longest_ns,
            duty_max: goal.duty_max,
            whole_per_hour_wanted: goal.whole_per_hour,
            requests: basis.requests,
            recorded_ns: basis.recorded_ns,
            is_of_bursts: basis.is_of_bursts,
            begin_per_hour: basis.arrivals.per_hour(),
            of_interest_per_hour: of_interest,
            busiest: basis.busiest.map(|of| Busiest::of(of, record_ns)),
            is_reached: !plans.reaching.is_empty(),
            plans: plans.reaching.iter().map(row).collect(),
            gives_way: plans.giving_way.map_or_else(Vec::new, ways),
        })
    }
}

impl Busiest {
    fn of(of: BusiestProcess, record_ns: f64) -> Self {
        Self {
            cost_in_burst: of.cost(record_ns),
            service: of.service,
            records_per_second: of.records_per_second,
            cpu_cores: of.cpu_cores,
            record_ns,
        }
    }
}

impl PlanRow {
    fn of(bursts: &PlannedBursts, cost: Option<f64>) -> Self {
        let config = BurstConfig::from_bits(bursts.mask());
        Self {
            config: config.bits(),
            config_binary: format!("{:#b}", config.bits()),
            burst_ms: bursts.burst_ms,
            period_ms: bursts.period_ms,
            duty: bursts.duty(),
            overhead: cost.map(|cost| cost * bursts.duty()),
            whole_per_hour: bursts.whole_per_hour,
            followed_per_hour: bursts.followed_per_hour,
            cut_share: bursts.cut_share,
        }
    }

    fn says(&self) -> String {
        if self.config == 0 {
            return format!(
                "recording everything brings {:.0} whole requests an hour",
                self.whole_per_hour
            );
        }
        format!(
            "{} ms every {} ({}) bring {:.0} whole requests an hour in {} of the time, and cut {} of those they meet",
            self.burst_ms,
            duration(self.period_ms as f64 * 1e6),
            self.config_binary,
            self.whole_per_hour,
            percent_of(self.duty),
            percent(self.cut_share),
        )
    }
}

/// Formats a share as a percentage, with three decimals below 1 %.
fn percent_of(share: f64) -> String {
    match share < 0.01 {
        true => format!("{:.3}%", share * 100.0),
        false => percent(share),
    }
}

/// Lists the ways to relax a goal. `is_by_overhead` is true if the overhead limits the share of
/// time more than the duty does. `of_interest` is the number of requests of interest that begin in
/// an hour.
fn gives_way(
    giving: &GivingWay,
    goal: &BurstGoal,
    of_interest: f64,
    cost: Option<f64>,
    is_by_overhead: bool,
) -> Vec<GivesWay> {
    let row = |bursts: PlannedBursts| PlanRow::of(&bursts, cost);
    let longest = duration(goal.longest_ns);
    let way =
        |part, plan: Option<PlanRow>, helps: &dyn Fn(&PlanRow) -> String, not: String| GivesWay {
            part,
            said: plan.as_ref().map_or(not, helps),
            plan,
        };
    let (part, more, noun, other) = match is_by_overhead {
        true => ("overhead", "More overhead", "", "the duty"),
        false => (
            "duty",
            "More of the time",
            "an overhead of ",
            "the overhead",
        ),
    };
    let not_more = match of_interest < goal.whole_per_hour {
        true => format!(
            "{more} does not help: so many requests up to {longest} do not begin in an hour."
        ),
        false => format!(
            "{more} does not help alone: {other} allows to record at most {} of the time.",
            percent_of(goal.duty_max_relaxed)
        ),
    };
    vec![
        way(
            "whole_requests",
            giving.whole_per_hour.map(row),
            &|plan| format!("Fewer whole requests: {}.", plan.says()),
            format!(
                "Fewer whole requests do not help: none up to {longest} is whole in bursts of so little of the time."
            ),
        ),
        way(
            part,
            giving.duty.map(row),
            &|plan| {
                let overhead = plan.overhead.map_or_else(String::new, |share| {
                    format!(", {noun}{}", percent_of(share))
                });
                format!("{more}{overhead}: {}.", plan.says())
            },
            not_more,
        ),
        way(
            "longest",
            giving.longest.map(|(_, bursts)| row(bursts)),
            &|plan| {
                let to = giving.longest.map_or(0.0, |(longest_ns, _)| longest_ns);
                format!("Requests up to {}: {}.", duration(to), plan.says())
            },
            "Requests up to another length do not help.".to_owned(),
        ),
    ]
}

rows! {
    PlanRow as row, "burst_plans": "Bursts, and the requests of interest that they record.";
    config_binary: Text, "mask" = &*row.config_binary;
    burst_ns: DurationNs, "burst" = row.burst_ms as f64 * 1e6;
    period_ns: DurationNs, "every" = row.period_ms as f64 * 1e6;
    duty: Text, "duty" = &*percent_of(row.duty);
    overhead: Text, "overhead" = &*row.overhead.map_or_else(String::new, percent_of);
    whole_per_hour: Mean, "whole an hour" = row.whole_per_hour.round();
    cut_share: Share, "cut" = row.cut_share;
    followed_per_hour: Mean, "followed" = row.followed_per_hour.round();
}

impl Report for BurstPlanSays {
    fn notes(&self) -> &Notes {
        &self.notes
    }

    fn show(&self, doc: &mut Doc) {
        doc.heading("Bursts by a goal");
        doc.sentence(match self.plans.first() {
            Some(best) => {
                let mut says = best.says();
                says[..1].make_ascii_uppercase();
                format!("{says}.")
            }
            None if self.gives_way.iter().all(|way| way.plan.is_none()) => {
                "No mask reaches the goal, even if one part of it gives way:".to_owned()
            }
            None => "No mask reaches the goal; one part of it must give way:".to_owned(),
        });
        doc.sentences(self.gives_way.iter().map(|way| &way.said));
        let recorded = match self.is_of_bursts {
            true => "of bursts",
            false => "from the first to the last",
        };
        doc.sentence(format!(
            "Wanted: {:.0} whole requests up to {} an hour, in at most {} of the time. Learned of {} in {} {recorded}: {:.0} begin \
             in an hour, {:.0} of them so short.",
            self.whole_per_hour_wanted,
            duration(self.longest_ns),
            percent_of(self.duty_max),
            counted(self.requests, "whole request"),
            duration(self.recorded_ns as f64),
            self.begin_per_hour,
            self.of_interest_per_hour,
        ));
        if let Some(busiest) = &self.busiest {
            let of = match busiest.cpu_cores {
                Some(cores) => format!("of {cores:.3} cores that it uses"),
                None => "of a core, as its usage is unknown".to_owned(),
            };
            doc.sentence(format!(
                "In a burst {} records {:.0} spans and events a second: at {} each, {} {of}.",
                busiest.service,
                busiest.records_per_second,
                duration(busiest.record_ns),
                percent_of(busiest.cost_in_burst),
            ));
        }
        doc.sentence(
            "Whole and cut are of what is recorded in bursts only (STROBOSCOPE_SAMPLE=burst); by default requests \
             that enter during a burst are followed to their end, and none of those is cut.",
        );
        doc.table("Masks that reach it", &self.plans, usize::MAX);
    }
}

#[cfg(test)]
mod tests {
    use stroboscope_analysis::burst_plan::Arrivals;

    use super::*;

    #[test]
    fn the_bound_that_limits_the_time_gives_way() {
        let basis = || BurstBasis {
            arrivals: Arrivals::new(vec![(20e6, 36_000.0)]),
            requests: 600,
            recorded_ns: 60_000_000_000,
            is_of_bursts: true,
            busiest: Some(BusiestProcess {
                service: "web".to_owned(),
                records_per_second: 1e6,
                cpu_cores: Some(1.0),
            }),
            notes: Notes::default(),
        };
        let check = |duty: Option<f64>, whole_per_hour: f64, part: &str, says: &str| {
            let wanted = GoalArguments {
                longest: Some(Duration::from_millis(30)),
                overhead: Some(0.01),
                duty,
                whole_per_hour: Some(whole_per_hour),
            };
            let said = BurstPlanSays::of(basis(), &wanted, 64.0).unwrap();
            let way = &said.gives_way[1];
            assert_eq!(way.part, part);
            assert!(way.said.starts_with(says), "{}", way.said);
        };
        check(None, 20_000.0, "overhead", "More overhead, 6");
        check(None, 40_000.0, "overhead", "More overhead does not help");
        // An overhead of 1% allows 15.6% of the time: enough for 4,000 requests, not for 20,000.
        let of_duty = "More of the time, an overhead of 0.8";
        check(Some(0.01), 4_000.0, "duty", of_duty);
        let both =
            "More of the time does not help alone: the overhead allows to record at most 15.6%";
        check(Some(0.01), 20_000.0, "duty", both);
        let both = "More overhead does not help alone: the duty allows to record at most 30";
        check(Some(0.3), 20_000.0, "overhead", both);
    }
}
