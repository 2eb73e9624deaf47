//! The intake in a simulation, which has one thread: the committing and the flushing thread run as
//! one future.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc as std_mpsc};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use super::committer::{Command, Committer, FlushCommand, IntakeState, Rotate};
use super::flushing::{FlushThread, SegmentSink};
use super::intake::{Channels, Inner, QUEUE};
use super::recovery::{recovered, recovered_agent};
use super::{Intake, Options};
use crate::pool::Pool;
use stroboscope_store::data_dir::{DataDir, Lock};
use stroboscope_store::flush::{FlushError, Upstream};
use stroboscope_store::tables::Store;
use stroboscope_store::wal::{Payload, Writer};

/// Hooks with which a simulation runs the work of an intake's threads.
#[derive(Clone, Copy, Debug)]
pub struct Ways {
    /// Runs a blocking function in a context that allows blocking.
    pub apart: fn(&mut (dyn FnMut() + Send)),
    /// Returns the time that the disk takes for a group commit now.
    pub commit_takes: fn() -> Duration,
    /// Plants a defect: an agent deletes segments that it has not delivered.
    pub forgets: bool,
}

impl Intake {
    /// Opens an intake without threads; it makes progress while the future is polled. It has no
    /// live model and no file maintenance.
    ///
    /// # Errors
    /// Returns an error if the directory is damaged, or if the disk or the store fails.
    pub fn simulated(
        data: &DataDir,
        lock: Lock,
        store: &Store,
        options: &Options,
        ways: Ways,
    ) -> Result<(Self, impl Future<Output = ()> + use<>), FlushError> {
        let mut opened = Err(FlushError::Thread(std::io::ErrorKind::Interrupted.into()));
        (ways.apart)(&mut || opened = recovered(data, store.clone()));
        let (writer, flusher, state) = opened?;
        let sink = SegmentSink::Store(flusher);
        Ok(Self::assembled(
            (writer, sink, state),
            lock,
            options,
            ways,
            None,
        ))
    }

    /// Opens the intake of an agent without threads, as [`simulated`](Self::simulated) does. It
    /// forwards closed segments by `deliver`.
    ///
    /// # Errors
    /// Returns an error if the directory is damaged or holds a store, or if the disk fails.
    pub fn simulated_agent(
        data: &DataDir,
        lock: Lock,
        deliver: Deliver,
        options: &Options,
        ways: Ways,
    ) -> Result<(Self, impl Future<Output = ()> + use<>), FlushError> {
        let orders = DeliveryOrders {
            forgets: ways.forgets,
            state: Arc::default(),
        };
        let mut opened = Err(FlushError::Thread(std::io::ErrorKind::Interrupted.into()));
        (ways.apart)(&mut || {
            opened = recovered_agent(data, Box::new(orders.clone()), options.backlog_bytes_max);
        });
        let (writer, forwarder, state) = opened?;
        let sink = SegmentSink::Upstream(forwarder);
        Ok(Self::assembled(
            (writer, sink, state),
            lock,
            options,
            ways,
            Some((deliver, orders)),
        ))
    }

    fn assembled(
        (writer, sink, state): (Writer, SegmentSink, Arc<IntakeState>),
        lock: Lock,
        options: &Options,
        ways: Ways,
        delivery: Option<(Deliver, DeliveryOrders)>,
    ) -> (Self, impl Future<Output = ()> + use<>) {
        let (commands, arriving) = mpsc::channel(QUEUE);
        let (forward, committed) = mpsc::channel(QUEUE);
        let (flushes, flush_commands) = std_mpsc::channel();
        let flusher_of_committer = flushes.clone();
        let committer = Committer::new(
            writer,
            state.clone(),
            committed,
            flusher_of_committer,
            options.segment_bytes,
        );
        let flushing = FlushThread {
            sink,
            state: state.clone(),
            committer: commands.downgrade(),
            commands: flush_commands,
            interval: options.flush_interval,
            quiet_flushes: 0,
            until: None,
            others_flushed: Arc::new(AtomicBool::new(false)),
            _lock: Arc::new(lock),
        };
        let inner = Inner {
            state,
            in_flight: Pool::new(options.in_flight_bytes_max),
            channels: Mutex::new(Some(Channels {
                commands,
                flusher: flushes,
                care: None,
            })),
            threads: Mutex::default(),
            live: None,
            care: Arc::default(),
        };
        let work = async move {
            tokio::join!(
                committer.run(),
                delay(arriving, forward, ways.commit_takes),
                flush(flushing, delivery, ways.apart)
            );
        };
        let inner = Arc::new(inner);
        (Self { inner }, work)
    }
}

