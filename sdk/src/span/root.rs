//! Decides whether a request that begins in this process is recorded.

use super::{Span, hold};
use crate::clock::ticks;
use crate::context::SpanContext;
use crate::gate::{self, Now};
use crate::sampling::{self, RatioState};
use crate::span_word::SpanWord;
use crate::thread;

/// Decision about a request that begins in this process.
pub(super) struct Root {
    pub(super) context: SpanContext,
    pub(super) word: SpanWord,
    pub(super) is_recorded: bool,
}

#[cold]
#[inline(never)]
pub(super) fn decide_request(gate: Now, is_forced: bool) -> Root {
    if !gate.is_open() && !gate.asks_roots() && !is_forced {
        return Root {
            context: SpanContext::NONE,
            word: SpanWord::NONE,
            is_recorded: false,
        };
    }
    let (trace_id, span_id) = thread::root_ids();
    // The flag is up for a guard time before and after the window; a request that begins then is
    // outside.
    let is_inside = gate.is_open() && gate::is_inside_window(ticks());
    let mut context = SpanContext::new(trace_id, span_id, is_forced).random();
    if !is_forced {
        context = sampling::decide(context, is_inside);
    }
    let is_sampled = context.is_sampled();
    if !is_inside && !is_sampled {
        // Marks the decision as made: spans below must not decide again. If a window opens
        // meanwhile, the request is cut.
        let context = context.cut();
        return Root {
            context,
            word: SpanWord::with_context(context),
            is_recorded: false,
        };
    }
    let word = SpanWord::with_context(context);
    Root {
        context,
        word: if is_sampled { hold(word) } else { word },
        is_recorded: true,
    }
}

impl Span {
    /// Records the probability with which the request was sampled.
    #[cold]
    pub(super) fn state_ratio(&self) {
        if let Some(state) = RatioState::current() {
            self.record(sampling::STATE_FIELD, state.text());
        }
    }
}
