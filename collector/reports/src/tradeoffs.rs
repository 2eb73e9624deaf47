//! The `tradeoffs` subcommand.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use stroboscope_analysis::tradeoff::{LearnSettings, LearnedPoint, learn};
use stroboscope_tradeoff::{Goal, PointPolicy, Policy};
use tokio::runtime::Runtime;

use crate::arguments::{ReadingArguments, ShowArguments, parse_duration, parse_share, to_ns};
use crate::results::tradeoffs::{LogSays, PlanSays, PolicySays, TradeoffsSay, read_policy};
use crate::study::{NamedStudy, Reader};
use crate::verb::{PageVerb, TakeReport, give, give_as, write_file};
use crate::{Failure, Status};
use stroboscope_query::{Notes, SlackModelReport, SlackModelSettings, tradeoffs};

/// Data-quality tradeoffs: learn what they save and cost, show models, plan by them, and log what
/// was left out
///
/// A service names its tradeoff points with the SDK (`stroboscope::tradeoff`). Copies of requests
/// explore them in all fidelities. `learn` infers models from these recordings and writes a policy,
/// which `collect --tradeoffs FILE` sends to the services with the SDK that ship to this collector
/// or to its agents. `log` shows what was left out.
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct TradeoffsVerb {
    #[command(subcommand)]
    verb: Tradeoffs,
}

#[derive(Debug, Subcommand)]
enum Tradeoffs {
    Learn(Box<Learn>),
    Show(ShowVerb),
    Plan(Plan),
    Log(Box<LogVerb>),
}

