//! A request for Perfetto.

use std::collections::BTreeSet;

use stroboscope_analysis::kernel::timeline::Timeline;
use stroboscope_kernel_model::export::{NamedSegment, perfetto};
use stroboscope_kernel_model::{ClockLog, ClockSample};
use stroboscope_query::Request;
use stroboscope_query::request_tree::tree;

use crate::respond::NoPage;

/// As a trace of Perfetto, which knows one machine: with the kernel of `host`, of the only one recorded, or of none.
pub(super) fn pftrace(request: &Request, host: Option<&str>) -> Result<Vec<u8>, NoPage> {
    let hosts: BTreeSet<&str> = request.kernel.iter().map(|part| &*part.host).collect();
    let host = match (host, hosts.len()) {
        (Some(host), _) if hosts.contains(host) => Some(host),
        (Some(host), _) => {
            return Err(NoPage::not_found(format!(
                "The kernel of {host:?} did nothing for this request."
            )));
        }
        (None, 0 | 1) => hosts.first().copied(),
        (None, _) => {
            let hosts: Vec<&str> = hosts.into_iter().collect();
            return Err(NoPage::bad_request(format!(
                "A trace of Perfetto shows one host: ?host= one of {}.",
                hosts.join(", ")
            )));
        }
    };
    let segments = segments(request);
    let mut bytes = Vec::new();
    let parts = request
        .kernel
        .iter()
        .filter(|part| Some(&*part.host) == host);
    for (place, part) in parts.enumerate() {
        // Traces that follow each other are one trace.
        let segments = if place == 0 { &*segments } else { &[] };
        bytes.extend(perfetto(
            &part.timeline,
            &part.events,
            &part.clocks,
            segments,
        ));
    }
    if bytes.is_empty() {
        let mut clocks = ClockLog::default();
        // Nothing says what the monotonic clock showed, and nothing asks: times of segments are wall time.
        let at_ns = u64::try_from(request.recorded_ns().0).unwrap_or(0);
        clocks.push(ClockSample {
            at_ns,
            wall_offset_ns: 0,
            tai_offset_ns: 0,
            boot_offset_ns: 0,
            uncertainty_ns: 0,
        });
        bytes = perfetto(&Timeline::default(), &[], &clocks, &segments);
    }
    Ok(bytes)
}

fn segments(request: &Request) -> Vec<NamedSegment> {
    let trace = request.recorded.id.0 as u64;
    let nodes = tree(&request.recorded);
    let of_node = |node: &stroboscope_query::request_tree::SpanNode<'_>| {
        let (span, track) = (node.span.span_id, node.operation());
        let named = |segment: &stroboscope_query::request_tree::OwnSegment| NamedSegment {
            trace,
            span,
            track: track.clone(),
            name: format!("{} … {}", segment.start, segment.end),
            start_ns: segment.start_ns,
            end_ns: segment.end_ns,
        };
        node.segments.iter().map(named).collect::<Vec<_>>()
    };
    nodes.iter().flat_map(of_node).collect()
}
