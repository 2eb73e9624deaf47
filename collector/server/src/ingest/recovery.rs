//! Recovers the log that an earlier run left, when the collector starts: by `Flusher::recover` or,
//! in an agent, by `Forwarder::recover`.

use std::sync::{Arc, Mutex};

use super::committer::IntakeState;
use stroboscope_store::data_dir::DataDir;
use stroboscope_store::flush::{Counters, FlushError, Flusher, Forwarder, Upstream};
use stroboscope_store::tables::Store;
use stroboscope_store::wal::Writer;

/// Flushes the log of an earlier run to the store. Returns the log's writer, the flusher and the
/// intake's state for this run.
pub(super) fn recovered(
    data: &DataDir,
    store: Store,
) -> Result<(Writer, Flusher, Arc<IntakeState>), FlushError> {
    let counters = Arc::new(Counters::default());
    let mut flusher = Flusher::load(data, store, counters.clone())?;
    let next = flusher.next_segment()?;
    let recovered = flusher.recover()?;
    if recovered > 0 {
        tracing::info!(
            count = recovered,
            "put WAL segments of an earlier run into the store"
        );
    }
    let state = Arc::new(IntakeState::new(flusher.ledger().clone(), counters));
    let writer = Writer::on(data.disk().clone(), &data.wal(), next);
    Ok((writer, flusher, state))
}

/// Reads the log that an earlier run of an agent left. Returns the log's writer, the forwarder and
/// the intake's state for this run, which accepts data while at most `backlog_bytes_max` bytes of
/// closed segments wait. The flushing thread forwards that log later, as the next collector may be
/// unreachable now.
pub(super) fn recovered_agent(
    data: &DataDir,
    upstream: Box<dyn Upstream>,
    backlog_bytes_max: u64,
) -> Result<(Writer, Forwarder, Arc<IntakeState>), FlushError> {
    let counters = Arc::new(Counters::default());
    let mut forwarder = Forwarder::load(data, upstream, counters.clone())?;
    let waiting = forwarder.recover()?;
    let state = IntakeState {
        is_agent: true,
        backlog_bytes_max,
        closed: Mutex::new(waiting.segments),
        ..IntakeState::new(waiting.ledger, counters)
    };
    let writer = Writer::on(data.disk().clone(), &data.wal(), waiting.next_segment);
    Ok((writer, forwarder, Arc::new(state)))
}
