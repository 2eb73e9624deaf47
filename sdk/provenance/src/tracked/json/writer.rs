//! JSON of values, whose bytes have the labels of the values.

use std::cell::RefCell;
use std::io::{self, Write};
use std::thread_local;

use serde::ser::{Serialize, Serializer};

use super::Scope;
use crate::label::Label;
use crate::linkage::Linkage;
use crate::recording::merge;
use crate::tracked::{Tracked, TrackedBuf};

thread_local! {
    static OUTPUT: RefCell<Option<Output>> = const { RefCell::new(None) };
}

/// JSON that a thread writes.
#[derive(Default)]
struct Output {
    buffer: TrackedBuf,
    /// Union of the labels of the tracked values that are being written.
    label: Label,
    /// Union of the labels of tracked values that were written to another place, such as a string,
    /// from which a later part of this JSON may be made.
    unplaced: Label,
}

/// Writes a value as JSON. The bytes of each [`Tracked`] inside it get its label, if its linkage
/// includes calculations. The bytes of a nested [`Tracked`] get both labels.
///
/// If a `Serialize` implementation first writes a tracked value to another place, such as a string
/// that contains JSON, each byte gets the labels of all tracked values.
///
/// # Errors
/// Returns serde_json's error if a `Serialize` implementation fails, or a map has a key that
/// serde_json cannot write as a string.
pub fn to_json<T: Serialize + ?Sized>(value: &T) -> serde_json::Result<TrackedBuf> {
    let scope = Scope::enter(&OUTPUT, Some(Output::default()));
    serde_json::to_writer(OutputWriter, value)?;
    let output = scope.finish().unwrap_or_default();
    if output.unplaced.is_null() {
        return Ok(output.buffer);
    }
    let all = output.buffer.merged(0..output.buffer.len());
    let mut buffer = TrackedBuf::new();
    buffer.extend_shared(output.buffer.as_bytes(), merge(all, output.unplaced));
    Ok(buffer)
}

/// Appends to the JSON that the thread writes.
struct OutputWriter;

impl Write for OutputWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = with_output(|output| output.buffer.extend_shared(bytes, output.label));
        written.map(|()| bytes.len()).ok_or_else(|| {
            io::Error::other("the JSON must be written in the thread of `to_json`, not in another")
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn with_output<R>(work: impl FnOnce(&mut Output) -> R) -> Option<R> {
    let result = OUTPUT.try_with(|output| output.borrow_mut().as_mut().map(work));
    result.ok().flatten()
}

/// Tracked value that is being written.
struct ValueScope {
    own: Label,
    /// Label of the values around it.
    outer: Label,
    start: usize,
}

impl ValueScope {
    fn enter(own: Label) -> Option<Self> {
        with_output(|output| {
            let outer = output.label;
            output.label = merge(outer, own);
            Self {
                own,
                outer,
                start: output.buffer.len(),
            }
        })
    }
}

impl Drop for ValueScope {
    fn drop(&mut self) {
        with_output(|output| {
            output.label = self.outer;
            if output.buffer.len() == self.start {
                output.unplaced = merge(output.unplaced, self.own);
            }
        });
    }
}

impl<T: Serialize, L: Linkage> Serialize for Tracked<T, L> {
    /// Writes the value, with its label if [`to_json`] writes it.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let value = self.as_ref().map(|value| value);
        let _scope = ValueScope::enter(value.label());
        value.into_inner().serialize(serializer)
    }
}
