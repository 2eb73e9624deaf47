//! Telemetry of OTLP that is no span: it has no place here, and is counted.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::layout::List;

/// `ResourceLogs`, `ResourceMetrics` or `ResourceProfiles`, as far as they are counted.
#[derive(Default, Deserialize)]
#[serde(default)]
struct OfResource {
    #[serde(
        alias = "scopeLogs",
        alias = "scope_logs",
        alias = "instrumentationLibraryLogs",
        alias = "instrumentation_library_logs",
        alias = "scopeMetrics",
        alias = "scope_metrics",
        alias = "instrumentationLibraryMetrics",
        alias = "instrumentation_library_metrics",
        alias = "scopeProfiles",
        alias = "scope_profiles"
    )]
    scopes: Vec<OfScope>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OfScope {
    #[serde(
        alias = "logRecords",
        alias = "log_records",
        alias = "logs",
        alias = "metrics",
        alias = "profiles"
    )]
    records: Vec<IgnoredAny>,
}

/// What is in an element of such a list, and how many.
pub(super) fn count(list: List, record: &str) -> (&'static str, u64) {
    let of_resource: OfResource = serde_json::from_str(record).unwrap_or_default();
    let count = of_resource
        .scopes
        .iter()
        .map(|scope| scope.records.len() as u64)
        .sum();
    match list {
        List::Metrics => ("OTLP metrics", count),
        List::Profiles => ("OTLP profiles", count),
        _ => ("OTLP log records", count),
    }
}
