//! Rate limits for log lines, so that a misbehaving client cannot fill the log.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Maximum lines of one kind per [`INTERVAL`].
const LINES: u32 = 20;
/// Interval in which [`LINES`] lines are allowed.
const INTERVAL: Duration = Duration::from_secs(10);

/// Number of lines of all kinds suppressed since the process started.
static LEFT_OUT: AtomicU64 = AtomicU64::new(0);

/// Returns the number of lines suppressed since the process started.
#[must_use]
pub fn lines_left_out() -> u64 {
    LEFT_OUT.load(Relaxed)
}

/// Rate limit of one kind of log line. Each kind has a static in the module that logs it.
#[derive(Debug)]
pub(crate) struct LineLimit(Mutex<State>);

#[derive(Debug)]
struct State {
    since: Option<Instant>,
    said: u32,
    left_out: u64,
}

/// Permission to log a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    /// Number of lines of this kind suppressed since the last logged one, if any.
    pub(crate) left_out: Option<u64>,
}

impl LineLimit {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(State {
            since: None,
            said: 0,
            left_out: 0,
        }))
    }

    /// Permits one more line. If the limit is reached, returns `None` and counts the line as
    /// suppressed.
    pub(crate) fn next(&self) -> Option<Turn> {
        self.next_at(Instant::now())
    }

    fn next_at(&self, now: Instant) -> Option<Turn> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = |since: Instant| now.saturating_duration_since(since) >= INTERVAL;
        if state.since.is_none_or(is_over) {
            state.since = Some(now);
            state.said = 0;
        }
        if state.said >= LINES {
            state.left_out += 1;
            LEFT_OUT.fetch_add(1, Relaxed);
            return None;
        }
        state.said += 1;
        let left_out = std::mem::take(&mut state.left_out);
        Some(Turn {
            left_out: (left_out > 0).then_some(left_out),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut_and_what_was_left_out_is_told() {
        let pace = LineLimit::new();
        let begin = Instant::now();
        let said = |at: Instant| (0..1_000).filter_map(|_| pace.next_at(at)).count();
        assert_eq!(said(begin), LINES as usize);
        assert_eq!(said(begin + INTERVAL / 2), 0);
        let first = pace.next_at(begin + INTERVAL);
        let left_out = Some(2_000 - u64::from(LINES));
        assert_eq!(first, Some(Turn { left_out }));
        assert_eq!(
            pace.next_at(begin + INTERVAL),
            Some(Turn { left_out: None })
        );
        assert!(lines_left_out() >= 1_980);
    }
}
