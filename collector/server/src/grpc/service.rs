//! The `stroboscope.v1.Collector` service.

use std::pin::pin;
use std::sync::{Arc, Mutex};

use stroboscope_proto::v1::collector_server::Collector;
use stroboscope_proto::v1::{ControlRequest, Directive, ShipReply, ShipRequest};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::control::BurstControl;
use super::sender::Sender;
use super::ship::ShipStream;
use crate::ingest::Intake;
use crate::net::{BodyShare, until_true};
use crate::pool::Peer;
use crate::redact::Redaction;
use stroboscope_store::limits::{IN_FLIGHT_PER_STREAM_MAX, Limits};

#[derive(Debug)]
pub(super) struct Service {
    pub(super) intake: Intake,
    pub(super) control: BurstControl,
    pub(super) limits: Limits,
    pub(super) redaction: Option<Arc<Redaction>>,
    pub(super) stop: watch::Receiver<bool>,
}

#[tonic::async_trait]
impl Collector for Service {
    type ShipStream = ReceiverStream<Result<ShipReply, Status>>;
    type ControlStream = ReceiverStream<Result<Directive, Status>>;

    async fn ship(
        &self,
        request: Request<Streaming<ShipRequest>>,
    ) -> Result<Response<Self::ShipStream>, Status> {
        let (replies, stream) = mpsc::channel(IN_FLIGHT_PER_STREAM_MAX);
        let redaction = self.redaction.clone();
        let (intake, limits, stop) = (self.intake.clone(), self.limits.clone(), self.stop.clone());
        let sender = Mutex::new(Sender::new(request.remote_addr()));
        let reading = request.extensions().get::<BodyShare>().cloned();
        let peer = request.extensions().get::<Peer>().copied();
        tokio::spawn(
            ShipStream {
                intake,
                limits,
                redaction,
                replies,
                stop,
                sender,
                reading,
                peer: peer.unwrap_or_default(),
            }
            .run(request.into_inner()),
        );
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn control(
        &self,
        _request: Request<ControlRequest>,
    ) -> Result<Response<Self::ControlStream>, Status> {
        let (sender, stream) = mpsc::channel(4);
        let mut directives = self.control.directives();
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
