//! Gaps of provenance logs, which a report states.

use schemars::JsonSchema;
use serde::Serialize;
use stroboscope_query::ProvenanceLog;
use stroboscope_render::humanise::counted;
use stroboscope_render::show::Doc;

use crate::Status;

/// A log, and its gaps.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct LogGaps {
    log: String,
    /// Number of merges, ranges and outputs that name more inputs than they depend on; null if the
    /// log is unfinished.
    coarse_merges: Option<u64>,
    /// Number of bytes, and of inputs of absorbed logs, that share one input.
    shared_inputs: Option<u64>,
    /// Number of bytes of outputs whose inputs were not recorded.
    dropped_outputs: Option<u64>,
    /// Number of items whose name was not recorded.
    dropped_items: Option<u64>,
    /// Problem at which the reading or the query ended; null if the log was queried whole.
    problem: Option<String>,
}

impl LogGaps {
    fn of(log: &ProvenanceLog<'_>) -> Self {
        let losses = log.losses();
        Self {
            log: log.name.clone(),
            coarse_merges: losses.map(|losses| losses.coarse_merges),
            shared_inputs: losses.map(|losses| losses.shared_inputs),
            dropped_outputs: losses.map(|losses| losses.dropped_outputs),
            dropped_items: losses.map(|losses| losses.dropped_items),
            problem: log.problem(),
        }
    }

    /// Returns the logs with gaps.
    pub(super) fn of_all(logs: &[ProvenanceLog<'_>]) -> Vec<Self> {
        let logs = logs.iter().map(Self::of);
        logs.filter(|log| log.gaps().is_some()).collect()
    }

    pub(super) fn show_all(logs: &[Self], doc: &mut Doc) {
        doc.sentences(logs.iter().filter_map(Self::gaps));
    }

    /// Returns the outcome of the subcommand, which is partial if a log was not read and queried
    /// whole, or if flows were left out.
    pub(super) fn status(logs: &[Self], flows_left_out: u64, read: Status) -> Status {
        let is_whole = flows_left_out == 0 && logs.iter().all(|log| log.problem.is_none());
        if is_whole { read } else { Status::Partly }
    }

    /// Describes the gaps of the log; `None` if it has none.
    fn gaps(&self) -> Option<String> {
        let gaps = [
            (self.coarse_merges, "coarse merge"),
            (self.shared_inputs, "shared input"),
            (self.dropped_outputs, "dropped output"),
            (self.dropped_items, "unnamed item"),
        ];
        let gaps = gaps.into_iter().filter_map(|(count, one)| {
            let count = count.filter(|count| *count > 0)?;
            Some(counted(count, one))
        });
        let gaps: Vec<String> = self.problem.clone().into_iter().chain(gaps).collect();
        (!gaps.is_empty()).then(|| format!("{}: {}", self.log, gaps.join("; ")))
    }
}
