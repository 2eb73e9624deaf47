//! What a client of OTLP is told.

use std::error::Error as _;
use std::time::Duration;

use stroboscope_foreign::BadSpan;
use stroboscope_store::decode::OtlpSpans;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::intake::IntakeError;

/// When to come again, where nothing better is known: a flush or two later.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(5);

/// `ExportTraceServiceResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ExportResponse {
    /// Unset where all was taken.
    #[prost(message, optional, tag = "1")]
    pub(super) partial_success: Option<PartialSuccess>,
}

/// `ExportTracePartialSuccess`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PartialSuccess {
    #[prost(int64, tag = "1")]
    pub(super) rejected_spans: i64,
    #[prost(string, tag = "2")]
    pub(super) error_message: String,
}

impl ExportResponse {
    /// Of a request that is stored.
    pub(super) fn of(spans: &OtlpSpans) -> Self {
        let partial_success = spans.reason.as_ref().map(|reason| PartialSuccess {
            rejected_spans: i64::try_from(spans.rejected).unwrap_or(i64::MAX),
            error_message: rejection(spans.rejected, reason),
        });
        Self { partial_success }
    }

    /// As OTLP's JSON has it.
    pub(super) fn json(&self) -> serde_json::Value {
        match &self.partial_success {
            None => serde_json::json!({}),
            // 64-bit integers are texts.
            Some(partial) => serde_json::json!({"partialSuccess": {
                "rejectedSpans": partial.rejected_spans.to_string(),
                "errorMessage": partial.error_message,
            }}),
        }
    }
}

fn rejection(rejected: u64, first: &BadSpan) -> String {
    match rejected {
        1 => format!("a span was left out: {first}"),
        _ => format!("{rejected} spans were left out, the first: {first}"),
    }
}

/// Why a request is not stored.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum Refusal {
    /// It is none.
    #[error("{0}")]
    Invalid(String),
    /// Of another type, or packed in another way, than is read here.
    #[error("{0}")]
    Unsupported(String),
    /// After decompression, too.
    #[error("the request is larger than {limit} bytes: send fewer spans at once")]
    TooLarge { limit: usize },
    /// Its body did not come in time.
    #[error("{0}")]
    Slow(String),
    /// Too much is arriving at a time. The door has counted it.
    #[error("{0}")]
    Full(String),
    /// Not now.
    #[error("{0}")]
    Later(#[from] IntakeError),
}

impl Refusal {
    /// Why a body could not be read.
    pub(super) fn of_body(error: &axum::Error) -> Self {
        let of_door = error
            .source()
            .and_then(|error| error.downcast_ref::<Status>());
        match of_door.map(|status| (status.code(), status.message())) {
            Some((Code::Unavailable, message)) => Self::Full(message.to_owned()),
            Some((Code::DeadlineExceeded, message)) => Self::Slow(message.to_owned()),
            // Nobody may hear the answer.
            _ => Self::Invalid(format!("the body broke off: {error}")),
        }
    }

    /// How it is counted; none: it was already.
    pub(super) fn cause(&self) -> Option<&'static str> {
        match self {
            Self::Invalid(_) => Some("otlp_invalid"),
            Self::Unsupported(_) => Some("otlp_unsupported"),
            Self::TooLarge { .. } => Some("otlp_too_large"),
            Self::Later(_) => Some("otlp_later"),
            Self::Slow(_) | Self::Full(_) => None,
        }
    }

    /// The status over gRPC. What may be sent again says when.
    pub(super) fn status(&self) -> Status {
        let message = self.to_string();
        match self {
            Self::Invalid(_) | Self::Unsupported(_) => Status::new(Code::InvalidArgument, message),
            Self::TooLarge { .. } => Status::new(Code::ResourceExhausted, message),
            Self::Slow(_) => Status::new(Code::DeadlineExceeded, message),
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

    /// The Go SDK drops what is refused by RESOURCE_EXHAUSTED without a hint, and sends UNAVAILABLE again.
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
        let all = ExportResponse::of(&OtlpSpans::default());
        assert_eq!(
            (all.partial_success.is_none(), all.json()),
            (true, serde_json::json!({}))
        );
        let spans = OtlpSpans {
            records: 1,
            rejected: 2,
            reason: Some(BadSpan::Empty { field: "span id" }),
        };
        let some = ExportResponse::of(&spans).partial_success.unwrap();
        assert_eq!(some.rejected_spans, 2);
        assert_eq!(
            some.error_message,
            "2 spans were left out, the first: span id is empty"
        );
    }
}
