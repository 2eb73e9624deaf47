//! Temporary stores, subcommands that echo their arguments, and requests without a socket.

use std::sync::{Arc, Mutex, mpsc};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use stroboscope_fixtures::workload;
use stroboscope_render::show::Doc;
use stroboscope_reports::failure::{Failure, FailureCode};
use stroboscope_reports::form::{Field, FieldKind, VerbPage};
use stroboscope_reports::notes::Remark;
use stroboscope_reports::registry::pages;
use stroboscope_store::progress::Observer;
use stroboscope_store::query_memory::QueryMemory;
use stroboscope_store::record::Rows;
use stroboscope_store::tables::{PartitionRule, Store, write_rows};
use stroboscope_web::store_verbs::StoreVerbs;
use stroboscope_web::verbs::{VerbAnswer, Verbs};
use stroboscope_web::{SiteOptions, site};
use tempfile::TempDir;
use tokio::runtime::Handle;
use tower::ServiceExt as _;

pub(crate) const HOSTILE: &str =
    "</title></textarea>\"'><script>alert(1)</script><img src=x onerror=alert(1)>";

/// Site over a temporary directory.
pub(crate) struct Fixture {
    pub(crate) directory: TempDir,
    pub(crate) router: Router,
}

pub(crate) struct Got {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Fixture {
    /// Creates a site over an empty directory.
    pub(crate) fn empty() -> Self {
        Self::with(SayingVerbs::default())
    }

    pub(crate) fn with(verbs: impl Verbs) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let router = site(
            Arc::new(verbs),
            SiteOptions::of(directory.path(), &QueryMemory::unbounded()),
        );
        Self { directory, router }
    }

    /// Creates a site over 300 simulated requests without the spans of the process that sends late,
    /// after `change` to their rows.
    pub(crate) async fn of_requests(change: fn(&mut Rows)) -> Self {
        let fixture = Self::empty();
        fixture.write("seg-0000000001", change).await;
        fixture
    }

    /// Creates a site like [`of_requests`](Self::of_requests), with the pages of all reports.
    pub(crate) async fn of_reports(change: fn(&mut Rows)) -> Self {
        let (directory, memory) = (tempfile::tempdir().unwrap(), QueryMemory::unbounded());
        let reports = StoreVerbs::of(directory.path(), pages(), Handle::current(), &memory);
        let options = SiteOptions::of(directory.path(), &memory);
        let router = site(Arc::new(reports), options);
        let fixture = Self { directory, router };
        fixture.write("seg-0000000001", change).await;
        fixture
    }

    pub(crate) async fn write(&self, name: &str, change: fn(&mut Rows)) {
        let (path, runtime) = (self.directory.path().to_owned(), Handle::current());
        let name = name.to_owned();
        let write = move || {
            let store = Store::local(&path, runtime).unwrap();
            let mut rows = workload::rows(7, 300, 0);
            change(&mut rows);
            let at_ns = workload::EPOCH_NS as i64;
            write_rows(&store, &name, rows, &PartitionRule::received(at_ns, at_ns)).unwrap();
        };
        tokio::task::spawn_blocking(write).await.unwrap();
    }

    pub(crate) async fn get(&self, path: &str) -> Got {
        let request = Request::get(path).body(Body::empty()).unwrap();
        self.ask(request).await
    }

    pub(crate) async fn ask(&self, request: Request<Body>) -> Got {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = to_bytes(body, 64 << 20).await.unwrap();
        Got {
            status: parts.status,
            headers: parts.headers,
            text: String::from_utf8_lossy(&bytes).into_owned(),
        }
    }
}

/// Subcommands that echo their arguments, and wait when requested.
#[derive(Debug, Default)]
pub(crate) struct SayingVerbs {
    /// Channel on which the subcommand `slow` waits.
    pub(crate) go: Option<Mutex<mpsc::Receiver<()>>>,
}

fn field(name: &str, kind: FieldKind) -> Field {
    Field {
        name: name.to_owned(),
        help: HOSTILE.to_owned(),
        kind,
        default: None,
        is_positional: false,
        is_required: false,
        is_list: false,
        is_common: false,
    }
}

fn page(name: &'static str) -> VerbPage {
    VerbPage {
        name,
        words: name,
        about: format!("About {HOSTILE}"),
        more: format!("About {HOSTILE}\n\nMore of it."),
        fields: vec![
            field("top", FieldKind::Number),
            field("by", FieldKind::Text("ATTRIBUTE".to_owned())),
            field("cdf", FieldKind::Flag),
            field(
                "zoom",
                FieldKind::Choice(vec!["near".to_owned(), "far".to_owned()]),
            ),
            field("scale", FieldKind::Factor),
        ],
    }
}

impl Verbs for SayingVerbs {
    fn pages(&self) -> &[VerbPage] {
        static PAGES: std::sync::LazyLock<Vec<VerbPage>> = std::sync::LazyLock::new(|| {
            ["slack", "needs", "fails", "falls", "slow"]
                .map(page)
                .into()
        });
        &PAGES
    }

    fn check(&self, verb: &str, _: &[(String, String)]) -> Result<(), Failure> {
        match verb {
            "fails" => Err(Failure::coded(
                FailureCode::Asked,
                format!("wrong: {HOSTILE}"),
            )),
            _ => Ok(()),
        }
    }

    fn answer(
        &self,
        verb: &str,
        arguments: &[(String, String)],
        observer: Arc<dyn Observer>,
    ) -> Result<VerbAnswer, Failure> {
        let mut doc = Doc::new();
        doc.heading(format!("{verb} {HOSTILE}"));
        for (name, value) in arguments {
            doc.sentence(format!("{name} is {value}"));
        }
        match verb {
            "needs" if arguments.is_empty() => Err(Failure::coded(
                FailureCode::NeedsMore,
                "needs needs something",
            )),
            "falls" => panic!("on purpose"),
            "slow" => {
                let mut task = observer.begin("reading", "requests", Some(100));
                task.add(40);
                if let Some(go) = &self.go {
                    let _ = go.lock().unwrap().recv();
                }
                Ok(answer(doc))
            }
            _ => Ok(answer(doc)),
        }
    }
}

fn answer(doc: Doc) -> VerbAnswer {
    VerbAnswer {
        doc,
        remarks: vec![
            Remark::Note("something".to_owned()),
            Remark::Error(HOSTILE.to_owned()),
        ],
    }
}
