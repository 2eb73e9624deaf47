//! Process in a simulation: the real gate, batches, buffer and link, with simulated clocks,
//! connections and records.
//!
//! Threads' rings are left out, because a simulation has only one thread. Not part of the API.
#![allow(
    missing_docs,
    reason = "no part of the API; the user is a test beside this crate"
)]

use std::sync::Arc;
use std::time::Duration;

use stroboscope_burst::BurstConfig;
use stroboscope_proto::v1;
use tokio::sync::{mpsc, oneshot};

pub use crate::address::simulated::{Connection, Connector, SimulatedConnect};
use crate::clock::ClockSource;
use crate::config::{Address, InitError};
use crate::gate::timer::Timer;
use crate::loss::Losses;
use crate::ship::simulated::Simulation;
pub use crate::ship::simulated::{RecordedSpan, Service, ShipEvent};
use crate::ship::{Shipper, Stop};

/// Clocks of a simulated machine.
pub trait Clock: Send + Sync {
    /// Returns nanoseconds since the Unix epoch; may jump.
    fn wall_ns(&self) -> i64;
    /// Returns nanoseconds since some fixed instant; never jumps.
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
        // Uses another unit, so that mixing up ticks and nanoseconds shows.
        self.0.monotonic_ns().cast_unsigned() * 3
    }
}

/// Configuration of a process to simulate.
pub struct Process {
    pub process: v1::Process,
    pub burst_config: BurstConfig,
    pub buffer_bytes_max: usize,
    pub clock: Arc<dyn Clock>,
    pub connector: Connector,
    pub service: Arc<dyn Service>,
    /// Counters of this process alone.
    pub losses: &'static LossCounters,
    /// Planted defect: a retry uses a new sequence.
    pub renumbers: bool,
}

/// Counters of lost records.
#[derive(Debug)]
pub struct LossCounters(Losses);

impl LossCounters {
    /// Creates counters that exist until the operating system's process ends.
    #[must_use]
    pub fn leaked() -> &'static Self {
        Box::leak(Box::new(Self(Losses::new())))
    }

    /// Returns the sum of the counters over all causes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.total()
    }
}

impl Process {
    /// Runs until `stopped` yields a duration (0 if its sender is dropped), and then ships pending
    /// records for at most that duration.
    ///
    /// # Errors
    /// Fails only for an invalid address; the address used here is valid.
    pub async fn run(self, stopped: oneshot::Receiver<Duration>) -> Result<(), InitError> {
        // This thread records nothing itself: the gate's flag belongs to the operating system's
        // process.
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
            simulated: Some(Simulation {
                service: self.service,
                renumbers: self.renumbers,
            }),
        };
        let (stop, stopping) = oneshot::channel();
        let (_flushes, asked) = mpsc::unbounded_channel();
        // Closes windows before their records are shipped, like a guard.
        let end = async {
            // Dropping the sender ends the process at once.
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
