//! Creates filters, and reads the data that they need from the store.

use stroboscope_search::Formula;

use super::filter::Filter;
use super::first_look::alignment;
use super::kernel_events::KernelEvents;
use super::query_error::QueryError;
use super::source::{Selection, Source};

impl Filter {
    /// Creates a filter from a formula and its text. Reads the store to compare the hosts' clocks,
    /// unless the result is cached. Reads kernel events if the formula refers to them.
    ///
    /// # Errors
    /// Fails if the store cannot be read, or if there is too little memory. A formula about the
    /// kernel also fails if the kernel was not recorded, or if its events exceed the memory limit.
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
