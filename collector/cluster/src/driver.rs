//! Distributes tasks over workers.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use http::HeaderValue;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tonic::transport::Endpoint;

use crate::connection::{Access, Connection, endpoint};
use crate::error::{ClusterError, WorkerFailure};
use crate::resolution::{WorkerAddress, resolve};

/// Pause before a call of a worker that could not be reached, or whose connection was lost. It may
/// be restarting.
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);
/// Number of consecutive failures after which a worker that might recover is given up.
const STRIKES_MAX: u32 = 3;
/// Maximum number of times that a worker gets the same task.
const TRIES_MAX: u32 = 2;

/// Workers, and how to call them.
#[derive(Clone, Debug)]
pub struct ClusterSettings {
    /// Addresses, `HOST:PORT` or `https://HOST:PORT` each. A single one may be the name of several
    /// workers.
    pub workers: Vec<String>,
    pub access: Access,
    /// Maximum time for one task on one worker.
    pub deadline: Duration,
    /// Version of this program, which workers must have.
    pub build: String,
}

/// Event of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskEvent {
    /// A worker has run a task.
    Done,
    /// A worker is given up. Other workers, if any are left, run its tasks.
    LeftOut {
        worker: String,
        failure: WorkerFailure,
    },
}

/// Workers that run tasks.
#[derive(Debug)]
pub struct Cluster {
    workers: Vec<ClusterWorker>,
    deadline: Duration,
    authorization: Option<HeaderValue>,
    build: String,
}

#[derive(Debug)]
struct ClusterWorker {
    address: WorkerAddress,
    endpoint: Endpoint,
    /// Reason why the worker is given up.
    failure: Option<WorkerFailure>,
}

impl Cluster {
    /// Parses the addresses of the workers, and resolves a single one, which may stand for several
    /// workers. Calls no worker yet.
    ///
    /// # Errors
    /// Fails if an address or the credentials cannot be used.
    pub async fn of(settings: ClusterSettings) -> Result<Self, ClusterError> {
        let authorization = settings.access.authorization()?;
        let addresses = resolve(&settings.workers).await?.into_iter();
        let worker = |address: WorkerAddress| {
            Ok(ClusterWorker {
                endpoint: endpoint(&address, &settings.access)?,
                address,
                failure: None,
            })
        };
        Ok(Self {
            workers: addresses.map(worker).collect::<Result<_, ClusterError>>()?,
            deadline: settings.deadline,
            authorization,
            build: settings.build,
        })
    }

    /// Returns the number of workers.
    #[must_use]
    pub fn worker_count(&self) -> usize {
        self.workers.len()
    }

    /// Runs `count` tasks, which `task` encodes by number, and passes each result with the task's
    /// number to `save`. If a worker fails, any worker may get its task. A worker that cannot be
    /// reached or whose connection was lost is called again, and left out of this run after three
    /// failures in a row. After any other failure, it is left out at once, also of later runs.
    ///
    /// # Errors
    /// Fails if `save` fails, or if no worker is left for a task.
    pub async fn run(
        &mut self,
        (count, task): (usize, impl Fn(usize) -> Arc<[u8]>),
        save: impl FnMut(usize, Vec<u8>) -> io::Result<()>,
        tell: impl FnMut(TaskEvent),
    ) -> Result<(), ClusterError> {
        let failures = self.workers.iter().map(|worker| worker.failure.clone());
        let run = Run {
            cluster: self,
            count,
            task,
            state: RefCell::new(RunState {
                queue: (0..count).collect(),
                running: 0,
                done: 0,
                tries: BTreeMap::new(),
                failures: failures.collect(),
                unsaved: None,
                save,
                tell,
            }),
            changed: Notify::new(),
        };
        let working = (0..self.workers.len()).map(|worker| run.serve(worker));
        // A worker that hangs must not delay the end.
        tokio::select! {
            () = run.ended() => {}
            _ = join_all(working) => {}
        }
        let state = run.state.into_inner();
        if let Some(error) = state.unsaved {
            return Err(error.into());
        }
        let (done, failures) = (state.done, state.failures);
        for (worker, failure) in self.workers.iter_mut().zip(&failures) {
            let failure = failure.as_ref().filter(|failure| !failure.may_pass());
            worker.failure = failure.cloned();
        }
        if done == count {
            return Ok(());
        }
        let failed = self.workers.iter().zip(failures);
        let failed =
            failed.filter_map(|(worker, failure)| Some((worker.address.name.clone(), failure?)));
        Err(ClusterError::NoResult {
            tasks: count,
            missing: count - done,
            failures: failed.collect(),
        })
    }
}

