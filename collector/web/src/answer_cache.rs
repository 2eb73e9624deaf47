//! In-memory cache of answers. Concurrent requests for one answer share a single computation, which
//! continues even if a client disconnects.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::StatusCode;
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::progress::{ProgressSender, Step};

/// A computed answer to a request for a page or data.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) content_type: &'static str,
    /// Body of the answer; for a page, its content inside the frame.
    pub(crate) bytes: Bytes,
}

/// An answer that is being computed.
#[derive(Clone, Debug)]
pub(crate) struct PendingAnswer {
    pub(crate) step: watch::Receiver<Step>,
    done: watch::Receiver<Option<Answer>>,
}

impl PendingAnswer {
    /// Waits for the answer. Returns `None` if its computation panicked.
    pub(crate) async fn answer(&mut self) -> Option<Answer> {
        let done = self.done.wait_for(Option::is_some).await;
        done.ok().and_then(|done| done.clone())
    }
}

/// Result of looking up an answer: cached, or being computed.
#[derive(Debug)]
pub(crate) enum Lookup {
    Kept(Answer),
    Awaited(PendingAnswer),
}

/// Cache of answers, with a limit on concurrent computations.
#[derive(Debug)]
pub(crate) struct Answers {
    inner: Arc<Inner>,
}

/// Data that an answer reads. Answers about one request do not wait for those that read the whole
/// store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MadeOf {
    Store,
    Request,
}

#[derive(Debug)]
struct Inner {
    kept: Mutex<AnswerCache>,
    /// Slots for concurrent computations, separate for each [`MadeOf`].
    slots: [Arc<Semaphore>; 2],
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct AnswerCache {
    answers: HashMap<String, (Answer, u64)>,
    awaited: HashMap<String, PendingAnswer>,
    bytes: usize,
    /// Counts uses, so that the least recently used answer is evicted first.
    uses: u64,
}

/// Estimated memory of an entry in bytes, without its answer's bytes and its key.
const ENTRY_BYTES: usize = 256;

impl Answers {
    pub(crate) fn new(at_once: usize, bytes_max: usize) -> Self {
        Self {
            inner: Arc::new(Inner {
                kept: Mutex::default(),
                slots: [(); 2].map(|()| Arc::new(Semaphore::new(at_once.max(1)))),
                bytes_max,
            }),
        }
    }

    /// Waits for a slot of this kind, for a reading that computes no answer. Returns `None` only if
    /// the slots are closed, which does not happen.
    pub(crate) async fn slot(&self, made_of: MadeOf) -> Option<OwnedSemaphorePermit> {
        let slots = self.inner.slots[made_of as usize].clone();
        slots.acquire_owned().await.ok()
    }

    /// Returns the answer of this key if it is cached. Otherwise returns the computation to wait
    /// for, and starts it with `make` if there is none yet.
    pub(crate) fn find(
        &self,
        key: &str,
        made_of: MadeOf,
        make: impl FnOnce(&ProgressSender) -> Answer + Send + 'static,
    ) -> Lookup {
        let mut kept = self.inner.lock();
        kept.uses += 1;
        let uses = kept.uses;
        if let Some((answer, used)) = kept.answers.get_mut(key) {
            *used = uses;
            return Lookup::Kept(answer.clone());
        }
        if let Some(awaited) = kept.awaited.get(key) {
            return Lookup::Awaited(awaited.clone());
        }
        let (telling, step) = ProgressSender::new();
        let (sender, done) = watch::channel(None);
        let awaited = PendingAnswer { step, done };
        kept.awaited.insert(key.to_owned(), awaited.clone());
        drop(kept);
        let (inner, key) = (self.inner.clone(), key.to_owned());
        tokio::spawn(async move {
            let slot = inner.slots[made_of as usize].clone().acquire_owned().await;
            let made = tokio::task::spawn_blocking(move || {
                telling.begin_turn();
                let answer = make(&telling);
                drop(slot);
                answer
            });
            // If the computation panicked, the dropped sender reports it to those who wait.
            let made = made.await.ok();
            inner.keep(&key, made.as_ref());
            if made.is_some() {
                sender.send_replace(made);
            }
        });
        Lookup::Awaited(awaited)
    }
}

impl Inner {
    fn lock(&self) -> std::sync::MutexGuard<'_, AnswerCache> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, key: &str, made: Option<&Answer>) {
        let mut kept = self.lock();
        kept.awaited.remove(key);
        // Failed answers are not cached, because a later attempt may succeed.
        let Some(answer) = made.filter(|answer| answer.status.is_success()) else {
            return;
        };
        let bytes = answer.bytes.len() + key.len() + ENTRY_BYTES;
        if bytes > self.bytes_max {
            return;
        }
        while kept.bytes + bytes > self.bytes_max {
            let oldest = kept.answers.iter().min_by_key(|(_, (_, used))| *used);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else {
                break;
            };
            if let Some((answer, _)) = kept.answers.remove(&oldest) {
                kept.bytes -= answer.bytes.len() + oldest.len() + ENTRY_BYTES;
            }
        }
        kept.bytes += bytes;
        let uses = kept.uses;
        kept.answers.insert(key.to_owned(), (answer.clone(), uses));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::MadeOf::{Request, Store};
    use super::*;

