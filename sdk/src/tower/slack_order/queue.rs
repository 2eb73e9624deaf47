//! Queue that decides which request runs next.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use super::SlackOrderStats;

/// Waiting requests, in order of deadline, then of arrival.
#[derive(Debug)]
pub(super) struct Queue {
    running_max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    running: usize,
    waiting: BTreeMap<Place, Option<Waker>>,
    /// Requests whose turn has come but that have not been polled since; they count as running.
    called: BTreeMap<Place, ()>,
    arrivals: u64,
    waited: u64,
}

/// Deadline in ns, and number of the arrival.
type Place = (i64, u64);

impl State {
    /// Gives a turn to the first waiting request, if there is capacity. Returns its waker, which
    /// the caller wakes without holding the lock.
    fn call_next(&mut self, running_max: usize) -> Option<Waker> {
        if self.running >= running_max {
            return None;
        }
        let (place, waker) = self.waiting.pop_first()?;
        self.running += 1;
        self.called.insert(place, ());
        waker
    }
}

impl Queue {
    pub(super) fn new(running_max: usize) -> Self {
        Self {
            running_max,
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A poisoned lock is safe to use: no change leaves the state half-done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn stats(&self) -> SlackOrderStats {
        let state = self.lock();
        SlackOrderStats {
            waiting: state.waiting.len(),
            running: state.running,
            waited: state.waited,
        }
    }

    /// Starts a turn at once if no request waits and there is capacity; otherwise returns `None`.
    pub(super) fn take_free(queue: &Arc<Self>) -> Option<Turn> {
        let mut state = queue.lock();
        if state.running >= queue.running_max || !state.waiting.is_empty() {
            return None;
        }
        state.running += 1;
        Some(Turn {
            queue: Arc::clone(queue),
        })
    }

    /// Puts a request with this deadline into the queue. If there is capacity, the first waiting
    /// request gets its turn.
    pub(super) fn wait(queue: &Arc<Self>, deadline_ns: i64) -> QueueTicket {
        let mut state = queue.lock();
        state.arrivals += 1;
        state.waited += 1;
        let place = (deadline_ns, state.arrivals);
        state.waiting.insert(place, None);
        // A turn may have ended since the check for capacity.
        let waker = state.call_next(queue.running_max);
        drop(state);
        wake(waker);
        QueueTicket {
            place: Some(place),
            queue: Arc::clone(queue),
        }
    }

    fn end_turn(&self) {
        let mut state = self.lock();
        state.running = state.running.saturating_sub(1);
        let waker = state.call_next(self.running_max);
        drop(state);
        wake(waker);
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// Place in the queue, given up when dropped.
#[derive(Debug)]
pub(super) struct QueueTicket {
    place: Option<Place>,
    queue: Arc<Queue>,
}

impl QueueTicket {
    /// Returns the turn if it has come; otherwise registers the caller's waker and returns `None`.
    pub(super) fn poll(&mut self, cx: &Context<'_>) -> Option<Turn> {
        let place = self.place?;
        let mut state = self.queue.lock();
        if state.called.remove(&place).is_some() {
            drop(state);
            self.place = None;
            return Some(Turn {
                queue: Arc::clone(&self.queue),
            });
        }
        if let Some(waker) = state.waiting.get_mut(&place) {
            *waker = Some(cx.waker().clone());
        }
        None
    }
}

impl Drop for QueueTicket {
    fn drop(&mut self) {
        let Some(place) = self.place else { return };
        let mut state = self.queue.lock();
        state.waiting.remove(&place);
        let was_called = state.called.remove(&place).is_some();
        drop(state);
        if was_called {
            self.queue.end_turn();
        }
    }
}

/// Right to run, which ends when dropped.
#[derive(Debug)]
pub(super) struct Turn {
    queue: Arc<Queue>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.queue.end_turn();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Arrive(i64),
        End(usize),
        GiveUp(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..20_i64).prop_map(Step::Arrive),
            (0..8_usize).prop_map(Step::End),
            (0..8_usize).prop_map(Step::GiveUp),
        ]
    }

    proptest! {
        /// Compares the queue with a model that keeps a list and searches for the minimum.
        #[test]
        fn the_earliest_deadline_goes_first(
            running_max in 1..4_usize,
            steps in prop::collection::vec(step(), 1..80),
        ) {
            let queue = Arc::new(Queue::new(running_max));
            let cx = Context::from_waker(Waker::noop());
            let (mut waiting, mut running): (Vec<(Place, QueueTicket)>, Vec<Turn>) = (Vec::new(), Vec::new());
            let (mut twin, mut arrivals, mut twin_running) = (Vec::<Place>::new(), 0, 0_usize);
            for step in steps {
                match step {
                    Step::Arrive(deadline) => match Queue::take_free(&queue) {
                        Some(turn) => {
                            prop_assert!(twin.is_empty() && twin_running < running_max);
                            twin_running += 1;
                            running.push(turn);
                        }
                        None => {
                            arrivals += 1;
                            twin.push((deadline, arrivals));
                            waiting.push(((deadline, arrivals), Queue::wait(&queue, deadline)));
                        }
                    },
                    Step::End(which) if !running.is_empty() => {
                        drop(running.swap_remove(which % running.len()));
                        twin_running -= 1;
                    }
                    Step::GiveUp(which) if !waiting.is_empty() => {
                        let (place, given_up) = waiting.swap_remove(which % waiting.len());
                        drop(given_up);
                        twin.retain(|other| *other != place);
                    }
                    Step::End(_) | Step::GiveUp(_) => {}
                }
                while twin_running < running_max && !twin.is_empty() {
                    let least = *twin.iter().min().unwrap();
                    twin.retain(|place| *place != least);
                    twin_running += 1;
                    let at = waiting.iter().position(|(place, _)| *place == least).unwrap();
                    let (_, mut called) = waiting.swap_remove(at);
                    let turn = called.poll(&cx);
                    prop_assert!(turn.is_some(), "{least:?} is next");
                    running.extend(turn);
                }
                for (place, one) in &mut waiting {
                    prop_assert!(one.poll(&cx).is_none(), "{place:?} has to wait");
                }
                let stats = queue.stats();
                prop_assert_eq!((stats.waiting, stats.running), (twin.len(), twin_running));
            }
            waiting.clear();
            running.clear();
            prop_assert_eq!(queue.stats().running, 0);
        }
    }

    #[test]
    fn who_gives_up_after_being_called_passes_it_on() {
        let queue = Arc::new(Queue::new(1));
        let cx = Context::from_waker(Waker::noop());
        let turn = Queue::take_free(&queue).unwrap();
        let (first, mut second) = (Queue::wait(&queue, 1), Queue::wait(&queue, 2));
        drop(turn);
        drop(first);
        assert!(second.poll(&cx).is_some());
        assert_eq!(queue.stats().running, 0);
    }
}
