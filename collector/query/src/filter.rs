//! Requests selected by a formula, for every question.

use std::sync::Arc;

use stroboscope_analysis::clock::Alignment;
use stroboscope_analysis::record::TraceRecords;
use stroboscope_search::{Formula, Unit};
use stroboscope_store::tables::AttributeKeys;

use super::kernel_events::KernelEvents;

/// Keeps requests of which a formula certainly holds.
#[derive(Clone, Debug)]
pub struct Filter {
    /// The formula as it was written, by which results are kept.
    text: String,
    formula: Formula,
    keys: AttributeKeys,
    clocks: Option<Alignment>,
    /// Events of the kernel, if the formula is about them.
    kernel: Option<Arc<KernelEvents>>,
}

impl Filter {
    /// Keeps requests of which `formula` certainly holds, on clocks that are corrected by `clocks`.
    pub(super) fn of(
        text: &str,
        formula: Formula,
        clocks: Option<Alignment>,
        kernel: Option<KernelEvents>,
    ) -> Self {
        Self {
            text: text.to_owned(),
            keys: AttributeKeys::of(formula.keys()),
            formula,
            clocks,
            kernel: kernel.map(Arc::new),
        }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The attributes that the formula asks for.
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
