//! A wide ranking: about a hundred candidates of ten generators, whose features are in the store.
//! Under load, a tradeoff point decides which candidates are omitted.

use std::sync::Arc;
use std::time::Duration;

use stroboscope::FutureExt as _;
use stroboscope::tradeoff::{Choice, Feature, Point};
use tokio::sync::Mutex;
use tokio::time::Instant;
use tonic::Status;

use crate::cpu::Cpu;
use crate::delay::delay;
use crate::generator::{Proposal, WIDE};
use crate::key;
use crate::random::mix;
use crate::reader::Reader;
use crate::wire::Story;

/// Tradeoff point: candidates that it omits are neither looked up nor scored.
static CANDIDATES: Point = Point::omitting("ranker.candidates", &["generator", "confidence"]);

/// Cost of scoring one candidate.
const SCORE_TIME: Duration = Duration::from_micros(60);

/// Maximum number of concurrent feature reads of one request.
const READS: usize = 4;

/// Device that scores candidates, for one request at a time.
#[derive(Debug)]
pub(crate) struct Accelerator {
    time_each: Duration,
    busy: Mutex<()>,
}

impl Accelerator {
    pub(crate) fn new(time_each: Duration) -> Self {
        Self {
            time_each,
            busy: Mutex::new(()),
        }
    }

    #[stroboscope::trace(name = "accelerator", fields(candidates = count))]
    async fn score(&self, count: usize) {
        let _mine = self.busy.lock().await;
        delay(self.time_each * u32::try_from(count).unwrap_or(u32::MAX)).await;
    }
}

#[derive(Debug, Clone)]
pub(crate) struct WideRanking {
    pub(crate) reader: Reader,
    pub(crate) cpu: Cpu,
    /// Timeout of feature reads, from the ranking's beginning; candidates whose features are
    /// missing by then are omitted. `None` waits for all.
    pub(crate) timeout: Option<Duration>,
    /// Accelerator that scores instead of the processor; `None` if the processor scores.
    pub(crate) accelerator: Option<Arc<Accelerator>>,
}

impl WideRanking {
    pub(crate) async fn rank(&self, user: u64, stories_max: usize) -> Result<Vec<Story>, Status> {
        let begun = Instant::now();
        let mut proposals = self.propose(user).await?;
        let decision = CANDIDATES.decide_items(proposals.len(), |place| {
            let proposal = &proposals[place];
            [
                Feature::Is(proposal.source),
                Feature::Measures(proposal.confidence),
            ]
        });
        decision.retain(&mut proposals);
        let until = self.timeout.map(|timeout| begun + timeout);
        let scored = self.score(&proposals, &decision, until).await?;
        let metered = scored.iter().enumerate().map(|(place, (proposal, _))| {
            let features = [
                Feature::Is(proposal.source),
                Feature::Measures(proposal.confidence),
            ];
            // The quality depends only on the first story, so only its absence is a loss.
            (features, if place == 0 { 1.0 } else { 0.0 })
        });
        CANDIDATES.meter(metered);
        let stories = scored.into_iter().take(stories_max);
        Ok(stories
            .map(|(proposal, score)| Story {
                id: proposal.id,
                source: proposal.source.to_owned(),
                score,
            })
            .collect())
    }

    /// Collects the proposals of all generators. Reads one value of the store per generator, one
    /// after the other.
    #[stroboscope::trace(fields(user))]
    async fn propose(&self, user: u64) -> Result<Vec<Proposal>, Status> {
        let mut proposals = Vec::new();
        for generator in WIDE {
            let key = key::proposals(generator.name, user);
            let value = self.reader.read(key).await?;
            proposals.extend(generator.propose(user, value.as_bytes()));
        }
        Ok(proposals)
    }

    /// Looks up the features of candidates and scores them. Returns the candidates, best first,
    /// without those whose features had not arrived at `until`.
    #[stroboscope::trace(name = "features", fields(candidates = proposals.len()))]
    async fn score(
        &self,
        proposals: &[Proposal],
        decision: &Choice,
        until: Option<Instant>,
    ) -> Result<Vec<(Proposal, f64)>, Status> {
        // Read features in an order that is independent of worth, so that a timeout affects all
        // sources alike.
        let mut proposals = proposals.to_vec();
        proposals.sort_by_key(|proposal| mix(proposal.id));
        let lanes = (0..READS.min(proposals.len())).map(|lane| {
            let own = proposals.iter().skip(lane).step_by(READS);
            let own: Vec<Proposal> = own.copied().collect();
            let me = self.clone();
            tokio::spawn(async move { me.score_in_turn(own, until).await }.in_current_span())
        });
        let mut scored = Vec::with_capacity(proposals.len());
        for lane in lanes.collect::<Vec<_>>() {
            let of_lane = lane
                .await
                .map_err(|error| Status::internal(format!("scoring ended: {error}")))?;
            scored.extend(of_lane?);
        }
        decision.reacted(proposals.len() - scored.len(), "timeout");
        if let Some(accelerator) = &self.accelerator {
            accelerator.score(scored.len()).await;
        }
        scored.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.id.cmp(&b.0.id)));
        Ok(scored)
    }

    async fn score_in_turn(
        &self,
        proposals: Vec<Proposal>,
        until: Option<Instant>,
    ) -> Result<Vec<(Proposal, f64)>, Status> {
        let mut scored = Vec::with_capacity(proposals.len());
        for proposal in proposals {
            let reading = self.reader.read(key::feature(proposal.id % key::FEATURES));
            let features = match until {
                Some(until) => match tokio::time::timeout_at(until, reading).await {
                    Ok(features) => features?,
                    Err(_) => break,
                },
                None => reading.await?,
            };
            if self.accelerator.is_none() {
                self.cpu.work(SCORE_TIME, proposal.id);
            }
            scored.push((proposal, proposal.score(features.as_bytes())));
        }
        Ok(scored)
    }
}
