//! The client role: many browsers that load pages in an open loop.

use std::io::Write;
use std::time::Duration;

use crate::browser::{Browser, Visit};
use crate::cpu::Cpu;
use crate::fault::{Fault, FaultPoint, Faults};
use crate::key::USERS;
use crate::link::Mix;
use crate::load;
use crate::random::{Random, mix};
use crate::role_error::RoleError;
use crate::schedule::Schedule;
use crate::stop::Stop;
use crate::upstream::connect;
use crate::web::BLOCK_BYTES;

/// Longest time from the request until the page's background script asks for the engine.
const BACKGROUND_AFTER_MAX: Duration = Duration::from_millis(10);

/// Maximum growth of a browser's log, in blocks. The minimum is 2 blocks; with the fault
/// `client.small-count`, the growth is at most one block.
const COUNT_BLOCKS_MAX: u64 = 16;

/// Cause of failure of a page that took longer than `--timeout-ms`.
const TIMED_OUT: &str = "timed out";

/// Command-line flags of the client.
#[derive(Debug, clap::Args)]
pub struct ClientOptions {
    /// URL of the edge.
    #[arg(long, env = "NEWSFEED_EDGE")]
    edge: String,
    /// Requests per second, on average.
    #[arg(long, default_value_t = 30.0)]
    rate: f64,
    /// Length of the load, in seconds.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Percentage of users per kind of link.
    #[arg(long, default_value_t = Mix::default())]
    mix: Mix,
    /// Seed of start times and users; the same seed makes the same requests.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Timeout of a page, in milliseconds; a page that takes longer counts as failed.
    #[arg(long, default_value_t = 10_000)]
    timeout_ms: u64,
    /// Longest wait for the edge at start-up, in milliseconds.
    #[arg(long, default_value_t = 5_000)]
    patience_ms: u64,
    /// Fault to inject, as POINT[@PERCENT%]; repeatable.
    #[arg(long = "fault", value_name = "FAULT")]
    faults: Vec<Fault>,
    /// Print the report as one line of JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(options: ClientOptions, stop: &Stop) -> Result<(), RoleError> {
    let schedule = Schedule::new(options.rate, options.seconds, options.seed)?;
    let edge = connect(
        "edge",
        &options.edge,
        Duration::from_millis(options.patience_ms),
    )
    .await?;
    let browser = Browser::new(edge, Cpu::calibrate());
    let timeout = Duration::from_millis(options.timeout_ms);
    let faults = Faults::new(options.faults);
    let report = load::run(schedule, stop, |number| {
        let has_small_count = faults.strikes(FaultPoint::ClientSmallCount);
        let visit = visit(options.seed, number, &options.mix, has_small_count);
        let browser = browser.clone();
        let performing = async move {
            match tokio::time::timeout(timeout, browser.load(visit)).await {
                Ok(result) => result,
                Err(_) => Err(TIMED_OUT.to_owned()),
            }
        };
        (visit.link, performing)
    })
    .await;
    let text = if options.json {
        let mut line =
            serde_json::to_string(&report).map_err(|error| RoleError::Report(error.to_string()))?;
        line.push('\n');
        line
    } else {
        report.to_string()
    };
    let mut stdout = std::io::stdout().lock();
    stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
        .map_err(|error| RoleError::Report(error.to_string()))
}

/// Draws the user, the link, the growth of the browser's log and the time of the background script
/// for visit `number`. On a later visit, a user has the same link.
fn visit(seed: u64, number: u64, links: &Mix, has_small_count: bool) -> Visit {
    let mut random = Random::new(mix(seed) ^ mix(number.wrapping_add(1)));
    let user = random.next_u64() % USERS;
    let background_after = BACKGROUND_AFTER_MAX.mul_f64(random.next_unit());
    let size = random.next_u64();
    let count = if has_small_count {
        1 + size % BLOCK_BYTES
    } else {
        2 * BLOCK_BYTES + size % ((COUNT_BLOCKS_MAX - 2) * BLOCK_BYTES + 1)
    };
    Visit {
        user,
        link: links.link_of(user),
        count,
        background_after,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::LinkKind;

    #[test]
    fn visits_follow_the_mix_and_the_seed() {
        let links = Mix::default();
        let visits: Vec<Visit> = (0..10_000)
            .map(|number| visit(1, number, &links, false))
            .collect();
        let fast = visits
            .iter()
            .filter(|visit| visit.link == LinkKind::Fast)
            .count();
        assert!((5_000..7_000).contains(&fast), "{fast}");
        assert!(
            visits
                .iter()
                .all(|visit| visit.user < USERS && visit.background_after < BACKGROUND_AFTER_MAX)
        );
        assert_eq!(visits[7].user, visit(1, 7, &links, false).user);
        assert!(
            (0..100)
                .any(|number| visits[number as usize].user != visit(2, number, &links, false).user)
        );
        assert!(visits.iter().all(|visit| visit.count > BLOCK_BYTES));
        // The fault changes the count and nothing else of a visit.
        for (number, visit) in (0_u64..).zip(&visits) {
            let small = super::visit(1, number, &links, true);
            assert!((1..=BLOCK_BYTES).contains(&small.count), "{small:?}");
            assert_eq!((small.user, small.link), (visit.user, visit.link));
        }
    }
}