/// Learn models of all points that requests explored, and write a policy
///
/// Learns two models. Latency by load and tradeoff rate is learned from requests that explored. The
/// cost of an item's absence, by its provenance, is learned from the metered answers of requests
/// that left nothing out. About one answer in four is held out for validation. With --slack-by,
/// also learns the slack of each component by a key, such as the user; this needs no requests that
/// explore.
#[derive(Debug, Args)]
struct Learn {
    #[command(flatten)]
    reading: ReadingArguments,
    #[command(flatten)]
    show: ShowArguments,
    /// Goal of a point; repeatable. POINT=latency:40ms gives the best quality within this latency
    /// of its component. POINT=slack:COMPONENT:50% leaves out this share, or less if the component
    /// is predicted to have slack. POINT=full is the default. POINT=@FILE reads JSON, such as a
    /// utility
    #[arg(long = "goal", value_name = "POINT=GOAL", value_parser = parse_goal)]
    goals: Vec<(String, Goal)>,
    /// Also learn slack (how much longer each service may take) from the last request with each
    /// value of this attribute. An ingress predicts with it (`tradeoff::foretold_slack`)
    #[arg(long, value_name = "ATTRIBUTE")]
    slack_by: Option<String>,
    /// Learn the slack of this service or operation only; repeatable
    #[arg(long, value_name = "COMPONENT", requires = "slack_by")]
    slack_of: Vec<String>,
    /// Threshold that slack must exceed to count in the quality of predictions; by default the
    /// component's median
    #[arg(long, value_name = "DURATION", requires = "slack_by", value_parser = parse_duration)]
    slack_threshold: Option<Duration>,
    /// Quantile of latency to model
    #[arg(long, default_value_t = 0.5, value_parser = crate::arguments::parse_part)]
    quantile: f64,
    /// Maximum share to leave out
    #[arg(long, value_name = "SHARE", default_value = "90%", value_parser = parse_share)]
    rate_max: f64,
    /// Version of the policy, stored in every record of a tradeoff; by default the current time
    #[arg(long)]
    policy_version: Option<u64>,
    /// Validity of the models, such as 7d; after that, services return to full fidelity
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    valid_for: Option<Duration>,
    /// Write the policy to this file
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// Show the models of a policy
#[derive(Debug, Args)]
struct ShowVerb {
    /// Policy file from `learn`
    policy: PathBuf,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    show: ShowArguments,
}

/// Show what a policy would decide, load by load
#[derive(Debug, Args)]
struct Plan {
    /// Policy file from `learn`
    policy: PathBuf,
    /// Requests per second; repeatable. By default, the measured loads at least 10 % apart
    #[arg(long = "load", value_name = "RATE")]
    loads: Vec<f64>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    show: ShowArguments,
}

/// Show what was left out, when, by which policy, and what forced it
#[derive(Debug, Args)]
pub struct LogVerb {
    #[command(flatten)]
    reading: ReadingArguments,
    #[command(flatten)]
    show: ShowArguments,
}

impl PageVerb for LogVerb {
    fn serve(&self, reader: &Reader, take: TakeReport<'_>) -> Result<(), Failure> {
        let study = NamedStudy::read_by(&self.reading, reader)?;
        let (observed, notes) =
            tradeoffs(study.source(), study.selection()).map_err(Failure::of)?;
        take(&TradeoffsSay::Log(Box::new(LogSays::of(&observed, notes))))
    }
}

fn parse_goal(text: &str) -> Result<(String, Goal), String> {
    let accepted = "write POINT=latency:40ms, POINT=slack:COMPONENT:50%, POINT=full or POINT=@FILE";
    let (point, goal) = text.split_once('=').ok_or(accepted)?;
    let goal = match goal.split_once(':') {
        _ if goal == "full" => Goal::Full,
        _ if goal.starts_with('@') => {
            let path = goal.trim_start_matches('@');
            let json = std::fs::read(path).map_err(|error| format!("{path}: {error}"))?;
            serde_json::from_slice(&json).map_err(|error| format!("{path} is no goal: {error}"))?
        }
        Some(("latency", limit)) => Goal::Latency {
            limit_ns: parse_duration(limit)?.as_nanos() as f64,
        },
        Some(("slack", rest)) => {
            let (component, share) = rest.rsplit_once(':').ok_or(accepted)?;
            Goal::Slack {
                component: component.to_owned(),
                default_rate: parse_share(share)?,
            }
        }
        _ => return Err(accepted.to_owned()),
    };
    Ok((point.to_owned(), goal))
}

impl TradeoffsVerb {
    pub fn run(self, runtime: &Runtime) -> Result<Status, Failure> {
        match self.verb {
            Tradeoffs::Learn(learn) => learn.run(runtime),
            Tradeoffs::Show(show) => {
                let policy = read_policy(&show.policy)?;
                let says = PolicySays::of(&policy, Vec::new(), Notes::default());
                let says = TradeoffsSay::Policy(Box::new(says));
                give_as(&says, &show.policy, show.json, None, &show.show)
            }
            Tradeoffs::Plan(plan) => {
                let is_wrong = |load: &f64| !load.is_finite() || *load < 0.0;
                if plan.loads.iter().any(is_wrong) {
                    return Err(Failure::asked(
                        "--load takes requests per second, such as 120",
                    ));
                }
                let says = PlanSays::of(&read_policy(&plan.policy)?, &plan.loads);
                let says = TradeoffsSay::Plan(Box::new(says));
                give_as(&says, &plan.policy, plan.json, None, &plan.show)
            }
            Tradeoffs::Log(log) => {
                let study = NamedStudy::of(&log.reading, runtime.handle())?;
                let (observed, notes) =
                    tradeoffs(study.source(), study.selection()).map_err(Failure::of)?;
                let says = TradeoffsSay::Log(Box::new(LogSays::of(&observed, notes)));
                give(&says, &log.reading.from, &log.show)
            }
        }
    }
}

impl Learn {
    fn run(self, runtime: &Runtime) -> Result<Status, Failure> {
        let study = NamedStudy::of(&self.reading, runtime.handle())?;
        let (observed, notes) =
            tradeoffs(study.source(), study.selection()).map_err(Failure::of)?;
        let slack = self.slack(&study)?;
        if observed.points.is_empty() && slack.is_none() {
            return Err(Failure::new(
                "no tradeoffs are recorded: name points by `stroboscope::tradeoff` in a service, and send it copies \
                 of requests that explore them (the guide, \"Tradeoffs\")",
            ));
        }
        let known: Vec<&str> = observed.points.keys().map(|name| &**name).collect();
        if let Some((unknown, _)) = self
            .goals
            .iter()
            .find(|(point, _)| !known.contains(&point.as_str()))
        {
            return Err(Failure::unknown(format!(
                "--goal {unknown}=…: no point of that name is recorded; there are {}",
                known.join(", ")
            )));
        }
        let mut settings = LearnSettings::default();
        settings.performance.quantile = self.quantile;
        let mut not_learned = Vec::new();
        let mut points = Vec::new();
        for (name, learned) in learn(&observed, &settings) {
            match learned {
                Ok(learned) => {
                    let reduced = observed.points[&name].answers_reduced;
                    if learned.answers == 0 && reduced > 0 {
                        not_learned.push(format!(
                            "{name} has no model of quality: all of {reduced} metered answers are of requests that gave \
                             something up; send copies that explore it at rate 0, too."
                        ));
                    }
                    points.push(self.point(&name, learned));
                }
                Err(why) => not_learned.push(format!("{name} has no model: {why}.")),
            }
        }
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let policy = Policy {
            version: self.policy_version.unwrap_or(now.as_secs()),
            learned_ns: to_ns(now),
            valid_for_ns: self.valid_for.map_or(0, to_ns),
            points,
            slack: slack.as_ref().map(|slack| slack.model.clone()),
        };
        policy.check().map_err(Failure::of)?;
        if policy.is_empty() {
            return Err(Failure::new(not_learned.join(" ")));
        }
        let json = serde_json::to_string_pretty(&policy).map_err(Failure::of)?;
        write_file(&self.out, format!("{json}\n").as_bytes())?;
        let notes = match &slack {
            // The pass for slack read the same requests, and its notes are more complete.
            Some(slack) => slack.notes.clone(),
            None => notes,
        };
        let mut says = PolicySays::of(&policy, not_learned, notes);
        if let Some(slack) = &slack {
            says.judge_slack(slack);
        }
        let says = TradeoffsSay::Policy(Box::new(says));
        give(&says, &self.reading.from, &self.show)
    }

