//! Converts requests, and the kernel's activity during them, to a trace for Perfetto.

use std::collections::BTreeSet;

use stroboscope_analysis::kernel::timeline::Timeline;
use stroboscope_analysis::record::TraceRecords;
use stroboscope_kernel_model::export::{NamedSegment, perfetto};
use stroboscope_kernel_model::{ClockLog, ClockSample};

use super::kernel::KernelPart;
use super::request_tree::tree;

/// Error in the choice of the host whose kernel a Perfetto trace shows. A trace shows one kernel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PerfettoHostError {
    /// The kernels of several hosts were recorded, and no host was chosen.
    #[error("a Perfetto trace shows one host: choose one of {}", .0.join(", "))]
    OneOf(Vec<String>),
    /// The data have no kernel events of this host.
    #[error("the kernel of {host:?} did nothing here{}", recorded(.others))]
    Unknown {
        /// Requested host.
        host: String,
        /// Hosts with kernel events.
        others: Vec<String>,
    },
}

fn recorded(hosts: &[String]) -> String {
    match hosts {
        [] => ": no kernel was recorded".to_owned(),
        hosts => format!("; that of {} did", hosts.join(", ")),
    }
}

/// Returns the bytes of a `.pftrace` file with the segments of `requests` and the kernel activity
/// of `host`. `None` selects the only host in `kernel`; if `kernel` is empty, the file has only
/// segments.
///
/// # Errors
/// Fails if `host` is `None` and `kernel` has several hosts, or if `kernel` lacks the requested
/// host.
pub fn perfetto_trace<'a>(
    requests: impl IntoIterator<Item = &'a TraceRecords>,
    kernel: &[KernelPart],
    host: Option<&str>,
) -> Result<Vec<u8>, PerfettoHostError> {
    let hosts: BTreeSet<&str> = kernel.iter().map(|part| &*part.host).collect();
    let names = || hosts.iter().map(|host| (*host).to_owned()).collect();
    let host = match (host, hosts.len()) {
        (Some(host), _) if !hosts.contains(host) => {
            return Err(PerfettoHostError::Unknown {
                host: host.to_owned(),
                others: names(),
            });
        }
        (Some(host), _) => Some(host),
        (None, 0 | 1) => hosts.first().copied(),
        (None, _) => return Err(PerfettoHostError::OneOf(names())),
    };
    let mut segments = Vec::new();
    let mut began_ns = i64::MAX;
    for records in requests {
        let starts = records.spans.iter().map(|span| span.start_ns);
        began_ns = starts.min().unwrap_or(i64::MAX).min(began_ns);
        segments.extend(segments_of(records));
    }
    let mut bytes = Vec::new();
    let parts = kernel.iter().filter(|part| Some(&*part.host) == host);
    for (place, part) in parts.enumerate() {
        // Concatenated Perfetto traces form one trace, so the first part carries the segments.
        let segments = if place == 0 { &*segments } else { &[] };
        let (timeline, events) = (&part.timeline, &part.events);
        bytes.extend(perfetto(timeline, events, &part.clocks, segments));
    }
    if bytes.is_empty() {
        let mut clocks = ClockLog::default();
        // The monotonic clock is unknown and not needed, because times of segments are wall time.
        clocks.push(ClockSample {
            at_ns: u64::try_from(began_ns).unwrap_or(0),
            wall_offset_ns: 0,
            tai_offset_ns: 0,
            boot_offset_ns: 0,
            uncertainty_ns: 0,
        });
        bytes = perfetto(&Timeline::default(), &[], &clocks, &segments);
    }
    Ok(bytes)
}

fn segments_of(records: &TraceRecords) -> Vec<NamedSegment> {
    let mut all = Vec::new();
    for node in tree(records) {
        all.extend(node.segments.iter().map(|segment| NamedSegment {
            trace: records.stored_id().0 as u64,
            span: node.span.span_id,
            track: node.operation(),
            name: format!("{} … {}", segment.start, segment.end),
            start_ns: segment.start_ns,
            end_ns: segment.end_ns,
        }));
    }
    all
}
