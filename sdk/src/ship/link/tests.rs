//! Tests with peers on real sockets that reply late or never.

use std::net::SocketAddr;

use stroboscope_proto::v1::collector_server::{self, CollectorServer};
use tokio::net::{TcpListener, TcpSocket};
use tokio_stream::wrappers::TcpListenerStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Request, Response};

use super::*;
use crate::clock::SystemClock;
use crate::config::Address;
use stroboscope_burst::BurstConfig;

/// Reaction of a peer to a stream of batches.
#[derive(Clone, Copy)]
enum Peer {
    /// Sends its headers with its first reply, as servers on gRPC's C core do.
    AnswersLate,
    /// Accepts the stream, and never replies.
    TakesTheStream,
    /// Sends nothing, not even headers.
    AnswersNothing,
}

type Replies<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl collector_server::Collector for Peer {
    type ShipStream = Replies<v1::ShipReply>;
    type ControlStream = Replies<v1::Directive>;

    async fn ship(
        &self,
        request: Request<Streaming<v1::ShipRequest>>,
    ) -> Result<Response<Self::ShipStream>, Status> {
        let mut batches = request.into_inner();
        match self {
            Self::AnswersLate => {
                let first = batches.message().await?;
                let first = tokio_stream::once(first.ok_or_else(|| Status::data_loss("no batch")));
                let replies = first.chain(batches).map(|request| {
                    Ok(v1::ShipReply {
                        sequence: request?.batch.map_or(0, |batch| batch.sequence),
                        ..v1::ShipReply::default()
                    })
                });
                Ok(Response::new(Box::pin(replies)))
            }
            Self::TakesTheStream => Ok(Response::new(Box::pin(tokio_stream::pending()))),
            Self::AnswersNothing => std::future::pending().await,
        }
    }

    async fn control(
        &self,
        _: Request<v1::ControlRequest>,
    ) -> Result<Response<Self::ControlStream>, Status> {
        std::future::pending().await
    }
}

async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn serve(peer: Peer, listener: TcpListener) {
    let server = tonic::transport::Server::builder().add_service(CollectorServer::new(peer));
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
}

fn link_to(address: SocketAddr) -> Link {
    let address = Address {
        text: format!("http://{address}"),
        token: None,
        ca: None,
    };
    let timer = Timer::new(BurstConfig::NEVER, Arc::new(SystemClock));
    Link::new(address.resolve().unwrap(), v1::Process::default(), timer)
}

/// Returns the next event of the link; panics after 30 s without one.
async fn next(link: &mut Link) -> Progress {
    tokio::time::timeout(Duration::from_secs(30), link.progress())
        .await
        .expect("the link waits without a deadline")
}

/// Sends a batch once the link is connected, and returns the reason for which the link then goes
/// down.
async fn problem_after_a_batch(mut link: Link) -> String {
    link.answer_deadline = Duration::from_millis(100);
    assert!(matches!(next(&mut link).await, Progress::Connected));
    assert!(link.try_send(&v1::Batch::default()));
    match next(&mut link).await {
        Progress::Slow(problem) => assert!(problem.contains("for 0.025 s so far"), "{problem}"),
        other => panic!("{other:?}"),
    }
    match next(&mut link).await {
        Progress::Down(problem) => problem,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn batches_go_out_before_headers_come() {
    let (listener, address) = listener().await;
    serve(Peer::AnswersLate, listener);
    let mut link = link_to(address);
    assert!(matches!(next(&mut link).await, Progress::Connected));
    for sequence in 0..20 {
        let batch = v1::Batch {
            sequence,
            ..v1::Batch::default()
        };
        assert!(link.try_send(&batch));
        match next(&mut link).await {
            Progress::Reply(reply) => assert_eq!(reply.sequence, sequence),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn peers_that_do_not_answer_are_left() {
    for peer in [Peer::TakesTheStream, Peer::AnswersNothing] {
        let (listener, address) = listener().await;
        serve(peer, listener);
        let problem = problem_after_a_batch(link_to(address)).await;
        assert!(problem.starts_with("waited 0.1 s for the collector at http://127.0.0.1:"));
        assert!(problem.contains("to acknowledge a batch"), "{problem}");
    }
    // A peer that accepts connections and sends nothing on them.
    let (listener, address) = listener().await;
    let silent = tokio::spawn(async move {
        let mut accepted = Vec::new();
        while let Ok(connection) = listener.accept().await {
            accepted.push(connection);
        }
    });
    let problem = problem_after_a_batch(link_to(address)).await;
    assert!(problem.contains("to acknowledge a batch"), "{problem}");
    silent.abort();
}

/// Checks that a link waits without a deadline while no batch is unanswered.
#[tokio::test]
async fn a_link_without_batches_stays() {
    let (listener, address) = listener().await;
    serve(Peer::AnswersNothing, listener);
    let mut link = link_to(address);
    link.answer_deadline = Duration::from_millis(1);
    assert!(matches!(next(&mut link).await, Progress::Connected));
    let next = tokio::time::timeout(Duration::from_millis(100), link.progress()).await;
    assert!(next.is_err(), "{next:?}");
}

/// Checks the pauses between attempts: they stay short during the first minute.
#[tokio::test]
async fn a_collector_that_comes_back_is_found_soon() {
    // A socket that is bound but does not listen rejects connections. Until it listens, it keeps
    // others from its port.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let mut link = link_to(socket.local_addr().unwrap());
    for _ in 0..12 {
        assert!(matches!(next(&mut link).await, Progress::Down(_)));
        let State::Pausing(pause) = &link.state else {
            panic!("no pause after a failure");
        };
        let pause = pause.deadline().saturating_duration_since(Instant::now());
        assert!(pause <= PAUSE_WHILE_AWAY, "{pause:?}");
    }
    serve(Peer::AnswersLate, socket.listen(8).unwrap());
    assert!(matches!(next(&mut link).await, Progress::Connected));
    // After a longer time, the attempts become rarer.
    link.away_since = Instant::now().checked_sub(2 * LONG_AWAY);
    assert_eq!(link.pause_max(), PAUSE_LAST);
}

#[test]
fn what_peers_say_is_cut_and_escaped() {
    assert_eq!(for_people("full\x1b[2J\u{202e}\ndisk"), "full [2J  disk");
    let long = for_people(&"é".repeat(1 << 20));
    assert_eq!(long.chars().count(), 501);
}
