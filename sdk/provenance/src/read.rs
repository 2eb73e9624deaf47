//! Reading access to a log, in memory or in a file.

use crate::node::Node;
use crate::source::{Item, Output, Source};

/// Log that queries read.
pub trait ReadLog {
    /// Returns the number after the highest assigned input; 0 if there is none.
    fn inputs(&self) -> u32;

    /// Returns the number of nodes.
    fn nodes(&self) -> u32;

    /// Returns a node, whose parents have lower indices; `None` beyond the last one.
    fn node(&self, index: u32) -> Option<Node>;

    /// Returns the sources in the order of their inputs.
    fn sources(&self) -> &[Source];

    /// Returns the recorded outputs, in the order of their recording.
    fn outputs(&self) -> &[Output];

    /// Returns the descriptions of items, in the order of their recording.
    fn items(&self) -> &[Item];

    /// Returns the source of an input; `None` if it has none, such as an input that several bytes
    /// share because a limit was reached.
    fn source_of(&self, input: u32) -> Option<Source> {
        let sources = self.sources();
        let after = sources.partition_point(|source| source.first <= input);
        let source = sources.get(after.checked_sub(1)?)?;
        (input < source.end()).then_some(*source)
    }
}
