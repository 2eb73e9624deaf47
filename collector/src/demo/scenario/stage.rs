//! Test bed of the scenarios: a collector, and the newsfeed's store and ranker under load.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use stroboscope_analysis::statistics::percentile;
use stroboscope_analysis::tradeoff::TradeoffObservations;
use stroboscope_newsfeed::{Fleet, FleetOptions, RankLoad, RankResponse};
use stroboscope_tradeoff::Policy;
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use super::super::fleet::ROLE_VERB;
use super::super::run::{DemoError, collector_settings};
use stroboscope_query::{Selection, Source, TimeRange};
use stroboscope_server::collect::Collector;
use stroboscope_server::ingest::Stop;

/// Tradeoff point of the newsfeed's ranker.
pub(super) const POINT: &str = "ranker.candidates";

/// Timeout of a request to the ranker.
const PATIENCE: Duration = Duration::from_secs(60);

/// Running processes of a scenario.
pub(super) struct Stage {
    data: PathBuf,
    collector: Collector,
    fleet: Fleet,
    load: RankLoad,
    /// Seed of the users; each load gets its own unless `is_fixed`.
    seed: u64,
    /// True if the next load keeps the seed.
    is_fixed: bool,
    accelerator_us: Option<u64>,
}

/// Seed of a load that directly follows [`Stage::repeat_users`].
const REPEATED: u64 = 7_000_000_000;

/// Settings with which a ranker starts. A setting that is `None` is switched off.
#[derive(Clone, Debug, Default)]
pub(super) struct RankerSettings {
    /// Timeout in ms after which candidates with missing features are left out.
    pub(super) timeout_ms: Option<u64>,
    /// Maximum number of requests at a time; others wait in order of their slack.
    pub(super) slack_order: Option<usize>,
    /// Time that scoring a candidate takes without using a processor, in µs.
    pub(super) accelerator_us: Option<u64>,
    /// File in which the ranker reports that one more or one fewer instance would pay off.
    pub(super) capacity_file: Option<PathBuf>,
}

/// Users that send a load's requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Users {
    seed: u64,
}

impl Users {
    /// Returns the user of a request.
    pub(super) fn of(self, number: u64) -> u64 {
        RankLoad::user(self.seed.wrapping_add(number))
    }
}

/// Instruction in requests to the ranker to leave out candidates.
#[derive(Clone, Copy, Debug)]
pub(super) enum LoadOmission {
    /// Leaves the decision to the policy in force.
    Nothing,
    /// Leaves out this share, at random.
    Random(f64),
    /// Leaves out this share, chosen by the model in force.
    ByModel(f64),
}

impl LoadOmission {
    pub(super) fn baggage(self) -> String {
        match self {
            Self::Nothing => String::new(),
            Self::Random(rate) => format!("sb.explore.{POINT}={rate:?};t=d"),
            Self::ByModel(rate) => {
                format!("sb.explore.{POINT}={rate:?};t=d,sb.explore.by=model")
            }
        }
    }
}

impl Stage {
    pub(super) async fn start(data: &Path) -> Result<Self, DemoError> {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let collector = Collector::start(collector_settings(data, listen)).await?;
        let fleet = Fleet::start(fleet_options(&collector, RankerSettings::default())?).await?;
        let load = connect(&fleet).await?;
        Ok(Self {
            data: data.to_owned(),
            collector,
            fleet,
            load,
            seed: 1,
            is_fixed: false,
            accelerator_us: None,
        })
    }

    /// Replaces the store and all rankers by a fresh store and one fresh ranker.
    pub(super) async fn restart(&mut self, starting: RankerSettings) -> Result<(), DemoError> {
        self.accelerator_us = starting.accelerator_us;
        self.fleet.stop().await;
        self.fleet = Fleet::start(fleet_options(&self.collector, starting)?).await?;
        self.load = connect(&self.fleet).await?;
        Ok(())
    }

    /// Returns the time that the running rankers' accelerators take to score a candidate, in µs;
    /// `None` without accelerators.
    pub(super) const fn accelerator_us(&self) -> Option<u64> {
        self.accelerator_us
    }

    /// Adds a ranker; requests go to all rankers in turn.
    pub(super) async fn add_ranker(&mut self) -> Result<(), DemoError> {
        let address = self.fleet.add_ranker().await?;
        self.load.add(format!("http://{address}")).await?;
        Ok(())
    }

    /// Clones the load, so that it can run while the stage is changed.
    pub(super) fn loading(&self) -> RankLoad {
        self.load.clone()
    }

    pub(super) fn directory(&self) -> &Path {
        &self.data
    }

    /// Sets the policy of the rankers; `None` sets an empty one, which leaves out no candidates.
    pub(super) async fn decide_by(&self, policy: Option<&Policy>) {
        let none = Policy::default();
        let control = self.collector.control();
        control.set_tradeoffs(policy.unwrap_or(&none));
        // Waits a moment, because the policy goes over an open stream, and no response confirms it.
        tokio::time::sleep(Duration::from_millis(300)).await;
    }

