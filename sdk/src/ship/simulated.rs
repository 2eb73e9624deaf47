//! Connects the shipper to a simulated service, which provides its records and observes their
//! shipping.
#![allow(
    missing_docs,
    reason = "no part of the API; the user is a test beside this crate"
)]

use std::sync::Arc;

use stroboscope_proto::v1;

use super::ShipTask;
use super::link::Progress;
use crate::baggage::load::LoadSample;
use crate::batch::FinishedSpan;
use crate::drain::Drain;
use crate::loss::{LossCause, Losses};

/// Span recorded by a simulated service.
#[derive(Clone, Copy, Debug)]
pub struct RecordedSpan {
    pub trace_id: u128,
    pub span_id: u64,
    pub start_ns: i64,
    pub duration_ns: u64,
}

/// Event of a process's shipper.
#[derive(Clone, Copy, Debug)]
pub enum ShipEvent<'a> {
    /// A batch was numbered and is kept until it is answered. Repeated if a later one is discarded.
    Kept(&'a v1::Batch),
    Connected,
    Replied(&'a v1::ShipReply),
    /// The connection is slow or lost, or could not be made.
    Troubled(&'a str),
}

/// Simulated service and observer of its shipper.
pub trait Service: Send + Sync {
    /// Returns the spans that ended since the last call, and the number of spans lost because no
    /// ring had space.
    fn recorded(&self) -> (Vec<RecordedSpan>, u64);
    /// Receives each event of the process's shipper.
    fn notice(&self, happened: ShipEvent<'_>);
}

/// Simulated part of a process.
#[derive(Clone)]
pub(crate) struct Simulation {
    pub(crate) service: Arc<dyn Service>,
    /// Planted defect: a retry uses a new sequence.
    pub(crate) renumbers: bool,
}

impl Simulation {
    /// Passes the service's records to the drain.
    pub(crate) fn record(&self, drain: &mut Drain, losses: &Losses) {
        let (spans, lost) = self.service.recorded();
        losses.add(LossCause::RingFull, lost);
        for span in spans {
            drain.record(&FinishedSpan {
                trace_id: span.trace_id,
                span_id: span.span_id,
                parent_id: 0,
                name: "simulated",
                start_ns: span.start_ns,
                duration_ns: span.duration_ns,
                flags: v1::SpanFlag::Sampled as u32,
                fields: Vec::new(),
            });
        }
    }
}

/// Removes measurements of the machine in a simulation, which does not determine them.
pub(super) fn without_machine(used: LoadSample, simulated: Option<&Simulation>) -> LoadSample {
    match simulated {
        None => used,
        Some(_) => LoadSample {
            cpu_ns: None,
            memory_bytes: None,
            ..used
        },
    }
}

impl ShipTask {
    /// Reports the newest waiting batch to the simulated service.
    pub(super) fn tell_kept(&self) {
        if let (Some(simulated), Some(batch)) = (&self.shipper.simulated, self.buffer.newest()) {
            simulated.service.notice(ShipEvent::Kept(batch));
        }
    }

    pub(super) fn tell_progress(&mut self, progress: &Progress) {
        let Some(simulated) = &self.shipper.simulated else {
            return;
        };
        simulated.service.notice(match progress {
            Progress::Connected => ShipEvent::Connected,
            Progress::Reply(reply) => ShipEvent::Replied(reply),
            Progress::Slow(problem) | Progress::Down(problem) => ShipEvent::Troubled(problem),
        });
        if simulated.renumbers && matches!(progress, Progress::Connected) {
            self.buffer.renumber();
        }
    }
}
