//! The services `stroboscope.v1.Collector` and `stroboscope.v1.Gateway`.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stroboscope_proto::v1::collector_server::Collector;
use stroboscope_proto::v1::gateway_server::Gateway;
use stroboscope_proto::v1::{
    ControlRequest, Directive, ForwardRequest, ProbeAnswer, ProbeReceipt, ShipReply, ShipRequest,
};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::control::BurstControl;
use super::sender::Sender;
use super::ship::{Arrival, ShipStream};
use crate::ingest::Intake;
use crate::net::{BodyShare, until_true};
use crate::otlp::Door;
use crate::redact::Redaction;
use stroboscope_store::limits::{IN_FLIGHT_PER_STREAM_MAX, Limits};

#[derive(Clone, Debug)]
pub(super) struct Service {
    pub(super) intake: Intake,
    pub(super) control: BurstControl,
    pub(super) limits: Limits,
    pub(super) redaction: Option<Arc<Redaction>>,
    pub(super) otlp: Door,
    pub(super) stop: watch::Receiver<bool>,
}

type Replies = ReceiverStream<Result<ShipReply, Status>>;

impl Service {
    /// Starts a task that receives a stream's messages. Returns the stream of their replies.
    fn receive<R: Arrival>(&self, request: Request<Streaming<R>>) -> Response<Replies> {
        let (replies, stream) = mpsc::channel(IN_FLIGHT_PER_STREAM_MAX);
        let receiver = ShipStream {
            intake: self.intake.clone(),
            limits: self.limits.clone(),
            redaction: self.redaction.clone(),
            replies,
            stop: self.stop.clone(),
            sender: Mutex::new(Sender::new(request.remote_addr())),
            reading: request.extensions().get::<BodyShare>().cloned(),
            peer: request.extensions().get().copied().unwrap_or_default(),
            otlp: self.otlp.clone(),
        };
        tokio::spawn(receiver.run(request.into_inner()));
        Response::new(ReceiverStream::new(stream))
    }
}

#[tonic::async_trait]
impl Gateway for Service {
    type ForwardStream = Replies;

    async fn forward(
        &self,
        request: Request<Streaming<ForwardRequest>>,
    ) -> Result<Response<Self::ForwardStream>, Status> {
        if let Some(reason) = self.control.loop_reason() {
            return Err(Status::failed_precondition(reason));
        }
        Ok(self.receive(request))
    }

    async fn answer(
        &self,
        request: Request<ProbeAnswer>,
    ) -> Result<Response<ProbeReceipt>, Status> {
        let ProbeAnswer { probe, below_ns } = request.into_inner();
        let agents = self.control.agents();
        agents.answered(probe, Duration::from_nanos(below_ns));
        Ok(Response::new(ProbeReceipt {}))
    }
}

#[tonic::async_trait]
impl Collector for Service {
    type ShipStream = Replies;
    type ControlStream = ReceiverStream<Result<Directive, Status>>;

    async fn ship(
        &self,
        request: Request<Streaming<ShipRequest>>,
    ) -> Result<Response<Self::ShipStream>, Status> {
        Ok(self.receive(request))
    }

    async fn control(
        &self,
        request: Request<ControlRequest>,
    ) -> Result<Response<Self::ControlStream>, Status> {
        let (sender, stream) = mpsc::channel(4);
        let mut directives = self.control.directives(request.get_ref().is_agent);
        let stop = self.stop.clone();
        tokio::spawn(async move {
            let mut stopped = pin!(until_true(stop));
            loop {
                tokio::select! {
                    directive = directives.next() => {
                        let Some(directive) = directive else { return };
                        if sender.send(Ok(directive)).await.is_err() { return }
                    }
                    () = sender.closed() => return,
                    () = &mut stopped => return,
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }
}
