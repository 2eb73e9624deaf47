//! The most common pair of services: axum, tower-http's `TraceLayer`, functions with
//! `#[tracing::instrument]`, and reqwest between the two. Two lines in each show all requests, and
//! which of them failed; a layer at each end of the call makes one request of both halves.

use std::collections::BTreeMap;
use std::process::Command;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{Request, Response, StatusCode};
use axum::routing::get;
use serde_json::Value;
use stroboscope::tower::{ClientLayer, ServerLayer};
use stroboscope_tests::{Program, Server};
use tower::{ServiceBuilder, ServiceExt as _};
use tower_http::trace::TraceLayer;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

const ROLE: &str = "STROBOSCOPE_TEST_ROLE";
const BACK: &str = "STROBOSCOPE_TEST_BACK";
const LAYERS: &str = "STROBOSCOPE_TEST_LAYERS";

const REQUESTS: usize = 300;
/// Number of an item that the back service lacks.
const MISSING: u32 = 13;

#[tracing::instrument]
fn look_up(item: u32) -> Option<u32> {
    (item != MISSING).then_some(item % 7)
}

async fn stock(Path(item): Path<u32>) -> Result<String, StatusCode> {
    let Some(count) = look_up(item) else {
        tracing::error!(item, "nobody knows this item");
        return Err(StatusCode::INTERNAL_SERVER_ERROR);
    };
    Ok(count.to_string())
}

#[derive(Clone)]
struct Front {
    back: String,
    client: reqwest::Client,
    layers: Layers,
}

/// Layers around the client of the front service and around both servers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Layers {
    None,
    Client,
    All,
}

impl Layers {
    /// Returns the value of the services' environment variable.
    fn variable(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Client => "client",
            Self::All => "all",
        }
    }

    fn told() -> Self {
        let told = std::env::var(LAYERS).unwrap_or_default();
        let all = [Self::None, Self::Client, Self::All];
        let one = all.into_iter().find(|one| one.variable() == told);
        one.unwrap_or_else(|| panic!("{LAYERS}={told}"))
    }
}

#[tracing::instrument(skip_all)]
async fn ask_back(front: Front, item: u32) -> StatusCode {
    let request = Request::get(format!("{}/stock/{item}", front.back));
    let request = request.body(reqwest::Body::default()).expect("a request");
    // Makes reqwest's client a service of tower.
    let client = ServiceBuilder::new()
        .map_request(|request: Request<reqwest::Body>| {
            reqwest::Request::try_from(request).expect("its address is a whole one")
        })
        .map_response(Response::<reqwest::Body>::from)
        .service(front.client);
    let status = match front.layers {
        Layers::Client | Layers::All => {
            let client = ServiceBuilder::new()
                .layer(ClientLayer::new())
                .service(client);
            client
                .oneshot(request)
                .await
                .map(|response| response.status())
        }
        Layers::None => client
            .oneshot(request)
            .await
            .map(|response| response.status()),
    };
    status.expect("the back service answers")
}

async fn item(State(front): State<Front>, Path(item): Path<u32>) -> StatusCode {
    match ask_back(front, item).await {
        StatusCode::OK => StatusCode::OK,
        _ => StatusCode::BAD_GATEWAY,
    }
}

/// Runs one of the services in a process of its own. `STROBOSCOPE_TEST_ROLE` selects it. Does
/// nothing without the variable.
#[test]
fn service() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let layers = Layers::told();
    // The two lines. The first one is longer than usual, because only SIGTERM ends this process.
    let recorder = stroboscope::builder().service(&role).flush_on_sigterm();
    let recorder = recorder.env().expect("variables are as they should be");
    let _tracing = recorder.init().expect("recording starts");
    tracing_subscriber::registry()
        .with(stroboscope::layer())
        .init();

    let front = Front {
        back: std::env::var(BACK).unwrap_or_default(),
        client: reqwest::Client::new(),
        layers,
    };
    let routes = match role.as_str() {
        "front" => Router::new()
            .route("/item/{item}", get(item))
            .route("/search", get(async || "nothing"))
            .with_state(front),
        _ => Router::new().route("/stock/{item}", get(stock)),
    };
    let routes = routes.layer(TraceLayer::new_for_http());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port is free");
        let address = listener.local_addr().expect("it listens");
        while stroboscope::stats().windows == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        println!("\nserving on http://{address}");
        let served = match layers {
            Layers::All => axum::serve(listener, routes.layer(ServerLayer::new())).await,
            Layers::None | Layers::Client => axum::serve(listener, routes).await,
        };
        served.expect("it serves");
    });
}

