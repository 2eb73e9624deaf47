//! Responses to OTLP clients.

use std::time::Duration;

use stroboscope_otlp::BadSpan;
use stroboscope_store::decode::OtlpTaken;
use stroboscope_store::wal::WalError;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use super::signal::Signal;
use crate::ingest::IntakeError;
use crate::net::{Rejection, UnpackError};

/// Delay after which clients may retry a request that was rejected for now.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(5);

/// `ExportTraceServiceResponse`, and the identical response for logs.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ExportResponse {
    /// Partial success; unset if everything was accepted.
    #[prost(message, optional, tag = "1")]
    pub(super) partial_success: Option<PartialSuccess>,
}

/// `ExportTracePartialSuccess`, or `ExportLogsPartialSuccess`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PartialSuccess {
    #[prost(int64, tag = "1")]
    pub(super) rejected: i64,
    #[prost(string, tag = "2")]
    pub(super) error_message: String,
}

impl ExportResponse {
    /// Returns the response to an accepted request.
    pub(super) fn of(signal: Signal, taken: &OtlpTaken) -> Self {
        let partial_success = taken.reason.as_ref().map(|reason| PartialSuccess {
            rejected: i64::try_from(taken.rejected).unwrap_or(i64::MAX),
            error_message: rejection(signal, taken.rejected, reason),
        });
        Self { partial_success }
    }

    /// Encodes the response in OTLP's JSON.
    pub(super) fn json(&self, signal: Signal) -> serde_json::Value {
        match &self.partial_success {
            None => serde_json::json!({}),
            // OTLP's JSON writes 64-bit integers as strings.
            Some(partial) => serde_json::json!({"partialSuccess": {
                (signal.rejected_key()): partial.rejected.to_string(),
                "errorMessage": partial.error_message,
            }}),
        }
    }
}

fn rejection(signal: Signal, rejected: u64, first: &BadSpan) -> String {
    let (one, several) = signal.nouns();
    match rejected {
        1 => format!("{one} was left out: {first}"),
        _ => format!("{rejected} {several} were left out, the first: {first}"),
    }
}

/// Reason why a request is not stored.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum Refusal {
    /// The body is not a valid request, or broke off.
    #[error("{0}")]
    Invalid(String),
    /// The content type or the compression is not supported.
    #[error("{0}")]
    Unsupported(String),
    /// The request is too large, possibly only after decompression or redaction.
    #[error("the request is larger than {limit} bytes, unpacked and redacted: send smaller ones")]
    TooLarge { limit: usize },
    /// The body did not arrive in time. The port has counted this rejection.
    #[error("{0}")]
    Slow(String),
    /// Too many bytes are arriving at the same time. The port has counted this rejection.
    #[error("{0}")]
    Full(String),
    /// The token was withdrawn. The port has counted this rejection.
    #[error("{0}")]
    Withdrawn(String),
    /// The intake does not accept the request now.
    #[error("{0}")]
    Later(#[from] IntakeError),
}

impl Refusal {
    /// Returns the reason why a body could not be read.
    pub(super) fn of_body(error: &axum::Error) -> Self {
        let Some(denied) = Rejection::of_body(error) else {
            // The client may be gone.
            return Self::Invalid(format!("the body broke off: {error}"));
        };
        match denied.code() {
            Code::DeadlineExceeded => Self::Slow(denied.message),
            Code::Unauthenticated => Self::Withdrawn(denied.message),
            _ => Self::Full(denied.message),
        }
    }

    /// Returns the reason why a body could not be decompressed.
    pub(super) fn of_packed(error: UnpackError) -> Self {
        match error {
            UnpackError::TooLarge { limit } => Self::TooLarge { limit },
            UnpackError::Damaged(error) => {
                Self::Invalid(format!("the packed body is damaged: {error}"))
            }
            UnpackError::Full(denied) => Self::Full(denied.message),
        }
    }

    /// Returns the label for the counter of refusals; `None` if the port or the intake has already
    /// counted this one.
    pub(super) fn cause(&self) -> Option<&'static str> {
        match self {
            Self::Invalid(_) => Some("otlp_invalid"),
            Self::Unsupported(_) => Some("otlp_unsupported"),
            Self::TooLarge { .. } => Some("otlp_too_large"),
            Self::Slow(_)
            | Self::Full(_)
            | Self::Withdrawn(_)
            | Self::Later(
                IntakeError::Backlog { .. }
                | IntakeError::Unforwarded { .. }
                | IntakeError::Wal(WalError::Full { .. } | WalError::Io { .. }),
            ) => None,
            Self::Later(_) => Some("otlp_later"),
        }
    }

    /// Reports whether a retry of the same request may succeed.
    pub(super) fn may_retry(&self) -> bool {
        !matches!(
            self,
            Self::Invalid(_) | Self::Unsupported(_) | Self::TooLarge { .. }
        )
    }

    /// Returns the gRPC status. `UNAVAILABLE` carries a retry delay.
    pub(super) fn status(&self) -> Status {
        let message = self.to_string();
        match self {
            Self::Invalid(_) | Self::Unsupported(_) => Status::new(Code::InvalidArgument, message),
            Self::TooLarge { .. } => Status::new(Code::ResourceExhausted, message),
            Self::Slow(_) => Status::new(Code::DeadlineExceeded, message),
            Self::Withdrawn(_) => Status::new(Code::Unauthenticated, message),
            Self::Later(_) | Self::Full(_) => {
                let details = ErrorDetails::with_retry_info(Some(RETRY_AFTER));
                Status::with_error_details(Code::Unavailable, message, details)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The Go SDK drops requests rejected by RESOURCE_EXHAUSTED without a hint, and retries
    /// UNAVAILABLE.
    #[test]
    fn only_what_may_be_sent_again_says_when() {
        let later = Refusal::Later(IntakeError::Backlog { bytes: 1 }).status();
        assert_eq!(later.code(), Code::Unavailable);
        let hint = later
            .get_details_retry_info()
            .and_then(|hint| hint.retry_delay);
        assert_eq!(hint, Some(RETRY_AFTER));
        let (large, invalid) = (
            Refusal::TooLarge { limit: 1 },
            Refusal::Invalid("x".to_owned()),
        );
        for (refusal, code) in [
            (large, Code::ResourceExhausted),
            (invalid, Code::InvalidArgument),
        ] {
            let status = refusal.status();
            assert_eq!((status.code(), status.details().len()), (code, 0));
        }
    }

    #[test]
    fn partial_success_is_unset_where_all_is_taken() {
        let all = ExportResponse::of(Signal::Traces, &OtlpTaken::default());
        assert_eq!(
            (all.partial_success.is_none(), all.json(Signal::Traces)),
            (true, serde_json::json!({}))
        );
        let taken = OtlpTaken {
            records: 1,
            rejected: 2,
            reason: Some(BadSpan::Empty { field: "span id" }),
            ..OtlpTaken::default()
        };
        let logs = ExportResponse::of(Signal::Logs, &taken).json(Signal::Logs);
        assert_eq!(logs["partialSuccess"]["rejectedLogRecords"], "2");
        let response = ExportResponse::of(Signal::Traces, &taken);
        let some = response.partial_success.unwrap();
        assert_eq!(some.rejected, 2);
        assert_eq!(
            some.error_message,
            "2 spans were left out, the first: span id is empty"
        );
    }
}
