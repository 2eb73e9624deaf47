//! The store role: a key-value store over a real file, with an index behind locks.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tonic::service::Routes;
use tonic::{Request, Response, Status, async_trait};

use crate::cpu::Cpu;
use crate::fault::{Fault, FaultPoint, Faults};
use crate::index::Index;
use crate::key;
use crate::role_error::RoleError;
use crate::server::serve;
use crate::stop::Stop;
use crate::values::Values;
use crate::wire::store_server::{Store as StoreService, StoreServer};
use crate::wire::{ReadReply, ReadRequest};

/// Longer keys are refused.
const KEY_BYTES_MAX: usize = 256;

/// Flags of the store.
#[derive(Debug, clap::Args)]
pub struct StoreOptions {
    /// Address to listen on; port 0 takes a free one.
    #[arg(long, env = "NEWSFEED_LISTEN", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Folder of the (unnamed) file of values; the system's folder for temporary files if not given.
    #[arg(long, env = "NEWSFEED_STORE_FOLDER")]
    folder: Option<PathBuf>,
    /// A fault, as POINT=+DURATION[@PERCENT%]; repeatable.
    #[arg(long = "fault", value_name = "FAULT")]
    faults: Vec<Fault>,
}

pub(crate) async fn run(options: StoreOptions, stop: &Stop) -> Result<(), RoleError> {
    let folder = options.folder.unwrap_or_else(std::env::temp_dir);
    let (values, places) = Values::create(&folder, key::all())?;
    let index = Index::new(places, Cpu::calibrate());
    let store = Store {
        shelf: Arc::new(Shelf {
            values,
            index,
            faults: Faults::new(options.faults),
        }),
    };
    Ok(serve(options.listen, Routes::new(StoreServer::new(store)), stop).await?)
}

struct Store {
    shelf: Arc<Shelf>,
}

struct Shelf {
    values: Values,
    index: Index,
    faults: Faults,
}

#[async_trait]
impl StoreService for Store {
    async fn read(&self, request: Request<ReadRequest>) -> Result<Response<ReadReply>, Status> {
        let key = request.into_inner().key;
        if key.len() > KEY_BYTES_MAX {
            let message = format!(
                "the key has {} bytes; at most {KEY_BYTES_MAX} are accepted",
                key.len()
            );
            return Err(Status::invalid_argument(message));
        }
        Ok(Response::new(ReadReply {
            value: self.shelf.read(&key).await?,
        }))
    }
}

impl Shelf {
    #[stroboscope::trace(fields(key))]
    async fn read(&self, key: &str) -> Result<Vec<u8>, Status> {
        self.faults.wait(FaultPoint::StoreRead).await;
        let place = self
            .index
            .find(key, &self.faults)
            .ok_or_else(|| Status::not_found(format!("the store has no key {key:?}")))?;
        self.values.read(place).map_err(|error| {
            Status::data_loss(format!("cannot read the value of {key:?}: {error}"))
        })
    }
}
