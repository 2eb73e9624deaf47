//! A driver with workers in the process of the test: results, errors, and rejected plans.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use datafusion::execution::{SessionStateBuilder, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::prelude::{CsvReadOptions, SessionContext};
use datafusion_distributed::grpc::{BoxCloneSyncChannel, create_worker_client};
use datafusion_distributed::{
    DistributedConfig, DistributedExt as _, MaybeEncoded, NetworkCoalesceExec, SetPlanRequest,
    TaskKey,
};
use futures_util::StreamExt as _;
use stroboscope_cluster::{
    Access, Cluster, ClusterError, ClusterSettings, TaskEvent, TaskRunner, WorkerFailure,
    worker_routes,
};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Endpoint, Server};

const BUILD: &str = "test 1";

/// Repeats the task as often as its first byte states. The tasks `error` and `panic` fail, and
/// `slow` takes three seconds.
struct Repeat(AtomicUsize);

impl TaskRunner for Repeat {
    fn run(&self, task: &[u8]) -> Result<Vec<u8>, String> {
        self.0.fetch_add(1, Ordering::Relaxed);
        match task {
            b"error" => Err("no such thing".into()),
            b"panic" => panic!("as the test asks"),
            b"slow" => {
                std::thread::sleep(Duration::from_secs(3));
                Ok(Vec::new())
            }
            _ => Ok(task.repeat(task.first().map_or(0, |&count| usize::from(count)))),
        }
    }
}

fn start() -> (String, Arc<Repeat>) {
    let tasks = Arc::new(Repeat(AtomicUsize::new(0)));
    let routes = worker_routes(tasks.clone(), BUILD).unwrap();
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = incoming.local_addr().unwrap();
    let server = Server::builder().add_routes(routes);
    tokio::spawn(server.serve_with_incoming(incoming));
    (address.to_string(), tasks)
}

async fn cluster(workers: &[&str], build: &str) -> Cluster {
    let settings = ClusterSettings {
        workers: workers.iter().map(ToString::to_string).collect(),
        access: Access::default(),
        deadline: Duration::from_secs(1),
        build: build.to_owned(),
    };
    Cluster::of(settings).await.unwrap()
}

