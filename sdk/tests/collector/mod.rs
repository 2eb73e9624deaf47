//! A collector for tests. It serves on a socket and keeps the batches that it does not refuse.

#![allow(dead_code, missing_docs, unreachable_pub)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use stroboscope_proto::v1::{self, collector_server};
use tokio_stream::{
    Stream, StreamExt as _,
    wrappers::{TcpListenerStream, UnixListenerStream},
};
use tonic::{Request, Response, Status, Streaming};

/// A span decoded from a batch. Attribute values are text.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    pub trace: String,
    pub id: u64,
    pub parent: u64,
    pub name: String,
    pub start_ns: i64,
    pub end_ns: i64,
    pub flags: u32,
    pub attributes: BTreeMap<String, String>,
}

impl Span {
    pub fn has(&self, flag: v1::SpanFlag) -> bool {
        self.flags & flag as u32 != 0
    }
}

#[derive(Clone, Default)]
pub struct Collector {
    batches: Arc<Mutex<Vec<v1::Batch>>>,
    directives: Arc<Mutex<Vec<v1::directive::Kind>>>,
    pub refuse: Arc<std::sync::atomic::AtomicBool>,
    authorizations: Arc<Mutex<BTreeSet<String>>>,
    encodings: Arc<Mutex<BTreeSet<String>>>,
}

type Replies<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl collector_server::Collector for Collector {
    type ShipStream = Replies<v1::ShipReply>;
    type ControlStream = Replies<v1::Directive>;

    async fn ship(
        &self,
        request: Request<Streaming<v1::ShipRequest>>,
    ) -> Result<Response<Self::ShipStream>, Status> {
        self.note_authorization(&request);
        let encoding = request
            .metadata()
            .get("grpc-encoding")
            .map_or("none", |value| value.to_str().unwrap());
        self.encodings.lock().unwrap().insert(encoding.to_owned());
        let me = self.clone();
        let replies = request.into_inner().map(move |message| {
            let batch = message?.batch.expect("a batch");
            let sequence = batch.sequence;
            let refuse = me.refuse.load(std::sync::atomic::Ordering::Relaxed);
            let outcome = if refuse {
                v1::ShipOutcome::Refused
            } else {
                v1::ShipOutcome::Stored
            };
            if !refuse {
                me.batches.lock().unwrap().push(batch);
            }
            Ok(v1::ShipReply {
                sequence,
                outcome: outcome.into(),
                detail: String::new(),
            })
        });
        Ok(Response::new(Box::pin(replies)))
    }

    async fn control(
        &self,
        request: Request<v1::ControlRequest>,
    ) -> Result<Response<Self::ControlStream>, Status> {
        self.note_authorization(&request);
        let directives: Vec<_> = std::mem::take(&mut *self.directives.lock().unwrap());
        let stream = tokio_stream::iter(
            directives
                .into_iter()
                .map(|kind| Ok(v1::Directive { kind: Some(kind) })),
        )
        .chain(tokio_stream::pending());
        Ok(Response::new(Box::pin(stream)))
    }
}

impl Collector {
    /// Starts serving on a free port in a new thread, and returns the address, `http://…`.
    pub fn start(self) -> String {
        self.serve(tonic::transport::Server::builder(), None)
    }

    /// Starts serving on a unix socket in a new thread, and returns the address, `unix:…`.
    pub fn start_on_unix_socket(self, path: &Path) -> String {
        self.serve(tonic::transport::Server::builder(), Some(path.to_owned()))
    }

