//! Identity of a span: trace id, span id and flags.

use std::fmt;

/// Identity of a span. It is passed within the process in a thread-local, and between processes as
/// `traceparent`.
//
// Words without padding, so that a copy takes only four registers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SpanContext {
    /// Upper and lower half of the trace id.
    trace_id: [u64; 2],
    span_id: u64,
    /// Combination of the flags below; less than 256.
    flags: u64,
}

impl SpanContext {
    /// Context outside of any request.
    pub const NONE: Self = Self {
        trace_id: [0, 0],
        span_id: 0,
        flags: 0,
    };

    pub(crate) const SAMPLED: u64 = 1;
    /// Flag: the request, or its part in this process, began without being recorded, so its records
    /// are cut.
    const CUT: u64 = 2;
    /// Flag: the trace id is random, as defined by W3C Trace Context level 2.
    const RANDOM: u64 = 4;
    /// Flag: this process assigned the request's ids, and no span with this context is recorded.
    /// Calls need not carry the ids unless a window may open before the call ends.
    const UNSEEN: u64 = 8;
    /// Flag: this process sampled the request by its ratio.
    const BY_RATIO: u64 = 16;

    /// Creates a context from its parts. It is valid if neither id is 0.
    #[inline]
    #[must_use]
    pub const fn new(trace_id: u128, span_id: u64, sampled: bool) -> Self {
        let trace_id = [(trace_id >> 64) as u64, trace_id as u64];
        Self {
            trace_id,
            span_id,
            flags: if sampled { Self::SAMPLED } else { 0 },
        }
    }

    /// Returns the request's id; 0 if there is none.
    #[inline]
    #[must_use]
    pub const fn trace_id(self) -> u128 {
        let [high, low] = self.trace_id;
        (high as u128) << 64 | low as u128
    }

    /// Returns the span's id; 0 if there is none.
    #[inline]
    #[must_use]
    pub const fn span_id(self) -> u64 {
        self.span_id
    }

    /// Reports whether the request was sampled at its ingress or forced, so that it is recorded to
    /// its end.
    #[inline]
    #[must_use]
    pub const fn is_sampled(self) -> bool {
        self.flags & Self::SAMPLED != 0
    }

    /// Reports whether the context belongs to a request, which means that neither id is 0.
    #[inline]
    #[must_use]
    pub const fn is_valid(self) -> bool {
        let [high, low] = self.trace_id;
        high | low != 0 && self.span_id != 0
    }

    /// Returns the flags, less than 256.
    #[inline]
    pub(crate) const fn flags(self) -> u64 {
        self.flags
    }

    /// Returns the upper and lower half of the trace id, the span id, and the flags (less than
    /// 256).
    #[inline]
    pub(crate) const fn to_words(self) -> [u64; 4] {
        let [high, low] = self.trace_id;
        [high, low, self.span_id, self.flags]
    }

    #[inline]
    pub(crate) const fn from_words([high, low, span_id, flags]: [u64; 4]) -> Self {
        Self {
            trace_id: [high, low],
            span_id,
            flags,
        }
    }

    /// Returns the flags in the form of `traceparent`: bit 0 sampled, bit 1 random.
    pub(crate) const fn w3c_flags(self) -> u8 {
        (self.flags & Self::SAMPLED) as u8 | if self.flags & Self::RANDOM != 0 { 2 } else { 0 }
    }

    pub(crate) const fn from_w3c(trace_id: u128, span_id: u64, flags: u8) -> Self {
        let context = Self::new(trace_id, span_id, flags & 1 != 0);
        if flags & 2 != 0 {
            context.random()
        } else {
            context
        }
    }

    pub(crate) const fn random(self) -> Self {
        Self {
            flags: self.flags | Self::RANDOM,
            ..self
        }
    }

    pub(crate) const fn sampled(self) -> Self {
        Self {
            flags: self.flags | Self::SAMPLED,
            ..self
        }
    }

    /// Reports whether this process sampled the request by its ratio.
    #[inline]
    pub(crate) const fn is_by_ratio(self) -> bool {
        self.flags & Self::BY_RATIO != 0
    }

    pub(crate) const fn by_ratio(self) -> Self {
        Self {
            flags: self.flags | Self::BY_RATIO,
            ..self
        }
    }

    #[inline]
    pub(crate) const fn is_cut(self) -> bool {
        self.flags & Self::CUT != 0
    }

    pub(crate) const fn cut(self) -> Self {
        Self {
            flags: self.flags | Self::CUT,
            ..self
        }
    }

    #[inline]
    pub(crate) const fn is_unseen(self) -> bool {
        self.flags & Self::UNSEEN != 0
    }

    pub(crate) const fn unseen(self) -> Self {
        Self {
            flags: self.flags | Self::UNSEEN,
            ..self
        }
    }

    /// Returns the context of a child span.
    #[inline]
    pub(crate) const fn child(self, span_id: u64) -> Self {
        Self {
            span_id,
            flags: self.flags & !(Self::CUT | Self::UNSEEN),
            ..self
        }
    }
}

impl fmt::Debug for SpanContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:032x}-{:016x}-{:02x}",
            self.trace_id(),
            self.span_id,
            self.flags
        )
    }
}
