//! Writes simulated requests into the store of a period, and graphs from it.

use std::collections::HashSet;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use stroboscope_query::{Selection, Source};
use stroboscope_store::ledger::Checkpoint;
use stroboscope_store::tables::{AttributeKeys, PartitionRule, Segments, Store, write_rows};
use tokio::runtime::Runtime;

use crate::requests::{FLUSH_NS, Workload};
use crate::{Failure, dot};

/// A period, with its store.
pub(crate) struct Period {
    pub(crate) directory: PathBuf,
    /// Ids of the requests that have the injected change.
    pub(crate) touched: HashSet<u128>,
    /// Mean number of segments of a request.
    pub(crate) segments: f64,
}

/// Writes a period into a store.
pub(crate) fn period(
    workload: Workload,
    directory: &Path,
    runtime: &Runtime,
) -> Result<Period, Failure> {
    let store = Store::local(directory, runtime.handle().clone())?;
    let (mut touched, mut segments, mut files) = (HashSet::new(), 0, 0);
    workload.files(
        |made| {
            segments += made.segments;
            if made.is_touched {
                touched.insert(made.trace_id);
            }
        },
        |file, begins_ns, rows| -> Result<(), Failure> {
            files = file + 1;
            let rule = PartitionRule::received(begins_ns, begins_ns + FLUSH_NS as i64);
            write_rows(&store, &Segments::one(file).name(), rows, &rule)?;
            Ok(())
        },
    )?;
    let checkpoint = Checkpoint {
        next_segment: files,
        ..Checkpoint::default()
    };
    checkpoint.save(&stroboscope_store::disk::LocalDisk, directory)?;
    Ok(Period {
        directory: directory.to_owned(),
        touched,
        segments: segments as f64 / workload.requests as f64,
    })
}

/// Writes the graphs of a store's requests. Returns their ids, in order, and the number of requests
/// without a graph.
pub(crate) fn graphs_of(
    store: &Path,
    file: &Path,
    runtime: &Runtime,
) -> Result<(Vec<u128>, u64), Failure> {
    let source = Source::open(store, runtime.handle().clone())?;
    let mut to = BufWriter::new(std::fs::File::create(file)?);
    let (mut ids, mut left_out, mut failed) = (Vec::new(), 0, None);
    let keys = AttributeKeys::none();
    source.for_each_trace(
        "writing graphs",
        Selection::default(),
        &keys,
        |records, _| {
            match dot::write(&mut to, ids.len() as u64 + 1, records) {
                Ok(true) => ids.push(records.id.0),
                Ok(false) => left_out += 1,
                Err(error) => failed = Some(error),
            }
            failed.is_none()
        },
    )?;
    if let Some(error) = failed {
        return Err(error);
    }
    to.flush()?;
    Ok((ids, left_out))
}
