//! A store and a ranker that answer at once, so that the measured time of the web server contains
//! little waiting for them.

use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, async_trait};

use crate::Failure;
use crate::wire::ranker_server::{Ranker, RankerServer};
use crate::wire::store_server::{Store, StoreServer};
use crate::wire::{
    RankReply, RankRequest, ReadReply, ReadRequest, Story, WriteReply, WriteRequest,
};

/// The address of the running store and ranker. Both listen on it.
pub(crate) struct Backends {
    pub(crate) url: String,
}

const VALUE_BYTES: usize = 1_024;

struct AtOnce;

#[async_trait]
impl Store for AtOnce {
    async fn read(&self, _: Request<ReadRequest>) -> Result<Response<ReadReply>, Status> {
        Ok(Response::new(ReadReply {
            value: vec![7; VALUE_BYTES],
            provenance: String::new(),
        }))
    }

    async fn write(&self, _: Request<WriteRequest>) -> Result<Response<WriteReply>, Status> {
        Ok(Response::new(WriteReply {}))
    }
}

#[async_trait]
impl Ranker for AtOnce {
    async fn rank(&self, request: Request<RankRequest>) -> Result<Response<RankReply>, Status> {
        let story = |id: u32| Story {
            id: id.into(),
            source: "friends".to_owned(),
            score: 1.0 / f64::from(id + 1),
        };
        Ok(Response::new(RankReply {
            stories: (0..request.into_inner().stories_max).map(story).collect(),
            provenance: String::new(),
        }))
    }
}

/// Starts the store and the ranker in this process, on one free port.
pub(crate) async fn start() -> Result<Backends, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let router = Server::builder()
        .add_service(StoreServer::new(AtOnce))
        .add_service(RankerServer::new(AtOnce));
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    tokio::spawn(router.serve_with_incoming(incoming));
    Ok(Backends { url })
}
