//! Scenario: the ranker runs in parallel to another source. It leaves out less for requests whose
//! answer does not wait for the ranker (Chow, dissertation, §4.5.5.2).

use std::collections::HashMap;

use stroboscope::baggage::{Baggage, SlackPrediction};
use stroboscope_newsfeed::RankResponse;
use stroboscope_tradeoff::Goal;

use super::super::run::DemoError;
use super::learning::Lessons;
use super::stage::{RankerSettings, Stage, quantile};
use super::story::Story;

/// Tradeoff rate of a request without slack: the operator's choice between quality and latency.
const DEFAULT_RATE: f64 = 0.9;
const SECONDS: f64 = 25.0;
/// Load, as a share of the load that full fidelity carries.
const LOAD: f64 = 0.35;

pub(super) async fn tell(
    stage: &mut Stage,
    lessons: &mut Lessons,
    told: &mut Story,
) -> Result<(), DemoError> {
    let learned = lessons.of(stage).await?;
    super::quality::performance(&learned, told);
    let per_second = LOAD * learned.knee(0.0);
    told.say(
        "load",
        format!(
            "{per_second:.0} requests/s, {:.0} % left out by default, beside a source that takes 5 to 80 ms by user",
            100.0 * DEFAULT_RATE
        ),
    );
    // The ranker's work has to fit into the slack nearly always, so predict a high quantile of
    // latency.
    let learned = learned.at_quantile(0.95)?;
    let goal = Goal::Slack {
        component: "ranker".to_owned(),
        default_rate: DEFAULT_RATE,
    };
    let mut runs = Vec::new();
    let mut last = HashMap::new();
    for is_predicted in [false, true] {
        stage.restart(RankerSettings::default()).await?;
        stage
            .decide_by(Some(&learned.policy(4, goal.clone())))
            .await;
        stage.load_with(per_second, 2.0, |_| String::new()).await?;
        // Use the same requests in both runs; the second run predicts from the first.
        stage.repeat_users();
        let users = stage.users();
        let known: HashMap<u64, f64> = std::mem::take(&mut last);
        let ranked = stage
            .load_with(per_second, SECONDS, |number| {
                let slack_ms = known.get(&users.of(number)).filter(|_| is_predicted);
                baggage(slack_ms.copied().unwrap_or_default())
            })
            .await?;
        // The slack of a user's last request predicts that of the next (Chow et al., OSDI 2014,
        // §5.2).
        for one in &ranked {
            let slack_ms = other_ms(users.of(one.number), 0) - one.latency.as_secs_f64() * 1e3;
            last.insert(users.of(one.number), slack_ms.max(0.0));
        }
        let run = Run::of(stage, &ranked).await?;
        told.say(
            if is_predicted { "with predictions" } else { "without" },
            format!(
                "{:.0} % with a drop; answers after p50 {:.1} ms, p95 {:.1} ms (the ranker's p50 {:.1} ms)",
                100.0 * run.share_with_drop,
                quantile(&run.answers_ms, 0.5),
                quantile(&run.answers_ms, 0.95),
                quantile(&run.ranker_ms, 0.5)
            ),
        );
        runs.push(run);
    }
    let [without, with] = runs.as_slice() else {
        return Ok(());
    };
    let fall = 1.0 - with.share_with_drop / without.share_with_drop;
    told.judge(
        "the share with a drop falls by",
        (format!("{:.0} %", 100.0 * fall), fall),
        "42 % (38 to 22 %)",
        fall >= 0.4,
    );
    let change =
        |share: f64| quantile(&with.answers_ms, share) / quantile(&without.answers_ms, share) - 1.0;
    let worst = change(0.5).max(change(0.95));
    told.judge(
        "  latency of answers rises by, the worse of p50 and p95",
        (format!("{:+.1} %", 100.0 * worst), worst),
        "unchanged",
        worst <= 0.05,
    );
    Ok(())
}

/// Returns the time that the other source takes, in ms: 5 to 80 by user, varied by up to 5 % by
/// request.
fn other_ms(user: u64, request: u64) -> f64 {
    let unit = |x: u64| (x.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11) as f64 / (1_u64 << 53) as f64;
    (5.0 + 75.0 * unit(user + 1)) * (0.95 + 0.1 * unit(request ^ user << 20))
}

fn baggage(slack_ms: f64) -> String {
    let mut baggage = Baggage::default();
    let slack_ns = (slack_ms * 1e6) as u64;
    baggage.set_slack(&SlackPrediction::default().with("ranker", slack_ns));
    baggage.to_header().unwrap_or_default()
}

struct Run {
    share_with_drop: f64,
    ranker_ms: Vec<f64>,
    /// Time of each answer in ms: the longer of the ranker's time and the other source's.
    answers_ms: Vec<f64>,
}

impl Run {
    async fn of(stage: &Stage, ranked: &[RankResponse]) -> Result<Self, DemoError> {
        let users = stage.users();
        let numbers: Vec<u64> = ranked.iter().map(|one| stage.number_of(one)).collect();
        let full = stage.full(&numbers).await?;
        let drops: Vec<f64> = numbers
            .iter()
            .zip(ranked)
            .filter_map(|(number, one)| {
                Some(stroboscope::quality::rank_displacement(
                    full.get(number)?,
                    &one.stories,
                    1,
                ))
            })
            .collect();
        let ranker_ms: Vec<f64> = ranked
            .iter()
            .map(|one| one.latency.as_secs_f64() * 1e3)
            .collect();
        let answers = ranked
            .iter()
            .zip(&ranker_ms)
            .map(|(one, ms)| ms.max(other_ms(users.of(one.number), one.number)));
        Ok(Self {
            share_with_drop: drops.iter().filter(|drop| **drop > 0.0).count() as f64
                / drops.len().max(1) as f64,
            answers_ms: answers.collect(),
            ranker_ms,
        })
    }
}
