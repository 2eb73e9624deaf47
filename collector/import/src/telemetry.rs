//! Counts OTLP telemetry other than spans, which is not imported.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::BadLine;
use super::json_error::reason_of;
use super::layout::List;

/// The counted parts of `ResourceLogs`, `ResourceMetrics` or `ResourceProfiles`.
#[derive(Default, Deserialize)]
#[serde(default, expecting = "the telemetry of a resource")]
struct OfResource {
    #[serde(
        alias = "scopeLogs",
        alias = "scope_logs",
        alias = "scopeMetrics",
        alias = "scope_metrics",
        alias = "scopeProfiles",
        alias = "scope_profiles"
    )]
    scopes: Option<Vec<OfScope>>,
    /// The former names of `scopes`; a resource may have both.
    #[serde(
        alias = "instrumentationLibraryLogs",
        alias = "instrumentation_library_logs",
        alias = "instrumentationLibraryMetrics",
        alias = "instrumentation_library_metrics"
    )]
    instrumentation_libraries: Option<Vec<OfScope>>,
}

#[derive(Default, Deserialize)]
#[serde(default, expecting = "the telemetry of a scope")]
struct OfScope {
    #[serde(
        alias = "logRecords",
        alias = "log_records",
        alias = "logs",
        alias = "metrics",
        alias = "profiles"
    )]
    records: Option<Vec<IgnoredAny>>,
}

/// Returns the name of the telemetry in `record`, an element of `list`, and the number of its
/// records.
///
/// # Errors
/// Returns an error, with its line within the record, if the record is no such element.
pub(super) fn count(list: List, record: &str) -> Result<(&'static str, u64), (u64, BadLine)> {
    let of_resource: OfResource =
        serde_json::from_str(record).map_err(|error| reason_of(&error))?;
    let former = &of_resource.instrumentation_libraries;
    let scopes = of_resource.scopes.iter().chain(former).flatten();
    let records = scopes.filter_map(|scope| scope.records.as_ref());
    let count = records.map(|records| records.len() as u64).sum();
    Ok(match list {
        List::Metrics => ("OTLP metrics", count),
        List::Profiles => ("OTLP profiles", count),
        _ => ("OTLP log records", count),
    })
}
