//! Bytes with labels.

use alloc::string::ToString;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;
use core::str::FromStr;

use super::runs::Runs;
use super::value::Tracked;
use crate::label::Label;
use crate::linkage::Linkage;
use crate::recording::{merge, merge_bytes, with_current};
use crate::source::Labels;

/// Bytes, each with a label. Successive inputs, and bytes with one label, take 16 bytes a run.
#[derive(Clone, Debug, Default)]
pub struct TrackedBuf {
    bytes: Vec<u8>,
    runs: Runs,
}

/// Error of [`TrackedBuf::parse`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParseError<E> {
    /// The bytes are no UTF-8.
    Encoding,
    /// The text is no value of the type.
    Value(E),
}

impl<E: fmt::Display> fmt::Display for ParseError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Encoding => f.write_str("the bytes are no UTF-8"),
            Self::Value(error) => error.fmt(f),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> core::error::Error for ParseError<E> {}

impl TrackedBuf {
    /// Creates an empty buffer.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            bytes: Vec::new(),
            runs: Runs::new(),
        }
    }

    /// Creates an empty buffer with room for bytes, and for runs of labels.
    #[must_use]
    pub fn with_capacity(bytes: usize, runs: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(bytes),
            runs: Runs::with_capacity(runs),
        }
    }

    /// Creates a buffer whose bytes are inputs of the running recording: those of the source `id`
    /// from `offset`. Outside of recordings, they are not tracked.
    pub fn source(id: u64, offset: u64, bytes: impl Into<Vec<u8>>) -> Self {
        let mut buffer = Self::from(bytes.into());
        let count = buffer.len();
        if let Some(labels) = with_current(|log| log.source(id, offset, count)) {
            buffer.runs.push(0, count, labels);
        }
        buffer
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Reports whether the buffer has no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the bytes and forgets their labels.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Returns the label of a byte; null beyond the end.
    pub fn label(&self, place: usize) -> Label {
        self.runs.at(place)
    }

    /// Returns the ranges of bytes whose labels are not null, and their labels.
    pub fn labels(&self) -> impl Iterator<Item = (Range<usize>, Labels)> {
        self.runs
            .within(0..self.len())
            .filter(|(_, labels)| *labels != Labels::NULL)
    }

    /// Returns a byte; `None` beyond the end.
    pub fn get<L: Linkage>(&self, place: usize) -> Option<Tracked<u8, L>> {
        let byte = self.bytes.get(place)?;
        Some(Tracked::with_label(*byte, self.runs.at(place)))
    }

    /// Loads a byte by a tracked index; `None` beyond the end.
    pub fn get_at<L: Linkage>(&self, place: Tracked<usize, L>) -> Option<Tracked<u8, L>> {
        let byte = self.get(*place.get())?;
        Some(place.index(|_| byte))
    }

    /// Copies a range of the bytes; returns `None` if it is out of bounds.
    pub fn slice(&self, range: Range<usize>) -> Option<Self> {
        let mut part = Self::new();
        part.extend_from_range(self, range)?;
        Some(part)
    }

    /// Appends a copy of another buffer.
    pub fn extend(&mut self, other: &Self) {
        let start = self.len();
        self.bytes.extend_from_slice(&other.bytes);
        self.runs.extend(start, &other.runs, 0..other.len());
    }

    /// Appends a copy of a range of another buffer. Returns `None`, and appends nothing, if it is
    /// out of bounds.
    pub fn extend_from_range(&mut self, other: &Self, range: Range<usize>) -> Option<()> {
        let bytes = other.bytes.get(range.clone())?;
        let start = self.len();
        self.bytes.extend_from_slice(bytes);
        self.runs.extend(start, &other.runs, range);
        Some(())
    }

    /// Appends bytes that depend on no input.
    pub fn extend_untracked(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends a byte.
    pub fn push<L: Linkage>(&mut self, byte: Tracked<u8, L>) {
        self.runs
            .push(self.bytes.len(), 1, Labels::Shared(byte.label()));
        self.bytes.push(*byte.get());
    }

    /// Appends the text of a value. Each byte of it has the label of the value, under a linkage of
    /// calculations.
    pub fn push_text<T: fmt::Display, L: Linkage>(&mut self, value: &Tracked<T, L>) {
        let text = value.as_ref().map(|value| value.to_string());
        self.extend_shared(text.get().as_bytes(), text.label());
    }

    /// Appends bytes that all have one label.
    pub(super) fn extend_shared(&mut self, bytes: &[u8], label: Label) {
        self.runs
            .push(self.len(), bytes.len(), Labels::Shared(label));
        self.bytes.extend_from_slice(bytes);
    }

    /// Records the labels of the bytes in the running recording, as those of the output `id` from
    /// `offset`. Bytes without inputs are not recorded.
    pub fn record_output(&self, id: u64, offset: u64) {
        with_current(|log| {
            for (of, labels) in self.labels() {
                let start = offset.saturating_add(of.start as u64);
                log.output(id, start, of.len() as u64, labels);
            }
        });
    }

    /// Joins copies of buffers.
    pub fn concat<'a>(parts: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut joined = Self::new();
        parts.into_iter().for_each(|part| joined.extend(part));
        joined
    }

    /// Returns copies of the parts between the bytes that equal `separator`.
    pub fn split(&self, separator: u8) -> Vec<Self> {
        let mut start = 0;
        let parts = self.bytes.split(|byte| *byte == separator).map(|part| {
            let range = start..start + part.len();
            start = range.end + 1;
            self.slice(range).unwrap_or_default()
        });
        parts.collect()
    }

    /// Returns a label that contains the inputs of a range of the bytes.
    pub fn merged(&self, range: Range<usize>) -> Label {
        let runs = self.runs.within(range.start..range.end.min(self.len()));
        runs.map(|(of, labels)| merge_bytes(labels, of.len()))
            .fold(Label::NULL, merge)
    }

    /// Parses the text. Under a linkage of calculations, the value depends on all of its bytes.
    ///
    /// # Errors
    /// Returns an error if the bytes are no text, or the text is no such value.
    pub fn parse<T: FromStr, L: Linkage>(&self) -> Result<Tracked<T, L>, ParseError<T::Err>> {
        let text = core::str::from_utf8(&self.bytes).map_err(|_| ParseError::Encoding)?;
        let value = text.parse().map_err(ParseError::Value)?;
        Ok(self.calculate(|_| value))
    }

    /// Calculates a value from the bytes. Under a linkage of calculations, it depends on all of
    /// them.
    pub fn calculate<T, L: Linkage>(&self, calculate: impl FnOnce(&[u8]) -> T) -> Tracked<T, L> {
        let label = if L::DATA {
            self.merged(0..self.len())
        } else {
            Label::NULL
        };
        Tracked::with_label(calculate(&self.bytes), label)
    }

    /// Calculates each byte from one of this buffer.
    #[must_use]
    pub fn map<L: Linkage>(mut self, calculate: impl FnMut(u8) -> u8) -> Self {
        self.bytes = self.bytes.into_iter().map(calculate).collect();
        if !L::DATA {
            self.runs = Runs::new();
        }
        self
    }

    /// Calculates each byte from one of this buffer and one of another; ignores the rest of the
    /// longer buffer.
    #[must_use]
    pub fn zip_with<L: Linkage>(
        &self,
        other: &Self,
        mut calculate: impl FnMut(u8, u8) -> u8,
    ) -> Self {
        let mut joined = Self::new();
        for place in 0..self.len().min(other.len()) {
            if let (Some(a), Some(b)) = (self.get::<L>(place), other.get(place)) {
                joined.push(a.map_with(b, &mut calculate));
            }
        }
        joined
    }
}

impl From<Vec<u8>> for TrackedBuf {
    /// Creates a buffer whose bytes depend on no input.
    fn from(bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            runs: Runs::new(),
        }
    }
}

impl From<&[u8]> for TrackedBuf {
    fn from(bytes: &[u8]) -> Self {
        bytes.to_vec().into()
    }
}
