//! Event logs in the form of ÜberTrace.

use std::fmt::Write as _;

use crate::Random;

/// Event of a log, which is one line.
#[derive(Clone, Debug)]
pub struct Line {
    /// Id of the request.
    pub trace: String,
    /// Name of the computer.
    pub host: String,
    /// Time by that computer's clock, ns since the Unix epoch.
    pub ts_ns: i64,
    /// Name of the event.
    pub event: String,
    /// Name of the task: one thread of control of the request.
    pub task: String,
}

/// Returns the lines as JSON, one event a line.
#[must_use]
pub fn event_lines(lines: &[Line]) -> String {
    let mut text = String::new();
    for Line {
        trace,
        host,
        ts_ns,
        event,
        task,
    } in lines
    {
        let json = serde_json::json!({
            "trace": trace, "host": host, "ts_ns": ts_ns, "event": event, "task": task,
        });
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{json}");
    }
    text
}

/// Interleaves the requests at random, and keeps the order of lines within each request. The lines
/// of a request must be consecutive.
#[must_use]
pub fn shuffled(lines: &[Line], seed: u64) -> Vec<Line> {
    let mut random = Random::new(seed);
    let mut requests: Vec<std::collections::VecDeque<Line>> = Vec::new();
    for line in lines {
        match requests.last_mut() {
            Some(last) if last[0].trace == line.trace => last.push_back(line.clone()),
            _ => requests.push([line.clone()].into()),
        }
    }
    let mut mixed = Vec::with_capacity(lines.len());
    while !requests.is_empty() {
        let at = random.below(requests.len() as u64) as usize;
        mixed.extend(requests[at].pop_front());
        if requests[at].is_empty() {
            requests.swap_remove(at);
        }
    }
    mixed
}
