//! Orders in which threads may poll tasks that record.
//!
//! A log has one owner at a time, and each thread has its own place for the running recording. So
//! the order of polls, and their threads, are all the concurrency that a log may meet. These tests
//! try every order of three polls of each of three tasks.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use stroboscope_provenance::{
    DataLinkage, Label, MergeLog, ReadLog, Recording, Tracked, TrackedBuf, inputs_of, with_current,
};

/// Tasks, and polls of each.
const TASKS: usize = 3;
const POLLS: usize = 3;

type Task = Pin<Box<dyn Future<Output = (Label, Recording)> + Send>>;

/// Is ready at its second poll.
async fn pause() {
    let mut is_second = false;
    poll_fn(|_| match std::mem::replace(&mut is_second, true) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}

/// Merges the bytes 0, 2 and 4 of its source over three polls.
async fn work(id: u64) -> Label {
    let buffer = TrackedBuf::source(id, 0, [7; 5]);
    let byte = |at| -> Tracked<u8, DataLinkage> { buffer.get(at).expect("a byte") };
    let first = byte(0);
    pause().await;
    let mut inner = Recording::default();
    inner.run(|| TrackedBuf::source(99, 0, [1; 9]));
    assert_eq!(inner.finish().inputs(), 9);
    let sum = first ^ byte(2);
    pause().await;
    buffer.record_output(id, 0);
    (sum ^ byte(4)).label()
}

/// Returns all orders of polls in which each task has the number of polls in `left`.
fn orders(left: [usize; TASKS]) -> Vec<Vec<usize>> {
    if left.iter().all(|left| *left == 0) {
        return vec![Vec::new()];
    }
    let next = (0..TASKS).filter(|task| left[*task] > 0);
    let orders = next.flat_map(|task| {
        let mut less = left;
        less[task] -= 1;
        let rest = orders(less).into_iter();
        rest.map(move |rest| [vec![task], rest].concat())
    });
    orders.collect()
}

fn poll(task: &mut Task) -> Option<(Label, Recording)> {
    let result = task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!(with_current(|_| ()), None);
    match result {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}

fn check(log: &MergeLog, id: u64, label: Label) {
    let sources = log.sources().iter().map(|source| (source.id, source.count));
    assert_eq!(sources.collect::<Vec<_>>(), [(id, 5)]);
    let inputs = inputs_of(log, label);
    assert_eq!(inputs.ranges().flatten().collect::<Vec<_>>(), [0, 2, 4]);
    assert_eq!((log.nodes(), log.outputs().len()), (2, 1));
    assert!(log.losses().is_none());
}

#[test]
fn tasks_keep_their_logs_in_every_order_of_polls() {
    let orders = orders([POLLS; TASKS]);
    assert_eq!(orders.len(), 1680); // 9! / 3!³
    for (number, order) in orders.iter().enumerate() {
        let new = |id| -> Task { Box::pin(Recording::default().run_async(work(id))) };
        let mut tasks: Vec<Task> = (0..TASKS as u64).map(new).collect();
        for (turn, task) in order.iter().enumerate() {
            let on_other_thread = number >> (turn % 8) & 1 == 1;
            let polled = &mut tasks[*task];
            let result = if on_other_thread {
                std::thread::scope(|scope| scope.spawn(|| poll(polled)).join()).expect("no panic")
            } else {
                poll(polled)
            };
            let is_last = !order[turn + 1..].contains(task);
            assert_eq!(result.is_some(), is_last);
            if let Some((label, recording)) = result {
                check(&recording.finish(), *task as u64, label);
            }
        }
    }
}

#[test]
fn tasks_that_panic_or_are_dropped_leave_the_others_their_logs() {
    for order in orders([POLLS; TASKS]) {
        let panics = async {
            let buffer = TrackedBuf::source(8, 0, [7; 5]);
            pause().await;
            pause().await;
            std::panic::resume_unwind(Box::new(buffer.label(0)));
        };
        let mut tasks: [Option<Task>; TASKS] = [
            Some(Box::pin(Recording::default().run_async(work(0)))),
            Some(Box::pin(Recording::default().run_async(panics))),
            Some(Box::pin(Recording::default().run_async(work(2)))),
        ];
        let mut polls = [0; TASKS];
        for task in order {
            polls[task] += 1;
            let Some(polled) = &mut tasks[task] else {
                continue;
            };
            match (task, polls[task]) {
                (0, 2) => tasks[0] = None,
                (1, 3) => {
                    assert!(catch_unwind(AssertUnwindSafe(|| poll(polled))).is_err());
                    assert_eq!(with_current(|_| ()), None);
                }
                _ => {
                    if let Some((label, recording)) = poll(polled) {
                        assert_eq!(task, 2);
                        check(&recording.finish(), 2, label);
                    }
                }
            }
        }
        assert_eq!(polls, [POLLS; TASKS]);
    }
}
