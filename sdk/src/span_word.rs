//! State of a span, except its ids, in one word.

use stroboscope_proto::v1::SpanFlag;

use crate::record;
use crate::span_context::SpanContext;

/// State of a span, except its ids, as the bits of one word.
///
/// ```text
/// bits 0..8   `RECORDED`, `HAS_CONTEXT` and `HELD`; if none is set, the word is empty
///      3      0, so that the word is no closed state of a thread's fast path
///      8..12  0
///      12..20 the flags of its context
///      20..64 for a usual span: the tag of the interval in which it began, during which its thread
///             worked for one request without interruption
///      32..64 for a span that is HELD: the generation of the hold; unused bits are 0
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SpanWord(pub(crate) u64);

impl SpanWord {
    pub(crate) const NONE: Self = Self(0);
    /// Bit set if the begin is in a ring, so that the end must follow.
    const RECORDED: u64 = 1;
    /// Bit set if the span has a context to propagate, recorded or not.
    const HAS_CONTEXT: u64 = 2;
    /// Bit set if the span holds the gate, so that annotations stay active while the process works
    /// for a sampled request.
    const HELD: u64 = 4;

    const FLAGS_SHIFT: u32 = 12;
    const FLAGS: u64 = 0xff;
    const TAG_SHIFT: u32 = 20;
    const GENERATION_SHIFT: u32 = 32;

    /// Creates the word of a span below `context` that is recorded and does not hold the gate.
    pub(crate) const fn usual(tag: u64, context: SpanContext) -> Self {
        Self(tag << Self::TAG_SHIFT | Self::RECORDED | Self::with_context(context).0)
    }

    pub(crate) const fn with_context(context: SpanContext) -> Self {
        Self(Self::HAS_CONTEXT | context.flags() << Self::FLAGS_SHIFT)
    }

    pub(crate) const fn recorded(self, is_recorded: bool) -> Self {
        Self(self.0 | if is_recorded { Self::RECORDED } else { 0 })
    }

    pub(crate) const fn holding(self, generation: u32) -> Self {
        Self(self.0 | Self::HELD | (generation as u64) << Self::GENERATION_SHIFT)
    }

    /// Reports whether the word is empty: the span is not recorded and has no context.
    pub(crate) const fn is_none(self) -> bool {
        self.0 == 0
    }

    pub(crate) const fn is_recorded(self) -> bool {
        self.0 & Self::RECORDED != 0
    }

    pub(crate) const fn has_context(self) -> bool {
        self.0 & Self::HAS_CONTEXT != 0
    }

    /// Reports whether the span's end requires any work: a record, or releasing the gate.
    pub(crate) const fn must_end(self) -> bool {
        self.0 & (Self::RECORDED | Self::HELD) != 0
    }

    /// Reports whether ending the span only requires writing its END record.
    pub(crate) const fn must_only_be_recorded(self) -> bool {
        self.0 & (Self::RECORDED | Self::HELD) == Self::RECORDED
    }

    /// Returns the generation of the span's hold, or `None` if the span does not hold the gate.
    pub(crate) const fn held(self) -> Option<u32> {
        if self.0 & Self::HELD != 0 {
            Some((self.0 >> Self::GENERATION_SHIFT) as u32)
        } else {
            None
        }
    }

    /// Returns the flags for records of the span, at their position in a record's first word.
    #[inline(always)]
    pub(crate) const fn record_flags(self) -> u64 {
        const SAMPLED: u64 = (SpanFlag::Sampled as u64) << record::FLAGS_SHIFT;
        const { assert!(SpanContext::SAMPLED << SpanWord::FLAGS_SHIFT == SAMPLED) };
        self.0 & SAMPLED
    }

    /// Returns the flags of the span's context.
    pub(crate) const fn flags(self) -> u64 {
        self.0 >> Self::FLAGS_SHIFT & Self::FLAGS
    }
}
