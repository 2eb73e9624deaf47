//! Spans in which items were read or written, chosen by a formula.

use std::collections::HashSet;

use stroboscope_search::{Formula, Unit};
use stroboscope_store::tables::AttributeKeys;

use crate::losses::may_lack_records;
use crate::notes::Notes;
use crate::query_error::QueryError;
use crate::source::Source;
use crate::span_links::StoredSpanId;

impl Source {
    /// Returns the spans of these traces that certainly match a selector of the formula. Adds
    /// files and traces that could not be read to `notes`.
    ///
    /// # Errors
    /// Fails if the store cannot be listed, if temporary files cannot be written, or if there is
    /// too little memory.
    pub fn matching_spans(
        &self,
        traces: Vec<u128>,
        formula: &Formula,
        notes: &mut Notes,
    ) -> Result<HashSet<StoredSpanId>, QueryError> {
        let keys = AttributeKeys::of(formula.keys());
        let mut found = HashSet::new();
        let unread = self.for_each_of(traces, &keys, |request| {
            let has_losses = may_lack_records(request, self.losses());
            let unit = Unit::of_request(request, has_losses);
            let places = unit.spanset(formula).into_iter();
            let spans = places.filter(|place| unit.is_span(*place));
            found.extend(spans.map(|place| {
                let (records, span) = unit.names(place);
                let trace = records.stored_id().0;
                StoredSpanId { trace, span }
            }));
        })?;
        notes.add_unread(unread);
        Ok(found)
    }
}
