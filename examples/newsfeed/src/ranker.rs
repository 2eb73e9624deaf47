//! The ranker role: asks generators for candidates and scores them.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use stroboscope::tower::SlackOrderLayer;
use stroboscope::tradeoff::{self, Capacity};
use stroboscope::{FutureExt, Span, span};
use tonic::service::Routes;
use tonic::{Request, Response, Status, async_trait};

use crate::cpu::Cpu;
use crate::fault::{Fault, FaultPoint, Faults};
use crate::key::{self, EXTRA_GENERATOR, GENERATORS, PARTS};
use crate::model_cache::Models;
use crate::notice::notice;
use crate::random::mix;
use crate::reader::Reader;
use crate::role_error::RoleError;
use crate::scorer::{self, Candidate};
use crate::server::{Before, serve_behind};
use crate::stop::Stop;
use crate::upstream::connect;
use crate::wide::{Accelerator, WideRanking};
use crate::wire::ranker_server::{Ranker as RankerService, RankerServer};
use crate::wire::{RankReply, RankRequest, Story};

/// Maximum number of candidates from one value of the store.
const CANDIDATES_PER_VALUE: usize = 4;

/// Maximum number of stories in a response, regardless of the request.
const STORIES_MAX: u32 = 100;

/// Number of times that the fault `ranker.longer-loop` reads each part.
const LONGER_LOOP_ROUNDS: u32 = 3;

/// Command-line flags of the ranker.
#[derive(Debug, clap::Args)]
pub struct RankerOptions {
    /// Address to listen on; port 0 picks a free one.
    #[arg(long, env = "NEWSFEED_LISTEN", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// URL of the store.
    #[arg(long, env = "NEWSFEED_STORE")]
    store: String,
    /// Longest wait for the store at start-up, in milliseconds.
    #[arg(long, default_value_t = 5_000)]
    patience_ms: u64,
    /// Rank about a hundred candidates of ten generators; a tradeoff point may omit some.
    #[arg(long)]
    wide: bool,
    /// With --wide: timeout of feature reads, in milliseconds; candidates whose features are
    /// missing by then are omitted.
    #[arg(long, value_name = "MS", requires = "wide")]
    feature_timeout_ms: Option<u64>,
    /// With --wide: score candidates on this ranker's one accelerator instead of the processor; it
    /// takes this many microseconds for each.
    #[arg(long, value_name = "US", requires = "wide")]
    accelerator_us: Option<u64>,
    /// Append a line to this file when one more or one fewer instance of the ranker would pay off.
    #[arg(long, value_name = "FILE")]
    capacity_file: Option<PathBuf>,
    /// Maximum number of requests at a time; waiting requests go in order of their predicted slack.
    #[arg(long, value_name = "COUNT")]
    slack_order: Option<usize>,
    /// Fault to inject, as POINT=+DURATION[@PERCENT%]; repeatable.
    #[arg(long = "fault", value_name = "FAULT")]
    faults: Vec<Fault>,
}

pub(crate) async fn run(options: RankerOptions, stop: &Stop) -> Result<(), RoleError> {
    let store = connect(
        "store",
        &options.store,
        Duration::from_millis(options.patience_ms),
    )
    .await?;
    let (reader, cpu) = (Reader::new(store), Cpu::calibrate());
    let wide = options.wide.then(|| WideRanking {
        reader: reader.clone(),
        cpu,
        timeout: options.feature_timeout_ms.map(Duration::from_millis),
        accelerator: options
            .accelerator_us
            .map(|us| Arc::new(Accelerator::new(Duration::from_micros(us)))),
    });
    let ranking = RankerState {
        models: Models::new(),
        reader,
        cpu,
        faults: Faults::new(options.faults),
        wide,
    };
    let ranker = Ranker {
        ranking: Arc::new(ranking),
    };
    if let Some(path) = options.capacity_file {
        tradeoff::on_capacity(move |point, change, _| {
            let change = match change {
                Capacity::Add => "add",
                Capacity::Remove => "remove",
            };
            let file = OpenOptions::new().create(true).append(true).open(&path);
            if let Err(error) = file.and_then(|mut file| writeln!(file, "{change} {point}")) {
                notice(format_args!("{}: {error}", path.display()));
            }
        });
    }
    let before = match options.slack_order {
        Some(running_max) => Before::Order(SlackOrderLayer::new("ranker", running_max)),
        None => Before::Nothing,
    };
    let routes = Routes::new(RankerServer::new(ranker));
    Ok(serve_behind(options.listen, routes, before, stop).await?)
}