    /// Starts serving with the settings of `server` in a new thread, and returns the address.
    /// `unix` is the path of a socket; `None` means a free TCP port.
    pub fn serve(self, mut server: tonic::transport::Server, unix: Option<PathBuf>) -> String {
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async move {
                let service = collector_server::CollectorServer::new(self)
                    .accept_compressed(tonic::codec::CompressionEncoding::Zstd);
                let router = server.add_service(service);
                if let Some(path) = unix {
                    let listener = tokio::net::UnixListener::bind(&path).unwrap();
                    send.send(format!("unix:{}", path.display())).unwrap();
                    router
                        .serve_with_incoming(UnixListenerStream::new(listener))
                        .await
                        .unwrap();
                } else {
                    let listener = tokio::net::TcpListener::bind("0.0.0.0:0").await.unwrap();
                    send.send(format!(
                        "http://127.0.0.1:{}",
                        listener.local_addr().unwrap().port()
                    ))
                    .unwrap();
                    router
                        .serve_with_incoming(TcpListenerStream::new(listener))
                        .await
                        .unwrap();
                }
            });
        });
        receive.recv().unwrap()
    }

    /// Returns the distinct `grpc-encoding` headers of the streams of batches so far. "none" stands
    /// for a stream without the header.
    pub fn encodings(&self) -> Vec<String> {
        self.encodings.lock().unwrap().iter().cloned().collect()
    }

    fn note_authorization<T>(&self, request: &Request<T>) {
        let value = request
            .metadata()
            .get("authorization")
            .map_or("none", |value| value.to_str().unwrap());
        self.authorizations.lock().unwrap().insert(value.to_owned());
    }

    /// Returns the distinct `authorization` headers so far. "none" stands for a request without the
    /// header.
    pub fn authorizations(&self) -> Vec<String> {
        self.authorizations
            .lock()
            .unwrap()
            .iter()
            .cloned()
            .collect()
    }

    pub fn direct(&self, set: v1::SetBurstConfig) {
        self.direct_kind(v1::directive::Kind::SetBurstConfig(set));
    }

    /// Adds a directive, which the next process that opens a control stream gets.
    pub fn direct_kind(&self, kind: v1::directive::Kind) {
        self.directives.lock().unwrap().push(kind);
    }

    pub fn batches(&self) -> Vec<v1::Batch> {
        self.batches.lock().unwrap().clone()
    }

    pub fn spans(&self) -> Vec<Span> {
        self.batches().iter().flat_map(spans_of).collect()
    }

    pub fn span(&self, name: &str) -> Span {
        let found: Vec<Span> = self
            .spans()
            .into_iter()
            .filter(|span| span.name == name)
            .collect();
        assert_eq!(found.len(), 1, "spans named {name}: {found:#?}");
        found.into_iter().next().unwrap()
    }

    /// Returns the name, span id and time of each event, in nanoseconds since 1970.
    pub fn events(&self) -> Vec<(String, u64, i64)> {
        let mut all = Vec::new();
        for batch in self.batches() {
            let Some(events) = &batch.events else {
                continue;
            };
            let mut time_ns = events.base_ns as i64;
            for i in 0..events.span_ids.len() {
                time_ns += events.time_ns[i];
                let name = batch.strings[events.name_string[i] as usize].clone();
                all.push((name, events.span_ids[i], time_ns));
            }
        }
        all
    }

    /// Returns the attributes of each event with the name `wanted`, as text.
    pub fn events_named(&self, wanted: &str) -> Vec<BTreeMap<String, String>> {
        let of_batch = |batch: &v1::Batch| {
            let events = batch.events.clone().unwrap_or_default();
            let attributes = events.attributes.unwrap_or_default();
            let mut reader = AttributeReader::default();
            let read = events
                .name_string
                .iter()
                .zip(&events.attribute_count)
                .map(|(name, count)| {
                    let name = batch.strings[*name as usize].clone();
                    (name, reader.read(&attributes, *count, &batch.strings))
                })
                .collect::<Vec<_>>();
            read.into_iter()
                .filter(|(name, _)| name == wanted)
                .map(|(_, attributes)| attributes)
                .collect::<Vec<_>>()
        };
        self.batches().iter().flat_map(of_batch).collect()
    }

    /// Returns the windows of all batches in order, with adjacent pieces joined. Times are
    /// nanoseconds since 1970.
    pub fn windows(&self) -> Vec<(u64, u64)> {
        let mut windows: Vec<(u64, u64)> = self
            .batches()
            .iter()
            .flat_map(|batch| {
                batch
                    .windows
                    .iter()
                    .map(|window| (window.open_ns, window.close_ns))
            })
            .collect();
        windows.sort_unstable();
        let mut joined: Vec<(u64, u64)> = Vec::new();
        for window in windows {
            match joined.last_mut() {
                Some(last) if last.1 == window.0 => last.1 = window.1,
                _ => joined.push(window),
            }
        }
        joined
    }
}

pub fn spans_of(batch: &v1::Batch) -> Vec<Span> {
    let Some(spans) = &batch.spans else {
        return Vec::new();
    };
    let text = |index: u32| batch.strings[index as usize].clone();
    let mut start_ns = spans.base_ns as i64;
    let attributes = spans.attributes.clone().unwrap_or_default();
    let mut reader = AttributeReader::default();
    (0..spans.span_ids.len())
        .map(|i| {
            start_ns += spans.start_ns[i];
            let map = reader.read(&attributes, spans.attribute_count[i], &batch.strings);
            Span {
                trace: spans.trace_ids[16 * i..16 * (i + 1)]
                    .iter()
                    .map(|byte| format!("{byte:02x}"))
                    .collect(),
                id: spans.span_ids[i],
                parent: spans.parent_ids[i],
                name: text(spans.name_string[i]),
                start_ns,
                end_ns: start_ns + spans.duration_ns[i] as i64,
                flags: spans.flags[i],
                attributes: map,
            }
        })
        .collect()
}

/// The positions of the next values in the attribute columns of a batch.
#[derive(Default)]
struct AttributeReader {
    next: usize,
    ints: usize,
    uints: usize,
    doubles: usize,
    strings: usize,
}

impl AttributeReader {
    /// Reads the next `count` attributes, as text.
    fn read(
        &mut self,
        from: &v1::Attributes,
        count: u32,
        strings: &[String],
    ) -> BTreeMap<String, String> {
        let take = |index: &mut usize| {
            *index += 1;
            *index - 1
        };
        let mut map = BTreeMap::new();
        for _ in 0..count {
            let at = take(&mut self.next);
            let value = match from.kind[at] {
                0 => from.int_values[take(&mut self.ints)].to_string(),
                1 => from.uint_values[take(&mut self.uints)].to_string(),
                2 => from.double_values[take(&mut self.doubles)].to_string(),
                3 => (from.int_values[take(&mut self.ints)] != 0).to_string(),
                _ => strings[from.string_values[take(&mut self.strings)] as usize].clone(),
            };
            map.insert(strings[from.key_string[at] as usize].clone(), value);
        }
        map
    }
}

/// Waits until `condition` is true. Panics after ten seconds, with `what` in the message.
pub fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(
            Instant::now() < end,
            "waited in vain for {what}; {:?}",
            stroboscope::stats()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}
