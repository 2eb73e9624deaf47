//! First look at a store: its hosts' clocks, and the requests that may be incomplete. A search
//! needs both to decide which requests it can skip. They do not depend on the formula, and may be
//! cached in the data directory.

use serde::{Deserialize, Serialize};
use stroboscope_analysis::clock::Alignment;
use stroboscope_analysis::record::TraceRecords;
use stroboscope_search::Unit;

use super::clocks::{as_selected, compared};
use super::losses::may_lack_records;
use super::notes::{KeptNotes, Notes};
use super::query_error::QueryError;
use super::source::{Selection, Source};

/// Kind of the cache entries that contain first looks.
const LOOK: &str = "look";

/// Result of one reading of all selected traces.
#[derive(Debug)]
pub(super) struct FirstLook {
    /// Correction of timestamps; `None` if they need none.
    pub(super) clocks: Option<Alignment>,
    /// Ids of requests that may be incomplete, in which a missing span does not show that a formula
    /// is false.
    pub(super) unseen: Vec<u128>,
    pub(super) notes: Notes,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    clocks: Alignment,
    unseen: Vec<u128>,
    notes: KeptNotes,
}

/// Returns the correction of the selected traces' timestamps, the same that `infer` computes;
/// `None` if they need none. Caches it if the source has a cache, unless files are damaged or
/// changed meanwhile, or large traces were left out.
///
/// # Errors
/// Fails if the store cannot be read, or if there is too little memory.
pub fn alignment(source: &Source, selection: Selection) -> Result<Option<Alignment>, QueryError> {
    Ok(first_look(source, selection)?.clocks)
}

/// Returns the first look at the selected traces. Reads all of them, unless the result is cached.
/// Fails if the store cannot be read, or if there is too little memory.
pub(super) fn first_look(source: &Source, selection: Selection) -> Result<FirstLook, QueryError> {
    let asked = format!("{selection:?} {}", source.chosen());
    let kept: Option<Entry> = source.cache().and_then(|cache| cache.find(LOOK, &asked));
    if let Some(kept) = kept {
        return Ok(FirstLook {
            clocks: Some(kept.clocks).filter(|clocks| !clocks.is_exact()),
            unseen: kept.unseen,
            notes: kept.notes.with(source.first_notes()),
        });
    }
    let note_unseen = |records: &TraceRecords, unseen: &mut Vec<u128>| {
        if !Unit::is_whole(records) || may_lack_records(records, source.losses()) {
            unseen.push(records.id.0);
        }
    };
    let (evidence, unseen, notes) = compared(source, selection, note_unseen)?;
    let unseen = unseen.concat();
    let clocks = as_selected(&evidence, selection);
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
