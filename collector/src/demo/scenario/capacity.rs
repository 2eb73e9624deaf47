//! Scenario: adds an instance of the ranker when the ranker reports that one pays off (Chow,
//! dissertation, §4.5.5.3).

use std::path::Path;
use std::time::Duration;

use stroboscope_newsfeed::RankResponse;
use stroboscope_tradeoff::{Goal, Piecewise, Utility};

use super::super::run::DemoError;
use super::learning::{LearningResult, Lessons};
use super::stage::{RankerSettings, Stage};
use super::story::Story;

/// Time that scoring a candidate takes on the accelerator, in µs. Each ranker has its own
/// accelerator, so two rankers on one machine carry twice the load.
const ACCELERATOR_US: u64 = 800;
/// Duration of the usual load, in seconds; `RUSH_S` is that of the higher load.
const CALM_S: f64 = 10.0;
const RUSH_S: f64 = 25.0;
/// Cost of an instance per second, in units of the utility.
const INSTANCE: f64 = 8.0;
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) async fn tell(
    stage: &mut Stage,
    lessons: &mut Lessons,
    told: &mut Story,
) -> Result<(), DemoError> {
    let file = stage.directory().join("capacity.txt");
    let starting = RankerSettings {
        accelerator_us: Some(ACCELERATOR_US),
        capacity_file: Some(file.clone()),
        ..RankerSettings::default()
    };
    stage.restart(starting.clone()).await?;
    let learned = lessons.of(stage).await?;
    super::quality::performance(&learned, told);
    let (calm, rush) = (0.5 * learned.knee(0.0), 0.65 * learned.knee(0.9));
    let utility = utility(&learned);
    told.say("load", format!("{calm:.0} requests/s, then {rush:.0}"));
    told.say(
        "utility of a request",
        format!(
            "1 within {:.0} ms, 0 from {:.0} ms; 2 for a true answer, 0 where six of ten are not; an instance costs {INSTANCE} a second",
            learned.limit_ns / 1e6,
            3.0 * learned.limit_ns / 1e6
        ),
    );
    let mut gained = Vec::new();
    for is_heeded in [false, true] {
        let _ = std::fs::remove_file(&file);
        stage.restart(starting.clone()).await?;
        let goal = Goal::Utility(utility.clone());
        stage.decide_by(Some(&learned.policy(5, goal))).await;
        stage.load_with(calm, CALM_S, |_| String::new()).await?;
        let early = said(&file);
        stage.repeat_users();
        let story = Rush {
            utility: &utility,
            learned: &learned,
            file: &file,
            is_heeded,
        };
        let (ranked, said_after) = story.run(stage, rush).await?;
        let run = story.judge(stage, &ranked, said_after).await?;
        told.say(
            if is_heeded { "heeded" } else { "not heeded" },
            format!(
                "utility {:.0} a second; callback {}, {} while calm; {:.0} % of answers true",
                run.per_second,
                said_after.map_or("none".to_owned(), |seconds| format!(
                    "after {seconds:.1} s of the rush"
                )),
                if early { "and one" } else { "none" },
                100.0 * run.true_share
            ),
        );
        if is_heeded {
            told.judge(
                "the callback comes when an instance pays, and not before",
                (
                    said_after.map_or("never".to_owned(), |seconds| {
                        format!("after {seconds:.1} s")
                    }),
                    said_after.unwrap_or(f64::INFINITY),
                ),
                "",
                said_after.is_some() && !early,
            );
        }
        gained.push(run.later_per_second);
    }
    if let [without, with] = gained.as_slice() {
        let gain = with / without;
        told.judge(
            "utility in the later half of the rush, with the other instance",
            (format!("{gain:.2} ×"), gain),
            "1.58 ×",
            gain >= 1.5,
        );
    }
    Ok(())
}

