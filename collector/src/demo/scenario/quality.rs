//! Scenario: learns what tradeoffs save and cost, and checks both on fresh requests.

use super::super::run::DemoError;
use super::learning::{LearningResult, Lessons};
use super::stage::{LoadOmission, POINT, Stage, now_ns};
use super::story::Story;
use stroboscope_tradeoff::Goal;

/// Number of requests to judge the quality by, which are sent after learning.
const JUDGED: u64 = 300;

pub(super) async fn tell(
    stage: &mut Stage,
    lessons: &mut Lessons,
    told: &mut Story,
) -> Result<(), DemoError> {
    let learned = lessons.of(stage).await?;
    performance(&learned, told);
    fresh_latency(stage, &learned, told).await?;
    quality(stage, &learned, told).await
}

pub(super) fn performance(learned: &LearningResult, told: &mut Story) {
    let (full, half) = (learned.knee(0.0), learned.knee(0.5));
    told.say(
        format!(
            "requests a second up to a median of {:.0} ms",
            learned.limit_ns / 1e6
        ),
        format!("{full:.0} in full, {half:.0} with half left out"),
    );
    let gain = half / full - 1.0;
    told.judge(
        "  so many more with half left out",
        (format!("{:.0} %", 100.0 * gain), gain),
        "72 % Ranker, 200 % Sirius",
        gain >= 0.72,
    );
    let costs = learned.point.performance.class_costs.as_ref();
    told.say(
        "  provenance matters to performance",
        costs.map_or("no".to_owned(), |(feature, _)| format!("yes, by {feature}")),
    );
}

/// Compares predictions with measurements of new requests, at some tradeoff rates of the sweep and
/// at others.
async fn fresh_latency(
    stage: &mut Stage,
    learned: &LearningResult,
    told: &mut Story,
) -> Result<(), DemoError> {
    let mut worst: f64 = 0.0;
    for (share, rate) in [
        (0.35, 0.0),
        (0.55, 0.1),
        (0.5, 0.35),
        (0.4, 0.5),
        (0.55, 0.6),
    ] {
        let since_ns = now_ns();
        let per_second = share * learned.knee(rate);
        stage
            .load(per_second, 5.0, LoadOmission::Random(rate))
            .await?;
        let observed = stage.observed(since_ns).await?;
        let Some(point) = observed.points.get(POINT) else {
            return Err(DemoError::NothingExplored);
        };
        // At first, the load is not known yet.
        let made: Vec<_> = point
            .made
            .iter()
            .filter(|made| made.start_ns > since_ns + 1_200_000_000)
            .collect();
        let latencies: Vec<f64> = made.iter().map(|made| made.latency_ns as f64).collect();
        let loads: Vec<f64> = made.iter().map(|made| made.requests_per_second).collect();
        let measured_ns = super::stage::quantile(&latencies, 0.5);
        let mean_load = loads.iter().sum::<f64>() / loads.len().max(1) as f64;
        let predicted_ns = learned.point.performance.latency_ns(mean_load, rate);
        let off = predicted_ns / measured_ns - 1.0;
        worst = worst.max(off.abs());
        told.say(
            format!("{mean_load:.0} requests/s, {:.0} % left out", 100.0 * rate),
            format!(
                "predicted {:.1} ms, measured {:.1} ms of {} ({:+.0} %)",
                predicted_ns / 1e6,
                measured_ns / 1e6,
                made.len(),
                100.0 * off
            ),
        );
    }
    told.judge(
        "  the worst prediction is off by",
        (format!("{:.0} %", 100.0 * worst), worst),
        "",
        worst <= 0.1,
    );
    Ok(())
}

/// Compares full answers with answers that omit candidates, chosen by the model or at random.
async fn quality(
    stage: &mut Stage,
    learned: &LearningResult,
    told: &mut Story,
) -> Result<(), DemoError> {
    stage.decide_by(Some(&learned.policy(1, Goal::Full))).await;
    let numbers: Vec<u64> = (1..=JUDGED)
        .map(|number| number.wrapping_mul(0x00ff_51af_d7ed_558d))
        .collect();
    let full = stage.full(&numbers).await?;
    // Tradeoff rate, and the paper's figures in percent: by provenance, and at random.
    for (rate, paper_ours, paper_random) in [(0.1, 6.0, 11.0), (0.5, 33.0, 43.0), (0.8, 59.0, 62.0)]
    {
        let (mut ours, mut random) = (Vec::new(), Vec::new());
        for number in &numbers {
            let Some(full) = full.get(number) else {
                continue;
            };
            let (by_model, at_random) = tokio::try_join!(
                stage.ask(*number, LoadOmission::ByModel(rate)),
                stage.ask(*number, LoadOmission::Random(rate))
            )?;
            ours.push(stroboscope::quality::rank_displacement(full, &by_model, 1));
            random.push(stroboscope::quality::rank_displacement(full, &at_random, 1));
        }
        let share = |drops: &[f64], above: f64| {
            100.0 * drops.iter().filter(|drop| **drop > above).count() as f64
                / drops.len().max(1) as f64
        };
        let (our_share, random_share) = (share(&ours, 0.0), share(&random, 0.0));
        told.judge(
            format!("{:.0} % left out: requests with any drop", 100.0 * rate),
            (
                format!(
                    "{our_share:.0} % by provenance, {random_share:.0} % at random (over 10: {:.0} and {:.0} %)",
                    share(&ours, 10.0),
                    share(&random, 10.0)
                ),
                our_share,
            ),
            &format!("{paper_ours:.0} and {paper_random:.0} %"),
            random_share - our_share >= paper_random - paper_ours,
        );
    }
    Ok(())
}
