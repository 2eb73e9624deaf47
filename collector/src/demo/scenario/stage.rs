//! A collector, and a store and a ranker under load.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use stroboscope_analysis::statistics::percentile;
use stroboscope_analysis::tradeoff::Observed;
use stroboscope_newsfeed::{Fleet, FleetOptions, RankLoad, Ranked};
use stroboscope_tradeoff::Policy;
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use super::super::fleet::ROLE_VERB;
use super::super::run::{DemoError, collector_settings};
use stroboscope_query::{Selection, Source, TimeRange};
use stroboscope_server::collect::Collector;
use stroboscope_server::intake::Stop;

/// The point of the newsfeed's ranker.
pub(super) const POINT: &str = "ranker.candidates";

/// No request is waited for longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is running.
pub(super) struct Stage {
    data: PathBuf,
    collector: Collector,
    fleet: Fleet,
    load: RankLoad,
    /// Each load has users of its own,
    seed: u64,
    /// but for the next.
    is_fixed: bool,
    accelerator_us: Option<u64>,
}

/// The seed of loads that are repeated.
const REPEATED: u64 = 7_000_000_000;

/// How a ranker is started.
#[derive(Clone, Debug, Default)]
pub(super) struct Starting {
    /// Features that are missing after so many ms are left out.
    pub(super) timeout_ms: Option<u64>,
    /// So many requests at a time, others in order of their slack.
    pub(super) slack_order: Option<usize>,
    /// Scoring takes so many µs a candidate, and no processor.
    pub(super) accelerator_us: Option<u64>,
    /// Where the ranker says that another one would pay.
    pub(super) capacity_file: Option<PathBuf>,
}

/// Who sends a load's requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Users {
    seed: u64,
}

impl Users {
    /// The user of a request.
    pub(super) fn of(self, number: u64) -> u64 {
        RankLoad::user(self.seed.wrapping_add(number))
    }
}

/// How a load's requests are to be treated.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asked {
    /// As the policy in force has it.
    Nothing,
    /// To leave out this share, at random.
    Random(f64),
    /// To leave out this share, by the model in force.
    ByModel(f64),
}

impl Asked {
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
        let fleet = Fleet::start(fleet_options(&collector, Starting::default())?).await?;
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

    /// A fresh store and a fresh ranker.
    pub(super) async fn restart(&mut self, starting: Starting) -> Result<(), DemoError> {
        self.accelerator_us = starting.accelerator_us;
        self.fleet.stop().await;
        self.fleet = Fleet::start(fleet_options(&self.collector, starting)?).await?;
        self.load = connect(&self.fleet).await?;
        Ok(())
    }

    /// Which accelerator the rankers have that are running.
    pub(super) const fn accelerator_us(&self) -> Option<u64> {
        self.accelerator_us
    }

    /// Another ranker beside those there are; requests go to all in turn.
    pub(super) async fn add_ranker(&mut self) -> Result<(), DemoError> {
        let address = self.fleet.add_ranker().await?;
        self.load.add(format!("http://{address}")).await?;
        Ok(())
    }

    /// What the load is put on, to go on with while the stage is changed.
    pub(super) fn loading(&self) -> RankLoad {
        self.load.clone()
    }

    pub(super) fn folder(&self) -> &Path {
        &self.data
    }

    /// Has the ranker decide by this; without one, in full fidelity.
    pub(super) async fn decide_by(&self, policy: Option<&Policy>) {
        let none = Policy::default();
        let control = self.collector.control();
        control.set_tradeoffs(policy.unwrap_or(&none));
        // It goes over a stream that is open; nobody answers.
        tokio::time::sleep(Duration::from_millis(300)).await;
    }

    /// An open loop on the ranker.
    pub(super) async fn load(
        &mut self,
        per_second: f64,
        seconds: f64,
        told: Asked,
    ) -> Result<Vec<Ranked>, DemoError> {
        let baggage = told.baggage();
        self.load_with(per_second, seconds, |_| baggage.clone())
            .await
    }

    /// The same, each request with baggage of its own.
    pub(super) async fn load_with(
        &mut self,
        per_second: f64,
        seconds: f64,
        baggage: impl Fn(u64) -> String,
    ) -> Result<Vec<Ranked>, DemoError> {
        if !std::mem::take(&mut self.is_fixed) {
            self.seed += 1_000_000;
        }
        let run = self
            .load
            .run(per_second, seconds, self.seed, PATIENCE, baggage);
        Ok(run.await?)
    }

    /// The next load has the same requests as others before which this is said.
    pub(super) fn repeat_users(&mut self) {
        (self.seed, self.is_fixed) = (REPEATED, true);
    }

    /// Who sends the requests of the next load, after [`repeat_users`](Self::repeat_users), or sent the last one's.
    pub(super) const fn users(&self) -> Users {
        Users { seed: self.seed }
    }

    /// The numbers that users of a load's requests come from.
    pub(super) fn number_of(&self, ranked: &Ranked) -> u64 {
        self.seed.wrapping_add(ranked.number)
    }

    /// One ranking of a number's user.
    pub(super) async fn ask(&self, number: u64, told: Asked) -> Result<Vec<u64>, DemoError> {
        let asked = self.load.ask(number, &told.baggage(), PATIENCE).await;
        asked.map_err(DemoError::Ranking)
    }

    /// The seed of a load that is run beside the stage, and whose requests are the next ones' then.
    pub(super) fn number_of_first(&mut self) -> u64 {
        self.is_fixed = false;
        self.seed
    }

    /// The full rankings of these numbers' users, two at a time.
    pub(super) async fn full(&self, numbers: &[u64]) -> Result<HashMap<u64, Vec<u64>>, DemoError> {
        let mut full = HashMap::new();
        for pair in numbers.chunks(2) {
            let told = Asked::Random(0.0);
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

    /// What was recorded of tradeoffs since an instant, ns since the Unix epoch.
    pub(super) async fn observed(&self, since_ns: i64) -> Result<Observed, DemoError> {
        // What was shipped last comes a moment later.
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

fn fleet_options(collector: &Collector, starting: Starting) -> Result<FleetOptions, DemoError> {
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

/// Now, ns since the Unix epoch.
pub(super) fn now_ns() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| i64::try_from(now.as_nanos()).unwrap_or(i64::MAX))
}

/// A quantile of values, 0 of none.
pub(super) fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    percentile(&sorted, share).unwrap_or_default()
}

/// Latencies in ms; failed requests took as long as they took.
pub(super) fn latencies_ms(ranked: &[Ranked]) -> Vec<f64> {
    ranked
        .iter()
        .map(|one| one.latency.as_secs_f64() * 1e3)
        .collect()
}
