//! Learns the ranker's models from a load sweep at each of several tradeoff rates.

use stroboscope_analysis::tradeoff::{
    LearnSettings, LearnedPoint, Level, LoadSweep, SweepSettings, TradeoffObservations, learn,
};
use stroboscope_tradeoff::{Goal, PointPolicy, Policy};

use super::super::run::DemoError;
use super::stage::{LoadOmission, POINT, Stage, latencies_ms, now_ns, quantile};
use stroboscope_reports::stderr::say;

/// Tradeoff rates to explore.
const RATES: [f64; 5] = [0.0, 0.25, 0.5, 0.75, 0.9];
/// Latency at the knee, as a multiple of an idle ranker's latency.
const KNEE: f64 = 3.0;
/// Utilisation under the second load for warming up and under the first load of each sweep, for a
/// ranker that works on one request at a time.
const FIRST_BUSY: f64 = 0.4;
/// Duration for which a load is held before its latencies are checked again, in seconds.
const CHUNK_S: f64 = 2.0;

/// Learned models of the ranker's tradeoff point.
#[derive(Clone)]
pub(super) struct LearningResult {
    pub(super) point: LearnedPoint,
    /// Observations from which the models were learned.
    observed: TradeoffObservations,
    /// Latency beyond which the ranker is past its knee, in nanoseconds.
    pub(super) limit_ns: f64,
}

impl LearningResult {
    /// Learns the models again, to predict this quantile of latency instead of the median.
    pub(super) fn at_quantile(mut self, quantile: f64) -> Result<Self, DemoError> {
        let mut settings = LearnSettings::default();
        settings.performance.quantile = quantile;
        let learned = learn(&self.observed, &settings).remove(POINT);
        self.point = learned.ok_or(DemoError::NothingExplored)??;
        Ok(self)
    }

    /// Builds a policy for this goal.
    pub(super) fn policy(&self, version: u64, goal: Goal) -> Policy {
        Policy {
            version,
            learned_ns: now_ns().cast_unsigned(),
            valid_for_ns: 0,
            points: vec![PointPolicy {
                point: POINT.to_owned(),
                performance: self.point.performance.clone(),
                quality: self.point.quality.clone(),
                goal,
                rate_max: 0.9,
            }],
            slack: None,
        }
    }

    /// Returns the requests per second at which latency reaches the knee, at the learned tradeoff
    /// rate nearest to this one; the most that were measured if latency is always below it, and 0
    /// if it is always above it.
    pub(super) fn knee(&self, tradeoff_rate: f64) -> f64 {
        let curves = &self.point.performance.curves;
        let near = |rate: f64| (rate - tradeoff_rate).abs();
        curves
            .iter()
            .min_by(|a, b| near(a.tradeoff_rate).total_cmp(&near(b.tradeoff_rate)))
            .and_then(|curve| curve.requests_per_second_within(self.limit_ns))
            .unwrap_or_default()
    }
}

/// Models that the scenarios have learned, each with the scoring time of the ranker's accelerator
/// in µs; `None` without an accelerator.
#[derive(Default)]
pub(super) struct Lessons(Vec<(Option<u64>, LearningResult)>);

impl Lessons {
    /// Returns the models of the running ranker, and learns them first if necessary.
    pub(super) async fn of(&mut self, stage: &mut Stage) -> Result<LearningResult, DemoError> {
        let accelerator_us = stage.accelerator_us();
        let known = self.0.iter().find(|(known, _)| *known == accelerator_us);
        if let Some((_, learned)) = known {
            return Ok(learned.clone());
        }
        let learned = sweep(stage).await?;
        self.0.push((accelerator_us, learned.clone()));
        Ok(learned)
    }
}

async fn sweep(stage: &mut Stage) -> Result<LearningResult, DemoError> {
    // First reads are slow, so the first two loads warm up the ranker. The first one's latency
    // determines the rate of the second.
    let cold = stage.load(4.0, 2.0, LoadOmission::Nothing).await?;
    let cold_ms = quantile(&latencies_ms(&cold), 0.5);
    stage
        .load(FIRST_BUSY * 1e3 / cold_ms, 6.0, LoadOmission::Nothing)
        .await?;
    // Measure the latency of an idle ranker.
    let idle = stage.load(4.0, 5.0, LoadOmission::Nothing).await?;
    let idle_ms = quantile(&latencies_ms(&idle), 0.5);
    let (busy, limit_ns) = (FIRST_BUSY * 1e3 / idle_ms, KNEE * idle_ms * 1e6);
    let since_ns = now_ns();
    say!(
        "an idle ranker takes {idle_ms:.1} ms; sweeping the load up to {:.1} ms in {} fidelities",
        limit_ns / 1e6,
        RATES.len()
    );
    for rate in RATES {
        let mut sweep = LoadSweep::new(SweepSettings {
            // At a higher tradeoff rate, a request takes less work, so the sweep starts at a higher
            // load.
            first_per_second: busy / (1.0 - 0.7 * rate),
            factor: 1.3,
            limit_ns: limit_ns * 1.5,
            precision: 0.1,
            seconds_max: 3.0 * CHUNK_S,
        });
        while let Some(per_second) = sweep.requests_per_second() {
            let level = hold(stage, per_second, rate, sweep.settings()).await?;
            say!(
                "  {:3.0} % left out, {per_second:5.0} requests/s: median {:6.1} ms of {}",
                100.0 * rate,
                level.median_ns() / 1e6,
                level.latencies_ns.len()
            );
            sweep.done(&level);
            // Leave time to process the backlog.
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        }
    }
    let observed = stage.observed(since_ns).await?;
    let learned = learn(&observed, &LearnSettings::default()).remove(POINT);
    let point = learned.ok_or(DemoError::NothingExplored)??;
    Ok(LearningResult {
        point,
        observed,
        limit_ns,
    })
}

/// Applies a load until its latencies have settled or the maximum time has passed. Returns the
/// latencies of the requests that succeeded.
async fn hold(
    stage: &mut Stage,
    per_second: f64,
    rate: f64,
    settings: &SweepSettings,
) -> Result<Level, DemoError> {
    let mut level = Level::default();
    while !level.is_settled(settings) {
        let ranked = stage
            .load(per_second, CHUNK_S, LoadOmission::Random(rate))
            .await?;
        let latencies = ranked.iter().filter(|one| one.failure.is_none());
        level
            .latencies_ns
            .extend(latencies.map(|one| u64::try_from(one.latency.as_nanos()).unwrap_or(u64::MAX)));
        level.seconds += CHUNK_S;
    }
    Ok(level)
}
