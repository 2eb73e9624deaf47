//! How a verb ends: with a result, with a part of it, or with a failure.

use std::error::Error;

use crate::advice::advice;

/// How a verb that has a result ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Exit status 0.
    Done,
    /// Something was left out of the result, as standard error says. Exit status 1.
    Partly,
    /// A signal of this number ended the verb before it had a result, and the verb stopped what it had started. Exit status as
    /// shells give it: 128 more than the number, so 130 after Ctrl-C.
    Interrupted(i32),
}

/// What is wrong, with what to do about it, where a verb has no result. Exit status 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Failure(pub String);

impl Failure {
    /// A failure by any error, with advice where there is some.
    pub fn of(error: impl Error + 'static) -> Self {
        Self(match advice(&error) {
            Some(advice) => format!("{error}; {advice}"),
            None => error.to_string(),
        })
    }
}
