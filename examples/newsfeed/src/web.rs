//! The web role: generates pages as streams of pagelets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use stroboscope::tracked::{self, TrackedBuf};
use stroboscope::{FutureExt, span};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::service::Routes;
use tonic::{Request, Response, Status, async_trait};

use crate::cpu::Cpu;
use crate::delay::delay;
use crate::fault::{Fault, FaultPoint, Faults};
use crate::key::{self, PROPERTIES};
use crate::pagelet::{self, PAGELETS};
use crate::random::mix;
use crate::reader::Reader;
use crate::role_error::RoleError;
use crate::server::serve;
use crate::session;
use crate::stop::Stop;
use crate::story::{self, TrackedStory};
use crate::upstream::{Upstream, connect};
use crate::wire::page_server::{Page as PageService, PageServer};
use crate::wire::ranker_client::RankerClient;
use crate::wire::{PageRequest, Pagelet, RankRequest};

/// Number of other users that the fault `web.call-loop` reads.
const LOOP_ROUNDS: u64 = 4;

/// Number of stories on a page.
const STORIES: u32 = 10;

/// Maximum growth of a browser's log, in bytes, that is merged into the stored block. A larger
/// growth would replace the whole block, and a log server would store it. This example has no log
/// server, and ignores larger growths.
pub(crate) const BLOCK_BYTES: u64 = 4_096;

/// Command-line flags of the web server.
#[derive(Debug, clap::Args)]
pub struct WebOptions {
    /// Address to listen on; port 0 picks a free one.
    #[arg(long, env = "NEWSFEED_LISTEN", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// URL of the store.
    #[arg(long, env = "NEWSFEED_STORE")]
    store: String,
    /// URL of the ranker.
    #[arg(long, env = "NEWSFEED_RANKER")]
    ranker: String,
    /// Longest wait for the store and the ranker at start-up, in milliseconds.
    #[arg(long, default_value_t = 5_000)]
    patience_ms: u64,
    /// Fault to inject, as POINT=+DURATION[@PERCENT%], or POINT[@PERCENT%] if it takes no duration;
    /// repeatable.
    #[arg(long = "fault", value_name = "FAULT")]
    faults: Vec<Fault>,
}

pub(crate) async fn run(options: WebOptions, stop: &Stop) -> Result<(), RoleError> {
    let patience = Duration::from_millis(options.patience_ms);
    let reader = Reader::new(connect("store", &options.store, patience).await?);
    let ranker = RankerClient::new(connect("ranker", &options.ranker, patience).await?);
    let generation = Generation {
        reader,
        ranker,
        cpu: Cpu::calibrate(),
        faults: Faults::new(options.faults),
    };
    let web = Web {
        generation: Arc::new(generation),
    };
    Ok(serve(options.listen, Routes::new(PageServer::new(web)), stop).await?)
}

struct Web {
    generation: Arc<Generation>,
}

struct Generation {
    reader: Reader,
    ranker: RankerClient<Upstream>,
    cpu: Cpu,
    faults: Faults,
}

type Sender = mpsc::Sender<Result<Pagelet, Status>>;

#[async_trait]
impl PageService for Web {
    type LoadStream = ReceiverStream<Result<Pagelet, Status>>;

    async fn load(
        &self,
        request: Request<PageRequest>,
    ) -> Result<Response<Self::LoadStream>, Status> {
        let request = request.into_inner();
        self.generation.authenticate(&request)?;
        // The channel holds a whole page, so that generation never waits for the browser.
        let (sender, pagelets) = mpsc::channel(PAGELETS.len() + 1);
        let generation = Arc::clone(&self.generation);
        let generating = async move {
            if let Err(status) = generation.generate(&request, &sender).await {
                // Ignore a browser that has disconnected.
                let _ = sender.send(Err(status)).await;
            }
        };
        tokio::spawn(tracked::run(generating).in_current_span());
        Ok(Response::new(ReceiverStream::new(pagelets)))
    }
}

/// Returns the side of an experiment to which a user is assigned: 1 for the new code, 0 for the
/// old.
fn partition(user: u64) -> u64 {
    mix(user) % 2
}

