//! Property tests: for any order of beginning, entering, leaving and ending spans, the records in
//! the ring match an obvious model, with and without the fast path.

use proptest::prelude::*;
use stroboscope_proto::v1::SpanFlag;

use super::{Entered, Frame, Span};
use crate::callsite::Callsite;
use crate::context::{self, Scope, SpanContext};
use crate::drain::rings;
use crate::gate::TURN;
use crate::record::{self, Lineage, Record, RecordKind};
use crate::value::{Value as _, display};
use crate::{gate, thread};

static CALLSITE: Callsite = Callsite::new("twin", &["a"], file!(), line!());

/// Content of a record: flags, trace, span, parent, as far as it has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExpectedRecord {
    Begin(u16, u128, u64, u64),
    End(u64),
    Event(u16, u128, u64),
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Begins a span with a number, or with a value whose own code runs.
    Begin(usize, bool),
    Enter(usize),
    Drop(usize),
    Forget(usize),
    /// Sets a context from outside.
    Scope(usize, usize),
    Event(bool),
    /// Runs at most this many steps in a function with `#[trace]`.
    Framed(usize),
    CloseFastPath,
    ForgetIds,
}

fn any_step() -> impl Strategy<Value = Step> {
    let slot = 0..4usize;
    prop_oneof![
        6 => (slot.clone(), any::<bool>()).prop_map(|(slot, runs_code)| Step::Begin(slot, runs_code)),
        6 => slot.clone().prop_map(Step::Enter),
        4 => slot.clone().prop_map(Step::Drop),
        1 => slot.clone().prop_map(Step::Forget),
        2 => (slot, 0..6usize).prop_map(|(slot, from)| Step::Scope(slot, from)),
        3 => any::<bool>().prop_map(Step::Event),
        3 => (0..5usize).prop_map(Step::Framed),
        1 => Just(Step::CloseFastPath),
        1 => Just(Step::ForgetIds),
    ]
}

/// Returns one of six contexts from outside. The valid ones share their span id, because a caller
/// may choose it.
fn from_elsewhere(which: usize) -> SpanContext {
    let context = SpanContext::new((77 + (which as u128 / 2)) << 70, 7, which.is_multiple_of(2));
    match which {
        4 => context.cut(),
        5 => SpanContext::NONE,
        _ => context,
    }
}

enum Slot {
    Empty,
    Span(Span),
    Entered(Entered, SpanContext),
    Scope(Scope, SpanContext),
}

struct Twin {
    current: SpanContext,
    slots: [Slot; 4],
    expected: Vec<ExpectedRecord>,
}

impl Twin {
    fn has_begun(&mut self, context: SpanContext) {
        let (parent, mut flags) = (self.current, 0);
        if parent.is_valid() {
            assert_eq!(context, parent.child(context.span_id()));
            flags |= if parent.is_cut() {
                SpanFlag::CutOpen as u16
            } else {
                0
            };
        } else {
            flags |= SpanFlag::LocalRoot as u16;
        }
        flags |= if context.is_sampled() {
            SpanFlag::Sampled as u16
        } else {
            0
        };
        let parent_id = if parent.is_valid() {
            parent.span_id()
        } else {
            0
        };
        self.expected.push(ExpectedRecord::Begin(
            flags,
            context.trace_id(),
            context.span_id(),
            parent_id,
        ));
    }

    fn has_ended(&mut self, span_id: u64) {
        self.expected.push(ExpectedRecord::End(span_id));
    }

    fn run(&mut self, steps: &mut dyn Iterator<Item = Step>, most: usize) {
        for _ in 0..most {
            let Some(step) = steps.next() else { return };
            self.step(step, steps);
            assert_eq!(context::current(), self.current, "{step:?}");
        }
    }

    fn step(&mut self, step: Step, steps: &mut dyn Iterator<Item = Step>) {
        match step {
            Step::Begin(slot, runs_code) if matches!(self.slots[slot], Slot::Empty) => {
                let span = if runs_code {
                    Span::begin(&CALLSITE, (display("x").argument(),))
                } else {
                    Span::begin(&CALLSITE, (5u64,))
                };
                assert!(span.is_recorded());
                self.has_begun(span.context());
                self.slots[slot] = Slot::Span(span);
            }
            Step::Enter(slot) => match std::mem::replace(&mut self.slots[slot], Slot::Empty) {
                Slot::Span(span) => {
                    let previous = std::mem::replace(&mut self.current, span.context());
                    let entered = span.entered();
                    assert_eq!(entered.context(), self.current);
                    self.slots[slot] = Slot::Entered(entered, previous);
                }
                other => self.slots[slot] = other,
            },
            Step::Drop(slot) => match std::mem::replace(&mut self.slots[slot], Slot::Empty) {
                Slot::Empty => {}
                Slot::Span(span) => self.has_ended(span.context().span_id()),
                Slot::Entered(entered, previous) => {
                    self.has_ended(entered.context().span_id());
                    self.current = previous;
                }
                Slot::Scope(_scope, previous) => self.current = previous,
            },
            Step::Forget(slot) => {
                std::mem::forget(std::mem::replace(&mut self.slots[slot], Slot::Empty));
            }
            Step::Scope(slot, from) if matches!(self.slots[slot], Slot::Empty) => {
                let previous = std::mem::replace(&mut self.current, from_elsewhere(from));
                self.slots[slot] = Slot::Scope(Scope::enter(self.current), previous);
            }
            Step::Event(runs_code) => {
                if runs_code {
                    super::event(&CALLSITE, (display("x").argument(),));
                } else {
                    super::event(&CALLSITE, (5u64,));
                }
                let current = self.current;
                let flags = if current.is_sampled() {
                    SpanFlag::Sampled as u16
                } else {
                    0
                };
                let span_id = if current.is_cut() {
                    0
                } else {
                    current.span_id()
                };
                self.expected
                    .push(ExpectedRecord::Event(flags, current.trace_id(), span_id));
            }
            Step::Framed(inside) => {
                let mut frame = Frame::new();
                let previous = self.current;
                let in_frame = frame.begin(&CALLSITE, (5u64,));
                let context = context::current();
                self.has_begun(context);
                self.current = context;
                self.run(steps, inside);
                drop(in_frame);
                self.has_ended(context.span_id());
                self.current = previous;
            }
            Step::CloseFastPath => thread::close_fast_path(),
            Step::ForgetIds => thread::forget_ids(),
            Step::Begin(..) | Step::Scope(..) => {}
        }
    }
}

