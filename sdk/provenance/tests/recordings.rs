//! Recordings: nested, across threads, and outside of any.

use std::cell::RefCell;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};

use stroboscope_provenance::{
    DataLinkage, Label, LabelKind, LogFile, LogWriter, Parents, ReadLog, Recording, Tracked,
    TrackedBuf, inputs_of, merge, sweep, with_current,
};

#[test]
fn nothing_is_tracked_outside_of_recordings() {
    let buffer = TrackedBuf::source(1, 0, "abc");
    assert_eq!((buffer.label(0), buffer.labels().count()), (Label::NULL, 0));
    buffer.record_output(1, 0);
    assert_eq!(with_current(|_| ()), None);
    // Labels that left their recording may stand for any input.
    let mut recording = Recording::default();
    let source = recording.run(|| TrackedBuf::source(1, 0, "abc"));
    assert_eq!(merge(source.label(0), source.label(2)), Label::ALL);
    assert_eq!(source.merged(0..3), Label::ALL);
    assert_eq!(merge(source.label(0), Label::NULL), source.label(0));
}

#[test]
fn recordings_nest_and_survive_panics() {
    let (mut outer, mut inner) = (Recording::default(), Recording::default());
    outer.run(|| {
        TrackedBuf::source(1, 0, "abc");
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            inner.run(|| {
                TrackedBuf::source(2, 0, "de");
                panic!("expected");
            });
        }));
        assert!(result.is_err());
        TrackedBuf::source(3, 0, "f");
    });
    assert_eq!(with_current(|_| ()), None);
    assert_eq!((outer.finish().inputs(), inner.finish().inputs()), (4, 2));
}

#[test]
fn the_log_is_busy_while_its_code_runs() {
    let mut recording = Recording::default();
    recording.run(|| {
        let buffer = TrackedBuf::source(1, 0, "abc");
        let merged = with_current(|_| merge(buffer.label(0), buffer.label(2)));
        assert_eq!(merged, Some(Label::ALL));
        // Another recording cannot run either, and keeps its log.
        let mut other = Recording::default();
        other.run(|| TrackedBuf::source(2, 0, "de"));
        let source = with_current(|_| other.run(|| TrackedBuf::source(3, 0, "f")));
        assert_eq!(source.map(|source| source.label(0)), Some(Label::NULL));
        assert_eq!(other.finish().inputs(), 2);
    });
    assert_eq!(recording.finish().inputs(), 3);
}

/// Future that is ready at its second poll.
struct Yield(bool);

impl Future for Yield {
    type Output = ();

