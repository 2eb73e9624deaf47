//! What a run recorded, and what the analysis makes of it.

use std::collections::BTreeMap;
use std::path::Path;

use stroboscope_analysis::aggregate::PathAggregate;
use stroboscope_analysis::label::Labels;
use tokio::runtime::Handle;

use super::overlap::{Overlap, Recorded, overlap};
use crate::query::{QueryError, Selection, Source, aggregate, infer};
use crate::store::{Store, StoreError, read_batches};

/// Everything the report shows that comes from the store.
#[derive(Debug)]
pub struct Findings {
    /// Processes that shipped something.
    pub processes: usize,
    /// How well their windows agree.
    pub overlap: Option<Overlap>,
    /// Traces collected,
    pub traces: u64,
    /// those recorded completely,
    pub complete: u64,
    /// and why the others are not, by cause.
    pub incomplete: Vec<(String, u64)>,
    /// Spans stored.
    pub spans: u64,
    /// Records lost, by cause.
    pub losses: Vec<(String, u64)>,
    /// Happens-before relations of the model.
    pub happens_before: usize,
    /// Mutual exclusions of the model.
    pub mutual_exclusions: usize,
    /// Critical paths of the complete traces.
    pub paths: PathAggregate,
    /// The segments' names.
    pub labels: Labels,
}

/// Reads a data folder. Blocks; not for async code.
///
/// # Errors
/// The folder cannot be read, or has no complete trace.
pub(super) fn findings(data: &Path, runtime: Handle) -> Result<Findings, QueryError> {
    let source = Source::open(data, runtime)?;
    let shipped = Shipped::read(source.store())?;
    let inference = infer(&source, Selection::default(), 0.0)?;
    let paths = aggregate(&source, Selection::default(), &inference)?;
    let named = |counts: BTreeMap<&'static str, u64>| -> Vec<(String, u64)> {
        counts.into_iter().map(|(cause, count)| (cause.to_owned(), count)).collect()
    };
    let recorded: Vec<Recorded> = shipped.processes.into_values().collect();
    Ok(Findings {
        processes: recorded.len(),
        overlap: overlap(&recorded),
        traces: inference.notes.traces,
        complete: inference.notes.complete_traces,
        incomplete: named(inference.notes.incomplete),
        spans: shipped.spans,
        losses: shipped.losses.into_iter().collect(),
        happens_before: inference.relations.all_happens_before().len(),
        mutual_exclusions: inference.relations.all_mutual_exclusion().len(),
        paths: paths.aggregate,
        labels: inference.model.labels().clone(),
    })
}

/// What the batches say about their processes.
#[derive(Default)]
struct Shipped {
    processes: BTreeMap<u128, Recorded>,
    spans: u64,
    losses: BTreeMap<String, u64>,
}

impl Shipped {
    fn read(store: &Store) -> Result<Self, StoreError> {
        let mut shipped = Self::default();
        // Totals of losses grow from batch to batch of a process; the last one is what counts.
        let mut totals: BTreeMap<(u128, String), u64> = BTreeMap::new();
        for batch in read_batches(store)? {
            shipped.spans += u64::from(batch.spans);
            let process = shipped.processes.entry(batch.process).or_default();
            process.windows.extend(batch.windows.iter().map(|window| (window.open_ns, window.close_ns)));
            let (from_ns, to_ns) = process.alive.unwrap_or((batch.from_ns, batch.to_ns));
            process.alive = Some((from_ns.min(batch.from_ns), to_ns.max(batch.to_ns)));
            for (cause, records) in batch.losses {
                let total = totals.entry((batch.process, cause)).or_default();
                *total = (*total).max(records);
            }
        }
        for ((_, cause), records) in totals {
            *shipped.losses.entry(cause).or_default() += records;
        }
        Ok(shipped)
    }
}
