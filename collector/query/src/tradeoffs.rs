//! Reads recorded tradeoffs between data quality and time.

use stroboscope_analysis::pass::Pass as _;
use stroboscope_analysis::tradeoff::{ATTRIBUTES, TradeoffObservations};

use super::notes::Notes;
use super::query_error::QueryError;
use super::source::{Selection, Source};
use stroboscope_store::tables::AttributeKeys;

/// Reads the tradeoffs and explorations of the selected requests, in one pass over the store.
///
/// # Errors
/// Fails if the store cannot be read, or if there is too little memory.
pub fn tradeoffs(
    source: &Source,
    selection: Selection,
) -> Result<(TradeoffObservations, Notes), QueryError> {
    let parts = source.parts(selection, &AttributeKeys::of(ATTRIBUTES))?;
    let workers = vec![TradeoffObservations::default(); parts.count()];
    let visit = |observed: &mut TradeoffObservations, records: &mut _, _: &mut Notes| {
        observed.observe(records);
    };
    let (seen, notes) = source.fold("reading tradeoffs", selection, &parts, workers, visit)?;
    let mut observed = TradeoffObservations::default();
    for of_part in seen {
        observed.merge(of_part);
    }
    observed.finish();
    Ok((observed, notes))
}