impl Generation {
    #[stroboscope::trace(name = "auth", fields(user = request.user, partition = partition(request.user)))]
    fn authenticate(&self, request: &PageRequest) -> Result<(), Status> {
        if session::is_valid(&self.cpu, request.user, request.session_token) {
            Ok(())
        } else {
            Err(Status::unauthenticated(format!(
                "the session token is not that of user {}",
                request.user
            )))
        }
    }

    /// Generates the pagelets in order and sends each as soon as it is ready: the header does not
    /// wait for ranking.
    async fn generate(&self, request: &PageRequest, sender: &Sender) -> Result<(), Status> {
        let user = request.user;
        if request.count <= BLOCK_BYTES {
            self.amend(user, request.count).await?;
        }
        if partition(user) == 1 {
            self.faults.wait(FaultPoint::WebPartition).await;
        }
        let properties = self.properties(user).await?;
        let mut stories = Vec::new();
        for index in 0..PAGELETS.len() {
            if index == 1 {
                stories = self.rank(user).await?;
            }
            let pagelet = self.render(index, &properties, &stories).await;
            if sender.send(Ok(pagelet)).await.is_err() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Reads the last block of the user's log, changes it and writes it back.
    #[stroboscope::trace(fields(user, count))]
    async fn amend(&self, user: u64, count: u64) -> Result<(), Status> {
        let mut block = self.reader.read(key::log(user)).await?.into_bytes();
        let entry = count.to_le_bytes();
        // The newest entry comes first; the oldest bytes make room for it.
        let shift = entry.len().min(block.len());
        block.rotate_right(shift);
        for (place, byte) in block.iter_mut().zip(entry) {
            *place = byte;
        }
        self.reader.write(key::log(user), block).await
    }

    /// Reads the user's properties, one call per property, one after the other. Ardelean et al.,
    /// NSDI 2018, §3.3.2, found fault with this pattern.
    #[stroboscope::trace(fields(user))]
    async fn properties(&self, user: u64) -> Result<Vec<TrackedBuf>, Status> {
        let mut values = Vec::with_capacity(PROPERTIES.len());
        for name in PROPERTIES {
            values.push(self.reader.read(key::property(user, name)).await?);
            if name == PROPERTIES[0] && self.faults.strikes(FaultPoint::WebReadAgain) {
                self.reader.read(key::property(user, name)).await?;
            }
        }
        if self.faults.strikes(FaultPoint::WebCallLoop) {
            self.friends(user).await?;
        }
        let retried_after = self.faults.draw(FaultPoint::WebLateRetry);
        if !retried_after.is_zero() {
            self.badge(user, retried_after).await?;
        }
        Ok(values)
    }

    /// Implements the fault `web.call-loop`: reads each property of [`LOOP_ROUNDS`] other users,
    /// one call after the other.
    async fn friends(&self, user: u64) -> Result<(), Status> {
        for friend in 1..=LOOP_ROUNDS {
            for name in PROPERTIES {
                let key = key::property((user + friend) % key::USERS, name);
                self.reader.read(key).await?;
            }
        }
        Ok(())
    }

    /// Implements the fault `web.late-retry`: reads a property that does not exist, waits, and
    /// reads one that exists.
    async fn badge(&self, user: u64, retried_after: Duration) -> Result<(), Status> {
        let first = self.reader.read(key::property(user, "badge"));
        if first.in_span(span!("attempt", error = true)).await.is_err() {
            delay(retried_after).await;
            let second = self.reader.read(key::property(user, PROPERTIES[0]));
            second.in_span(span!("attempt", error = false)).await?;
        }
        Ok(())
    }

    #[stroboscope::trace(fields(user))]
    async fn rank(&self, user: u64) -> Result<Vec<TrackedStory>, Status> {
        let request = RankRequest {
            user,
            stories_max: STORIES,
        };
        let reply = self.ranker.clone().rank(request).await;
        let reply = reply.map_err(|status| {
            Status::new(
                status.code(),
                format!("ranking stories for user {user}: {}", status.message()),
            )
        })?;
        Ok(story::received(reply.into_inner()))
    }

    #[stroboscope::trace(fields(element = index))]
    async fn render(
        &self,
        index: usize,
        properties: &[TrackedBuf],
        stories: &[TrackedStory],
    ) -> Pagelet {
        self.faults.wait(FaultPoint::WebRender).await;
        pagelet::render(&self.cpu, index, properties, stories)
    }
}
