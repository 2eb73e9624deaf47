//! Connection of a driver to a worker.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::array::{AsArray as _, RecordBatch};
use datafusion::arrow::datatypes::DataType;
use datafusion::execution::{SessionStateBuilder, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion_distributed::grpc::{BoxCloneSyncChannel, create_worker_client};
use datafusion_distributed::{
    CoordinatorToWorkerMsg, DistributedConfig, DistributedExt as _, ExecuteTaskRequest,
    GetWorkerInfoRequest, MaybeEncoded, ProducerHead, SetPlanRequest, TaskKey, WorkerChannel,
};
use futures_util::StreamExt as _;
use futures_util::stream;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, Request};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tonic::body::Body;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};
use tower::ServiceExt as _;
use uuid::Uuid;

use crate::error::{ClusterError, WorkerFailure, chain};
use crate::resolution::WorkerAddress;
use crate::task_node::{IS_RESULT, TaskCodec, TaskExec};

/// Timeout for opening a connection, and for the exchange of versions.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between pings, and the timeout of their responses. The driver notices after both
/// that a worker's process is stopped, or that its machine is lost.
const PING_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum size of a task's result or error, in bytes.
const RESULT_BYTES_MAX: usize = 1 << 30;

/// Credentials of a driver.
#[derive(Clone, Default)]
pub struct Access {
    /// Token of the role `read`.
    pub token: Option<String>,
    /// Authorities that signed the workers' certificates, as PEM; `None` for those of the system.
    pub ca: Option<Vec<u8>>,
    pub certificate: Option<ClientCertificate>,
}

/// Certificate of a driver and its key, as PEM.
#[derive(Clone)]
pub struct ClientCertificate {
    pub certificate: Vec<u8>,
    pub key: Vec<u8>,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Access")
    }
}

impl Access {
    /// Returns the value of the header with the token; `None` without a token.
    pub(crate) fn authorization(&self) -> Result<Option<HeaderValue>, ClusterError> {
        let value = |token: &String| {
            let value = HeaderValue::try_from(format!("Bearer {}", token.trim()));
            let mut value = value.map_err(|_| ClusterError::Token)?;
            value.set_sensitive(true);
            Ok(value)
        };
        self.token.as_ref().map(value).transpose()
    }

    fn tls(&self, name: &str) -> ClientTlsConfig {
        let config = ClientTlsConfig::new().domain_name(name);
        let config = match &self.ca {
            Some(ca) => config.ca_certificate(Certificate::from_pem(ca)),
            None => config.with_native_roots(),
        };
        match &self.certificate {
            Some(of) => config.identity(Identity::from_pem(&of.certificate, &of.key)),
            None => config,
        }
    }
}

pub(crate) fn endpoint(worker: &WorkerAddress, access: &Access) -> Result<Endpoint, ClusterError> {
    let endpoint = Endpoint::from_shared(worker.url.to_string());
    let endpoint = endpoint.map_err(|error| ClusterError::Address {
        address: worker.name.clone(),
        reason: chain(&error),
    })?;
    let endpoint = endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_INTERVAL)
        .keep_alive_while_idle(true)
        .tcp_nodelay(true);
    match &worker.tls_name {
        None => Ok(endpoint),
        Some(name) => {
            let endpoint = endpoint.tls_config(access.tls(name));
            endpoint.map_err(|error| ClusterError::Tls(chain(&error)))
        }
    }
}

/// Open connection to a worker of the same version.
pub(crate) struct Connection {
    client: Box<dyn WorkerChannel>,
    context: Arc<TaskContext>,
    worker: WorkerAddress,
}

