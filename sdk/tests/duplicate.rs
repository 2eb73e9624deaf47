//! Tests copies of requests: which requests are copied, which are skipped, and that copying does
//! not change or delay the requests themselves.

#![cfg(feature = "duplicate")]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes_of_prost::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::{Body, Frame};
use stroboscope::baggage::{self, Baggage};
use stroboscope::tower::{CopiedBody, DuplicateLayer, ServerLayer};
use tower::{Layer as _, ServiceExt as _};

mod bytes_of_prost {
    pub(crate) use prost::bytes::Bytes;
}

/// A body with a list of frames. An `Err` breaks it off.
#[derive(Debug, Default)]
struct Pieces(Vec<Result<Frame<Bytes>, &'static str>>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        Poll::Ready((!self.0.is_empty()).then(|| self.0.remove(0)))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }
}

fn pieces(texts: &[&'static str]) -> Pieces {
    let frames = texts
        .iter()
        .map(|text| Ok(Frame::data(Bytes::from_static(text.as_bytes()))));
    Pieces(frames.collect())
}

async fn read<B: Body>(body: B) -> Result<(Vec<u8>, Option<HeaderMap>), B::Error>
where
    B::Data: AsRef<[u8]>,
{
    let mut body = Box::pin(body);
    let (mut bytes, mut trailers) = (Vec::new(), None);
    while let Some(frame) = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        match frame?.into_data() {
            Ok(data) => bytes.extend_from_slice(data.as_ref()),
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    Ok((bytes, trailers))
}

/// The copies that a pipeline got: path, body, trailers and baggage of each.
type Seen = Arc<Mutex<Vec<(String, Vec<u8>, Option<HeaderMap>, BTreeMap<String, String>)>>>;

type Pipeline = tower::util::BoxCloneService<Request<CopiedBody>, Response<Pieces>, Infallible>;

fn pipeline(seen: &Seen, takes: Duration) -> Pipeline {
    let seen = Arc::clone(seen);
    let noting = tower::service_fn(move |request: Request<CopiedBody>| {
        let seen = Arc::clone(&seen);
        async move {
            assert!(baggage::is_duplicate());
            assert!(request.headers().get("traceparent").is_none());
            let carried = baggage::snapshot();
            let carried = carried
                .entries()
                .map(|entry| (entry.key.clone(), entry.value.to_string()));
            let carried = carried.collect();
            let path = request.uri().path().to_owned();
            let (bytes, trailers) = read(request.into_body()).await.unwrap();
            tokio::time::sleep(takes).await;
            seen.lock().unwrap().push((path, bytes, trailers, carried));
            Ok::<_, Infallible>(Response::new(pieces(&["copied"])))
        }
    });
    // The pipeline has a server layer, which reads the headers.
    let server = ServerLayer::new().layer(noting);
    server
        .map_response(|response| response.map(|_| pieces(&["copied"])))
        .boxed_clone()
}

/// Sends requests through the layer to a service that returns the body, and returns its answers.
async fn through(
    layer: &DuplicateLayer<Pipeline>,
    requests: Vec<Request<Pieces>>,
) -> Vec<Result<Vec<u8>, &'static str>> {
    let mut answers = Vec::new();
    for request in requests {
        let echo = tower::service_fn(|request: Request<_>| async move {
            read(request.into_body()).await.map(|(bytes, _)| bytes)
        });
        answers.push(layer.layer(echo).oneshot(request).await);
    }
    answers
}

fn request(body: Pieces) -> Request<Pieces> {
    let mut request = Request::new(body);
    *request.uri_mut() = "/rank?user=7".parse().unwrap();
    request
        .headers_mut()
        .insert("baggage", HeaderValue::from_static("other=1,sb.user=7;t=u"));
    request
}

async fn settled(layer: &DuplicateLayer<Pipeline>, copies: u64) {
    let end = Instant::now() + Duration::from_secs(10);
    while layer.stats().answered + layer.stats().failed < copies {
        assert!(Instant::now() < end, "{:?}", layer.stats());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_copy_is_the_same_but_marked() {
    let seen = Seen::default();
    let (answered, told) = (
        Arc::new(Mutex::new(Vec::new())),
        Arc::new(Mutex::new(Vec::new())),
    );
    let (answers, numbers) = (Arc::clone(&answered), Arc::clone(&told));
    let layer = DuplicateLayer::new(pipeline(&seen, Duration::ZERO))
        .explore(move |number| {
            numbers.lock().unwrap().push(number);
            vec![("explore.rank".to_owned(), 0.5.into())]
        })
        .on_answer(move |answer| {
            answers
                .lock()
                .unwrap()
                .push((answer.number, answer.status.as_u16(), answer.body));
        });
    layer.rate().set(1.0);
    let mut trailers = HeaderMap::new();
    trailers.insert("sum", HeaderValue::from_static("9"));
    let mut with_trailers = pieces(&["ab", "", "cd"]);
    with_trailers.0.push(Ok(Frame::trailers(trailers.clone())));
    let got = through(
        &layer,
        vec![
            request(with_trailers),
            request(pieces(&[])),
            request(pieces(&["x"])),
        ],
    )
    .await;
    assert_eq!(got, [Ok(b"abcd".to_vec()), Ok(vec![]), Ok(b"x".to_vec())]);
    settled(&layer, 3).await;
    let mut seen = seen.lock().unwrap().clone();
    seen.sort_by_key(|copy| std::cmp::Reverse(copy.1.len()));
    let (path, bytes, of_copy, carried) = &seen[0];
    assert_eq!(
        (path.as_str(), bytes.as_slice(), of_copy.as_ref()),
        ("/rank", &b"abcd"[..], Some(&trailers))
    );
    let expected = [
        ("duplicate", "true"),
        ("explore.rank", "0.5"),
        ("user", "7"),
    ];
    let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(*carried, BTreeMap::from(expected));
    assert_eq!(seen.len(), 3);
    assert_eq!(*told.lock().unwrap(), [0, 1, 2]);
    let mut answered = answered.lock().unwrap().clone();
    answered.sort();
    assert_eq!(answered[0], (0, 200, b"copied".to_vec()));
    let stats = layer.stats();
    assert_eq!(
        (stats.sent, stats.answered, stats.failed),
        (3, 3, 0),
        "{stats:?}"
    );
}

#[tokio::test]
async fn what_is_long_breaks_off_or_is_a_copy_goes_on_alone() {
    let seen = Seen::default();
    let layer = DuplicateLayer::new(pipeline(&seen, Duration::ZERO)).body_bytes_max(4);
    layer.rate().set(f64::INFINITY);
    assert_eq!(layer.rate().get(), 1.0);
    let broken = Pieces(vec![Ok(Frame::data(Bytes::from_static(b"a"))), Err("gone")]);
    let mut copy = request(pieces(&["copy"]));
    let marked = Baggage::parse("sb.duplicate=true;t=b").to_header().unwrap();
    copy.headers_mut()
        .insert("baggage", marked.parse().unwrap());
    let got = through(
        &layer,
        vec![
            request(pieces(&["abc", "def", "ghi"])),
            request(broken),
            copy,
        ],
    )
    .await;
    assert_eq!(
        got,
        [Ok(b"abcdefghi".to_vec()), Err("gone"), Ok(b"copy".to_vec())]
    );
    // A service that does not read the body.
    let lazy = layer.layer(tower::service_fn(|_| async { Ok::<_, Infallible>(()) }));
    lazy.oneshot(request(pieces(&["ab"]))).await.unwrap();
    let stats = layer.stats();
    assert_eq!(
        (stats.sent, stats.skipped_body, stats.skipped_is_duplicate),
        (0, 3, 1),
        "{stats:?}"
    );
    assert!(seen.lock().unwrap().is_empty());
    layer.rate().set(f64::NAN);
    assert_eq!(layer.rate().get(), 0.0);
    through(&layer, vec![request(pieces(&["ab"]))]).await;
    assert_eq!(layer.stats(), stats, "nothing is copied");
}

#[tokio::test]
async fn a_slow_pipeline_delays_nobody_and_only_so_many_copies_wait() {
    let seen = Seen::default();
    let layer = DuplicateLayer::new(pipeline(&seen, Duration::from_millis(400))).in_flight_max(2);
    layer.rate().set(1.0);
    let begun = Instant::now();
    let requests = (0..20).map(|_| request(pieces(&["ab"]))).collect();
    assert_eq!(through(&layer, requests).await.len(), 20);
    assert!(
        begun.elapsed() < Duration::from_millis(400),
        "{:?}",
        begun.elapsed()
    );
    settled(&layer, 2).await;
    let stats = layer.stats();
    assert_eq!((stats.sent, stats.skipped_in_flight), (2, 18), "{stats:?}");
    // After the two copies have ended, another one is accepted.
    through(&layer, vec![request(pieces(&["ab"]))]).await;
    settled(&layer, 3).await;
}

/// Checks that a copy is not copied again, even if the pipeline is the service itself behind the
/// same layer.
#[tokio::test]
async fn a_copy_that_comes_round_again_ends() {
    type Round = Arc<
        Mutex<
            Option<tower::util::BoxCloneService<Request<CopiedBody>, Response<Pieces>, Infallible>>,
        >,
    >;
    let round = Round::default();
    let to_round = Arc::clone(&round);
    let back: Pipeline = tower::service_fn(move |request: Request<CopiedBody>| {
        let service = to_round.lock().unwrap().clone().expect("set");
        service.oneshot(request)
    })
    .boxed_clone();
    let layer = DuplicateLayer::new(back);
    layer.rate().set(1.0);
    let served = Arc::new(Mutex::new(0));
    let count = Arc::clone(&served);
    let service = layer.layer(tower::service_fn(move |request: Request<_>| {
        let count = Arc::clone(&count);
        async move {
            read(request.into_body()).await.unwrap();
            *count.lock().unwrap() += 1;
            Ok::<_, Infallible>(Response::new(pieces(&[])))
        }
    }));
    *round.lock().unwrap() = Some(service.clone().boxed_clone());
    let copied = Request::new(CopiedBody::default());
    service.oneshot(copied).await.unwrap();
    settled(&layer, 1).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let stats = layer.stats();
    assert_eq!(
        (
            *served.lock().unwrap(),
            stats.sent,
            stats.skipped_is_duplicate
        ),
        (2, 1, 1),
        "{stats:?}"
    );
}

#[tokio::test]
async fn callbacks_that_panic_harm_nobody_and_a_share_is_a_share() {
    let seen = Seen::default();
    let layer = DuplicateLayer::new(pipeline(&seen, Duration::ZERO))
        .explore(|_| panic!("a user's mistake"))
        .on_answer(|_| panic!("another one"))
        .in_flight_max(1_000);
    layer.rate().set(0.25);
    let requests = (0..400).map(|_| request(pieces(&["ab"]))).collect();
    let got = through(&layer, requests).await;
    assert!(got.iter().all(|answer| *answer == Ok(b"ab".to_vec())));
    let sent = layer.stats().sent;
    assert!((97..=103).contains(&sent), "{sent}");
    settled(&layer, sent).await;
    assert_eq!(layer.stats().panicked, 2 * sent);
}

#[test]
fn without_a_runtime_nothing_is_sent() {
    let seen = Seen::default();
    let layer = DuplicateLayer::new(pipeline(&seen, Duration::ZERO));
    layer.rate().set(1.0);
    let mut serving = Box::pin(through(&layer, vec![request(pieces(&["ab"]))]));
    let mut cx = Context::from_waker(std::task::Waker::noop());
    assert!(
        matches!(serving.as_mut().poll(&mut cx), Poll::Ready(answers) if answers == [Ok(b"ab".to_vec())])
    );
    drop(serving);
    let stats = layer.stats();
    assert_eq!((stats.sent, stats.skipped_no_runtime), (0, 1), "{stats:?}");
}

/// Checks that a request is not copied if the baggage has no room for the mark of a copy.
#[tokio::test]
async fn a_copy_without_its_mark_is_not_sent() {
    let seen = Seen::default();
    let layer = DuplicateLayer::new(pipeline(&seen, Duration::ZERO));
    layer.rate().set(1.0);
    let mut full = request(pieces(&["ab"]));
    let others: Vec<String> = (0..baggage::MEMBERS_MAX)
        .map(|number| format!("k{number}=1"))
        .collect();
    let others = HeaderValue::try_from(others.join(",")).unwrap();
    full.headers_mut().insert("baggage", others);
    let got = through(&layer, vec![full]).await;
    assert_eq!(got, [Ok(b"ab".to_vec())]);
    let stats = layer.stats();
    assert_eq!((stats.sent, stats.skipped_unmarked), (0, 1), "{stats:?}");
}

/// Checks that a copy whose pipeline panics counts as failed.
#[tokio::test]
async fn a_pipeline_that_panics_is_counted() {
    let panics = tower::service_fn(|request: Request<CopiedBody>| async move {
        let is_original = request.headers().get("baggage").is_none();
        assert!(is_original, "a defect of the pipeline");
        Ok::<_, Infallible>(Response::new(pieces(&[])))
    });
    let layer = DuplicateLayer::new(panics.boxed_clone());
    layer.rate().set(1.0);
    through(&layer, vec![request(pieces(&["ab"]))]).await;
    settled(&layer, 1).await;
    let stats = layer.stats();
    assert_eq!((stats.sent, stats.failed), (1, 1), "{stats:?}");
}
