//! Sources and outputs: the origin of each input, and the bytes whose labels are recorded.

use alloc::boxed::Box;

use crate::label::Label;

/// Successive bytes of one source, such as a request's body, and the inputs that they became.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Source {
    /// Caller's id of the source.
    pub id: u64,
    /// Offset of the first byte within the source.
    pub offset: u64,
    /// Input of the first byte.
    pub first: u32,
    /// Number of bytes.
    pub count: u32,
}

/// Successive bytes of one output, such as a response, and their labels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Output {
    /// Caller's id of the output.
    pub id: u64,
    /// Offset of the first byte within the output.
    pub offset: u64,
    /// Number of bytes.
    pub count: u64,
    /// Labels of the bytes.
    pub labels: Labels,
}

/// Description of an item, which is all bytes with one id: those of a source, or of an output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item {
    /// Id of the source or output.
    pub id: u64,
    /// Id of the span in which the item was read or written; 0 if there is none.
    pub span: u64,
    /// Name for people, such as the key under which the bytes are stored.
    pub name: Box<str>,
    /// First bytes of the item; empty if they are not kept.
    pub content: Box<[u8]>,
}

/// Labels of successive bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Labels {
    /// One label for each byte: this one for the first, then those of the following inputs.
    Inputs(Label),
    /// One label for all bytes.
    Shared(Label),
}

impl Source {
    /// Returns the first input after the source.
    pub(crate) fn end(&self) -> u32 {
        self.first.saturating_add(self.count)
    }

    /// Reports whether a byte and its input directly follow the last ones of this source.
    pub(crate) fn is_followed_by(&self, id: u64, offset: u64, input: u32) -> bool {
        let next = self.offset.checked_add(self.count.into());
        self.id == id && next == Some(offset) && self.end() == input
    }
}

impl Labels {
    /// Labels of bytes that depend on no input.
    pub const NULL: Self = Self::Shared(Label::NULL);

    /// Returns the label of the byte at an offset.
    #[inline]
    pub fn at(self, offset: usize) -> Label {
        match self {
            Self::Shared(label) => label,
            Self::Inputs(first) => first.following(offset),
        }
    }

    /// Returns the labels of the bytes from an offset on.
    #[inline]
    #[must_use]
    pub fn from(self, offset: usize) -> Self {
        match self {
            Self::Shared(label) => Self::Shared(label),
            Self::Inputs(_) => Self::Inputs(self.at(offset)),
        }
    }
}
