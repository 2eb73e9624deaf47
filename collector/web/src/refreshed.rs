//! Limits how often the content of open pages is recomputed.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::StatusCode;

use crate::answer_cache::Answer;

/// Minimum age of a cached answer before it is recomputed.
const FRESH_FOR: Duration = Duration::from_secs(5);
/// Minimum age of a cached answer before it is recomputed, as a multiple of its computation time.
const PART_OF_TIME: u32 = 10;

/// Maximum number of cached answers, each of a different address.
const KEPT_MAX: usize = 8;

/// A cached answer: its address, the time at which it was computed, how long that took, and the
/// answer.
type RefreshedAnswer = (String, Instant, Duration, Answer);

/// The most recent answers, for requests that follow soon.
#[derive(Debug, Default)]
pub(crate) struct RefreshedAnswers(Mutex<VecDeque<RefreshedAnswer>>);

impl RefreshedAnswers {
    pub(crate) fn fresh(&self, address: &str) -> Option<Answer> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, made, took, answer) = kept.iter().find(|(of, ..)| of == address)?;
        let fresh_for = FRESH_FOR.max(took.saturating_mul(PART_OF_TIME));
        (made.elapsed() < fresh_for).then(|| answer.clone())
    }

    pub(crate) fn keep(&self, address: String, answer: &Answer, took: Duration) {
        if answer.status == StatusCode::OK {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            kept.retain(|(of, ..)| *of != address);
            kept.push_back((address, Instant::now(), took, answer.clone()));
            if kept.len() > KEPT_MAX {
                kept.pop_front();
            }
        }
    }
}
