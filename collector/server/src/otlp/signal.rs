//! What is sent: spans or log records. Requests and answers differ in names only.

use stroboscope_store::wal::PayloadKind;

/// A kind of telemetry that is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    Traces,
    Logs,
}

/// The form of a request, and of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Protobuf,
    Json,
}

impl Signal {
    pub(super) fn payload_kind(self, encoding: Encoding) -> PayloadKind {
        match (self, encoding) {
            (Self::Traces, Encoding::Protobuf) => PayloadKind::OtlpProtobuf,
            (Self::Traces, Encoding::Json) => PayloadKind::OtlpJson,
            (Self::Logs, Encoding::Protobuf) => PayloadKind::OtlpLogsProtobuf,
            (Self::Logs, Encoding::Json) => PayloadKind::OtlpLogsJson,
        }
    }

    /// The service of gRPC.
    pub(super) const fn service(self) -> &'static str {
        match self {
            Self::Traces => "opentelemetry.proto.collector.trace.v1.TraceService",
            Self::Logs => "opentelemetry.proto.collector.logs.v1.LogsService",
        }
    }

    /// Where it is sent over HTTP.
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Traces => "/v1/traces",
            Self::Logs => "/v1/logs",
        }
    }

    /// The key of a partial success, in JSON.
    pub(super) fn rejected_key(self) -> &'static str {
        match self {
            Self::Traces => "rejectedSpans",
            Self::Logs => "rejectedLogRecords",
        }
    }

    /// One of what is sent, and several, for people.
    pub(super) fn nouns(self) -> (&'static str, &'static str) {
        match self {
            Self::Traces => ("a span", "spans"),
            Self::Logs => ("a log record", "log records"),
        }
    }
}
