//! The store role: a key-value store over a real file, with an index behind locks.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use stroboscope::tracked;
use tonic::service::Routes;
use tonic::{Request, Response, Status, async_trait};

use crate::cpu::Cpu;
use crate::fault::{Fault, FaultPoint, Faults};
use crate::index::{Index, Place};
use crate::key;
use crate::role_error::RoleError;
use crate::server::serve;
use crate::stop::Stop;
use crate::values::Values;
use crate::wire::store_server::{Store as StoreService, StoreServer};
use crate::wire::{ReadReply, ReadRequest, WriteReply, WriteRequest};

/// Maximum length of a key, in bytes; longer keys are rejected.
const KEY_BYTES_MAX: usize = 256;

/// Cost of unpacking a value of the archive shard.
const UNPACK_TIME: Duration = Duration::from_micros(300);

/// Command-line flags of the store.
#[derive(Debug, clap::Args)]
pub struct StoreOptions {
    /// Address to listen on; port 0 picks a free one.
    #[arg(long, env = "NEWSFEED_LISTEN", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Directory of the (unnamed) file of values; the system's temporary directory if not given.
    #[arg(long, env = "NEWSFEED_STORE_DIRECTORY")]
    directory: Option<PathBuf>,
    /// Fault to inject, as POINT=+DURATION[@PERCENT%], or POINT[@PERCENT%] if it takes no duration;
    /// repeatable.
    #[arg(long = "fault", value_name = "FAULT")]
    faults: Vec<Fault>,
}

pub(crate) async fn run(options: StoreOptions, stop: &Stop) -> Result<(), RoleError> {
    let directory = options.directory.unwrap_or_else(std::env::temp_dir);
    let (values, places) = Values::create(&directory, key::all())?;
    let cpu = Cpu::calibrate();
    let faults = Faults::new(options.faults);
    let index = Index::new(places, cpu, faults.strikes(FaultPoint::StoreOneShard));
    let store = Store {
        shelf: Arc::new(Shelf {
            values,
            index,
            cpu,
            faults,
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
    cpu: Cpu,
    faults: Faults,
}

#[async_trait]
impl StoreService for Store {
    async fn read(&self, request: Request<ReadRequest>) -> Result<Response<ReadReply>, Status> {
        let key = request.into_inner().key;
        check_key(&key)?;
        let value = self.shelf.read(&key).await?;
        Ok(Response::new(tracked::scope(|| {
            let value = tracked::source(&key, value);
            ReadReply {
                provenance: tracked::send(&value, &key).to_text(),
                value: value.into_bytes(),
            }
        })))
    }

    async fn write(&self, request: Request<WriteRequest>) -> Result<Response<WriteReply>, Status> {
        let WriteRequest { key, value } = request.into_inner();
        check_key(&key)?;
        self.shelf.write(&key, &value)?;
        Ok(Response::new(WriteReply {}))
    }
}

fn check_key(key: &str) -> Result<(), Status> {
    if key.len() > KEY_BYTES_MAX {
        let message = format!(
            "the key has {} bytes; at most {KEY_BYTES_MAX} are accepted",
            key.len()
        );
        return Err(Status::invalid_argument(message));
    }
    Ok(())
}

impl Shelf {
    #[stroboscope::trace(fields(key, shard = self.index.shard(key)))]
    async fn read(&self, key: &str) -> Result<Vec<u8>, Status> {
        self.faults.wait(FaultPoint::StoreRead).await;
        let place = self.find(key)?;
        if self.faults.strikes(FaultPoint::StoreArchiveShard) {
            self.unpack(place);
        }
        self.values.read(place).map_err(|error| {
            Status::data_loss(format!("cannot read the value of {key:?}: {error}"))
        })
    }

    #[stroboscope::trace(fields(key))]
    fn write(&self, key: &str, value: &[u8]) -> Result<(), Status> {
        let place = self.find(key)?;
        if value.len() != place.len_bytes as usize {
            return Err(Status::invalid_argument(format!(
                "the new value of {key:?} has {} bytes; it must have {}, as the old one",
                value.len(),
                place.len_bytes
            )));
        }
        self.values.write(place, value).map_err(|error| {
            Status::data_loss(format!("cannot write the value of {key:?}: {error}"))
        })
    }

    /// Takes the time to unpack a value. The archive shard has packed copies of the values.
    #[stroboscope::trace(name = "archive")]
    fn unpack(&self, place: Place) {
        self.cpu.work(UNPACK_TIME, place.offset_bytes);
    }

    fn find(&self, key: &str) -> Result<Place, Status> {
        self.index
            .find(key, &self.faults)
            .ok_or_else(|| Status::not_found(format!("the store has no key {key:?}")))
    }
}
