//! Requests selected by a formula, for every question.

use std::sync::Arc;

use stroboscope_analysis::clock::Alignment;
use stroboscope_analysis::record::TraceRecords;
use stroboscope_search::{Formula, Unit};
use stroboscope_store::tables::AttributeKeys;

use super::clocks::alignment;
use super::kernel_events::KernelEvents;
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
    /// If it is about that.
    kernel: Option<Arc<KernelEvents>>,
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
        let clocks = alignment(source, selection)?;
        let kernel = match formula.names_kernel() {
            true => Some(KernelEvents::read(
                source,
                selection.range,
                clocks.as_ref(),
            )?),
            false => None,
        };
        Ok(Self {
            text: text.to_owned(),
            keys: AttributeKeys::of(formula.keys()),
            formula,
            clocks,
            kernel: kernel.map(Arc::new),
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
        let mut aligned = None;
        let records = match &self.clocks {
            None => records,
            Some(clocks) => {
                let records = aligned.insert(records.clone());
                clocks.apply(records);
                records
            }
        };
        let mut unit = Unit::of_request(records, has_losses);
        if let Some(kernel) = &self.kernel {
            unit = kernel.join(unit, records);
        }
        unit.of_whole(&self.formula).is_sure()
    }
}