    fn slack(&self, study: &NamedStudy) -> Result<Option<SlackModelReport>, Failure> {
        let Some(key) = &self.slack_by else {
            return Ok(None);
        };
        let settings = SlackModelSettings {
            key: key.clone(),
            components: self.slack_of.clone(),
            threshold_ns: self.slack_threshold.map(to_ns),
        };
        study.ask(&settings).map(Some)
    }

    fn point(&self, name: &str, learned: LearnedPoint) -> PointPolicy {
        // The last goal of a point takes precedence.
        let goal = self.goals.iter().rev().find(|(point, _)| point == name);
        PointPolicy {
            point: name.to_owned(),
            performance: learned.performance,
            quality: learned.quality,
            goal: goal.map_or(Goal::Full, |(_, goal)| goal.clone()),
            rate_max: self.rate_max,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_read() {
        let goal = |text: &str| parse_goal(text).map(|(_, goal)| goal);
        assert_eq!(goal("a=full"), Ok(Goal::Full));
        assert_eq!(goal("a=latency:40ms"), Ok(Goal::Latency { limit_ns: 40e6 }));
        let slack = Goal::Slack {
            component: "web:rank".to_owned(),
            default_rate: 0.5,
        };
        assert_eq!(goal("a=slack:web:rank:50%"), Ok(slack));
        for wrong in [
            "a",
            "a=",
            "a=fast",
            "a=slack:50%",
            "a=latency:often",
            "a=@/nonexistent",
        ] {
            assert!(goal(wrong).is_err(), "{wrong}");
        }
    }
}
