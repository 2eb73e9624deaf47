//! Scenario: requests wait in order of their slack (Chow et al., OSDI 2014, §5.2). Shows how much
//! faster requests without slack become, and how much slower the others.

use stroboscope::baggage::{Baggage, SlackPrediction};

use super::super::run::DemoError;
use super::stage::{RankerSettings, Stage, latencies_ms, quantile};
use super::story::Story;

/// Maximum number of requests that the ranker works on at a time.
const RUNNING_MAX: usize = 3;
/// Slack of requests that have some, in ms: pages of users on slow links wait for other things.
const SLACK_MS: u64 = 400;
const SECONDS: f64 = 25.0;
/// Load, as a share of the ranker's capacity.
const LOAD: f64 = 0.93;

pub(super) async fn tell(stage: &mut Stage, told: &mut Story) -> Result<(), DemoError> {
    let starting = RankerSettings {
        slack_order: Some(RUNNING_MAX),
        ..RankerSettings::default()
    };
    stage.restart(starting.clone()).await?;
    let capacity = capacity(stage).await?;
    let per_second = LOAD * capacity;
    told.say(
        "load",
        format!("{per_second:.0} requests/s of {capacity:.0} that the ranker carries, half of them with {SLACK_MS} ms of slack"),
    );
    let mut all = Vec::new();
    for (name, slack_ms) in [("in order of arrival", 0), ("in order of slack", SLACK_MS)] {
        stage.restart(starting.clone()).await?;
        stage
            .load_with(per_second / 2.0, 2.0, |_| String::new())
            .await?;
        // Use the same requests in both runs.
        stage.repeat_users();
        let rich = baggage(slack_ms);
        let ranked = stage
            .load_with(per_second, SECONDS, |number| {
                if has_slack(number) {
                    rich.clone()
                } else {
                    baggage(0)
                }
            })
            .await?;
        let of = |wanted: bool| {
            let of_kind: Vec<_> = ranked
                .iter()
                .filter(|one| has_slack(one.number) == wanted)
                .cloned()
                .collect();
            latencies_ms(&of_kind)
        };
        let (poor, rich) = (of(false), of(true));
        told.say(
            name,
            format!(
                "without slack p50 {:.0} ms, p95 {:.0} ms; with slack p50 {:.0} ms, p95 {:.0} ms, {:.0} % later than their slack",
                quantile(&poor, 0.5),
                quantile(&poor, 0.95),
                quantile(&rich, 0.5),
                quantile(&rich, 0.95),
                100.0 * late(&rich)
            ),
        );
        all.push((poor, rich));
    }
    let [(poor_before, rich_before), (poor, rich)] = all.as_slice() else {
        return Ok(());
    };
    let p95 = |values: &[f64]| quantile(values, 0.95);
    let gain = 1.0 - p95(poor) / p95(poor_before);
    told.judge(
        "p95 of those without slack falls by",
        (format!("{:.0} %", 100.0 * gain), gain),
        "",
        gain > 0.0,
    );
    told.say(
        "  the others' p95",
        format!("{:.0} ms, {:.0} ms before", p95(rich), p95(rich_before)),
    );
    Ok(())
}

fn late(latencies_ms: &[f64]) -> f64 {
    let late = latencies_ms
        .iter()
        .filter(|ms| **ms > SLACK_MS as f64)
        .count();
    late as f64 / latencies_ms.len().max(1) as f64
}

/// Reports whether a request has slack. Pseudo-randomly, about half of the requests do.
const fn has_slack(number: u64) -> bool {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63 == 1
}

fn baggage(slack_ms: u64) -> String {
    let mut baggage = Baggage::default();
    baggage.set_slack(&SlackPrediction::default().with("ranker", slack_ms * 1_000_000));
    baggage.to_header().unwrap_or_default()
}

/// Measures the requests per second that succeed or fail if 400 per second are sent for 3 s.
async fn capacity(stage: &mut Stage) -> Result<f64, DemoError> {
    let begin = std::time::Instant::now();
    let ranked = stage.load_with(400.0, 3.0, |_| String::new()).await?;
    Ok(ranked.len() as f64 / begin.elapsed().as_secs_f64())
}
