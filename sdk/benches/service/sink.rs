//! A process that accepts Stroboscope's batches and OTLP, counts the spans and discards them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use stroboscope_proto::v1::{self, collector_server};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio_stream::wrappers::TcpListenerStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::codec::CompressionEncoding;
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming, async_trait};

use crate::{Failure, web};

/// The running sink process and its address.
pub(crate) struct Sink {
    child: Child,
    address: SocketAddr,
}

impl Sink {
    pub(crate) async fn start() -> Result<Self, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("--sink")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn()?;
        let address = web::listening(&mut child).await?;
        Ok(Self { child, address })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops the process and returns the number of spans of each service, as text.
    pub(crate) async fn stop(mut self) -> Result<String, Failure> {
        drop(self.child.stdin.take());
        let mut seen = String::new();
        if let Some(stdout) = self.child.stdout.as_mut() {
            stdout.read_to_string(&mut seen).await?;
        }
        self.child.wait().await?;
        Ok(seen.trim().to_owned())
    }
}

/// Number of spans by service name.
#[derive(Clone, Default)]
struct Count(Arc<Mutex<BTreeMap<String, usize>>>);

impl Count {
    fn add(&self, service: &str, spans: usize) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(service.to_owned()).or_default() += spans;
    }
}

type Replies<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[async_trait]
impl collector_server::Collector for Count {
    type ShipStream = Replies<v1::ShipReply>;
    type ControlStream = Replies<v1::Directive>;

    async fn ship(
        &self,
        request: Request<Streaming<v1::ShipRequest>>,
    ) -> Result<Response<Self::ShipStream>, Status> {
        let me = self.clone();
        let replies = request.into_inner().map(move |message| {
            let batch = message?.batch.unwrap_or_default();
            let service = batch
                .process
                .map(|process| process.service)
                .unwrap_or_default();
            me.add(
                &service,
                batch.spans.map_or(0, |spans| spans.span_ids.len()),
            );
            let outcome = v1::ShipOutcome::Stored.into();
            Ok(v1::ShipReply {
                sequence: batch.sequence,
                outcome,
                detail: String::new(),
            })
        });
        Ok(Response::new(Box::pin(replies)))
    }

    async fn control(
        &self,
        _: Request<v1::ControlRequest>,
    ) -> Result<Response<Self::ControlStream>, Status> {
        Ok(Response::new(Box::pin(tokio_stream::pending())))
    }
}

#[async_trait]
impl TraceService for Count {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        for part in request.into_inner().resource_spans {
            let attributes = part
                .resource
                .map(|resource| resource.attributes)
                .unwrap_or_default();
            let name = attributes
                .into_iter()
                .find(|attribute| attribute.key == "service.name");
            let service = match name
                .and_then(|name| name.value)
                .and_then(|value| value.value)
            {
                Some(Value::StringValue(service)) => service,
                _ => String::new(),
            };
            self.add(
                &service,
                part.scope_spans.iter().map(|scope| scope.spans.len()).sum(),
            );
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

/// Runs the sink in the child process: serves until standard input ends, then prints the number of
/// spans of each service.
pub(crate) async fn be() -> Result<(), Failure> {
    let count = Count::default();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listening {}", listener.local_addr()?);
    let ours = collector_server::CollectorServer::new(count.clone())
        .accept_compressed(CompressionEncoding::Zstd);
    let router = Server::builder()
        .add_service(ours)
        .add_service(TraceServiceServer::new(count.clone()));
    let ended = async {
        // An error counts as the end of the input.
        let _ = tokio::io::stdin().read_to_end(&mut Vec::new()).await;
    };
    tokio::select! {
        served = router.serve_with_incoming(TcpListenerStream::new(listener)) => served?,
        () = ended => {}
    }
    let counts = count.0.lock().unwrap_or_else(PoisonError::into_inner);
    let counts: Vec<String> = counts
        .iter()
        .map(|(service, spans)| format!("{service}: {spans}"))
        .collect();
    println!("{}", counts.join("; "));
    Ok(())
}
