//! Counts OTLP telemetry other than spans, which is not imported.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::layout::List;

/// The counted parts of `ResourceLogs`, `ResourceMetrics` or `ResourceProfiles`.
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

/// Returns the name of the telemetry in `record`, an element of `list`, and the number of its
/// records; 0 if it cannot be parsed.
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