impl Connection {
    pub(crate) async fn open(
        worker: &WorkerAddress,
        endpoint: &Endpoint,
        authorization: Option<HeaderValue>,
        build: &str,
    ) -> Result<Self, WorkerFailure> {
        let channel = endpoint.connect().await;
        let channel = channel.map_err(|error| WorkerFailure::Unreachable(chain(&error)))?;
        let channel = channel.map_request(move |mut request: Request<Body>| {
            if let Some(authorization) = &authorization {
                let headers = request.headers_mut();
                headers.insert(AUTHORIZATION, authorization.clone());
            }
            request
        });
        let mut client = create_worker_client(BoxCloneSyncChannel::new(channel));
        // Without the time limit, a call could wait forever: if the worker closes the connection
        // while the call is sent (about once in 5,000 times), tonic's channel does not reconnect.
        let asking = client.get_worker_info(GetWorkerInfoRequest {});
        let asked = timeout(CONNECT_TIMEOUT, asking);
        let advice = advice(worker);
        let silent = format!("it sent no version within {CONNECT_TIMEOUT:?}; {advice}");
        let info = asked.await.map_err(|_| WorkerFailure::Lost(silent))?;
        let info = info.map_err(|error| match WorkerFailure::of_call(&error) {
            WorkerFailure::Lost(text) => WorkerFailure::Lost(format!("{text}; {advice}")),
            failure => failure,
        })?;
        if info.version != build {
            return Err(WorkerFailure::Version {
                found: info.version,
                own: build.to_owned(),
            });
        }
        let session = SessionStateBuilder::new()
            .with_distributed_option_extension(DistributedConfig::default())
            .with_distributed_user_codec(TaskCodec(None))
            .build();
        Ok(Self {
            client,
            context: session.task_ctx(),
            worker: worker.clone(),
        })
    }

    pub(crate) async fn run(&mut self, task: Arc<[u8]>) -> Result<Vec<u8>, WorkerFailure> {
        let task_key = TaskKey {
            query_id: Uuid::new_v4(),
            stage_id: 1,
            task_number: 0,
        };
        let plan: Arc<dyn ExecutionPlan> = Arc::new(TaskExec::new(task, None));
        let request = SetPlanRequest {
            task_key,
            task_count: 1,
            plan: MaybeEncoded::Decoded(plan),
            work_unit_feed_declarations: Vec::new(),
            target_worker_url: self.worker.url.clone(),
            query_start_time_ns: 0,
        };
        // The worker forgets the plan when this stream ends.
        let (_plan_end, ended) = oneshot::channel::<()>();
        let open = stream::once(ended).filter_map(async |_| None::<CoordinatorToWorkerMsg>);
        let failed = |error| WorkerFailure::of_call(&error);
        let metrics = ExecutionPlanMetricsSet::default();
        let calls = &mut self.client;
        let setting = calls.coordinator_channel(
            HeaderMap::new(),
            request,
            open.boxed(),
            metrics.clone(),
            &self.context,
        );
        let _answers = setting.await.map_err(failed)?;
        let request = ExecuteTaskRequest {
            task_key,
            target_partition_start: 0,
            target_partition_end: 1,
            producer_head: ProducerHead::None,
        };
        let running = calls.execute_task(HeaderMap::new(), request, metrics, &self.context);
        let mut result = TaskResult::default();
        for mut rows in running.await.map_err(failed)? {
            while let Some(batch) = rows.next().await {
                result.add(&batch.map_err(failed)?)?;
            }
        }
        result.end()
    }
}

/// Returns advice on a connection that the worker closes at once, or on which it sends nothing.
/// With TLS 1.3, a worker rejects a client only after the handshake.
fn advice(worker: &WorkerAddress) -> &'static str {
    match worker.tls_name {
        None => "if the worker uses TLS, its address is https://HOST:PORT",
        Some(_) => "if the worker requires a certificate, --cluster-cert names one that it accepts",
    }
}

/// Result of a task, while it arrives.
#[derive(Default)]
struct TaskResult {
    kind: Option<u8>,
    bytes: Vec<u8>,
}

impl TaskResult {
    fn add(&mut self, batch: &RecordBatch) -> Result<(), WorkerFailure> {
        let column = batch.columns().first();
        let column = column.filter(|column| *column.data_type() == DataType::Binary);
        let pieces = column.ok_or_else(malformed)?.as_binary::<i32>();
        for piece in pieces.iter().flatten() {
            match self.kind {
                None => self.kind = piece.first().copied(),
                Some(_) if self.bytes.len() + piece.len() > RESULT_BYTES_MAX => {
                    let text = format!("its result is larger than {RESULT_BYTES_MAX} bytes");
                    return Err(WorkerFailure::Task(text));
                }
                Some(_) => self.bytes.extend_from_slice(piece),
            }
        }
        Ok(())
    }

    fn end(self) -> Result<Vec<u8>, WorkerFailure> {
        match self.kind {
            Some(IS_RESULT) => Ok(self.bytes),
            Some(_) => Err(WorkerFailure::Task(
                String::from_utf8_lossy(&self.bytes).into_owned(),
            )),
            None => Err(malformed()),
        }
    }
}

fn malformed() -> WorkerFailure {
    WorkerFailure::Lost("its result is incomplete".into())
}