    fn poll(mut self: std::pin::Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

#[test]
fn a_future_records_on_several_threads() {
    let task = async {
        let a = TrackedBuf::source(1, 0, "ab").get(0).expect("a byte");
        Yield(false).await;
        let b = TrackedBuf::source(2, 0, "cd").get(1).expect("a byte");
        let sum: Tracked<u8> = a + b;
        sum.label()
    };
    let mut future = Box::pin(Recording::default().run_async(task));
    let poll = move || {
        let mut context = Context::from_waker(Waker::noop());
        let result = pin!(&mut future).poll(&mut context);
        (result, future)
    };
    let (first, mut future) = std::thread::spawn(poll).join().expect("no panic");
    assert!(first.is_pending());
    assert_eq!(with_current(|_| ()), None);
    let mut context = Context::from_waker(Waker::noop());
    let Poll::Ready((label, recording)) = future.as_mut().poll(&mut context) else {
        panic!("the task is not ready");
    };
    let log = recording.finish();
    assert!(matches!(label.kind(), LabelKind::Node(_)));
    let inputs: Vec<u32> = inputs_of(&log, label).ranges().flatten().collect();
    assert_eq!(inputs, [0, 3]);
}

#[test]
fn a_finished_log_takes_16_bytes_for_a_node() {
    let mut recording = Recording::default();
    let sum = recording.run(|| {
        let source = TrackedBuf::source(1, 0, [1; 5_000]);
        let bytes = (0..2_500).filter_map(|at| source.get::<DataLinkage>(2 * at));
        let sum = bytes.fold(Tracked::new(0), |sum, byte| sum ^ byte);
        assert!(with_current(|log| log.bytes()) > Some(64 << 10));
        sum.label()
    });
    let mut log = recording.finish();
    let nodes = log.nodes();
    // One chunk of nodes has room.
    assert!(
        log.bytes() <= nodes as usize * 16 + (33 << 10),
        "{}",
        log.bytes()
    );
    let Some(Parents::Union(before, last)) = log.node(nodes - 1).map(|node| node.parents()) else {
        panic!("no union");
    };
    assert_eq!((log.merge(last, before), log.nodes()), (sum, nodes));
}

/// Checks that a sweep and single queries agree on the first byte of each output.
fn check_queries(log: &impl ReadLog) {
    let labels = log.outputs().iter();
    let labels: Vec<Label> = labels.map(|output| output.labels.at(0)).collect();
    sweep(log, &labels, |label, inputs| {
        assert_eq!(*inputs, inputs_of(log, label));
    });
}

#[test]
fn labels_of_another_recording_leave_the_log_valid() {
    // Values that a service keeps from an earlier request: a late input, ranges and a late node.
    let mut earlier = Recording::default();
    let (kept, sum) = earlier.run(|| {
        let kept = TrackedBuf::source(1, 0, vec![b'1'; 500]);
        let byte = |at| -> Tracked<u8> { kept.get(at).expect("a byte") };
        let sum = (1..200).fold(byte(0), |sum, at| sum ^ byte(2 * at));
        (kept.clone(), sum)
    });
    let mut later = Recording::default();
    later.run(|| {
        let own = TrackedBuf::source(2, 0, "abc");
        let byte: Tracked<u8> = own.get(1).expect("a byte");
        let mut answer = own.clone();
        answer.extend(&kept);
        answer.push(sum);
        answer.push(sum ^ byte);
        answer.push(byte ^ kept.get(400).expect("a byte"));
        answer.push_text(&kept.parse::<f64, DataLinkage>().expect("a number"));
        let both = sum ^ kept.get(499).expect("a byte");
        answer.push(both ^ byte);
        answer.record_output(3, 0);
    });
    let log = later.finish();
    assert_eq!(log.inputs(), 3);
    assert!(!log.losses().is_none());
    let writer = LogWriter::new(Vec::new()).expect("written");
    let file = writer.finish(&log).expect("written");
    check_queries(&log);
    check_queries(&LogFile::parse(&file).expect("a valid file"));
}

/// Number of inputs of the log that a thread's last value had.
static LATE: AtomicU32 = AtomicU32::new(0);

/// Recording that goes on when its thread ends.
struct LateWork(Recording, Label);

impl Drop for LateWork {
    fn drop(&mut self) {
        let label = self.0.run(|| {
            let source = TrackedBuf::source(2, 0, [1; 3]);
            source.record_output(1, 0);
            merge(self.1, source.merged(0..3))
        });
        let log = self.0.take_log();
        assert!(log.inputs() >= 3 && inputs_of(&log, label).contains(2));
        LATE.store(log.inputs(), Relaxed);
    }
}

thread_local! {
    static WORK: RefCell<Option<LateWork>> = const { RefCell::new(None) };
}

#[test]
fn a_recording_outlives_the_values_of_its_thread() {
    // Values of a thread end in the order of their first use, or in reverse.
    for is_first in [true, false] {
        let run = move || {
            if is_first {
                WORK.set(None);
            }
            let mut recording = Recording::default();
            let label = recording.run(|| TrackedBuf::source(1, 0, [1; 3]).label(2));
            WORK.set(Some(LateWork(recording, label)));
        };
        LATE.store(0, Relaxed);
        std::thread::spawn(run).join().expect("no panic");
        assert!(LATE.load(Relaxed) >= 3);
    }
}
