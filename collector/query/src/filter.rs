//! Requests selected by a formula, for every question.

use stroboscope_analysis::clock::Alignment;
use stroboscope_analysis::record::TraceRecords;
use stroboscope_search::{Formula, Unit};
use stroboscope_store::tables::AttributeKeys;

use super::clocks::alignment;
use super::query_error::QueryError;
use super::source::{Selection, Source};

/// Only requests of which a formula certainly holds.
#[derive(Clone, Debug)]
pub struct Filter {
    /// As it was written: what was found out before is kept by it.
    text: String,
    formula: Formula,
    keys: AttributeKeys,
    clocks: Option<Alignment>,
}

impl Filter {
    /// By a formula and its text; if there are several hosts, their clocks are compared in a reading of the store.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn new(
        source: &Source,
        selection: Selection,
        text: &str,
        formula: Formula,
    ) -> Result<Self, QueryError> {
        Ok(Self {
            text: text.to_owned(),
            keys: AttributeKeys::of(formula.keys()),
            formula,
            clocks: alignment(source, selection)?,
        })
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The attributes that it asks for.
    pub(super) fn keys(&self) -> &AttributeKeys {
        &self.keys
    }

    pub(super) fn holds(&self, records: &TraceRecords, has_losses: bool) -> bool {
        let truth = match &self.clocks {
            None => Unit::of_request(records, has_losses).of_whole(&self.formula),
            Some(clocks) => {
                let mut aligned = records.clone();
                clocks.apply(&mut aligned);
                Unit::of_request(&aligned, has_losses).of_whole(&self.formula)
            }
        };
        truth.is_sure()
    }
}
