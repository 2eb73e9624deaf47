//! Sums of a request's critical path by operation.

use std::collections::HashMap;

use stroboscope_query::Request;

/// An operation's share of the critical path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PathSum {
    /// `service:name`, or the task of an event log.
    pub(super) operation: String,
    /// Time on the critical path, at work and waiting before it, in ns; `waited_ns` is the waiting
    /// part.
    pub(super) time_ns: u64,
    pub(super) waited_ns: u64,
    pub(super) pieces: u64,
    /// Span with the longest segment in the sum, including the wait before it, as an index into the
    /// outline; `None` for a task without a span, or if all segments and waits have no length.
    pub(super) longest: Option<usize>,
}

/// Returns the critical path by operation, the largest part first; empty without a path. The sums'
/// `time_ns` and the path's `tail_wait_ns` add up to the latency.
pub(super) fn path_sums(request: &Request) -> Vec<PathSum> {
    let Some(path) = &request.path else {
        return Vec::new();
    };
    let mut sums: HashMap<String, (PathSum, u64)> = HashMap::new();
    for at in path.critical() {
        let timing = &path.segments[at];
        let owner = request.owners.get(at).copied().flatten();
        let operation = operation_of(request, at);
        let (sum, most_ns) = sums.entry(operation.clone()).or_insert_with(|| {
            let sum = PathSum {
                operation,
                time_ns: 0,
                waited_ns: 0,
                pieces: 0,
                longest: None,
            };
            (sum, 0)
        });
        sum.time_ns += timing.weight_ns();
        sum.waited_ns += timing.wait_ns;
        sum.pieces += 1;
        if timing.weight_ns() > *most_ns {
            (*most_ns, sum.longest) = (timing.weight_ns(), owner);
        }
    }
    let mut sums: Vec<PathSum> = sums.into_values().map(|(sum, _)| sum).collect();
    sums.sort_by(|a, b| (b.time_ns, &a.operation).cmp(&(a.time_ns, &b.operation)));
    sums
}

/// Returns the operation of the segment with this index in the trace; empty if the segment has
/// neither a span nor a label.
pub(super) fn operation_of(request: &Request, at: usize) -> String {
    let owner = request.owners.get(at).copied().flatten();
    if let Some(place) = owner {
        let span = &request.aligned.spans[request.outline[place].record];
        return format!("{}:{}", span.service, span.name);
    }
    let label = request.labels.get(request.trace.segments[at].id);
    label.map_or_else(String::new, |label| label.task.to_string())
}
