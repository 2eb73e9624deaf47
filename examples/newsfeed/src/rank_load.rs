//! Load on rankers without the other roles: ranking requests, sent on schedule, each with given
//! baggage.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tonic::Request;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};

use crate::delay::until;
use crate::key::USERS;
use crate::random::Random;
use crate::schedule::{Schedule, ScheduleError};
use crate::wire::RankRequest;
use crate::wire::ranker_client::RankerClient;

/// Maximum number of requests in flight; further requests are not sent, and fail.
const IN_FLIGHT_MAX: usize = 2_048;

/// Number of stories per request. A wide ranking has fewer candidates, so the response ranks all of
/// them.
const STORIES: u32 = 100;

/// Response of the ranker, or the failure.
#[derive(Debug, Clone)]
pub struct RankResponse {
    /// The request's number, from 0.
    pub number: u64,
    /// Scheduled time of sending, from the beginning of the load.
    pub sent: Duration,
    /// Time from the scheduled sending to the response.
    pub latency: Duration,
    /// Ids of stories, best first; empty if the request failed.
    pub stories: Vec<u64>,
    /// Reason for the failure; `None` if the request succeeded.
    pub failure: Option<String>,
}

/// Load generator for one ranker, or for several in turn. Clones share the list of rankers.
#[derive(Debug, Clone)]
pub struct RankLoad {
    clients: Arc<Mutex<Vec<RankerClient<Channel>>>>,
}

/// Reasons for which the load did not begin.
#[derive(Debug, thiserror::Error)]
pub enum RankLoadError {
    /// The ranker's URL is invalid, or the ranker does not answer.
    #[error("cannot reach the ranker: {0}")]
    Unreachable(#[from] tonic::transport::Error),
    /// The rate or the length is impossible.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
}

impl RankLoad {
    /// Connects to a ranker at `http://…`.
    ///
    /// # Errors
    /// Returns an error if the URL is invalid or the ranker does not answer.
    pub async fn connect(url: String) -> Result<Self, RankLoadError> {
        let load = Self {
            clients: Arc::default(),
        };
        load.add(url).await?;
        Ok(load)
    }

    /// Adds a ranker: from now on requests go to all rankers in turn.
    ///
    /// # Errors
    /// Returns an error if the URL is invalid or the ranker does not answer.
    pub async fn add(&self, url: String) -> Result<(), RankLoadError> {
        let channel = Endpoint::from_shared(url)?.connect().await?;
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.push(RankerClient::new(channel));
        Ok(())
    }

    fn client(&self, number: u64) -> Option<RankerClient<Channel>> {
        let clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = usize::try_from(number).unwrap_or_default() % clients.len().max(1);
        clients.get(turn).cloned()
    }

    /// Returns the user for whom [`ask`](Self::ask) requests a ranking. [`run`](Self::run) passes
    /// the sum of its seed and the request's number.
    #[must_use]
    pub fn user(number: u64) -> u64 {
        Random::new(number).next_u64() % USERS
    }

    /// Requests one ranking for the user of `number`, and returns the ids of its stories, best
    /// first. `patience` is the timeout. A failure is returned as its message.
    pub async fn ask(
        &self,
        number: u64,
        baggage: &str,
        patience: Duration,
    ) -> Result<Vec<u64>, String> {
        let user = Self::user(number);
        let mut request = Request::new(RankRequest {
            user,
            stories_max: STORIES,
        });
        request.set_timeout(patience);
        if let Ok(value) = MetadataValue::try_from(baggage)
            && !baggage.is_empty()
        {
            request.metadata_mut().insert("baggage", value);
        }
        let Some(mut client) = self.client(number) else {
            return Err("no ranker".to_owned());
        };
        match client.rank(request).await {
            Ok(reply) => Ok(reply
                .into_inner()
                .stories
                .iter()
                .map(|story| story.id)
                .collect()),
            Err(status) => Err(status.message().to_owned()),
        }
    }

    /// Runs an open loop: `rate_per_s` requests on average for `seconds`, request *n* with the
    /// baggage `baggage(n)`. Ends when all requests have ended. Returns the responses in order of
    /// their numbers.
    ///
    /// # Errors
    /// Returns an error if the rate or the length is impossible.
    pub async fn run(
        &self,
        rate_per_s: f64,
        seconds: f64,
        seed: u64,
        patience: Duration,
        baggage: impl Fn(u64) -> String,
    ) -> Result<Vec<RankResponse>, RankLoadError> {
        let schedule = Schedule::new(rate_per_s, seconds, seed)?;
        let mut under_way = JoinSet::new();
        let mut ranked = Vec::new();
        let begin = Instant::now();
        for (number, sent) in (0_u64..).zip(schedule) {
            until(begin + sent).await;
            while let Some(Ok(one)) = under_way.try_join_next() {
                ranked.push(one);
            }
            let (me, baggage) = (self.clone(), baggage(number));
            let is_refused = under_way.len() >= IN_FLIGHT_MAX;
            under_way.spawn(async move {
                let asked = if is_refused {
                    Err("not sent: too many requests under way".to_owned())
                } else {
                    me.ask(seed.wrapping_add(number), &baggage, patience).await
                };
                let latency = (begin + sent).elapsed();
                let (stories, failure) = match asked {
                    Ok(stories) => (stories, None),
                    Err(failure) => (Vec::new(), Some(failure)),
                };
                RankResponse {
                    number,
                    sent,
                    latency,
                    stories,
                    failure,
                }
            });
        }
        while let Some(one) = under_way.join_next().await {
            ranked.extend(one);
        }
        ranked.sort_by_key(|one| one.number);
        Ok(ranked)
    }
}
