//! Failure of a subcommand, by kind.

use std::error::Error;
use std::fmt;

use stroboscope_query::{QueryError, ShardError};
use stroboscope_store::query_memory::QueryLack;

use crate::advice::advice;

/// Kind of a failure. The command line exits with status 2 for each; pages map each to an HTTP
/// status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureCode {
    /// No report, service, operation, host, attribute or the like has the requested name.
    Unknown,
    /// The arguments are wrong.
    Asked,
    /// The report needs arguments that were not given.
    NeedsMore,
    /// The report takes more memory than a query may have.
    TooLarge,
    /// Other queries hold the memory: a retry may succeed later.
    Busy,
    /// Two periods have no change of the requested rank, or too few requests, to explain.
    NothingToExplain,
    /// Any other failure.
    Failed,
}

impl FailureCode {
    /// Returns the name for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown_name",
            Self::Asked => "wrong_arguments",
            Self::NeedsMore => "missing_arguments",
            Self::TooLarge => "too_large",
            Self::Busy => "busy",
            Self::NothingToExplain => "nothing_to_explain",
            Self::Failed => "failed",
        }
    }
}

/// Reason that a subcommand has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub code: FailureCode,
    /// Description of the problem.
    pub cause: String,
    /// Advice on the problem, if the cause does not include it.
    pub remedy: Option<String>,
}

impl Failure {
    /// Creates a failure without a remedy.
    pub fn new(cause: impl Into<String>) -> Self {
        Self::coded(FailureCode::Failed, cause)
    }

    /// Creates a failure due to wrong arguments, without a remedy.
    pub fn asked(cause: impl Into<String>) -> Self {
        Self::coded(FailureCode::Asked, cause)
    }

    /// Creates a failure due to a name that nothing has, without a remedy.
    pub(crate) fn unknown(cause: impl Into<String>) -> Self {
        Self::coded(FailureCode::Unknown, cause)
    }

    /// Creates a failure due to missing arguments, without a remedy.
    pub(crate) fn needs_more(cause: impl Into<String>) -> Self {
        Self::coded(FailureCode::NeedsMore, cause)
    }

    /// Creates a failure of this kind, without a remedy.
    pub fn coded(code: FailureCode, cause: impl Into<String>) -> Self {
        Self {
            code,
            cause: cause.into(),
            remedy: None,
        }
    }

    /// Converts any error to a failure, with advice if there is some.
    pub fn of(error: impl Error + 'static) -> Self {
        let mut error: &(dyn Error + 'static) = &error;
        if let Some(ShardError::Query(of_query)) = error.downcast_ref() {
            error = of_query;
        }
        let query: Option<&QueryError> = error.downcast_ref();
        Self {
            remedy: advice(error),
            ..Self::coded(
                query.map_or(FailureCode::Failed, code_of),
                error.to_string(),
            )
        }
    }
}

fn code_of(error: &QueryError) -> FailureCode {
    match (error.lack(), error) {
        (Some(QueryLack::All), _) => FailureCode::Busy,
        (Some(QueryLack::Query(..)), _) => FailureCode::TooLarge,
        (None, QueryError::NoSuchChange { .. } | QueryError::Explain(_)) => {
            FailureCode::NothingToExplain
        }
        (
            None,
            QueryError::NoSuchRoot { .. }
            | QueryError::NoSuchCategory { .. }
            | QueryError::NoSuchAttribute { .. }
            | QueryError::NoSuchService { .. }
            | QueryError::NoSuchSegment { .. }
            | QueryError::NoSuchTrace { .. }
            | QueryError::NoSuchValue { .. }
            | QueryError::NoUnit(_)
            | QueryError::NoComponent(_),
        ) => FailureCode::Unknown,
        (None, _) => FailureCode::Failed,
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