/// Delivers the payloads of a segment to another collector until an instant, as
/// [`Upstream::deliver`] describes.
pub type Deliver = Box<
    dyn FnMut(
        u64,
        Vec<Payload>,
        Instant,
    ) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>>,
>;

/// Upstream of a simulated agent. Delivery is async work of the simulation's only thread, so a call
/// schedules it and fails. The next call for the segment returns the result. With `forgets`, a call
/// only pretends to deliver.
#[derive(Clone, Debug)]
struct DeliveryOrders {
    forgets: bool,
    state: Arc<Mutex<DeliveryState>>,
}

#[derive(Debug, Default)]
struct DeliveryState {
    order: Option<DeliveryOrder>,
    /// Result of the latest delivery, with its segment.
    done: Option<(u64, Result<(), String>)>,
}

#[derive(Debug)]
struct DeliveryOrder {
    segment: u64,
    payloads: Vec<Payload>,
    until: Instant,
}

impl DeliveryOrders {
    fn state(&self) -> MutexGuard<'_, DeliveryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Upstream for DeliveryOrders {
    fn deliver(
        &mut self,
        segment: u64,
        payloads: &[Payload],
        until: Instant,
    ) -> Result<(), String> {
        if self.forgets {
            return Ok(());
        }
        let mut state = self.state();
        match state.done.take() {
            Some((of, result)) if of == segment => result,
            _ => {
                state.order = Some(DeliveryOrder {
                    segment,
                    payloads: payloads.to_vec(),
                    until,
                });
                Err("it is under way".to_owned())
            }
        }
    }
}

/// Forwards commands at the speed of the simulated disk.
async fn delay(
    mut arriving: mpsc::Receiver<Command>,
    forward: mpsc::Sender<Command>,
    takes: fn() -> Duration,
) {
    let mut group = Vec::new();
    while arriving.recv_many(&mut group, QUEUE).await > 0 {
        let takes = takes();
        if !takes.is_zero() {
            tokio::time::sleep(takes).await;
        }
        for command in group.drain(..) {
            if forward.send(command).await.is_err() {
                return;
            }
        }
    }
}

/// Takes the place of [`FlushThread::run`]. Blocks only inside `apart`, and closes the open segment
/// even if it is quiet, or if the command is [`FlushCommand::Closed`].
async fn flush(
    mut thread: FlushThread,
    mut delivery: Option<(Deliver, DeliveryOrders)>,
    apart: fn(&mut (dyn FnMut() + Send)),
) {
    /// Polling interval of the flusher's commands.
    const LOOK: Duration = Duration::from_millis(50);
    let mut due = tokio::time::Instant::now() + thread.interval;
    loop {
        let answer = match thread.commands.try_recv() {
            Ok(FlushCommand::Now(answer)) => Some(answer),
            Ok(FlushCommand::Closed) => None,
            Err(std_mpsc::TryRecvError::Disconnected) => return,
            Err(std_mpsc::TryRecvError::Empty) if tokio::time::Instant::now() < due => {
                tokio::time::sleep(LOOK).await;
                continue;
            }
            Err(std_mpsc::TryRecvError::Empty) => {
                due = tokio::time::Instant::now() + thread.interval;
                None
            }
        };
        if let Some(committer) = thread.committer.upgrade() {
            let (answer, done) = oneshot::channel();
            let rotate = Rotate {
                even_if_quiet: true,
                answer,
            };
            if committer.send(Command::Rotate(rotate)).await.is_ok() {
                let _ = done.await;
            }
        }
        let mut flushed = Ok(());
        apart(&mut || flushed = thread.flush_closed());
        if let Some((deliver, orders)) = &mut delivery {
            loop {
                let order = orders.state().order.take();
                let Some(DeliveryOrder {
                    segment,
                    payloads,
                    until,
                }) = order
                else {
                    break;
                };
                let result = deliver(segment, payloads, until).await;
                orders.state().done = Some((segment, result));
                apart(&mut || flushed = thread.flush_closed());
            }
        }
        if let Some(answer) = answer {
            let _ = answer.send(flushed);
        }
    }
}
