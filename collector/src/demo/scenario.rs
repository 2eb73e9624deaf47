//! Stories of data-quality tradeoffs, each with and without, in one run: the ranker of the newsfeed under load, its
//! tradeoff point learned from copies of requests, and the decisions that follow (001 §4.5).

mod capacity;
mod learning;
mod quality;
mod reactive;
mod slack_order;
mod spare;
mod spike;
mod stage;
mod told;

use std::path::Path;

use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

pub use told::{Told, Verdict};

use learning::Lessons;

use super::run::{DemoError, seconds_since_epoch};
use stage::{Stage, Starting};

/// Which story.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Scenario {
    /// Learn what tradeoffs save and cost, and check both on fresh requests
    Models,
    /// The same overload, with tradeoffs decided beforehand and with timeouts
    Reactive,
    /// Three times the load for a while, with a latency goal and without
    Spike,
    /// Quality out of predicted slack, beside a slower source
    Spare,
    /// Another instance, when the ranker says that it pays
    Capacity,
    /// Waiting requests in order of their slack, and in order of arrival
    SlackOrder,
    /// One after the other
    All,
}

/// What became of a story.
#[derive(Debug)]
pub enum ScenarioOutcome {
    /// It was told to its end.
    Told(Box<Told>),
    /// A signal of this number ended it.
    Interrupted(i32),
}

/// Runs a story in a folder of its own. Nothing is left running in any case.
///
/// # Errors
/// Something did not start, ended by itself, or recorded nothing usable.
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
            // Dropping the story kills what it has started.
            _ = interrupt.recv() => Ok(ScenarioOutcome::Interrupted(SignalKind::interrupt().as_raw_value())),
            _ = terminate.recv() => Ok(ScenarioOutcome::Interrupted(SignalKind::terminate().as_raw_value())),
        }
    })
}

async fn tell(scenario: Scenario, data: &Path) -> Result<Told, DemoError> {
    let mut stage = Stage::start(data).await?;
    let mut told = Told::new(data);
    let told_to = tell_all(scenario, &mut stage, &mut told).await;
    // Whatever came of it, what was acknowledged is put into the store.
    stage.end().await?;
    told_to.map(|()| told)
}

async fn tell_all(scenario: Scenario, stage: &mut Stage, told: &mut Told) -> Result<(), DemoError> {
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
            stage.restart(Starting::default()).await?;
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
