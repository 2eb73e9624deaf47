//! Scenario: triples the load for a while, with a latency goal and without (Chow, dissertation,
//! §4.5.5.1).

use stroboscope_newsfeed::RankResponse;
use stroboscope_tradeoff::Goal;

use super::super::run::DemoError;
use super::learning::Lessons;
use super::stage::{LoadOmission, RankerSettings, Stage, latencies_ms, quantile};
use super::story::Story;

/// Duration of the load before the spike, in seconds; after the spike, the load lasts half as long.
const CALM_S: f64 = 8.0;
const SPIKE_S: f64 = 20.0;
/// Quantile of latency to predict.
const QUANTILE: f64 = 0.9;
/// Usual load, as a share of the load that full fidelity carries.
const CALM_LOAD: f64 = 0.5;

pub(super) async fn tell(
    stage: &mut Stage,
    lessons: &mut Lessons,
    told: &mut Story,
) -> Result<(), DemoError> {
    let learned = lessons.of(stage).await?;
    super::quality::performance(&learned, told);
    let goal_ms = learned.limit_ns / 1e6;
    let calm = CALM_LOAD * learned.knee(0.0);
    // The goal is a median within each second. Predicting a higher quantile leaves a margin.
    let learned = learned.at_quantile(QUANTILE)?;
    told.say(
        "load",
        format!("{calm:.0} requests/s, {:.0} for {SPIKE_S:.0} s", 3.0 * calm),
    );
    told.say("goal", format!("a median of {goal_ms:.0} ms"));
    stage.decide_by(None).await;
    let without = Course::of(stage, calm).await?;
    stage.restart(RankerSettings::default()).await?;
    let goal = Goal::Latency {
        // Leave room for the delay with which a load is measured.
        limit_ns: learned.limit_ns * 0.5,
    };
    stage.decide_by(Some(&learned.policy(2, goal))).await;
    let with = Course::of(stage, calm).await?;
    for (name, course) in [("without", &without), ("with", &with)] {
        told.say(
            format!("{name}: median by seconds of the spike, ms"),
            course
                .by_second
                .iter()
                .map(|median_ms| format!("{median_ms:.0}"))
                .collect::<Vec<_>>()
                .join(" "),
        );
    }
    told.judge(
        "median in the spike",
        (
            format!(
                "{:.0} ms with, {:.0} ms without",
                with.spike_ms, without.spike_ms
            ),
            with.spike_ms,
        ),
        "5.4 s of 6 s; 25.2 s without",
        with.spike_ms <= goal_ms,
    );
    let worst = with.by_second.iter().copied().fold(0.0, f64::max);
    told.judge(
        "  the worst second's median, with",
        (format!("{worst:.0} ms"), worst),
        "under the goal throughout",
        worst <= goal_ms,
    );
    let full = stage.full(&with.numbers).await?;
    let drops: Vec<f64> = with
        .numbers
        .iter()
        .zip(&with.stories)
        .filter_map(|(number, stories)| {
            Some(stroboscope::quality::rank_displacement(
                full.get(number)?,
                stories,
                1,
            ))
        })
        .collect();
    let share = drops.iter().filter(|drop| **drop > 0.0).count() as f64 / drops.len().max(1) as f64;
    told.say(
        "quality in the spike, with",
        format!(
            "mean drop {:.2}, {:.0} % of requests with any",
            drops.iter().sum::<f64>() / drops.len().max(1) as f64,
            100.0 * share
        ),
    );
    Ok(())
}

/// Median latencies in the spike of one run, in ms, and a sample of the spike's answers, by which
/// the quality is judged.
struct Course {
    spike_ms: f64,
    by_second: Vec<f64>,
    /// Numbers that determine the users in a sample of the spike's requests; `stories` has the
    /// answers to this sample.
    numbers: Vec<u64>,
    stories: Vec<Vec<u64>>,
}

impl Course {
    async fn of(stage: &mut Stage, calm: f64) -> Result<Self, DemoError> {
        stage.load(calm, CALM_S, LoadOmission::Nothing).await?;
        let spike = stage
            .load(3.0 * calm, SPIKE_S, LoadOmission::Nothing)
            .await?;
        let of_second = |second: u64| {
            let ranked: Vec<RankResponse> = spike
                .iter()
                .filter(|one| one.sent.as_secs() == second)
                .cloned()
                .collect();
            quantile(&latencies_ms(&ranked), 0.5)
        };
        let sample: Vec<&RankResponse> = spike
            .iter()
            .filter(|one| one.failure.is_none())
            .step_by(8)
            .collect();
        let course = Self {
            spike_ms: quantile(&latencies_ms(&spike), 0.5),
            by_second: (0..SPIKE_S as u64).map(of_second).collect(),
            numbers: sample.iter().map(|one| stage.number_of(one)).collect(),
            stories: sample.iter().map(|one| one.stories.clone()).collect(),
        };
        stage
            .load(calm, CALM_S / 2.0, LoadOmission::Nothing)
            .await?;
        Ok(course)
    }
}