    fn answer(bytes: usize) -> Answer {
        Answer {
            status: StatusCode::OK,
            content_type: "text/plain",
            bytes: vec![b'x'; bytes].into(),
        }
    }

    async fn wait(found: Lookup) -> Option<Answer> {
        match found {
            Lookup::Kept(answer) => Some(answer),
            Lookup::Awaited(mut awaited) => awaited.answer().await,
        }
    }

    #[tokio::test]
    async fn one_makes_it_for_all_and_nobody_needs_to_stay() {
        let answers = Answers::new(1, 10_000);
        let made = Arc::new(AtomicUsize::new(0));
        let (go, gone) = std::sync::mpsc::channel::<()>();
        let gone = Mutex::new(gone);
        let counted = made.clone();
        let first = answers.find("a", Store, move |_| {
            gone.lock().unwrap().recv().unwrap();
            counted.fetch_add(1, SeqCst);
            answer(10)
        });
        // The first client disconnects.
        drop(first);
        let counted = made.clone();
        let second = answers.find("a", Store, move |_| {
            counted.fetch_add(1, SeqCst);
            answer(10)
        });
        assert!(matches!(second, Lookup::Awaited(_)));
        go.send(()).unwrap();
        assert_eq!(wait(second).await.unwrap().bytes.len(), 10);
        let third = answers.find("a", Store, |_| unreachable!("it is there"));
        assert!(matches!(third, Lookup::Kept(_)));
        assert_eq!(made.load(SeqCst), 1);
    }

    #[tokio::test]
    async fn who_waits_is_told_whether_it_is_for_others_or_for_the_store() {
        let answers = Answers::new(1, 10_000);
        let (go, gone) = std::sync::mpsc::channel::<()>();
        let gone = Mutex::new(gone);
        let step = |found: Lookup| match found {
            Lookup::Awaited(awaited) => awaited.step,
            Lookup::Kept(_) => unreachable!("nothing is there yet"),
        };
        let mut first = step(answers.find("a", Store, move |_| {
            gone.lock().unwrap().recv().unwrap();
            answer(1)
        }));
        let begun = first.wait_for(|step| !step.task.is_empty()).await;
        assert!(begun.unwrap().task.starts_with("opening the store"));
        let second = answers.find("b", Store, |_| answer(1));
        let Lookup::Awaited(waiting) = &second else {
            unreachable!("the first one has the only place")
        };
        assert_eq!(waiting.step.borrow().task, "");
        go.send(()).unwrap();
        assert!(wait(second).await.is_some());
    }

    #[tokio::test]
    async fn what_is_kept_is_bounded_and_the_oldest_goes() {
        let answers = Answers::new(2, 3 * (1000 + 1 + ENTRY_BYTES));
        for key in ["a", "b", "c"] {
            wait(answers.find(key, Store, |_| answer(1000))).await;
        }
        assert!(matches!(
            answers.find("a", Store, |_| answer(1)),
            Lookup::Kept(_)
        ));
        wait(answers.find("d", Store, |_| answer(1000))).await;
        assert!(matches!(
            answers.find("a", Store, |_| answer(1)),
            Lookup::Kept(_)
        ));
        assert!(matches!(
            answers.find("b", Store, |_| answer(1)),
            Lookup::Awaited(_)
        ));
        // An answer that is larger than the cache is returned, but not cached.
        assert!(
            wait(answers.find("e", Store, |_| answer(100_000)))
                .await
                .is_some()
        );
        assert!(answers.inner.lock().bytes <= 3 * (1000 + 1 + ENTRY_BYTES));
    }

    #[tokio::test]
    async fn what_fell_over_is_said_and_tried_again() {
        let answers = Answers::new(1, 10_000);
        let fallen = answers.find("a", Store, |_| panic!("on purpose"));
        assert!(wait(fallen).await.is_none());
        let failed = answers.find("a", Store, |_| Answer {
            status: StatusCode::NOT_FOUND,
            ..answer(3)
        });
        assert_eq!(wait(failed).await.unwrap().status, StatusCode::NOT_FOUND);
        assert_eq!(
            wait(answers.find("a", Store, |_| answer(4)))
                .await
                .unwrap()
                .bytes
                .len(),
            4
        );
    }

    #[tokio::test]
    async fn a_request_does_not_wait_for_the_store() {
        let answers = Answers::new(1, 10_000);
        let (go, gone) = std::sync::mpsc::channel::<()>();
        let gone = Mutex::new(gone);
        let slow = answers.find("store", Store, move |_| {
            gone.lock().unwrap().recv().unwrap();
            answer(1)
        });
        let request = answers.find("request", Request, |_| answer(2));
        assert_eq!(wait(request).await.unwrap().bytes.len(), 2);
        go.send(()).unwrap();
        assert_eq!(wait(slow).await.unwrap().bytes.len(), 1);
    }
}