fn utility(learned: &LearningResult) -> Utility {
    Utility {
        of_latency: Piecewise(vec![(learned.limit_ns, 1.0), (3.0 * learned.limit_ns, 0.0)]),
        of_drop: Piecewise(vec![(0.0, 2.0), (0.6, 0.0)]),
        instance_per_second: INSTANCE,
        instances: 1,
        instances_max: 2,
    }
}

/// Reports whether the ranker asked for another instance.
fn said(file: &Path) -> bool {
    std::fs::read_to_string(file)
        .is_ok_and(|text| text.lines().any(|line| line.starts_with("add ")))
}

struct Rush<'a> {
    utility: &'a Utility,
    learned: &'a LearningResult,
    file: &'a Path,
    is_heeded: bool,
}

struct Run {
    per_second: f64,
    later_per_second: f64,
    true_share: f64,
}

impl Rush<'_> {
    /// Runs the load, and adds a ranker on request if `is_heeded`. Returns the answers, and the
    /// seconds after which the request for an instance was noticed; `None` if there was none.
    async fn run(
        &self,
        stage: &mut Stage,
        per_second: f64,
    ) -> Result<(Vec<RankResponse>, Option<f64>), DemoError> {
        let load = stage.loading();
        let seed = stage.number_of_first();
        let loading = tokio::spawn(async move {
            load.run(per_second, RUSH_S, seed, PATIENCE, |_| String::new())
                .await
        });
        let begun = std::time::Instant::now();
        let mut said_after = None;
        while begun.elapsed().as_secs_f64() < RUSH_S {
            tokio::time::sleep(Duration::from_millis(200)).await;
            if said_after.is_none() && said(self.file) {
                said_after = Some(begun.elapsed().as_secs_f64());
                if self.is_heeded {
                    stage.add_ranker().await?;
                    // Tell the ranker, as an operator would, that there are two instances now.
                    let utility = Utility {
                        instances: 2,
                        ..self.utility.clone()
                    };
                    stage
                        .decide_by(Some(&self.learned.policy(6, Goal::Utility(utility))))
                        .await;
                }
            }
        }
        Ok((loading.await??, said_after))
    }

    /// Rates the answers by their utility, minus the cost of instances.
    async fn judge(
        &self,
        stage: &Stage,
        ranked: &[RankResponse],
        said_after: Option<f64>,
    ) -> Result<Run, DemoError> {
        let numbers: Vec<u64> = ranked.iter().map(|one| stage.number_of(one)).collect();
        // Judge a sample, because full rankings take long.
        let sample: Vec<u64> = numbers.iter().copied().step_by(8).collect();
        let full = stage.full(&sample).await?;
        let is_true = |number: u64, one: &RankResponse| {
            full.get(&number)
                .map(|full| full.first() == one.stories.first())
        };
        // The utility depends on latencies, and on the share of sampled answers whose first story
        // differs from that of the full ranking.
        let worth = |from_s: f64| {
            let of_part = || {
                ranked
                    .iter()
                    .zip(&numbers)
                    .filter(|(one, _)| one.sent.as_secs_f64() >= from_s)
            };
            let judged: Vec<bool> = of_part()
                .filter_map(|(one, number)| is_true(*number, one))
                .collect();
            let true_share = judged.iter().filter(|is_true| **is_true).count() as f64
                / judged.len().max(1) as f64;
            let of_latency: f64 = of_part()
                .map(|(one, _)| self.utility.of_latency.at(one.latency.as_nanos() as f64))
                .sum();
            let of_drop = of_part().count() as f64 * self.utility.of_drop.at(1.0 - true_share);
            let seconds = RUSH_S - from_s;
            let second_s = match said_after {
                Some(since) if self.is_heeded => RUSH_S - since.max(from_s),
                _ => 0.0,
            };
            (
                (of_latency + of_drop) / seconds - INSTANCE * (1.0 + second_s / seconds),
                true_share,
            )
        };
        Ok(Run {
            per_second: worth(0.0).0,
            later_per_second: worth(RUSH_S / 2.0).0,
            true_share: worth(0.0).1,
        })
    }
}
