//! Selection of requests by a formula.

use std::sync::Arc;

use stroboscope_analysis::clock::Alignment;
use stroboscope_analysis::record::TraceRecords;
use stroboscope_search::{Formula, Unit};
use stroboscope_store::tables::AttributeKeys;

use super::kernel_events::KernelEvents;

/// Filter that keeps requests for which a formula certainly holds.
#[derive(Clone, Debug)]
pub struct Filter {
    /// Formula as the user wrote it, which is part of the keys of cached results.
    text: String,
    formula: Formula,
    keys: AttributeKeys,
    clocks: Option<Alignment>,
    /// Kernel events, if the formula is about them.
    kernel: Option<Arc<KernelEvents>>,
}

impl Filter {
    /// Creates a filter that keeps requests for which `formula` certainly holds. `text` is the
    /// formula as the user wrote it, and `clocks` corrects timestamps before evaluation.
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

    /// Returns the attributes that the formula reads.
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

/// Decision about a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    Taken,
    /// The trace would be selected if it were complete.
    LeftOut,
    Refused,
}