fn start_service(role: &str, collector: &str, back: &str, layers: Layers) -> (Server, String) {
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command
        .args(["--exact", "service", "--nocapture"])
        .env(ROLE, role)
        .env(BACK, back)
        .env(LAYERS, layers.variable())
        .env("STROBOSCOPE_COLLECTOR", collector)
        .env("STROBOSCOPE_BURST_CONFIG", "always");
    let mut server = Server::start(command);
    let address = server.wait_for("its address", |said| {
        said.lines()
            .find_map(|line| Some(line.strip_prefix("serving on ")?.to_owned()))
    });
    (server, address)
}

/// Records 300 requests of the pair, 30 of which fail. Returns the output of `operations` and
/// `requests`, and the sentences of `overview`.
fn record(layers: Layers) -> [Value; 3] {
    let program = Program::new();
    let mut collect = program.command(&["collect", "--listen", "127.0.0.1:0"]);
    collect.args(["--http", "127.0.0.1:0", "--otlp-http", "none"]);
    let mut collector = Server::start(collect);
    let address = format!("http://{}", collector.collector_address());
    let (mut back, back_address) = start_service("back", &address, "", layers);
    let (mut front, front_address) = start_service("front", &address, &back_address, layers);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let failed = runtime.block_on(async {
        let client = reqwest::Client::new();
        let mut failed = 0;
        for n in 0..REQUESTS {
            let path = match n % 10 {
                0 => format!("/item/{MISSING}"),
                1..=6 => format!("/item/{}", 1_000 + n),
                _ => format!("/search?q={n}"),
            };
            let response = client.get(format!("{front_address}{path}")).send().await;
            let status = response.expect("the front service answers").status();
            failed += usize::from(status.is_server_error());
        }
        failed
    });
    assert_eq!(failed, REQUESTS / 10);
    for server in [&mut front, &mut back, &mut collector] {
        server.stop(libc::SIGTERM);
    }
    let answer = |args: &[&str]| program.run(args).succeeds().json();
    [
        answer(&["operations", "--json"]),
        answer(&["requests", "--json", "--top", "1000"]),
        answer(&["overview", "--json"])["circumstances"].clone(),
    ]
}

fn operations(of: &Value) -> BTreeMap<String, (u64, u64)> {
    let rows = of["operations"].as_array().expect("a list");
    rows.iter()
        .map(|row| {
            let number = |key: &str| row[key].as_u64().unwrap_or_else(|| panic!("{key}: {row}"));
            let name = row["operation"].as_str().expect("a name").to_owned();
            (name, (number("spans"), number("failed")))
        })
        .collect()
}

/// Checks the numbers of spans and of failed spans of these operations, and that there are no
/// others.
fn check_operations(of: &Value, expected: &[(&str, u64, u64)]) {
    let found = operations(of);
    for (name, spans, failed) in expected {
        assert_eq!(found.get(*name), Some(&(*spans, *failed)), "{name}: {of:#}");
    }
    assert_eq!(found.len(), expected.len(), "{found:#?}");
}

/// Returns the numbers of requests, of failed ones, and of those that went through both services.
fn count_requests(of: &Value) -> [usize; 3] {
    let requests = of["requests"].as_array().expect("a list");
    let count = |is_it: &dyn Fn(&Value) -> bool| requests.iter().filter(|one| is_it(one)).count();
    assert_eq!(of["traces"], of["complete_traces"], "{of:#}");
    [
        requests.len(),
        count(&|one| one["failed"] == true),
        count(&|one| one["services"] == 2),
    ]
}

#[test]
fn two_lines_show_requests_and_failures() {
    let [by_operation, requests, _] = record(Layers::None);
    let expected = [
        ("front:GET /item/{id}", 210, 30),
        ("front:ask_back", 210, 0),
        ("front:GET /search", 90, 0),
        ("back:GET /stock/{id}", 210, 30),
        ("back:look_up", 210, 0),
    ];
    check_operations(&by_operation, &expected);
    // No context travels from one service to the other.
    assert_eq!(count_requests(&requests), [510, 60, 0]);
}

#[test]
fn layers_join_both_halves_of_a_request() {
    let [by_operation, requests, said] = record(Layers::All);
    let expected = [
        ("front:GET /item/{id}", 210, 30),
        ("front:request", 300, 30),
        ("front:ask_back", 210, 0),
        ("front:GET /stock/{id}", 210, 30),
        ("front:GET /search", 90, 0),
        ("back:GET /stock/{id}", 210, 30),
        ("back:request", 210, 30),
        ("back:look_up", 210, 0),
    ];
    check_operations(&by_operation, &expected);
    assert_eq!(count_requests(&requests), [300, 30, 210]);
    assert!(!said.to_string().contains("no context"), "{said}");
}

#[test]
fn a_layer_around_the_client_only_is_noticed() {
    let [_, requests, said] = record(Layers::Client);
    assert_eq!(count_requests(&requests), [510, 60, 0]);
    let sign = "None of 210 calls front:GET /stock/{id} meets a request of back, where 210 requests of that name have no caller";
    assert!(said.to_string().contains(sign), "{said}");
}
