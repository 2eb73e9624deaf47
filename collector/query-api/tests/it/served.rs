//! Store that is written like a collector's or imported, and is served on a socket.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};

use serde_json::Value;
use stroboscope_import::Importer;
use stroboscope_query::Source;
use stroboscope_query_api::store::Traces;
use stroboscope_query_api::trace::StoredTrace;
use stroboscope_store::data_dir::DataDir;
use stroboscope_store::decode::{otlp_json, otlp_protobuf};
use stroboscope_store::limits::Limits;
use stroboscope_store::query_memory::QueryMemory;
use stroboscope_store::record::Rows;
use stroboscope_store::tables::{PartitionRule, Store, write_rows};

/// Returns the path of a file of external test data; `None` if it does not exist.
pub(crate) fn data(name: &str) -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let path = std::env::var_os("STROBOSCOPE_OTHERS_DATA")
        .map_or_else(beside, PathBuf::from)
        .join(name);
    if !path.exists() {
        eprintln!("SKIPPED: {} is not there", path.display());
        return None;
    }
    Some(path)
}

/// Store that is served on a socket.
pub(crate) struct Served {
    runtime: tokio::runtime::Runtime,
    directory: tempfile::TempDir,
    address: SocketAddr,
    pub(crate) traces: Traces,
    written: std::cell::Cell<u32>,
}

/// Response of the server.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) kind: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.kind, "application/json", "{self:?}");
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Served {
    pub(crate) fn new() -> Self {
        Self::within(QueryMemory::unbounded())
    }

    pub(crate) fn within(memory: QueryMemory) -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let store = Store::local(directory.path(), runtime.handle().clone()).unwrap();
        let traces = Traces::of(store, memory);
        let router = stroboscope_query_api::router(&traces);
        let listener = runtime
            .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
            .unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(async move { axum::serve(listener, router).await });
        Self {
            runtime,
            directory,
            address,
            traces,
            written: std::cell::Cell::new(0),
        }
    }

    /// Reads a whole trace without corrected clocks.
    pub(crate) fn by_id(&self, id: u128) -> Option<StoredTrace> {
        let mut share = QueryMemory::unbounded().share();
        self.traces.by_id(id, usize::MAX, &mut share).unwrap()
    }

    pub(crate) fn store(&self) -> Store {
        Store::local(self.directory.path(), self.runtime.handle().clone()).unwrap()
    }

    pub(crate) fn source(&self) -> Source {
        Source::open(self.directory.path(), self.runtime.handle().clone()).unwrap()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn import(&self, path: &Path) {
        let importer = Importer::new(
            DataDir::create(self.directory.path()).unwrap(),
            self.store(),
        );
        let mut bad = Vec::new();
        let imported = importer.file(path, &mut |line, reason| {
            bad.push(format!("{line}: {reason}"));
        });
        imported.unwrap();
        assert!(bad.is_empty(), "{}: {bad:?}", path.display());
    }

    /// Writes a request of OTLP in JSON to the store.
    pub(crate) fn take(&self, request: &Value) {
        let mut rows = Rows::default();
        let taken = otlp_json(
            request.to_string().as_bytes(),
            &Limits::default(),
            &mut rows,
        );
        assert_eq!(taken.unwrap().rejected, 0);
        self.write(rows);
    }

    pub(crate) fn take_protobuf(&self, request: &[u8]) {
        let mut rows = Rows::default();
        let taken = otlp_protobuf(request, &Limits::default(), &mut rows).unwrap();
        assert_eq!(taken.rejected, 0, "{taken:?}");
        self.write(rows);
    }

    pub(crate) fn write(&self, rows: Rows) {
        let number = self.written.get();
        self.written.set(number + 1);
        let name = format!("{number:020}");
        let at_ns = rows.spans.first().map_or(0, |span| span.start_ns);
        let rule = PartitionRule::imported(at_ns);
        write_rows(&self.store(), &name, rows, &rule).unwrap();
    }

    pub(crate) fn ask(&self, target: &str) -> Answer {
        self.ask_for(target, "application/json")
    }

    pub(crate) fn ask_for(&self, target: &str, accept: &str) -> Answer {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let head = format!(
            "GET {target} HTTP/1.1\r\nhost: localhost\r\naccept: {accept}\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .unwrap();
        let head = String::from_utf8_lossy(&answer[..end]).to_lowercase();
        let kind = head
            .lines()
            .find_map(|line| line.strip_prefix("content-type: "));
        Answer {
            status: head[9..12].parse().unwrap(),
            kind: kind.unwrap_or_default().to_owned(),
            body: answer[end + 4..].to_vec(),
        }
    }

    /// Returns the JSON at a path. Fails if the status is not 200.
    pub(crate) fn json(&self, target: &str) -> Value {
        let answer = self.ask(target);
        assert_eq!(answer.status, 200, "{target}: {}", answer.text());
        answer.json()
    }
}
