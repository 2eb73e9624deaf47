//! The fast path of beginning, entering, leaving and ending a span: a ring that has room, a context that is the one of the
//! last record, nobody who listens for markers, no panic.
//!
//! What is in here calls nothing, except as the last thing it does, when the case is not the usual one after all; so it
//! saves no registers, which would be a good part of all its work. And it is generic, so that it is compiled with the
//! program that is annotated: only there may thread-locals be known to be in reach of one instruction.
//!
//! The counter is read last: on some processors a reading waits for all that was begun before it, and what comes after it
//! waits for the reading, while stores overlap with both. So there is little to wait for.

#![allow(unsafe_code)]
#![allow(
    clippy::extra_unused_type_parameters,
    reason = "generic, to be compiled elsewhere"
)]

use super::{Handed, SpanWord};
use crate::callsite::Callsite;
use crate::clock::{stamp, ticks};
use crate::context::{self, SpanContext};
use crate::gate::{self, is_read};
use crate::marker;
use crate::record::{self, FieldWriter, TICKS};
use crate::thread::{self, Claim};
use crate::value::Values;

/// A child of the current span that has begun, and is of the same request.
pub(super) struct Begun {
    pub(super) span_id: u64,
    pub(super) outer_id: u64,
    /// See [`SpanWord`].
    pub(super) word: u64,
}

/// The flags of a record of the current request, whose spans are of this word, as its first word has them. `None`: nothing
/// is to be recorded, or somebody follows.
#[inline(always)]
fn flags(word: u64) -> Option<u64> {
    let flags = SpanWord(word).record_flags();
    (gate::is_plainly_open() || flags != 0 && is_read() && !marker::is_on()).then_some(flags)
}

/// A claim for a record in the current span, which is the one that the last record was in, or left.
#[inline(always)]
fn claim() -> Option<(Claim, u64)> {
    let claim = thread::claim_ready()?;
    let innermost = thread::context_span_id();
    (claim.innermost() == innermost).then_some((claim, innermost))
}

/// Begins a child of the current span. `None`: nothing was done.
#[inline(always)]
pub(super) fn begin<V: Values>(callsite: &'static Callsite, values: &V) -> Option<Begun> {
    if V::RUNS_CODE {
        return None;
    }
    let (claim, outer_id) = claim()?;
    let (word, span_id) = (claim.word(), claim.next_span_id());
    // While somebody follows, what begins is entered slowly, too, and so is left.
    let flags = flags(word)?;
    claim.write(|place, lineage| {
        let values = |writer: &mut FieldWriter<'_>| values.write(writer);
        let used = record::write_child(place, lineage, flags, callsite, span_id, values);
        stamp(&mut place[TICKS]);
        used
    });
    Some(Begun {
        span_id,
        outer_id,
        word,
    })
}

/// [`begin`] of a span whose fields are written by `fields`, which says whether code that is not ours was run for it.
#[cfg(feature = "tracing")]
#[inline(always)]
pub(super) fn begin_foreign(
    callsite: &'static Callsite,
    fields: impl FnOnce(&mut FieldWriter<'_>) -> bool,
) -> Option<Begun> {
    let (claim, outer_id) = claim()?;
    let (word, span_id) = (claim.word(), claim.next_span_id());
    let flags = flags(word)?;
    claim.write_foreign(|place, lineage| {
        let mut has_run_code = false;
        let fields = |writer: &mut FieldWriter<'_>| has_run_code = fields(writer);
        let used = record::write_child(place, lineage, flags, callsite, span_id, fields);
        stamp(&mut place[TICKS]);
        (used, has_run_code)
    });
    Some(Begun {
        span_id,
        outer_id,
        word,
    })
}

/// [`event`] with fields as in [`begin_foreign`].
#[cfg(feature = "tracing")]
#[inline(always)]
pub(super) fn event_foreign(
    callsite: &'static Callsite,
    fields: impl FnOnce(&mut FieldWriter<'_>) -> bool,
) -> Option<()> {
    let (claim, _) = claim()?;
    let flags = flags(claim.word())?;
    claim.write_foreign(|place, _| {
        let mut has_run_code = false;
        let fields = |writer: &mut FieldWriter<'_>| has_run_code = fields(writer);
        let used = record::write_again(place, flags, callsite, fields);
        stamp(&mut place[TICKS]);
        (used, has_run_code)
    });
    Some(())
}

/// Writes an event in the current span. `None`: nothing was done.
#[inline(always)]
pub(super) fn event<V: Values>(callsite: &'static Callsite, values: &V) -> Option<()> {
    if V::RUNS_CODE {
        return None;
    }
    let (claim, _) = claim()?;
    let flags = flags(claim.word())?;
    claim.write(|place, _| {
        let used = record::write_again(place, flags, callsite, |writer| values.write(writer));
        stamp(&mut place[TICKS]);
        used
    });
    Some(())
}

/// Enters a span in all cases but that of [`thread::enter_quickly`]. What was current before, as a span's words.
#[cold]
#[inline(never)]
pub(super) fn enter_slowly(high: u64, low: u64, span_id: u64, word: u64) -> Handed {
    let previous = context::replace(SpanContext::from_words([
        high,
        low,
        span_id,
        SpanWord(word).flags(),
    ]));
    let [high, low, span_id, _] = previous.to_words();
    Handed::over([high, low, span_id, SpanWord::with_context(previous).0])
}

/// The open half of dropping an [`Entered`](super::Entered): what was current before is so again, and the span ends. Not
/// in a panic.
#[inline(never)]
pub(super) fn leave<Here>(
    high: u64,
    low: u64,
    outer_id: u64,
    outer_word: u64,
    span_id: u64,
    word: u64,
) {
    if leave_to(outer_id, span_id, word).is_none() {
        leave_slowly(high, low, outer_id, outer_word, span_id, word);
    }
}

/// Where the context is to be another span of the same request. `None`: nothing was done.
#[inline(always)]
pub(super) fn leave_to(outer_id: u64, span_id: u64, word: u64) -> Option<()> {
    end_innermost(span_id, word, || thread::set_context_span_id(outer_id))
}

/// Ends the span that the ring's last record was in, or left, after doing what is left to do. `None`: nothing was done.
#[inline(always)]
pub(super) fn end_innermost(span_id: u64, word: u64, before: impl FnOnce()) -> Option<()> {
    // It says that the request is what it was when the span began, and so when it was entered: a request that the thread
    // comes back to has another word.
    // SAFETY: it is the word of a span.
    let claim = unsafe { thread::claim_for(word) }?;
    if claim.innermost() != span_id {
        return None;
    }
    // First: what ends the span is no longer inside it.
    before();
    claim.write(|place, lineage| {
        let used = record::write_end_of_innermost(place, lineage, 0);
        stamp(&mut place[TICKS]);
        used
    });
    Some(())
}

/// Ends a span, not in a panic. `None`: nothing was done.
#[inline(always)]
pub(super) fn end(span_id: u64, word: SpanWord) -> Option<()> {
    if !word.must_only_be_recorded() {
        return None;
    }
    let claim = thread::claim()?;
    claim.write(|place, lineage| record::write_end(place, lineage, 0, ticks(), span_id));
    Some(())
}

#[cold]
#[inline(never)]
pub(super) fn leave_slowly(
    high: u64,
    low: u64,
    outer_id: u64,
    outer_word: u64,
    span_id: u64,
    word: u64,
) {
    context::set(SpanContext::from_words([
        high,
        low,
        outer_id,
        SpanWord(outer_word).flags(),
    ]));
    super::end(span_id, SpanWord(word));
}
