//! The load generator, which sends requests at a given mean rate without waiting for earlier
//! answers, or one after the other.

use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tonic::transport::Channel;

use crate::Failure;
use crate::random::Random;
use crate::session;
use crate::web::Web;
use crate::wire::PageRequest;
use crate::wire::page_client::PageClient;

/// Number of users among which requests are spread.
const USERS: u64 = 480;

/// Sends requests for `length`, with random gaps drawn with `seed`. Returns each request's time
/// from its due time to the end of its page. Fails if a request fails.
pub(crate) async fn run(
    web: &Web,
    rate_per_s: f64,
    length: Duration,
    seed: u64,
) -> Result<Vec<Duration>, Failure> {
    let (answered, mut answers) = mpsc::unbounded_channel();
    let client = web.client.clone();
    let runtime = tokio::runtime::Handle::current();
    // The sender has its own thread, because tokio's timer has a resolution of a millisecond.
    let sender = std::thread::spawn(move || {
        let mut random = Random::new(seed);
        let begin = Instant::now();
        let mut due = begin;
        loop {
            // Exponential gaps make the arrivals independent of each other.
            due += Duration::from_secs_f64(-(1.0 - random.next_unit()).ln() / rate_per_s);
            if due - begin > length {
                break;
            }
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let (mut client, answered) = (client.clone(), answered.clone());
            let user = random.next_u64() % USERS;
            runtime.spawn(async move {
                let page = page(&mut client, user).await.map(|()| due.elapsed());
                // Sending fails only if `run` has returned after a failed request.
                let _ = answered.send(page);
            });
        }
    });
    let mut latencies = Vec::new();
    while let Some(answer) = answers.recv().await {
        latencies.push(answer?);
    }
    sender.join().map_err(|_| "the load generator panicked")?;
    Ok(latencies)
}

/// Sends `requests` requests, each after the answer to the one before.
pub(crate) async fn one_by_one(web: &Web, requests: usize) -> Result<(), Failure> {
    let mut client = web.client.clone();
    for number in 0..requests as u64 {
        page(&mut client, number % USERS).await?;
    }
    Ok(())
}

/// Growth of the browser's log in each request, in bytes: more than a block, because the web server
/// treats growth of up to a block differently.
const COUNT: u64 = 16 << 10;

/// Sends a request of `user` and waits for all parts of the page.
async fn page(client: &mut PageClient<Channel>, user: u64) -> Result<(), tonic::Status> {
    let request = PageRequest {
        user,
        session_token: session::token(user),
        count: COUNT,
    };
    let mut pagelets = client.load(request).await?.into_inner();
    while pagelets.message().await?.is_some() {}
    Ok(())
}
