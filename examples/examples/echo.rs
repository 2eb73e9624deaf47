//! A service that makes the calls listed in its request, and passes the request's context on to
//! them. W3C's conformance suite for trace-context requires such a test service.
//!
//! `POST /test` with `[{"url": "http://…", "arguments": […]}, …]` calls the urls in turn, by `POST`
//! with the arguments as body, until a call fails. The layers put each call into the trace that the
//! request's headers name, even while nothing is recorded. `STROBOSCOPE_PROPAGATE=always` gives a
//! trace to requests that name none, which the suite expects.
//!
//! ```text
//! STROBOSCOPE_PROPAGATE=always cargo run -p stroboscope-examples --example echo -- --listen 127.0.0.1:5000
//! # in another terminal
//! SPEC_LEVEL=2 python test.py http://127.0.0.1:5000/test     # of github.com/w3c/trace-context, directory test
//! ```
//!
//! Without `--listen` it calls itself through a chain of two and prints the response's status.

use std::error::Error;
use std::net::SocketAddr;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Method, Request, StatusCode, Uri, header::CONTENT_TYPE};
use axum::routing::post;
use axum::{Json, Router};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use stroboscope::tower::{ClientLayer, ClientService, ServerLayer};
use tower::{Layer as _, Service as _};

type Caller = ClientService<Client<HttpConnector, Body>>;

/// Returns `url` and `arguments` of each call in the body.
fn calls(body: &Bytes) -> Result<Vec<(Uri, Bytes)>, String> {
    let body: Value = serde_json::from_slice(body).map_err(|error| format!("body: {error}"))?;
    let list = body
        .as_array()
        .ok_or("body: write a list of {\"url\", \"arguments\"}")?;
    list.iter()
        .map(|call| {
            let url = call["url"].as_str().ok_or("body: a call has no \"url\"")?;
            let url = url
                .parse()
                .map_err(|error| format!("url {url:?}: {error}"))?;
            Ok((
                url,
                call.get("arguments")
                    .unwrap_or(&json!([]))
                    .to_string()
                    .into(),
            ))
        })
        .collect()
}

async fn call(
    mut caller: Caller,
    url: Uri,
    arguments: Bytes,
) -> Result<StatusCode, Box<dyn Error + Send + Sync>> {
    let request = Request::builder()
        .method(Method::POST)
        .uri(url)
        .header(CONTENT_TYPE, "application/json")
        .body(Body::from(arguments))?;
    Ok(caller.call(request).await?.status())
}

async fn test(caller: Caller, body: Bytes) -> Result<Json<Value>, (StatusCode, String)> {
    let calls = calls(&body).map_err(|problem| (StatusCode::BAD_REQUEST, problem))?;
    let mut statuses = Vec::new();
    for (url, arguments) in calls {
        let status = call(caller.clone(), url.clone(), arguments).await;
        let status =
            status.map_err(|error| (StatusCode::BAD_GATEWAY, format!("{url}: {error}")))?;
        statuses.push(json!({ "url": url.to_string(), "status": status.as_u16() }));
    }
    Ok(Json(json!(statuses)))
}

fn app() -> Router {
    let client = Client::builder(TokioExecutor::new()).build_http();
    let caller = ClientLayer::new().layer(client);
    let show = |headers: HeaderMap| async move {
        let value = |name| {
            headers
                .get(name)
                .map_or("none", |value| value.to_str().unwrap_or("?"))
        };
        println!(
            "arrived: traceparent {}, tracestate {}",
            value("traceparent"),
            value("tracestate")
        );
    };
    Router::new()
        .route("/test", post(move |body: Bytes| test(caller.clone(), body)))
        .route("/show", post(show))
        .layer(ServerLayer::new())
}

/// Sends a request through this service to itself, and from there to `/show`.
async fn call_itself(address: SocketAddr) -> Result<(), Box<dyn Error + Send + Sync>> {
    let show = json!([{ "url": format!("http://{address}/show"), "arguments": [] }]);
    let chain = json!([{ "url": format!("http://{address}/test"), "arguments": show }]);
    let request = Request::post(format!("http://{address}/test"))
        .header(
            "traceparent",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        )
        .header("tracestate", "vendor=1")
        .body(Body::from(chain.to_string()))?;
    let client: Client<HttpConnector, Body> = Client::builder(TokioExecutor::new()).build_http();
    let response = client.request(request).await?;
    println!("answered: {}", response.status());
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let _tracing = stroboscope::init("echo")?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let listen: Option<SocketAddr> = match arguments.as_slice() {
        [] => None,
        [flag, address] if flag == "--listen" => Some(address.parse()?),
        _ => return Err("usage: echo [--listen HOST:PORT]".into()),
    };
    let bound = listen.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 0)));
    let listener = tokio::net::TcpListener::bind(bound).await?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}/test");
    let server = axum::serve(listener, app());
    if listen.is_some() {
        server.await?;
        return Ok(());
    }
    tokio::select! {
        served = server => served?,
        called = call_itself(address) => called?,
    }
    Ok(())
}
