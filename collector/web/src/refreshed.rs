//! What is refreshed on pages that are open: no more often than it can be.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::StatusCode;

use crate::answers::Answer;

/// What is refreshed is made anew no more often than this,
const FRESH_FOR: Duration = Duration::from_secs(5);
/// and takes up no more than this part of the time.
const PART_OF_TIME: u32 = 10;

/// What was refreshed last, for whoever asks soon after.
#[derive(Debug, Default)]
pub(crate) struct Refreshed(Mutex<Option<(Instant, Duration, Answer)>>);

impl Refreshed {
    pub(crate) fn fresh(&self) -> Option<Answer> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (made, took, answer) = kept.as_ref()?;
        let fresh_for = FRESH_FOR.max(took.saturating_mul(PART_OF_TIME));
        (made.elapsed() < fresh_for).then(|| answer.clone())
    }

    pub(crate) fn keep(&self, answer: &Answer, took: Duration) {
        if answer.status == StatusCode::OK {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            *kept = Some((Instant::now(), took, answer.clone()));
        }
    }
}
