//! The ranker role: asks generators for candidates and scores them.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use stroboscope::baggage::Provenance;
use stroboscope::tower::SlackOrderLayer;
use stroboscope::tracked::{self, DataLinkage, IndexLinkage, Tracked, TrackedBuf};
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
use crate::story::{self, TrackedStory};
use crate::upstream::connect;
use crate::wide::{Accelerator, WideRanking};
use crate::wire::ranker_server::{Ranker as RankerService, RankerServer};
use crate::wire::{RankReply, RankRequest};

/// Maximum number of candidates from one value of the store.
const CANDIDATES_PER_VALUE: usize = 4;

/// Maximum number of stories in a response, regardless of the request.
const STORIES_MAX: u32 = 100;

/// Length of a candidate in a value of the store, in bytes.
const CANDIDATE_BYTES: usize = 8;

/// Number of times that a generator reads each part under the fault `ranker.longer-loop`.
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
    /// Maximum number of requests at a time; waiting requests go in order of arrival plus predicted
    /// slack.
    #[arg(long, value_name = "COUNT")]
    slack_order: Option<usize>,
    /// Operations that a story's provenance follows: with `data`, copies and calculations; with
    /// `index`, also the places in the order of stories, which depend on all candidates.
    #[arg(long, default_value = "data")]
    linkage: RankingLinkage,
    /// Fault to inject, as POINT=+DURATION[@PERCENT%], or POINT[@PERCENT%] if it takes no duration;
    /// repeatable.
    #[arg(long = "fault", value_name = "FAULT")]
    faults: Vec<Fault>,
}

/// Linkage of the ranking.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum RankingLinkage {
    Data,
    Index,
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
        linkage: options.linkage,
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
    linkage: RankingLinkage,
}

#[async_trait]
impl RankerService for Ranker {
    async fn rank(&self, request: Request<RankRequest>) -> Result<Response<RankReply>, Status> {
        let request = request.into_inner();
        let stories_max = request.stories_max.min(STORIES_MAX) as usize;
        if let Some(wide) = &self.ranking.wide {
            let stories = wide.rank(request.user, stories_max).await?;
            let provenance = String::new();
            return Ok(Response::new(RankReply {
                stories,
                provenance,
            }));
        }
        let ranking = self.ranking.rank(request.user, stories_max);
        Ok(Response::new(tracked::run(ranking).await?))
    }
}

impl RankerState {
    async fn rank(&self, user: u64, stories_max: usize) -> Result<RankReply, Status> {
        let candidates = self.gather(user).await?;
        let model = self.model(user).await?;
        let stories = self.score(user, model, &candidates, stories_max).await;
        Ok(story::reply(stories))
    }

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
            tokio::spawn(tracked::run(proposing).in_span(generator_span(generator)))
        });
        let mut candidates = Vec::new();
        for generator in generators {
            let proposed = generator
                .await
                .map_err(|error| Status::internal(format!("a generator died: {error}")))?;
            candidates.extend(proposed?.into_candidates());
        }
        if self.faults.strikes(FaultPoint::RankerExtraCall) {
            let proposing = generate(self.reader.clone(), EXTRA_GENERATOR, user, rounds)
                .in_span(generator_span(EXTRA_GENERATOR));
            candidates.extend(proposing.await?.into_candidates());
        }
        Ok(candidates)
    }

    /// Returns the model of the user's group, which is nearly always cached.
    async fn model(&self, user: u64) -> Result<Tracked<u64>, Status> {
        let group = user % key::MODELS;
        let is_missed = self.faults.strikes(FaultPoint::RankerCacheMiss);
        match self.models.get(group).filter(|_| !is_missed) {
            Some(model) => Ok(model),
            None => self.load_model(group).await,
        }
    }

    #[stroboscope::trace(name = "load_model", fields(group))]
    async fn load_model(&self, group: u64) -> Result<Tracked<u64>, Status> {
        let value = self.reader.read(key::model(group)).await?;
        let model = value.calculate::<_, DataLinkage>(|bytes| {
            let bytes = bytes.iter();
            bytes.fold(0, |model, byte| mix(model ^ u64::from(*byte)))
        });
        self.models.put(group, model);
        Ok(model)
    }

    #[stroboscope::trace(fields(user, candidates = candidates.len()))]
    async fn score(
        &self,
        user: u64,
        model: Tracked<u64>,
        candidates: &[Candidate],
        stories_max: usize,
    ) -> Vec<TrackedStory> {
        self.faults.wait(FaultPoint::RankerScore).await;
        // The scorer computes for milliseconds, so let tokio move other tasks to other threads
        // first.
        tokio::task::block_in_place(|| {
            let (cpu, user) = (&self.cpu, model.map(|model| user ^ model));
            match self.linkage {
                RankingLinkage::Data => scorer::rank(cpu, user, candidates, stories_max),
                RankingLinkage::Index => {
                    let user = user.with_linkage::<IndexLinkage>();
                    scorer::rank(cpu, user, candidates, stories_max)
                }
            }
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

/// Candidates of one generator. Each generator but the extra one is a task, whose bytes are tracked
/// by themselves.
struct CandidateBytes {
    generator: &'static str,
    /// The candidates' bytes, one after the other.
    bytes: Vec<u8>,
    provenance: Provenance,
}

impl CandidateBytes {
    fn into_candidates(self) -> Vec<Candidate> {
        let name = candidates_name(self.generator);
        let bytes = tracked::receive(&self.provenance, &name, self.bytes);
        let starts = (0..bytes.len()).step_by(CANDIDATE_BYTES);
        let features = starts.filter_map(|start| bytes.slice(start..start + CANDIDATE_BYTES));
        features
            .map(|features| Candidate {
                source: self.generator,
                features,
            })
            .collect()
    }
}

/// Name under which the candidates of a generator are tracked.
fn candidates_name(generator: &str) -> String {
    format!("candidates of {generator}")
}

/// Runs one generator: reads its parts one after the other, `rounds` times, and proposes the
/// candidates of the first round.
async fn generate(
    reader: Reader,
    generator: &'static str,
    user: u64,
    rounds: u32,
) -> Result<CandidateBytes, Status> {
    let mut candidates = TrackedBuf::new();
    for read in 0..PARTS * rounds {
        let part = read % PARTS;
        let value = reader.read(key::candidates(generator, user, part)).await?;
        if read != part {
            continue;
        }
        let count = CANDIDATES_PER_VALUE.min(value.len() / CANDIDATE_BYTES);
        candidates.extend_from_range(&value, 0..count * CANDIDATE_BYTES);
    }
    let provenance = tracked::send(&candidates, &candidates_name(generator));
    Ok(CandidateBytes {
        generator,
        bytes: candidates.into_bytes(),
        provenance,
    })
}