    /// Runs an open-loop load whose requests contain this instruction to the ranker.
    pub(super) async fn load(
        &mut self,
        per_second: f64,
        seconds: f64,
        told: LoadOmission,
    ) -> Result<Vec<RankResponse>, DemoError> {
        let baggage = told.baggage();
        self.load_with(per_second, seconds, |_| baggage.clone())
            .await
    }

    /// Runs an open-loop load, with the baggage that `baggage` returns for each request's number.
    pub(super) async fn load_with(
        &mut self,
        per_second: f64,
        seconds: f64,
        baggage: impl Fn(u64) -> String,
    ) -> Result<Vec<RankResponse>, DemoError> {
        if !std::mem::take(&mut self.is_fixed) {
            self.seed += 1_000_000;
        }
        let run = self
            .load
            .run(per_second, seconds, self.seed, PATIENCE, baggage);
        Ok(run.await?)
    }

    /// Gives the next load a fixed seed. All loads that directly follow such a call have the same
    /// users.
    pub(super) fn repeat_users(&mut self) {
        (self.seed, self.is_fixed) = (REPEATED, true);
    }

    /// Returns the users of the next load after [`repeat_users`](Self::repeat_users), else those of
    /// the last load.
    pub(super) const fn users(&self) -> Users {
        Users { seed: self.seed }
    }

    /// Returns the number from which the user of a request of the last load derives.
    pub(super) fn number_of(&self, ranked: &RankResponse) -> u64 {
        self.seed.wrapping_add(ranked.number)
    }

    /// Requests one ranking for the user that derives from `number`, and returns its stories.
    pub(super) async fn ask(&self, number: u64, told: LoadOmission) -> Result<Vec<u64>, DemoError> {
        let asked = self.load.ask(number, &told.baggage(), PATIENCE).await;
        asked.map_err(DemoError::Ranking)
    }

    /// Returns the seed for a load that runs outside of the stage. The next load on the stage uses
    /// another seed.
    pub(super) fn number_of_first(&mut self) -> u64 {
        self.is_fixed = false;
        self.seed
    }

    /// Returns the full ranking for each number's user. Requests two rankings at a time.
    pub(super) async fn full(&self, numbers: &[u64]) -> Result<HashMap<u64, Vec<u64>>, DemoError> {
        let mut full = HashMap::new();
        for pair in numbers.chunks(2) {
            let told = LoadOmission::Random(0.0);
            match pair {
                [one, other] => {
                    let both = tokio::try_join!(self.ask(*one, told), self.ask(*other, told))?;
                    full.insert(*one, both.0);
                    full.insert(*other, both.1);
                }
                rest => {
                    for one in rest {
                        full.insert(*one, self.ask(*one, told).await?);
                    }
                }
            }
        }
        Ok(full)
    }

    /// Returns the tradeoffs recorded since an instant, ns since the Unix epoch.
    pub(super) async fn observed(&self, since_ns: i64) -> Result<TradeoffObservations, DemoError> {
        // The last batch arrives a moment later.
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        self.collector
            .intake()
            .flush()
            .await
            .map_err(DemoError::Flush)?;
        let (data, runtime) = (self.data.clone(), Handle::current());
        let read = move || {
            let source = Source::open_any(&data, runtime)?;
            let selection = Selection {
                include_incomplete: true,
                range: TimeRange {
                    since_ns: Some(since_ns),
                    until_ns: None,
                },
                ..Selection::default()
            };
            stroboscope_query::tradeoffs(&source, selection)
        };
        let (observed, _) = spawn_blocking(read).await??;
        Ok(observed)
    }

    pub(super) async fn end(mut self) -> Result<(), DemoError> {
        self.fleet.stop().await;
        self.collector
            .stop(Stop::Flush)
            .await
            .map_err(DemoError::Flush)
    }
}

fn fleet_options(
    collector: &Collector,
    starting: RankerSettings,
) -> Result<FleetOptions, DemoError> {
    Ok(FleetOptions {
        prefix_args: vec![ROLE_VERB.to_owned()],
        collector: Some(format!("http://{}", collector.grpc_address())),
        burst_config: Some("always".to_owned()),
        wide: true,
        feature_timeout_ms: starting.timeout_ms,
        slack_order: starting.slack_order,
        accelerator_us: starting.accelerator_us,
        capacity_file: starting.capacity_file,
        ranking_only: true,
        ..FleetOptions::new(std::env::current_exe()?)
    })
}

async fn connect(fleet: &Fleet) -> Result<RankLoad, DemoError> {
    let ranker = fleet
        .ranker()
        .map(|address| format!("http://{address}"))
        .unwrap_or_default();
    Ok(RankLoad::connect(ranker).await?)
}

/// Returns the current time, ns since the Unix epoch.
pub(super) fn now_ns() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| i64::try_from(now.as_nanos()).unwrap_or(i64::MAX))
}

/// Returns a quantile of values, or 0 without values.
pub(super) fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    percentile(&sorted, share).unwrap_or_default()
}

/// Returns latencies in ms. A failed request counts with the time until it failed.
pub(super) fn latencies_ms(ranked: &[RankResponse]) -> Vec<f64> {
    ranked
        .iter()
        .map(|one| one.latency.as_secs_f64() * 1e3)
        .collect()
}
