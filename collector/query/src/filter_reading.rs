//! Filters with what they need of the store.

use stroboscope_search::Formula;

use super::filter::Filter;
use super::first_look::alignment;
use super::kernel_events::KernelEvents;
use super::query_error::QueryError;
use super::source::{Selection, Source};

impl Filter {
    /// Makes a filter of a formula and its text. If there are several hosts, it compares their clocks in a reading of the store.
    ///
    /// # Errors
    /// Returns why the store cannot be read.
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
        Ok(Self::of(text, formula, clocks, kernel))
    }
}
