//! Reads from the store and writes to it, with one call per key.

use stroboscope::baggage::{self, Provenance};
use stroboscope::tracked::{self, TrackedBuf};
use tonic::Status;

use crate::upstream::Upstream;
use crate::wire::store_client::StoreClient;
use crate::wire::{ReadRequest, WriteRequest};

/// A reader of the store's values. Clones share one connection.
#[derive(Debug, Clone)]
pub(crate) struct Reader {
    client: StoreClient<Upstream>,
}

impl Reader {
    pub(crate) fn new(store: Upstream) -> Self {
        Self {
            client: StoreClient::new(store),
        }
    }

    /// Reads the value of `key`.
    ///
    /// # Errors
    /// Returns the store's status, with the key.
    pub(crate) async fn read(&self, key: String) -> Result<TrackedBuf, Status> {
        let request = ReadRequest { key: key.clone() };
        match self.client.clone().read(request).await {
            Ok(reply) => {
                let reply = reply.into_inner();
                let provenance = Provenance::from_text(&reply.provenance);
                Ok(tracked::receive(&provenance, &key, reply.value))
            }
            Err(status) => Err(Status::new(
                status.code(),
                format!("reading {key:?} from the store: {}", status.message()),
            )),
        }
    }

    /// Replaces the value of `key`. Does nothing for a copy of a request.
    ///
    /// # Errors
    /// Returns the store's status, with the key.
    pub(crate) async fn write(&self, key: String, value: Vec<u8>) -> Result<(), Status> {
        if baggage::is_duplicate() {
            return Ok(());
        }
        let request = WriteRequest {
            key: key.clone(),
            value,
        };
        match self.client.clone().write(request).await {
            Ok(_) => Ok(()),
            Err(status) => Err(Status::new(
                status.code(),
                format!("writing {key:?} to the store: {}", status.message()),
            )),
        }
    }
}