/// Runs tasks, and returns their results and the events of left-out workers.
async fn run(
    cluster: &mut Cluster,
    tasks: &[Vec<u8>],
) -> (Result<Vec<Vec<u8>>, ClusterError>, Vec<WorkerFailure>) {
    let (mut results, mut left_out) = (vec![None; tasks.len()], Vec::new());
    let save = |number: usize, result| {
        assert_eq!(results[number].replace(result), None, "{number} ran twice");
        Ok(())
    };
    let tell = |event| {
        if let TaskEvent::LeftOut { failure, .. } = event {
            left_out.push(failure);
        }
    };
    let task = |number: usize| tasks[number].as_slice().into();
    let ran = cluster.run((tasks.len(), task), save, tell).await;
    let results = ran.map(|()| results.into_iter().map(Option::unwrap).collect());
    (results, left_out)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_task_has_its_result() {
    let workers = [start(), start(), start()];
    let addresses = workers.each_ref().map(|(address, _)| &**address);
    let mut cluster = cluster(&addresses, BUILD).await;
    // An empty result, one of a piece, and one of several.
    let sizes = (0..20).map(|number| number % 5 * 150_000 + number);
    let tasks: Vec<Vec<u8>> = sizes.map(|size| vec![10; size]).collect();
    let (results, left_out) = run(&mut cluster, &tasks).await;
    for (result, task) in results.unwrap().iter().zip(&tasks) {
        assert!(*result == vec![10; 10 * task.len()]);
    }
    assert_eq!(left_out, []);
    let ran = workers
        .each_ref()
        .map(|(_, tasks)| tasks.0.load(Ordering::Relaxed));
    assert!(
        ran.iter().sum::<usize>() == 20 && !ran.contains(&0),
        "{ran:?}"
    );
    assert_eq!(
        run(&mut cluster, &[]).await.0.unwrap(),
        Vec::<Vec<u8>>::new()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_is_named_and_other_workers_take_over() {
    let (bad, good) = (start(), start());
    for (task, reason) in [
        ("error", "no such thing"),
        ("panic", "panicked"),
        ("slow", "--cluster-deadline"),
    ] {
        let mut cluster = cluster(&[&bad.0], BUILD).await;
        let (result, left_out) = run(&mut cluster, &[task.into()]).await;
        let error = result.unwrap_err().to_string();
        let expected = format!("worker {}: ", bad.0);
        assert!(error.contains("1 of 1 shards have no result"), "{error}");
        assert!(
            error.contains(&expected) && error.contains(reason),
            "{error}"
        );
        assert_eq!(left_out.len(), 1);
        // The worker stays left out.
        let (again, left_out) = run(&mut cluster, &[vec![1]]).await;
        assert!(again.is_err() && left_out.is_empty());
    }
    let mut both = cluster(&["127.0.0.1:1", &good.0], BUILD).await;
    let tasks = vec![vec![1]; 8];
    assert_eq!(run(&mut both, &tasks).await.0.unwrap(), tasks);
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_must_be_equal() {
    let (address, tasks) = start();
    let mut other = cluster(&[&address], "test 2").await;
    let (result, _) = run(&mut other, &[vec![1]]).await;
    let error = result.unwrap_err().to_string();
    assert!(
        error.contains("it is test 1, and this is test 2"),
        "{error}"
    );
    assert_eq!(tasks.0.load(Ordering::Relaxed), 0);
}

/// Sends a plan as a coordinator of the engine does, and returns the worker's error.
async fn refusal(
    address: &str,
    plan: Arc<dyn ExecutionPlan>,
    context: &Arc<TaskContext>,
) -> String {
    let url = format!("http://{address}");
    let channel = Endpoint::from_shared(url.clone()).unwrap();
    let channel = channel.connect().await.unwrap();
    let mut client = create_worker_client(BoxCloneSyncChannel::new(channel));
    let request = SetPlanRequest {
        task_key: TaskKey {
            query_id: uuid::Uuid::new_v4(),
            stage_id: 1,
            task_number: 0,
        },
        task_count: 1,
        plan: MaybeEncoded::Decoded(plan),
        work_unit_feed_declarations: Vec::new(),
        target_worker_url: url.parse().unwrap(),
        query_start_time_ns: 0,
    };
    let open = futures_util::stream::pending().boxed();
    let metrics = ExecutionPlanMetricsSet::default();
    let sent = client.coordinator_channel(http::HeaderMap::new(), request, open, metrics, context);
    let refused = sent.await.err().expect("the worker rejects the plan");
    refused.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn other_plans_are_rejected() {
    let (address, tasks) = start();
    let session = SessionStateBuilder::new()
        .with_default_features()
        .with_distributed_option_extension(DistributedConfig::default())
        .build();
    let context = session.task_ctx();
    let session = SessionContext::new_with_state(session);
    // A plan that reads a file of the worker.
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("secrets.csv");
    std::fs::write(&file, "name,secret\na,b\n").unwrap();
    let file = file.to_str().unwrap();
    let reading = session.read_csv(file, CsvReadOptions::new()).await.unwrap();
    let reading = reading.create_physical_plan().await.unwrap();
    // A plan that calls another machine.
    let calling = NetworkCoalesceExec::try_new(reading.clone(), 2, 1).unwrap();
    let empty = EmptyExec::new(reading.schema());
    for plan in [reading, Arc::new(calling), Arc::new(empty)] {
        let refused = refusal(&address, plan, &context).await;
        assert!(refused.contains("no other plans"), "{refused}");
    }
    assert_eq!(tasks.0.load(Ordering::Relaxed), 0);
}
