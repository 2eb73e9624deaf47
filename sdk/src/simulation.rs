//! A process in a simulation: the real gate, batches, buffer and link, over given clocks, connections and records.
//!
//! Rings and their drain are left out: they belong to threads, of which a simulation has one. No part of the API.
#![allow(
    missing_docs,
    reason = "no part of the API; the user is a test beside this crate"
)]

use std::sync::Arc;
use std::time::Duration;

use stroboscope_burst::BurstConfig;
use stroboscope_proto::v1;
use tokio::sync::{mpsc, oneshot};

pub use crate::address::simulated::{Connecting, Connection, Connector};
use crate::clock::ClockSource;
use crate::config::{Address, InitError};
use crate::gate::timer::Timer;
use crate::loss::Losses;
use crate::ship::simulated::Simulated;
pub use crate::ship::simulated::{Happened, RecordedSpan, Service};
use crate::ship::{Shipper, Stop};

/// The clocks of a simulated machine.
pub trait Clock: Send + Sync {
    /// Nanoseconds since the Unix epoch; may jump.
    fn wall_ns(&self) -> i64;
    /// Nanoseconds since some instant; never jumps.
    fn monotonic_ns(&self) -> i64;
}

struct Clocks(Arc<dyn Clock>);

impl ClockSource for Clocks {
    fn wall_ns(&self) -> i64 {
        self.0.wall_ns()
    }

    fn monotonic_ns(&self) -> i64 {
        self.0.monotonic_ns()
    }

    fn ticks(&self) -> u64 {
        // Another unit, so that nobody takes one for the other.
        self.0.monotonic_ns().cast_unsigned() * 3
    }
}

/// A process that is about to run.
pub struct Process {
    pub process: v1::Process,
    pub burst_config: BurstConfig,
    pub buffer_bytes_max: usize,
    pub clock: Arc<dyn Clock>,
    pub connector: Connector,
    pub service: Arc<dyn Service>,
    /// Counters of the process alone.
    pub losses: &'static LossCounters,
    /// Planted defect: a retry takes a new sequence.
    pub renumbers: bool,
}

/// Counters of lost records.
#[derive(Debug)]
pub struct LossCounters(Losses);

impl LossCounters {
    /// New ones, which live as long as the operating system's process.
    #[must_use]
    pub fn leaked() -> &'static Self {
        Box::leak(Box::new(Self(Losses::new())))
    }

    /// Records lost, of all causes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.total()
    }
}

impl Process {
    /// Runs until told to stop, and then for at most as long as it is told.
    ///
    /// # Errors
    /// None but that of an address that cannot be, which is given here.
    pub async fn run(self, stopped: oneshot::Receiver<Duration>) -> Result<(), InitError> {
        // The thread records nothing of itself: the flag that the gate raises is the operating system's process's.
        crate::thread::mute();
        let address = Address {
            text: "http://127.0.0.1:4317".to_owned(),
            token: None,
            ca: None,
        };
        let mut destination = address.resolve()?;
        destination.connector = Some(self.connector);
        let clock: Arc<dyn ClockSource> = Arc::new(Clocks(self.clock));
        let timer = Timer::new(self.burst_config, Arc::clone(&clock));
        let shipper = Shipper {
            process: self.process,
            destination,
            buffer_bytes_max: self.buffer_bytes_max,
            timer: Arc::clone(&timer),
            clock,
            progressed: Arc::default(),
            losses: &self.losses.0,
            shutdown_deadline: Duration::ZERO,
            simulated: Some(Simulated {
                service: self.service,
                renumbers: self.renumbers,
            }),
        };
        let (stop, stopping) = oneshot::channel();
        let (_flushes, asked) = mpsc::unbounded_channel();
        // As a guard does: windows are closed before what is in them is shipped.
        let end = async {
            // Who drops the sender has it end at once.
            let patience = timer.turn_until(stopped).await.unwrap_or(Duration::ZERO);
            let deadline = tokio::time::Instant::now() + patience;
            let _ = stop.send(Stop {
                deadline: deadline.into_std(),
            });
        };
        tokio::join!(shipper.run(stopping, asked), end);
        Ok(())
    }
}