/// Tasks of a run, and the workers that run them. One thread polls all workers.
struct Run<'a, F, S, T> {
    cluster: &'a Cluster,
    count: usize,
    task: F,
    state: RefCell<RunState<S, T>>,
    /// Notifies all that wait for a state, such as workers without a task, that a task has ended.
    changed: Notify,
}

struct RunState<S, T> {
    /// Tasks that wait for a worker.
    queue: VecDeque<usize>,
    running: usize,
    done: usize,
    /// Number of failures by task and worker.
    tries: BTreeMap<(usize, usize), u32>,
    /// Last failure of each worker.
    failures: Vec<Option<WorkerFailure>>,
    unsaved: Option<io::Error>,
    save: S,
    tell: T,
}

impl<F, S, T> Run<'_, F, S, T>
where
    F: Fn(usize) -> Arc<[u8]>,
    S: FnMut(usize, Vec<u8>) -> io::Result<()>,
    T: FnMut(TaskEvent),
{
    /// Resolves when all tasks are done, or a result cannot be saved.
    async fn ended(&self) {
        self.until(|state| {
            let is_ended = state.done == self.count || state.unsaved.is_some();
            is_ended.then_some(())
        })
        .await;
    }

    /// Resolves when the state satisfies a condition.
    async fn until<R>(&self, mut condition: impl FnMut(&mut RunState<S, T>) -> Option<R>) -> R {
        loop {
            let changed = self.changed.notified();
            if let Some(found) = condition(&mut self.state.borrow_mut()) {
                return found;
            }
            changed.await;
        }
    }

    /// Returns a task for a worker; `None` if there will be none.
    async fn next(&self, worker: usize) -> Option<usize> {
        self.until(|state| {
            let has_tries = |task: &usize| {
                let tries = state.tries.get(&(*task, worker));
                tries.is_none_or(|&tries| tries < TRIES_MAX)
            };
            match state.queue.iter().position(has_tries) {
                Some(at) => {
                    state.running += 1;
                    Some(state.queue.remove(at))
                }
                None if state.running == 0 => Some(None),
                None => None,
            }
        })
        .await
    }

    /// Runs tasks on a worker until there are none, or until it fails for good.
    async fn serve(&self, number: usize) {
        let worker = &self.cluster.workers[number];
        let (mut strikes, mut has_run) = (0, false);
        while worker.failure.is_none() {
            let Err(failure) = self.converse(number, &mut has_run).await else {
                return;
            };
            strikes = if has_run { 1 } else { strikes + 1 };
            has_run = false;
            let is_over = strikes >= STRIKES_MAX || !failure.may_pass();
            self.note(number, failure, is_over);
            if is_over {
                return;
            }
            sleep(RECONNECT_PAUSE).await;
        }
    }

    /// Records a worker's failure. `is_over` is true if the worker is given up.
    fn note(&self, number: usize, failure: WorkerFailure, is_over: bool) {
        let state = &mut *self.state.borrow_mut();
        if is_over {
            (state.tell)(TaskEvent::LeftOut {
                worker: self.cluster.workers[number].address.name.clone(),
                failure: failure.clone(),
            });
        }
        state.failures[number] = Some(failure);
    }

    /// Connects to a worker, and runs tasks on it until there are none.
    async fn converse(&self, number: usize, has_run: &mut bool) -> Result<(), WorkerFailure> {
        let (cluster, deadline) = (self.cluster, self.cluster.deadline);
        let worker = &cluster.workers[number];
        let token = cluster.authorization.clone();
        let opening = Connection::open(&worker.address, &worker.endpoint, token, &cluster.build);
        let mut connection = opening.await?;
        while let Some(task) = self.next(number).await {
            let running = connection.run((self.task)(task));
            let ran = timeout(deadline, running).await;
            let ran = ran.unwrap_or(Err(WorkerFailure::Deadline(deadline)));
            let state = &mut *self.state.borrow_mut();
            state.running -= 1;
            self.changed.notify_waiters();
            match ran {
                Ok(result) => match (state.save)(task, result) {
                    Ok(()) => {
                        *has_run = true;
                        state.done += 1;
                        (state.tell)(TaskEvent::Done);
                    }
                    Err(error) => {
                        state.unsaved = Some(error);
                        return Ok(());
                    }
                },
                Err(failure) => {
                    state.queue.push_front(task);
                    *state.tries.entry((task, number)).or_default() += 1;
                    return Err(failure);
                }
            }
        }
        Ok(())
    }
}
