//! Open-loop load: each request starts at its scheduled time, regardless of when others end.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::delay::until;
use crate::link::LinkKind;
use crate::report::{LoadReport, Tally};
use crate::schedule::Schedule;
use crate::stop::Stop;

/// Maximum number of requests in flight. The generator does not send further requests, and counts
/// them as failed. Bounds the generator's memory if the service stands still.
pub(crate) const IN_FLIGHT_MAX: usize = 4_096;

/// Cause of failure of a request over [`IN_FLIGHT_MAX`].
pub(crate) const TOO_MANY: &str = "not sent: too many requests under way";

/// Cause of failure of a request that panicked, or was in flight when the run was stopped.
pub(crate) const INTERRUPTED: &str = "interrupted";

type Outcome = (LinkKind, Result<Duration, String>);

/// Runs `schedule`: for request number *n*, `request(n)` returns its link and the future that
/// performs it.
///
/// Ends when the last request has ended, or at once after `stop`. Each request must limit its own
/// time.
pub(crate) async fn run<F, R>(schedule: Schedule, stop: &Stop, request: F) -> LoadReport
where
    F: Fn(u64) -> (LinkKind, R),
    R: Future<Output = Result<(), String>> + Send + 'static,
{
    let (rate_per_s, planned) = (schedule.rate_per_s(), schedule.duration());
    let mut tally = Tally::new();
    let mut under_way: JoinSet<Outcome> = JoinSet::new();
    let begin = Instant::now();
    for (number, offset) in schedule.enumerate() {
        let scheduled = begin + offset;
        tokio::select! {
            () = until(scheduled) => {}
            () = stop.wait() => break,
        }
        while let Some(outcome) = under_way.try_join_next() {
            count(&mut tally, outcome);
        }
        let (link, performing) = request(number as u64);
        tally.sent(link, scheduled.elapsed());
        if under_way.len() >= IN_FLIGHT_MAX {
            tally.failed(link, TOO_MANY.to_owned());
            continue;
        }
        under_way.spawn(async move {
            let result = performing.await;
            (link, result.map(|()| scheduled.elapsed()))
        });
    }
    let duration = if stop.is_stopped() {
        begin.elapsed().min(planned)
    } else {
        planned
    };
    loop {
        tokio::select! {
            outcome = under_way.join_next() => match outcome {
                Some(outcome) => count(&mut tally, outcome),
                None => break,
            },
            () = stop.wait() => break,
        }
    }
    tally.finish(rate_per_s, duration, INTERRUPTED)
}

fn count(tally: &mut Tally, outcome: Result<Outcome, tokio::task::JoinError>) {
    // A request that panicked returned no link. `Tally::finish` counts it as failed.
    let Ok((link, result)) = outcome else { return };
    match result {
        Ok(latency) => tally.ok(link, latency),
        Err(cause) => tally.failed(link, cause),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    const SLOW: Duration = Duration::from_millis(400);

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_slow_server_does_not_slow_the_schedule() {
        let schedule = Schedule::new(50.0, 1.0, 5).expect("possible");
        let planned: Vec<Duration> = schedule.clone().collect();
        let starts = Arc::new(Mutex::new(Vec::new()));
        let begin = Instant::now();
        let report = run(schedule, &Stop::manual(), |_| {
            let starts = Arc::clone(&starts);
            (LinkKind::Fast, async move {
                starts.lock().expect("not poisoned").push(begin.elapsed());
                tokio::time::sleep(SLOW).await;
                Ok(())
            })
        })
        .await;
        let mut starts = starts.lock().expect("not poisoned").clone();
        starts.sort();
        assert_eq!(starts.len(), planned.len());
        let mut lateness: Vec<Duration> = starts
            .iter()
            .zip(&planned)
            .map(|(start, planned)| start.saturating_sub(*planned))
            .collect();
        lateness.sort();
        // A closed loop would be 400 ms late from the second request on. One straggler is the
        // machine's fault.
        let typical = lateness[lateness.len() * 9 / 10];
        assert!(
            typical < Duration::from_millis(100),
            "90 % start within {typical:?}"
        );
        assert_eq!((report.sent, report.failed), (planned.len() as u64, 0));
        assert!(report.latency.p50_ns >= 400_000_000, "{:?}", report.latency);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn latency_counts_from_the_scheduled_start() {
        let schedule = Schedule::new(100.0, 0.5, 6).expect("possible");
        // This generator is held up itself: its requests are quick, but all of them start late.
        let report = run(schedule, &Stop::manual(), |number| {
            if number == 0 {
                std::thread::sleep(Duration::from_millis(700));
            }
            (LinkKind::Cable, async { Ok(()) })
        })
        .await;
        assert!(report.latency.p50_ns >= 200_000_000, "{:?}", report.latency);
        assert!(
            report.start_delay.p50_ns >= 200_000_000,
            "{:?}",
            report.start_delay
        );
    }

    #[tokio::test]
    async fn failures_are_counted_by_cause() {
        let schedule = Schedule::new(400.0, 0.25, 7).expect("possible");
        let report = run(schedule, &Stop::manual(), |number| {
            let result = if number % 2 == 0 {
                Ok(())
            } else {
                Err("unavailable".to_owned())
            };
            (LinkKind::Fast, async { result })
        })
        .await;
        assert_eq!(report.sent, report.ok + report.failed);
        assert_eq!(report.failures.get("unavailable"), Some(&(report.sent / 2)));
    }

    #[tokio::test]
    async fn a_stop_ends_the_run_and_loses_no_count() {
        let schedule = Schedule::new(100.0, 60.0, 8).expect("possible");
        let stop = Stop::manual();
        let stopper = stop.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(200)).await;
            stopper.now();
        });
        let begin = Instant::now();
        let report = run(schedule, &stop, |_| {
            (LinkKind::Fast, std::future::pending())
        })
        .await;
        assert!(begin.elapsed() < Duration::from_secs(5));
        assert!(report.sent > 0);
        assert_eq!(report.failures.get(INTERRUPTED), Some(&report.sent));
        assert!(report.duration_ns < 5_000_000_000);
    }
}
