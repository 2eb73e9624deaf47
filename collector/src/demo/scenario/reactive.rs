//! Scenario: compares tradeoffs decided in advance with tradeoffs that timeouts force, under equal
//! overload (Chow, dissertation, §4.5.4).

use stroboscope_newsfeed::RankResponse;
use stroboscope_tradeoff::Goal;

use super::super::run::DemoError;
use super::learning::Lessons;
use super::stage::{LoadOmission, RankerSettings, Stage, latencies_ms, quantile};
use super::story::Story;

/// Overload, as a multiple of the load that full fidelity carries.
const OVERLOAD: f64 = 2.2;
const SECONDS: f64 = 20.0;
/// Quantile of latency to bound.
const QUANTILE: f64 = 0.95;

pub(super) async fn tell(
    stage: &mut Stage,
    lessons: &mut Lessons,
    told: &mut Story,
) -> Result<(), DemoError> {
    let learned = lessons.of(stage).await?;
    super::quality::performance(&learned, told);
    let (overload, limit_ns) = (OVERLOAD * learned.knee(0.0), learned.limit_ns);
    // A timeout bounds the latency of nearly all requests, so the goal must also bound a high
    // quantile.
    let learned = learned.at_quantile(QUANTILE)?;
    let limit_ms = learned.limit_ns / 1e6;
    let per_second = overload;
    told.say(
        "load",
        format!("{per_second:.0} requests/s for {SECONDS:.0} s"),
    );
    // Use the latency at the knee as the timeout.
    stage
        .restart(RankerSettings {
            timeout_ms: Some(limit_ms as u64),
            ..RankerSettings::default()
        })
        .await?;
    let reactive = Run::of(stage, per_second).await?;
    stage.restart(RankerSettings::default()).await?;
    let goal = Goal::Latency {
        limit_ns: limit_ns * 0.5,
    };
    stage.decide_by(Some(&learned.policy(3, goal))).await;
    let proactive = Run::of(stage, per_second).await?;
    let mut is_lower = true;
    for share in [0.1, 0.25, 0.5, 0.75, 0.9, 0.99] {
        let of = |run: &Run| quantile(&run.latencies_ms, share);
        is_lower &= of(&proactive) < of(&reactive);
        told.say(
            format!("latency at {:.0} %", 100.0 * share),
            format!(
                "{:.0} ms proactive, {:.0} ms with a timeout of {limit_ms:.0} ms",
                of(&proactive),
                of(&reactive)
            ),
        );
    }
    told.judge(
        "latency is lower everywhere",
        (is_lower.to_string(), f64::from(u8::from(is_lower))),
        "yes",
        is_lower,
    );
    for (above, paper) in [(0.0, "81 and 80 %"), (10.0, "6 and 18 %")] {
        let of = |run: &Run| {
            100.0 * run.drops.iter().filter(|drop| **drop > above).count() as f64
                / run.drops.len().max(1) as f64
        };
        let (ours, theirs) = (of(&proactive), of(&reactive));
        let value = (
            format!("{ours:.1} % proactive, {theirs:.1} % reactive"),
            ours,
        );
        let what = format!("requests with a drop over {above:.0}");
        if above > 0.0 {
            told.judge(what, value, paper, theirs > 0.0 && ours <= theirs / 3.0);
        } else {
            told.say(what, value.0);
        }
    }
    Ok(())
}

struct Run {
    latencies_ms: Vec<f64>,
    drops: Vec<f64>,
}

impl Run {
    async fn of(stage: &mut Stage, per_second: f64) -> Result<Self, DemoError> {
        stage
            .load(per_second / 2.0, 3.0, LoadOmission::Nothing)
            .await?;
        let ranked = stage
            .load(per_second, SECONDS, LoadOmission::Nothing)
            .await?;
        let sample: Vec<&RankResponse> = ranked
            .iter()
            .filter(|one| one.failure.is_none())
            .step_by(4)
            .collect();
        let numbers: Vec<u64> = sample.iter().map(|one| stage.number_of(one)).collect();
        let full = stage.full(&numbers).await?;
        let drops = numbers.iter().zip(&sample).filter_map(|(number, one)| {
            Some(stroboscope::quality::rank_displacement(
                full.get(number)?,
                &one.stories,
                1,
            ))
        });
        Ok(Self {
            latencies_ms: latencies_ms(&ranked),
            drops: drops.collect(),
        })
    }
}
