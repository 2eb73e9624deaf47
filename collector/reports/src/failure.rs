//! The end of a verb: a result, a part of one, or a failure.

use std::error::Error;
use std::fmt;

use stroboscope_query::QueryError;
use stroboscope_store::memory::QueryLack;

use crate::advice::advice;

/// The end of a verb that has a result.
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

/// The kind of a failure. The command line ends with status 2 for each; pages have a status of HTTP for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureCode {
    /// No report has the name that was asked for.
    Unknown,
    /// The arguments are wrong.
    Asked,
    /// The report needs arguments that were not given.
    NeedsMore,
    /// The report takes more memory than a query may have.
    TooLarge,
    /// Other queries hold the memory: the same may succeed later.
    Busy,
    /// Two periods have no change, or too few requests, to explain.
    NothingToExplain,
    /// Anything else.
    Failed,
}

/// The reason why a verb has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub code: FailureCode,
    /// What is wrong.
    pub cause: String,
    /// What to do about it, where the cause does not say that.
    pub remedy: Option<String>,
}

impl Failure {
    /// A failure that says all in its cause.
    pub fn new(cause: impl Into<String>) -> Self {
        Self::coded(FailureCode::Failed, cause)
    }

    /// A failure of this kind.
    pub fn coded(code: FailureCode, cause: impl Into<String>) -> Self {
        Self {
            code,
            cause: cause.into(),
            remedy: None,
        }
    }

    /// A failure by any error, with advice where there is some.
    pub fn of(error: impl Error + 'static) -> Self {
        let error: &(dyn Error + 'static) = &error;
        let query: Option<&QueryError> = error.downcast_ref();
        let code = match (query.and_then(QueryError::lack), query) {
            (Some(QueryLack::All), _) => FailureCode::Busy,
            (Some(QueryLack::Query(..)), _) => FailureCode::TooLarge,
            (None, Some(QueryError::NoSuchChange { .. } | QueryError::Explain(_))) => {
                FailureCode::NothingToExplain
            }
            (None, _) => FailureCode::Failed,
        };
        Self {
            remedy: advice(error),
            ..Self::coded(code, error.to_string())
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cause)?;
        self.remedy
            .as_ref()
            .map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
    }
}

impl Error for Failure {}
