//! Signals of OTLP: traces and logs, with the names in which their services differ.

use stroboscope_store::wal::PayloadKind;

/// Kind of telemetry that the collector accepts over OTLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    Traces,
    Logs,
}

/// Encoding of a request and its response.
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

    /// Returns the name of the gRPC service.
    pub(super) const fn service(self) -> &'static str {
        match self {
            Self::Traces => "opentelemetry.proto.collector.trace.v1.TraceService",
            Self::Logs => "opentelemetry.proto.collector.logs.v1.LogsService",
        }
    }

    /// Returns the path for HTTP.
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Traces => "/v1/traces",
            Self::Logs => "/v1/logs",
        }
    }

    /// Returns the JSON key of the count of rejected items in a partial success.
    pub(super) fn rejected_key(self) -> &'static str {
        match self {
            Self::Traces => "rejectedSpans",
            Self::Logs => "rejectedLogRecords",
        }
    }

    /// Returns the singular and plural names of the signal's items, for people.
    pub(super) fn nouns(self) -> (&'static str, &'static str) {
        match self {
            Self::Traces => ("a span", "spans"),
            Self::Logs => ("a log record", "log records"),
        }
    }
}
