//! Tests of answers that take long.

use std::sync::{Mutex, mpsc};

use axum::body::Body;
use axum::http::{Request, StatusCode};
use tokio_stream::StreamExt as _;
use tower::ServiceExt as _;

use crate::fixture::{Fixture, SayingVerbs};

#[tokio::test(flavor = "multi_thread")]
async fn the_frame_comes_at_once_and_the_answer_when_it_is_there() {
    let (go, gone) = mpsc::channel();
    let fixture = Fixture::with(SayingVerbs {
        go: Some(Mutex::new(gone)),
    });
    let request = Request::get("/slow").body(Body::empty()).unwrap();
    let response = fixture.router.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let mut pieces = response.into_body().into_data_stream();
    let first = pieces.next().await.unwrap().unwrap();
    let mut page = String::from_utf8(first.to_vec()).unwrap();
    assert!(
        page.contains("<nav aria-label=\"Pages\">") && page.contains("class=\"progress\""),
        "{page}"
    );
    // Progress is reported until the answer is complete.
    while !page.contains("reading … 40 of 100 requests") {
        let piece = pieces.next().await.unwrap().unwrap();
        page.push_str(std::str::from_utf8(&piece).unwrap());
    }
    assert!(!page.contains("class=\"answer\""), "{page}");
    go.send(()).unwrap();
    while let Some(piece) = pieces.next().await {
        page.push_str(std::str::from_utf8(&piece.unwrap()).unwrap());
    }
    assert!(
        page.contains("<div class=\"answer\">") && page.ends_with("</html>\n"),
        "{page}"
    );
    // The answer is now cached and sent in one piece. A second computation would wait.
    let again = fixture.get("/slow").await;
    assert!(
        again.text.contains("<div class=\"answer\">") && !again.text.contains("class=\"progress\"")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn who_goes_away_does_not_end_it() {
    let (go, gone) = mpsc::channel();
    let fixture = Fixture::with(SayingVerbs {
        go: Some(Mutex::new(gone)),
    });
    let request = Request::get("/slow").body(Body::empty()).unwrap();
    let response = fixture.router.clone().oneshot(request).await.unwrap();
    let mut pieces = response.into_body().into_data_stream();
    pieces.next().await.unwrap().unwrap();
    drop(pieces);
    go.send(()).unwrap();
    // The subcommand may continue once, so a second computation would wait forever.
    let got = fixture.get("/slow").await;
    assert!(got.text.contains("<div class=\"answer\">"), "{}", got.text);
}
