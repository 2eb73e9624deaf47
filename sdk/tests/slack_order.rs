//! Tests the layer that serves requests in order of their slack.

#![cfg(feature = "slack_order")]

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response};
use stroboscope::baggage::{Baggage, ComponentExt as _, Entry, Scope, SlackPrediction};
use stroboscope::tower::{ServerLayer, SlackOrderLayer};
use tokio::sync::Semaphore;
use tower::{Layer as _, Service as _, ServiceExt as _};

/// The body type of responses.
type Text = http_body_stub::Once;

mod http_body_stub {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use http_body::{Body, Frame};

    #[derive(Debug, Default)]
    pub(crate) struct Once(pub(crate) Option<&'static [u8]>);

    impl Body for Once {
        type Data = &'static [u8];
        type Error = std::convert::Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
            Poll::Ready(self.0.take().map(|data| Ok(Frame::data(data))))
        }
    }
}

fn request(name: &str, slack_ms: Option<u64>) -> Request<String> {
    let mut request = Request::new(name.to_owned());
    if let Some(slack_ms) = slack_ms {
        let mut baggage = Baggage::default();
        let prediction = SlackPrediction::default().with("ranker", slack_ms * 1_000_000);
        baggage.set_slack(&prediction);
        baggage.set(Entry::new(Scope::Request, "user", 7u64));
        let header = baggage.to_header().unwrap();
        request
            .headers_mut()
            .insert("baggage", header.parse().unwrap());
    }
    request
}

/// Sends requests (name, slack in ms, delay in ms) to a layer that serves one at a time, while the
/// first one is being served. Returns the names in the order in which the requests are served.
async fn order(
    layer: SlackOrderLayer,
    arrivals: Vec<(&'static str, Option<u64>, u64)>,
    inside_server_layer: bool,
) -> Vec<String> {
    let (done, work) = (
        Arc::new(Mutex::new(Vec::new())),
        Arc::new(Semaphore::new(0)),
    );
    let service = {
        let (done, work) = (Arc::clone(&done), Arc::clone(&work));
        tower::service_fn(move |request: Request<String>| {
            let (done, work) = (Arc::clone(&done), Arc::clone(&work));
            async move {
                work.acquire().await.unwrap().forget();
                done.lock().unwrap().push(request.into_body());
                Ok::<_, Infallible>(Response::new(Text::default()))
            }
        })
    };
    let mut tasks = Vec::new();
    let ordered = layer.layer(service);
    for (name, slack_ms, after_ms) in arrivals {
        tokio::time::sleep(Duration::from_millis(after_ms)).await;
        let ordered = ordered.clone();
        let call = async move {
            if inside_server_layer {
                drop(
                    ServerLayer::new()
                        .layer(ordered)
                        .oneshot(request(name, slack_ms))
                        .await,
                );
            } else {
                drop(ordered.oneshot(request(name, slack_ms)).await);
            }
        };
        tasks.push(tokio::spawn(call));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    work.add_permits(tasks.len());
    for task in tasks {
        task.await.unwrap();
    }
    let stats = layer.stats();
    assert_eq!((stats.waiting, stats.running), (0, 0), "{stats:?}");
    std::mem::take(&mut *done.lock().unwrap())
}

#[tokio::test]
async fn those_without_slack_go_first_and_nobody_waits_for_ever() {
    let arrivals = vec![
        ("first", None, 0),
        ("rich", Some(400), 0),
        ("some", Some(100), 0),
        ("none", Some(0), 0),
        ("unknown", None, 0),
    ];
    let expected = vec!["first", "none", "unknown", "some", "rich"];
    let layer = || SlackOrderLayer::new("ranker", 1);
    assert_eq!(order(layer(), arrivals.clone(), false).await, expected);
    assert_eq!(order(layer(), arrivals, true).await, expected);
    // The predictions lack this component, so the order is that of arrival.
    let by_arrival = vec![
        ("first", None, 0),
        ("rich", Some(400), 0),
        ("none", Some(0), 0),
    ];
    let other = SlackOrderLayer::new("web", 1);
    assert_eq!(
        order(other, by_arrival, false).await,
        ["first", "rich", "none"]
    );
    // With a longest wait of 30 ms, a request that arrives 60 ms later does not overtake.
    let bounded = layer().longest_wait(Duration::from_millis(30));
    let late = vec![
        ("first", None, 0),
        ("rich", Some(10_000), 0),
        ("late", Some(0), 60),
    ];
    assert_eq!(order(bounded, late, false).await, ["first", "rich", "late"]);
}

#[tokio::test]
async fn a_turn_ends_with_the_body_an_error_a_panic_or_whoever_goes_away() {
    let layer = SlackOrderLayer::new("ranker", 0);
    let service = layer.layer(tower::service_fn(|request: Request<String>| async move {
        match request.body().as_str() {
            "panics" => panic!("a user's mistake"),
            "fails" => Err("failed"),
            "hangs" => std::future::pending().await,
            _ => Ok(Response::new(http_body_stub::Once(Some(b"answer")))),
        }
    }));
    let running = || layer.stats().running;
    let response = service
        .clone()
        .oneshot(request("good", None))
        .await
        .unwrap();
    assert_eq!(running(), 1, "the body is not read yet");
    let waiting = tokio::spawn(service.clone().oneshot(request("fails", None)));
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(layer.stats().waiting, 1);
    drop(response);
    assert!(waiting.await.unwrap().is_err());
    assert_eq!(running(), 0, "an error has no body");
    let panicking = tokio::spawn(service.clone().oneshot(request("panics", None)));
    assert!(panicking.await.is_err());
    assert_eq!(running(), 0);
    let hanging = tokio::spawn(service.clone().oneshot(request("hangs", None)));
    tokio::time::sleep(Duration::from_millis(20)).await;
    let given_up = tokio::spawn(service.clone().oneshot(request("good", None)));
    tokio::time::sleep(Duration::from_millis(20)).await;
    given_up.abort();
    hanging.abort();
    tokio::time::sleep(Duration::from_millis(20)).await;
    let stats = layer.stats();
    assert_eq!((stats.waiting, stats.running, stats.waited), (0, 0, 2));
    // A call whose future runs with other baggage is served as well.
    let mut last = service.clone();
    let call = async move {
        last.ready()
            .await
            .unwrap()
            .call(request("good", None))
            .await
    };
    assert!(call.with_baggage(Baggage::default()).await.is_ok());
}
