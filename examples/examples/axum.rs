//! An HTTP service with axum: one layer makes every request a span, with the spans of its handler
//! below it.
//!
//! `cargo run -p stroboscope-examples --example axum`; it sends itself two requests and ends. The
//! example `echo` shows how a service passes the context on to others by HTTP.

use std::error::Error;

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::http::{Request, Uri};
use axum::routing::get;
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use stroboscope::tower::{ClientLayer, ClientService, ServerLayer};
use stroboscope::{BurstConfig, FutureExt as _, span};
use tokio::net::TcpListener;
use tower::{Layer as _, Service as _};

#[stroboscope::trace]
async fn page(Path(user): Path<u64>) -> String {
    // The task runs concurrently, and belongs to the request.
    let friends = tokio::spawn(friends(user).in_current_span());
    let friends = friends.await.unwrap_or(0);
    // An entered span must not be held across an .await; a scope ends before the next one.
    span!("render", user).scope(|| format!("user {user} has {friends} friends"))
}

#[stroboscope::trace]
async fn friends(user: u64) -> u64 {
    user % 7
}

type Caller = ClientService<Client<HttpConnector, Body>>;

/// Sends a request. The layer of the client is for services that call others; here it puts both
/// spans into one trace.
async fn ask(caller: &mut Caller, uri: Uri) -> Result<(), Box<dyn Error>> {
    let response = caller.call(Request::get(uri).body(Body::empty())?).await?;
    println!(
        "answered {} in trace {:032x}",
        response.status(),
        stroboscope::current().trace_id()
    );
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let _tracing = stroboscope::builder()
        .service("axum")
        .burst_config(BurstConfig::ALWAYS_ON)
        .env()?
        .init()?;
    let app = Router::new()
        .route("/user/{user}", get(page))
        .layer(ServerLayer::new());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async { axum::serve(listener, app).await });
    let mut caller = ClientLayer::new().layer(Client::builder(TokioExecutor::new()).build_http());
    for user in 0..2 {
        let uri = format!("http://{address}/user/{user}").parse()?;
        ask(&mut caller, uri).in_span(span!("visit", user)).await?;
    }
    Ok(())
}
