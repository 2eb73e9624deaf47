//! Load generator that counts the outcomes of its requests.

use std::collections::BTreeMap;

use reqwest::StatusCode;
use stroboscope_tests::Server;

const REQUESTS: u64 = 600;
/// One request in this many fails in each way.
const EACH: u64 = 60;

/// Requests as their client saw them.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) requests: u64,
    /// Number of failures by status; `None` means no answer.
    pub(crate) failed: BTreeMap<Option<u16>, u64>,
}

impl Seen {
    pub(crate) fn all_failed(&self) -> u64 {
        self.failed.values().sum()
    }
}

/// Returns the address that a service prints.
pub(crate) fn address_of(service: &mut Server) -> String {
    service.wait_for("its address", |said| {
        let mut lines = said.lines();
        lines.find_map(|line| Some(line.strip_prefix("serving on ")?.to_owned()))
    })
}

/// Sends requests to a service, one after the other. Returns their outcomes.
pub(crate) fn run(service: &mut Server) -> Seen {
    let address = address_of(service);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let client = reqwest::Client::new();
    let mut failed = BTreeMap::new();
    for request in 0..REQUESTS {
        let way = match request % EACH {
            0 => "?way=status",
            20 => "?way=grpc",
            40 => "?way=panic",
            _ => "",
        };
        let asked = client.get(format!("{address}/order{way}")).send();
        let status = runtime.block_on(asked).ok().map(|answer| answer.status());
        if status != Some(StatusCode::OK) {
            let status = status.map(|status| status.as_u16());
            *failed.entry(status).or_default() += 1;
        }
    }
    let requests = REQUESTS;
    let seen = Seen { requests, failed };
    assert_eq!(seen.all_failed() * 20, REQUESTS, "{seen:?}");
    assert_eq!(seen.failed.len(), 3, "{seen:?}");
    seen
}