struct Ranker {
    ranking: Arc<RankerState>,
}

struct RankerState {
    models: Models,
    reader: Reader,
    cpu: Cpu,
    faults: Faults,
    wide: Option<WideRanking>,
}

#[async_trait]
impl RankerService for Ranker {
    async fn rank(&self, request: Request<RankRequest>) -> Result<Response<RankReply>, Status> {
        let request = request.into_inner();
        let stories_max = request.stories_max.min(STORIES_MAX) as usize;
        if let Some(wide) = &self.ranking.wide {
            let stories = wide.rank(request.user, stories_max).await?;
            return Ok(Response::new(RankReply { stories }));
        }
        let candidates = self.ranking.gather(request.user).await?;
        let model = self.ranking.model(request.user).await?;
        let stories = self
            .ranking
            .score(request.user, model, &candidates, stories_max)
            .await;
        Ok(Response::new(RankReply { stories }))
    }
}

impl RankerState {
    /// Asks all generators at the same time. With the fault `ranker.extra-call`, asks the extra
    /// generator after them, which changes the structure of the request and lengthens it.
    #[stroboscope::trace(name = "candidates", fields(user))]
    async fn gather(&self, user: u64) -> Result<Vec<Candidate>, Status> {
        let rounds = if self.faults.strikes(FaultPoint::RankerLongerLoop) {
            LONGER_LOOP_ROUNDS
        } else {
            1
        };
        let generators = GENERATORS.map(|generator| {
            let proposing = generate(self.reader.clone(), generator, user, rounds);
            tokio::spawn(proposing.in_span(generator_span(generator)))
        });
        let mut candidates = Vec::new();
        for generator in generators {
            let proposed = generator
                .await
                .map_err(|error| Status::internal(format!("a generator died: {error}")))?;
            candidates.extend(proposed?);
        }
        if self.faults.strikes(FaultPoint::RankerExtraCall) {
            candidates.extend(
                generate(self.reader.clone(), EXTRA_GENERATOR, user, rounds)
                    .in_span(generator_span(EXTRA_GENERATOR))
                    .await?,
            );
        }
        Ok(candidates)
    }

    /// Returns the model of the user's group, which is nearly always cached.
    async fn model(&self, user: u64) -> Result<u64, Status> {
        let group = user % key::MODELS;
        let is_missed = self.faults.strikes(FaultPoint::RankerCacheMiss);
        match self.models.get(group).filter(|_| !is_missed) {
            Some(model) => Ok(model),
            None => self.load_model(group).await,
        }
    }

    #[stroboscope::trace(name = "load_model", fields(group))]
    async fn load_model(&self, group: u64) -> Result<u64, Status> {
        let value = self.reader.read(key::model(group)).await?;
        let model = value
            .iter()
            .fold(0, |model, byte| mix(model ^ u64::from(*byte)));
        self.models.put(group, model);
        Ok(model)
    }

    #[stroboscope::trace(fields(user, candidates = candidates.len()))]
    async fn score(
        &self,
        user: u64,
        model: u64,
        candidates: &[Candidate],
        stories_max: usize,
    ) -> Vec<Story> {
        self.faults.wait(FaultPoint::RankerScore).await;
        // The scorer computes for milliseconds, so let tokio move other tasks to other threads
        // first.
        tokio::task::block_in_place(|| {
            scorer::rank(&self.cpu, user ^ model, candidates, stories_max)
        })
    }
}

/// Opens the span of a generator, which has the generator's name. All requests therefore show a
/// generator under one name, regardless of the order in which generators start.
fn generator_span(generator: &str) -> Span {
    match generator {
        "friends" => span!("friends"),
        "pages" => span!("pages"),
        "ads" => span!("ads"),
        _ => span!("trending"),
    }
}

/// Runs one generator: reads its parts one after the other, `rounds` times, and proposes the
/// candidates of the first round.
async fn generate(
    reader: Reader,
    generator: &'static str,
    user: u64,
    rounds: u32,
) -> Result<Vec<Candidate>, Status> {
    let mut candidates = Vec::new();
    for read in 0..PARTS * rounds {
        let part = read % PARTS;
        let value = reader.read(key::candidates(generator, user, part)).await?;
        if read != part {
            continue;
        }
        let words = value.chunks_exact(8).take(CANDIDATES_PER_VALUE);
        candidates.extend(words.map(|word| {
            Candidate {
                source: generator,
                features: word
                    .iter()
                    .fold(0, |number, byte| number << 8 | u64::from(*byte)),
            }
        }));
    }
    Ok(candidates)
}
