//! Activity of a connection, which distinguishes slow and idle connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use axum::http::Version;

use crate::pool::Share;

/// Idle time after which a connection is closed gracefully.
const IDLE: Duration = Duration::from_secs(120);

/// Activity of a connection, for its timeouts.
#[derive(Debug)]
pub(super) struct Activity {
    began: Instant,
    /// Number of requests whose responses are not complete.
    open: AtomicUsize,
    /// End of the request that ended last, in ms since `began`; 0 if none has ended.
    ended_ms: AtomicU64,
    /// Arrival of the first bytes after the latest request, while no request was open, in ms since
    /// `began`; 0 if no such bytes came.
    head_ms: AtomicU64,
    /// True once a request came over HTTP/2.
    is_http2: AtomicBool,
}

/// Timeout that a connection has exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    SlowHead,
    Idle,
}

impl Activity {
    pub(super) fn new() -> Self {
        Self {
            began: Instant::now(),
            open: AtomicUsize::new(0),
            ended_ms: AtomicU64::new(0),
            head_ms: AtomicU64::new(0),
            is_http2: AtomicBool::new(false),
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis())
            .unwrap_or(u64::MAX)
            .max(1)
    }

    pub(super) fn bytes_came(&self) {
        if self.open.load(Relaxed) == 0 && self.head_ms.load(Relaxed) == 0 {
            self.head_ms.store(self.now_ms(), Relaxed);
        }
    }

    /// Returns the interval at which to call [`due`](Self::due).
    pub(super) fn interval(timeout: Duration) -> Duration {
        (timeout / 4).clamp(Duration::from_millis(10), IDLE / 16)
    }

    pub(super) fn due(&self, timeout: Duration) -> Due {
        if self.open.load(Relaxed) > 0 {
            return Due::Nothing;
        }
        let now_ms = self.now_ms();
        let since = |ms: u64| Duration::from_millis(now_ms.saturating_sub(ms));
        let (head_ms, ended_ms) = (self.head_ms.load(Relaxed), self.ended_ms.load(Relaxed));
        // HTTP/2 carries more than requests, such as answers to pings. So only the head of its
        // first request has a deadline.
        let slow_since = match (ended_ms, head_ms) {
            (0, _) => Some(0),
            (_, 0) => None,
            (_, head_ms) => Some(head_ms).filter(|_| !self.is_http2.load(Relaxed)),
        };
        if slow_since.is_some_and(|ms| since(ms) > timeout) {
            Due::SlowHead
        } else if ended_ms > 0 && since(ended_ms) > IDLE {
            Due::Idle
        } else {
            Due::Nothing
        }
    }
}

/// An open request.
#[derive(Debug)]
pub(super) struct OpenRequest {
    activity: Arc<Activity>,
    _share: Option<Share>,
}

impl OpenRequest {
    pub(super) fn begin(activity: Arc<Activity>, version: Version) -> Self {
        activity.open.fetch_add(1, Relaxed);
        activity.head_ms.store(0, Relaxed);
        activity.is_http2.store(version == Version::HTTP_2, Relaxed);
        Self {
            activity,
            _share: None,
        }
    }

    /// Keeps a share of the open requests until the end of the request.
    pub(super) fn hold(&mut self, share: Share) {
        self._share = Some(share);
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.activity
            .ended_ms
            .store(self.activity.now_ms(), Relaxed);
        self.activity.open.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_timeout_of_requests_does_not_prolong_the_idle_time() {
        let of_seconds = |seconds| Activity::interval(Duration::from_secs(seconds)).as_secs_f64();
        assert_eq!([30, 3_600].map(of_seconds), [7.5; 2]);
    }

    #[test]
    fn what_is_slow_and_what_is_idle_is_told_apart() {
        let long_ago = Instant::now()
            .checked_sub(Duration::from_secs(3_600))
            .unwrap();
        let now_ms = 3_600_000;
        let check = |open: usize, ended_ms: u64, head_ms: u64, is_http2: bool, expected: Due| {
            let activity = Activity {
                began: long_ago,
                open: AtomicUsize::new(open),
                ended_ms: AtomicU64::new(ended_ms),
                head_ms: AtomicU64::new(head_ms),
                is_http2: AtomicBool::new(is_http2),
            };
            let due = activity.due(Duration::from_secs(30));
            assert_eq!(due, expected, "{activity:?}");
        };
        for is_http2 in [false, true] {
            check(1, 0, 0, is_http2, Due::Nothing);
            check(1, 1, 1, is_http2, Due::Nothing);
            // No request yet.
            check(0, 0, 0, is_http2, Due::SlowHead);
            check(0, 0, now_ms, is_http2, Due::SlowHead);
            check(0, now_ms - 100_000, 0, is_http2, Due::Nothing);
            check(0, now_ms - 121_000, 0, is_http2, Due::Idle);
            check(0, now_ms - 1, now_ms - 1, is_http2, Due::Nothing);
        }
        check(0, now_ms - 100_000, now_ms - 31_000, false, Due::SlowHead);
        check(0, now_ms - 100_000, now_ms - 31_000, true, Due::Nothing);
        check(0, now_ms - 121_000, now_ms - 31_000, true, Due::Idle);
    }
}