/// Returns the test callsite's records in the rings, decoded like the drain does; other tests of
/// this process may record as well.
fn read() -> Vec<ExpectedRecord> {
    let (mut raw, mut said, mut lineage) = (Vec::new(), Vec::new(), Lineage::UNKNOWN);
    rings::read_all(&mut raw);
    let mut rest = raw.as_slice();
    while !rest.is_empty() {
        let (this, others) = rest.split_at(record::length(rest));
        match record::read(this, &mut lineage) {
            Record::Full { head, fields } if std::ptr::eq(head.callsite, &raw const CALLSITE) => {
                assert_eq!(fields.count(), 1);
                assert!(head.ticks > 0);
                said.push(match head.kind {
                    RecordKind::Begin => ExpectedRecord::Begin(
                        head.flags,
                        head.trace_id,
                        head.span_id,
                        head.parent_id,
                    ),
                    _ => ExpectedRecord::Event(head.flags, head.trace_id, head.span_id),
                });
            }
            Record::End { span_id, ticks, .. } => {
                let is_own = |said: &ExpectedRecord| matches!(said, ExpectedRecord::Begin(_, _, id, _) if *id == span_id);
                if said.iter().any(is_own) {
                    assert!(ticks > 0);
                    said.push(ExpectedRecord::End(span_id));
                }
            }
            Record::Full { .. } | Record::Context => {}
            Record::Broken => panic!("broken: {this:?}"),
        }
        rest = others;
    }
    said
}

/// Runs the steps in a new thread, and reads its ring before the thread ends.
fn check(steps: Vec<Step>) {
    let _turn = TURN
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    gate::set_window_ticks(0, u64::MAX);
    gate::set_open(true);
    let checked = std::thread::spawn(move || {
        // Discards records of other tests of this process.
        rings::read_all(&mut Vec::new());
        let slots = [const { Slot::Empty }; 4];
        let mut twin = Twin {
            current: SpanContext::NONE,
            slots,
            expected: Vec::new(),
        };
        let most = steps.len();
        twin.run(&mut steps.into_iter(), most);
        for slot in 0..4 {
            twin.step(Step::Drop(slot), &mut std::iter::empty());
        }
        let said = read();
        assert_eq!(said, twin.expected);
        let mut ids: Vec<u64> = said
            .iter()
            .filter_map(|said| match said {
                ExpectedRecord::Begin(_, _, id, _) => Some(*id),
                _ => None,
            })
            .collect();
        ids.sort_unstable();
        let all = ids.len();
        ids.dedup();
        assert!(ids.len() == all && !ids.contains(&0), "an id came twice");
    })
    .join();
    gate::set_open(false);
    rings::forget_finished();
    checked.unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

    #[test]
    fn the_ring_says_what_happened(steps in proptest::collection::vec(any_step(), 1..60)) {
        check(steps);
    }
}

/// Checks that ordinary nesting never takes the slow path, which would count as a look.
#[test]
fn usual_spans_take_the_fast_path() {
    let _turn = TURN
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    gate::set_window_ticks(0, u64::MAX);
    gate::set_open(true);
    let looked = std::thread::spawn(|| {
        let root = Span::begin(&CALLSITE, (5u64,)).entered();
        // Takes the first look at the ring.
        drop(Span::begin(&CALLSITE, (5u64,)));
        let before = thread::looks();
        for _ in 0..10 {
            let outer = Span::begin(&CALLSITE, (5u64,)).entered();
            let mut frame = Frame::new();
            let in_frame = frame.begin(&CALLSITE, (5u64,));
            super::event(&CALLSITE, ("text",));
            drop(Span::begin(&CALLSITE, (5u64,)).entered());
            drop(Span::begin(&CALLSITE, ()));
            drop(in_frame);
            drop(outer);
        }
        let looked = thread::looks() - before;
        drop(root);
        looked
    })
    .join()
    .unwrap();
    gate::set_open(false);
    assert_eq!(looked, 0);
}
