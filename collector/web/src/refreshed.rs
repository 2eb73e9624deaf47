//! What is refreshed on pages that are open: no more often than it can be.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::StatusCode;

use crate::answers::Answer;

/// What is refreshed is made anew no more often than this,
const FRESH_FOR: Duration = Duration::from_secs(5);
/// and takes up no more than this part of the time.
const PART_OF_TIME: u32 = 10;

/// Answers that are kept, of different addresses.
const KEPT_MAX: usize = 8;

/// An answer: its address, when it was made, and how long that took.
type Kept = (String, Instant, Duration, Answer);

/// The answers that were refreshed last, for requests that follow soon.
#[derive(Debug, Default)]
pub(crate) struct Refreshed(Mutex<VecDeque<Kept>>);

impl Refreshed {
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
