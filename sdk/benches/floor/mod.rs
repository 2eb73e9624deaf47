//! Minimum cost of a span: two readings of the counter, and both records written by hand.

use std::cell::RefCell;
use std::hint::black_box;

/// Number of words that are used as a ring, as many as a thread's largest ring has by default.
const WORDS: usize = 1 << 17;
/// Numbers of words of a begin without fields, and of an end.
const BEGIN: usize = 4;
const END: usize = 2;
const FIELDS_MAX: usize = 3;

/// Represents the callsite to which a begin points.
static CALLSITE: u8 = 0;

thread_local! {
    static WRITTEN: RefCell<Box<[u64]>> = RefCell::new((1..=(WORDS + BEGIN + FIELDS_MAX) as u64).collect());
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn counter() -> u64 {
    // SAFETY: reads the time-stamp counter; exists on every x86-64.
    #[allow(unsafe_code)]
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(crate) fn counter() -> u64 {
    std::time::Instant::now().elapsed().as_nanos() as u64
}

/// Writes the words of this number of spans, with `FIELDS` fields each, into a buffer that is used
/// as a ring. There is no context and no reader, and all state stays in registers.
#[inline(always)]
fn by_hand<const FIELDS: usize>(calls: u64) {
    WRITTEN.with_borrow_mut(|words| {
        let Some(words) = words.first_chunk_mut::<{ WORDS + BEGIN + FIELDS_MAX }>() else {
            return;
        };
        let mut at = 0;
        for n in 0..calls {
            let n = black_box(n);
            let place = at % WORDS;
            words[place] = 7 | ((BEGIN + FIELDS) as u64) << 32;
            words[place + 2] = &raw const CALLSITE as u64;
            words[place + 3] = n;
            words[place + BEGIN..place + BEGIN + FIELDS].fill(n);
            words[place + 1] = counter();
            // Forces the compiler to write the words to memory now.
            black_box(&mut *words);
            at += BEGIN + FIELDS;
            let place = at % WORDS;
            words[place] = 8 | (END as u64) << 32;
            words[place + 1] = counter();
            black_box(&mut *words);
            at += END;
        }
    });
}

/// Writes the words of this number of spans without fields.
pub(crate) fn spans(calls: u64) {
    by_hand::<0>(calls);
}

/// Writes the words of this number of spans with three integers each.
pub(crate) fn spans_with_fields(calls: u64) {
    by_hand::<FIELDS_MAX>(calls);
}
