//! Waits that are exact to a tenth of a millisecond.

use std::time::{Duration, Instant};

/// Last part of a wait, for which a thread sleeps. tokio's timer ticks once a millisecond and
/// rounds up.
const TIMER_SLACK: Duration = Duration::from_millis(2);

/// Waits for `duration`.
///
/// On tokio's timer, a fault of `+500us` or a 0.3 ms download would take one to two milliseconds. A
/// blocking thread therefore sleeps for the last part: the kernel's timer wakes it within about 0.1
/// ms.
pub(crate) async fn delay(duration: Duration) {
    until(Instant::now() + duration).await;
}

/// Waits until `instant`; returns at once if it has passed.
pub(crate) async fn until(instant: Instant) {
    let left = instant.saturating_duration_since(Instant::now());
    if let Some(coarse) = left.checked_sub(TIMER_SLACK) {
        tokio::time::sleep(coarse).await;
    }
    let left = instant.saturating_duration_since(Instant::now());
    if !left.is_zero() {
        // It fails only while the runtime shuts down; the rest of the wait does not matter then.
        let _ = tokio::task::spawn_blocking(move || std::thread::sleep(left)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn never_short_and_seldom_long() {
        for wanted_us in [0_u64, 200, 500, 1_500, 3_700, 12_000] {
            let wanted = Duration::from_micros(wanted_us);
            let mut best = Duration::MAX;
            for _ in 0..10 {
                let start = Instant::now();
                delay(wanted).await;
                let took = start.elapsed();
                assert!(took >= wanted, "{took:?} for {wanted:?}");
                best = best.min(took);
            }
            assert!(
                best < wanted + Duration::from_millis(1),
                "{best:?} for {wanted:?}"
            );
        }
    }
}
