//! What a search has to know before it can leave anything unread: the hosts' clocks, and the requests of which a part may be
//! missing. It is the same for all formulas, and is kept beside the store.

use serde::{Deserialize, Serialize};
use stroboscope_analysis::clock::{Alignment, ClockEstimates};
use stroboscope_analysis::completeness::completeness;
use stroboscope_analysis::record::TraceRecords;
use stroboscope_search::Unit;
use stroboscope_store::tables::AttributeKeys;

use super::clocks::as_selected;
use super::losses::is_unseen;
use super::notes::{KeptNotes, Notes};
use super::query_error::QueryError;
use super::source::{Selection, Source};

/// The kind of entry.
const LOOK: &str = "look";

/// What one reading of all selected traces has shown.
#[derive(Debug)]
pub(super) struct FirstLook {
    /// How to take timestamps, if not as they are.
    pub(super) clocks: Option<Alignment>,
    /// Requests of which something may not have been seen: nothing is false of them for want of a span.
    pub(super) unseen: Vec<u128>,
    pub(super) notes: Notes,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    clocks: Alignment,
    unseen: Vec<u128>,
    notes: KeptNotes,
}

/// Whether records of a trace may be missing that processes lost, or of spans that others name.
pub(super) fn has_losses(source: &Source, records: &TraceRecords) -> bool {
    let reasons = completeness(records, source.losses()).reasons;
    reasons.iter().any(is_unseen)
}

/// Reads all selected traces, unless somebody did before.
pub(super) fn first_look(source: &Source, selection: Selection) -> Result<FirstLook, QueryError> {
    let asked = format!("{selection:?} {:?} {:?}", source.root(), source.filter());
    let kept = source.cache().and_then(|cache| cache.find(LOOK, &asked));
    if let Some(Entry {
        clocks,
        unseen,
        notes,
    }) = kept
    {
        return Ok(FirstLook {
            clocks: Some(clocks).filter(|clocks| !clocks.is_exact()),
            unseen,
            notes: notes.with(source.first_notes()),
        });
    }
    let parts = source.parts(selection, &AttributeKeys::none())?;
    let workers = (0..parts.count())
        .map(|_| (ClockEstimates::new(), Vec::new()))
        .collect();
    let (seen, notes) = source.fold(
        "comparing clocks",
        selection,
        &parts,
        workers,
        |(estimates, unseen): &mut (ClockEstimates, Vec<u128>), records, _| {
            estimates.observe(records);
            if !Unit::is_whole(records) || has_losses(source, records) {
                unseen.push(records.id.0);
            }
        },
    )?;
    let (mut estimates, mut unseen) = (ClockEstimates::new(), Vec::new());
    for (of_part, more) in seen {
        estimates.merge(&of_part);
        unseen.extend(more);
    }
    source.kernel_clocks().note_in(&mut estimates);
    let clocks = as_selected(&estimates, selection);
    if let Some(cache) = source.cache()
        && notes.damage.is_empty()
        && notes.left_out.large_traces == 0
        && cache.is_of(source.store())
    {
        let entry = Entry {
            clocks: clocks.clone(),
            unseen: unseen.clone(),
            notes: KeptNotes::of(&notes),
        };
        cache.keep(LOOK, &asked, &entry);
    }
    Ok(FirstLook {
        clocks: Some(clocks).filter(|clocks| !clocks.is_exact()),
        unseen,
        notes,
    })
}
