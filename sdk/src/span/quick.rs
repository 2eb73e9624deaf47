//! Fast path for beginning, entering, leaving and ending a span, and for events. It requires that
//! the ring has space, the context is that of the last record, and no markers are written. [`end`]
//! requires space in the ring, and a span that does not hold the gate. A panicking thread ends no
//! span on the fast path.
//!
//! Apart from writing fields, these functions call others only in tail position, when the case
//! turns out to be unusual. Therefore they save no registers, which would be a good part of all
//! their work. Most are generic or inlined, so that they are compiled with the annotated program:
//! only there can the compiler know that thread-locals are reachable with one instruction.
//!
//! The counter is read last, except in [`end`]. On some processors, a read waits for all earlier
//! instructions, and later ones wait for the read, while stores overlap with both. This order
//! leaves little to wait for.

#![allow(unsafe_code)]
#![allow(
    clippy::extra_unused_type_parameters,
    reason = "generic, to be compiled elsewhere"
)]

use super::{SpanWord, SpanWords};
use crate::callsite::Callsite;
use crate::clock::{stamp, ticks};
use crate::context::{self, SpanContext};
use crate::gate::{self, is_read};
use crate::marker;
use crate::record::{self, FieldWriter, TICKS};
use crate::thread::{self, Claim};
use crate::value::Values;

/// Child of the current span that has begun in the same request.
pub(super) struct BegunChild {
    pub(super) span_id: u64,
    pub(super) outer_id: u64,
    /// State of the span, see [`SpanWord`].
    pub(super) word: u64,
}

/// Returns the flags of a record of the current request, whose spans have this word, at their
/// position in a record's first word. Returns `None` if nothing is to be recorded or markers are
/// needed.
#[inline(always)]
fn flags(word: u64) -> Option<u64> {
    let flags = SpanWord(word).record_flags();
    (gate::is_plainly_open() || flags != 0 && is_read() && !marker::is_on()).then_some(flags)
}

/// Claims a record in the current span, if that span is the innermost one after the ring's last
/// record.
#[inline(always)]
fn claim() -> Option<(Claim, u64)> {
    let claim = thread::claim_ready()?;
    let innermost = thread::context_span_id();
    (claim.innermost() == innermost).then_some((claim, innermost))
}

/// Begins a child of the current span. Returns `None` if it did nothing.
#[inline(always)]
pub(super) fn begin<V: Values>(callsite: &'static Callsite, values: &V) -> Option<BegunChild> {
    if V::RUNS_CODE {
        return None;
    }
    let (claim, outer_id) = claim()?;
    let (word, span_id) = (claim.word(), claim.next_span_id());
    // While markers are written, spans are entered slowly, too, and therefore left slowly.
    let flags = flags(word)?;
    claim.write(|place, lineage| {
        let values = |writer: &mut FieldWriter<'_>| values.write(writer);
        let used = record::write_child(place, lineage, flags, callsite, span_id, values);
        stamp(&mut place[TICKS]);
        used
    });
    Some(BegunChild {
        span_id,
        outer_id,
        word,
    })
}

/// Begins a span like [`begin`] with fields written by `fields`, which returns whether it ran the
/// service's code.
#[cfg(feature = "tracing")]
#[inline(always)]
pub(super) fn begin_foreign(
    callsite: &'static Callsite,
    fields: impl FnOnce(&mut FieldWriter<'_>) -> bool,
) -> Option<BegunChild> {
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
    Some(BegunChild {
        span_id,
        outer_id,
        word,
    })
}

/// Writes an event like [`event`], with fields as in [`begin_foreign`].
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

/// Writes an event in the current span. Returns `None` if it did nothing.
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

/// Enters a span in all cases that [`thread::enter_quickly`] does not cover. Returns the previous
/// context as a span's words.
#[cold]
#[inline(never)]
pub(super) fn enter_slowly(high: u64, low: u64, span_id: u64, word: u64) -> SpanWords {
    let previous = context::replace(SpanContext::from_words([
        high,
        low,
        span_id,
        SpanWord(word).flags(),
    ]));
    let [high, low, span_id, _] = previous.to_words();
    SpanWords::over([high, low, span_id, SpanWord::with_context(previous).0])
}

/// Executes the open-gate half of dropping an [`Entered`](super::Entered): restores the previous
/// context and ends the span. Must not run during a panic.
#[inline(never)]
pub(super) fn leave<ThreadRef>(
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

/// Fast path of leaving and ending a span that was entered from another span of its request.
/// Returns `None`, having done nothing, if it does not apply.
#[inline(always)]
pub(super) fn leave_to(outer_id: u64, span_id: u64, word: u64) -> Option<()> {
    end_innermost(span_id, word, || thread::set_context_span_id(outer_id))
}

/// Ends a span, after calling `before`, if it is the innermost one after the ring's last record.
/// Returns `None` if it did nothing.
#[inline(always)]
pub(super) fn end_innermost(span_id: u64, word: u64, before: impl FnOnce()) -> Option<()> {
    // The word shows that the thread's request is the one in which the span began and was entered:
    // a request to which the thread returns has another word.
    // SAFETY: `word` is the word of a span.
    let claim = unsafe { thread::claim_for(word) }?;
    if claim.innermost() != span_id {
        return None;
    }
    // Runs first, so that the context no longer names the span when its end is written.
    before();
    claim.write(|place, lineage| {
        let used = record::write_end_of_innermost(place, lineage, 0);
        stamp(&mut place[TICKS]);
        used
    });
    Some(())
}

/// Ends a span whose end requires only a record. Must not run during a panic. Returns `None` if it
/// did nothing.
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
