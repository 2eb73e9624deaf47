//! Scenarios of data-quality tradeoffs (Chow, dissertation, §4.5) and of predicted slack. They put
//! the newsfeed's ranker under load. All but that of the slack order use learned models of the
//! ranker's tradeoff point.

mod capacity;
mod learning;
mod quality;
mod reactive;
mod slack_order;
mod spare;
mod spike;
mod stage;
mod story;

use std::path::Path;

use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

pub use story::{Story, Verdict};

use learning::Lessons;

use super::run::{DemoError, seconds_since_epoch};
use stage::{RankerSettings, Stage};

/// Scenario to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Scenario {
    /// Learn what tradeoffs save and cost, and check both on fresh requests
    Models,
    /// Compare tradeoffs decided in advance with timeouts, under the same overload
    Reactive,
    /// Triple the load for a while, with and without a latency goal
    Spike,
    /// Gain quality from predicted slack, in parallel to a slower source
    Spare,
    /// Add an instance when the ranker reports that it pays off
    Capacity,
    /// Let requests wait in order of slack, and compare this with the order of arrival
    SlackOrder,
    /// Run all scenarios, one after the other
    All,
}

/// Result of a scenario.
#[derive(Debug)]
pub enum ScenarioOutcome {
    /// Figures of a run that was not interrupted.
    Told(Box<Story>),
    /// Number of the signal that ended the run.
    Interrupted(i32),
}

/// Runs a scenario in its own subdirectory. Leaves none of the started processes running in any
/// case.
///
/// # Errors
/// Returns an error if a process, the collector or the analysis fails, or if too little was
/// recorded to learn from.
pub fn run_scenario(
    scenario: Scenario,
    data: &Path,
    runtime: &Runtime,
) -> Result<ScenarioOutcome, DemoError> {
    let data = data.join(format!("demo-{}", seconds_since_epoch()));
    runtime.block_on(async {
        let (mut terminate, mut interrupt) = (
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
        );
        let told = tell(scenario, &data);
        tokio::select! {
            told = told => told.map(|told| ScenarioOutcome::Told(Box::new(told))),
            // Dropping the future kills the processes that it has started.
            _ = interrupt.recv() => Ok(ScenarioOutcome::Interrupted(SignalKind::interrupt().as_raw_value())),
            _ = terminate.recv() => Ok(ScenarioOutcome::Interrupted(SignalKind::terminate().as_raw_value())),
        }
    })
}

async fn tell(scenario: Scenario, data: &Path) -> Result<Story, DemoError> {
    let mut stage = Stage::start(data).await?;
    let mut told = Story::new(data);
    let told_to = tell_all(scenario, &mut stage, &mut told).await;
    // After any result, flush the acknowledged data into the store.
    stage.end().await?;
    told_to.map(|()| told)
}

async fn tell_all(
    scenario: Scenario,
    stage: &mut Stage,
    told: &mut Story,
) -> Result<(), DemoError> {
    let all = [
        Scenario::Models,
        Scenario::Reactive,
        Scenario::Spike,
        Scenario::Spare,
        Scenario::SlackOrder,
        Scenario::Capacity,
    ];
    let stories = match scenario {
        Scenario::All => &all[..],
        ref one => std::slice::from_ref(one),
    };
    let mut lessons = Lessons::default();
    for (number, story) in stories.iter().enumerate() {
        if number > 0 {
            stage.restart(RankerSettings::default()).await?;
            stage.decide_by(None).await;
        }
        told.begin(*story);
        match story {
            Scenario::Models => quality::tell(stage, &mut lessons, told).await?,
            Scenario::Reactive => reactive::tell(stage, &mut lessons, told).await?,
            Scenario::Spike => spike::tell(stage, &mut lessons, told).await?,
            Scenario::Spare => spare::tell(stage, &mut lessons, told).await?,
            Scenario::SlackOrder => slack_order::tell(stage, told).await?,
            Scenario::Capacity => capacity::tell(stage, &mut lessons, told).await?,
            Scenario::All => {}
        }
    }
    Ok(())
}
