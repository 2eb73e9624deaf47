//! Tests of the pages of requests over HTTP, with a store on disk.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use stroboscope_fixtures::workload;
use stroboscope_store::progress::Observer;
use stroboscope_store::query_memory::QueryMemory;
use stroboscope_store::record::{Rows, SpanRow, WindowRow};
use stroboscope_store::tables::{PartitionRule, Store, write_rows};
use tempfile::TempDir;
use tokio::runtime::Handle;
use tower::ServiceExt as _;

use crate::site::Site;
use crate::verbs::{VerbAnswer, Verbs};
use crate::{SiteOptions, site};
use stroboscope_reports::Failure;
use stroboscope_reports::form::VerbPage;

const SEED: u64 = 7;
const REQUESTS: u64 = 40;

#[derive(Debug)]
struct NoVerbs;

impl Verbs for NoVerbs {
    fn pages(&self) -> &[VerbPage] {
        &[]
    }

    fn check(&self, verb: &str, _: &[(String, String)]) -> Result<(), Failure> {
        Err(Failure::new(verb))
    }

    fn answer(
        &self,
        verb: &str,
        _: &[(String, String)],
        _: Arc<dyn Observer>,
    ) -> Result<VerbAnswer, Failure> {
        Err(Failure::new(verb))
    }
}

/// Creates a data directory with this number of simulated requests, after `change` to their rows.
/// Not for async code.
fn directory(requests: u64, change: impl Fn(&mut Rows)) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = Store::local(directory.path(), runtime.handle().clone()).unwrap();
    for file in 0..workload::files(requests) {
        let mut rows = workload::rows(SEED, requests, file);
        change(&mut rows);
        let received_ns = workload::EPOCH_NS as i64;
        let rule = PartitionRule::received(received_ns, received_ns);
        write_rows(&store, &format!("seg-{file:010}"), rows, &rule).unwrap();
    }
    directory
}

struct Answered {
    status: StatusCode,
    headers: header::HeaderMap,
    bytes: Vec<u8>,
}

impl Answered {
    fn text(&self) -> String {
        String::from_utf8(self.bytes.clone()).unwrap()
    }
}

/// Requests a page of a new site, after the site has computed its model.
async fn ask(directory: &TempDir, address: &str) -> Answered {
    let router = site(
        Arc::new(NoVerbs),
        SiteOptions::of(directory.path(), &QueryMemory::unbounded()),
    );
    get(&router, "/traces/1/path").await;
    get(&router, address).await
}

async fn get(router: &axum::Router, address: &str) -> Answered {
    let router = router.clone();
    let request = Request::get(address).body(Body::empty()).unwrap();
    let answer = router.oneshot(request).await.unwrap();
    let (status, headers) = (answer.status(), answer.headers().clone());
    let bytes = axum::body::to_bytes(answer.into_body(), usize::MAX)
        .await
        .unwrap();
    Answered {
        status,
        headers,
        bytes: bytes.into(),
    }
}

fn run<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(future)
}

/// Parses a page as XML, which is stricter than HTML. Returns its text and the addresses of its
/// links.
fn read(page: &str) -> (String, Vec<String>) {
    let page = page.replacen("<!DOCTYPE html>", "", 1);
    let document =
        roxmltree::Document::parse(&page).unwrap_or_else(|error| panic!("{error}: {page}"));
    let texts = document.descendants().filter(roxmltree::Node::is_text);
    let text = texts
        .filter_map(|node| node.text())
        .collect::<Vec<_>>()
        .join("\n");
    let links = document
        .descendants()
        .filter_map(|node| node.attribute("href"));
    (text, links.map(str::to_owned).collect())
}

#[test]
fn a_request_has_a_page_its_columns_its_spans_and_a_trace_for_perfetto() {
    let directory = directory(REQUESTS, |rows| {
        for batch in &mut rows.batches {
            batch.windows.push(WindowRow {
                open_ns: batch.from_ns,
                close_ns: batch.to_ns,
                burst_config: 1,
            });
        }
    });
    run(async {
        let request = workload::request(SEED, 3);
        let id = format!("{:032x}", request.trace_id);
        let page = ask(&directory, &format!("/traces/{id}")).await;
        assert_eq!(page.status, StatusCode::OK, "{}", page.text());
        let policy = page.headers[header::CONTENT_SECURITY_POLICY]
            .to_str()
            .unwrap();
        assert!(
            policy.contains("default-src 'none'") && !policy.contains("unsafe"),
            "{policy}"
        );
        let (text, links) = read(&page.text());
        assert!(
            text.contains("The critical path by operation") && text.contains(" took "),
            "{text}"
        );
        assert!(
            links.contains(&format!("/traces/{id}/perfetto")),
            "{links:?}"
        );
        // Each link to a span on the page has a target, even without scripts.
        let html = page.text();
        let named: Vec<&String> = links
            .iter()
            .filter(|link| link.starts_with("#span="))
            .collect();
        assert!(named.len() > 3, "{links:?}");
        for link in named {
            assert!(html.contains(&format!("id=\"{}\"", &link[1..])), "{link}");
        }
        for way in ["/critical-path?root=", "/flows?root=", "/traces?root="] {
            assert!(
                links.iter().any(|link| link.starts_with(way)),
                "{way}: {links:?}"
            );
        }
        let near = links.iter().find(|link| link.contains("&min="));
        let (_, listed) = read(&ask(&directory, near.unwrap()).await.text());
        let is_this = |link: &String| link.starts_with(&format!("/traces/{id}?root="));
        assert!(listed.iter().any(is_this), "{listed:?}");
        // An id may have upper-case digits.
        let columns = ask(
            &directory,
            &format!("/traces/{}/columns", id.to_uppercase()),
        )
        .await;
        assert_eq!(columns.status, StatusCode::OK);
        assert_eq!(&columns.bytes[..4], b"STRC");
        let span = format!("/traces/{id}/spans/{:016x}", request.spans[0].span_id);
        let span: serde_json::Value =
            serde_json::from_slice(&ask(&directory, &span).await.bytes).unwrap();
        assert_eq!(span["service"], workload::texts(&request.spans[0]).0);
        let perfetto = ask(&directory, &format!("/traces/{id}/perfetto")).await;
        assert_eq!(perfetto.status, StatusCode::OK);
        let name = perfetto.headers[header::CONTENT_DISPOSITION]
            .to_str()
            .unwrap();
        assert!(
            name.contains(&format!("{id}.pftrace")) && perfetto.bytes.len() > 1000,
            "{name}"
        );
        // The burst contains this request and others, so its file is larger.
        let burst = links.iter().find(|link| link.starts_with("/bursts/"));
        let of_burst = ask(&directory, burst.unwrap()).await;
        assert_eq!(of_burst.status, StatusCode::OK, "{}", of_burst.text());
        assert!(of_burst.bytes.len() > 2 * perfetto.bytes.len());
        let absent = ask(&directory, &format!("/traces/{id}/perfetto?host=nowhere")).await;
        assert_eq!(absent.status, StatusCode::NOT_FOUND);
        assert!(absent.text().contains("nowhere"), "{}", absent.text());
    });
}

#[test]
fn the_list_is_of_the_slowest_first_and_goes_on() {
    let directory = directory(REQUESTS * 3, |_| {});
    let took = |number| {
        let request = workload::request(SEED, number);
        let root = request
            .spans
            .iter()
            .find(|span| span.parent_id == 0)
            .unwrap();
        (root.end_ns - root.start_ns, request.trace_id)
    };
    let mut expected: Vec<(u64, u128)> = (0..REQUESTS * 3).map(took).collect();
    expected.sort_by_key(|(took_ns, id)| (std::cmp::Reverse(*took_ns), *id));
    let expected: Vec<String> = expected
        .iter()
        .map(|(_, id)| format!("/traces/{id:032x}"))
        .collect();
    run(async {
        let mut listed = Vec::new();
        for page in 1..=3 {
            let answered = ask(&directory, &format!("/traces?page={page}")).await;
            let (_, links) = read(&answered.text());
            listed.extend(
                links
                    .into_iter()
                    .filter(|link| link.starts_with("/traces/")),
            );
        }
        assert_eq!(listed, expected);
        for (query, first) in [
            ("", "the slowest first"),
            ("?order=latest", "the latest first"),
        ] {
            let (text, _) = read(&ask(&directory, &format!("/traces{query}")).await.text());
            assert!(text.contains(first), "{text}");
        }
        let (text, links) = read(&ask(&directory, "/traces?service=store&min=1s").await.text());
        assert!(
            !links.iter().any(|link| link.starts_with("/traces/")),
            "{text}"
        );
        // A formula selects the requests with a span for which it holds, here all requests.
        let (_, links) = read(
            &ask(
                &directory,
                "/traces?q=%7B%20duration%20%3E%200s%20%7D&page=2",
            )
            .await
            .text(),
        );
        let found: Vec<_> = links
            .into_iter()
            .filter(|link| link.starts_with("/traces/"))
            .collect();
        assert_eq!(found, expected[50..100]);
    });
}

#[test]
fn what_is_not_there_or_not_understood_is_said_with_its_status() {
    let (some, none) = (directory(2, |_| {}), directory(0, |_| {}));
    run(async {
        for (address, status, said) in [
            ("/traces/ff", StatusCode::NOT_FOUND, "no trace with this id"),
            (
                "/traces/no-such-name",
                StatusCode::NOT_FOUND,
                "no trace with this id",
            ),
            (
                "/traces/ff?at=1767322800000000000",
                StatusCode::NOT_FOUND,
                "no trace with this id",
            ),
            (
                &format!("/traces/{}", "f".repeat(33)),
                StatusCode::BAD_REQUEST,
                "33 digits",
            ),
            ("/traces/0", StatusCode::BAD_REQUEST, "all zeros"),
            ("/traces/ff/columns", StatusCode::NOT_FOUND, "no trace"),
            ("/traces/0/columns", StatusCode::BAD_REQUEST, "all zeros"),
            ("/traces/ff/spans/1", StatusCode::NOT_FOUND, "no such span"),
            (
                "/traces/ff/spans/zz",
                StatusCode::BAD_REQUEST,
                "hexadecimal",
            ),
            ("/traces/ff/perfetto", StatusCode::NOT_FOUND, "no trace"),
            (
                "/bursts/soon/perfetto",
                StatusCode::BAD_REQUEST,
                "not an instant",
            ),
            (
                &format!("/bursts/{}/perfetto", i64::MAX),
                StatusCode::NOT_FOUND,
                "burst",
            ),
            (
                "/traces?min=soon",
                StatusCode::BAD_REQUEST,
                "not a duration",
            ),
            ("/traces?q=%7B", StatusCode::BAD_REQUEST, "formula"),
            (
                "/traces?q=%7Bkernel%3Dsyscall%7D",
                StatusCode::BAD_REQUEST,
                "does not read the kernel",
            ),
        ] {
            let answered = ask(&some, address).await;
            assert_eq!(answered.status, status, "{address}");
            assert!(
                answered.text().contains(said),
                "{address}: {}",
                answered.text()
            );
        }
        let empty = ask(&none, "/traces").await;
        assert_eq!(empty.status, StatusCode::OK);
        assert!(read(&empty.text()).0.contains("no requests yet"));
        assert_eq!(ask(&none, "/traces/ff").await.status, StatusCode::NOT_FOUND);
    });
}

#[test]
fn a_request_is_found_by_the_half_of_its_id_that_the_kernel_knows() {
    let directory = directory(REQUESTS, |_| {});
    let request = workload::request(SEED, 3);
    let (low, at_ns) = (request.trace_id as u64, request.spans[0].start_ns);
    run(async {
        let answered = ask(&directory, &format!("/traces/{low:016x}?at={at_ns}")).await;
        assert_eq!(answered.status, StatusCode::TEMPORARY_REDIRECT);
        let to = answered.headers[header::LOCATION].to_str().unwrap();
        let whole = format!("/traces/{:032x}", request.trace_id);
        assert_eq!(to, format!("{whole}#at={at_ns}"));
        // The request is also found without an instant, as in links from tables of kernel activity.
        // Other digits find no request.
        let answered = ask(&directory, &format!("/traces/{low:016x}")).await;
        assert_eq!(answered.headers[header::LOCATION].to_str().unwrap(), whole);
        let none = ask(&directory, &format!("/traces/{:016x}", low ^ 1)).await;
        assert_eq!(none.status, StatusCode::NOT_FOUND);
    });
}

#[test]
fn names_of_anybody_are_texts() {
    const NAME: &str = "<script>alert(1)</script>\" onload=\"x";
    let directory = directory(3, |rows| {
        let name = rows.strings.intern(NAME);
        for span in &mut rows.spans {
            (span.name, span.service, span.host) = (name, name, name);
        }
    });
    run(async {
        let id = format!("{:032x}", workload::request(SEED, 1).trace_id);
        for address in [
            "/traces".to_owned(),
            format!("/traces/{id}"),
            format!("/traces?service={NAME}&q={NAME}").replace(['<', '>', '"', ' '], "%3C"),
        ] {
            let page = ask(&directory, &address).await.text();
            assert!(
                !page.contains("<script>alert") && !page.contains("\" onload"),
                "{address}: {page}"
            );
            read(&page);
        }
        let page = ask(&directory, &format!("/traces/{id}")).await.text();
        assert!(read(&page).0.contains(NAME), "{page}");
    });
}

#[test]
fn a_root_that_runs_inside_others_is_said_in_the_list_and_on_its_page() {
    let request = workload::request(SEED, 3);
    let inner = request.spans.iter().find(|span| span.parent_id != 0);
    let inner = (request.trace_id, inner.unwrap().span_id);
    let directory = directory(REQUESTS, |rows| {
        let mut spans = rows.spans.iter();
        let found = spans.find(|span| (span.trace_id, span.span_id) == inner);
        let found = found.cloned();
        rows.spans.extend(found.map(|span| SpanRow {
            trace_id: 7,
            parent_id: 0,
            flags: 0,
            ..span
        }));
    });
    run(async {
        let (text, _) = read(&ask(&directory, "/traces").await.text());
        assert!(text.contains("not complete (inner_root)"), "{text}");
        let (text, _) = read(&ask(&directory, &format!("/traces/{:032x}", 7)).await.text());
        assert!(text.contains("runs inside another one"), "{text}");
    });
}

#[test]
fn a_damaged_file_leaves_the_others() {
    let directory = directory(REQUESTS, |_| {});
    let mut files = Vec::new();
    let mut pending = vec![directory.path().join("spans")];
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            pending.extend(
                std::fs::read_dir(path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        } else {
            files.push(path);
        }
    }
    files.sort();
    let damaged = files.first().unwrap();
    let bytes = std::fs::read(damaged).unwrap();
    std::fs::write(damaged, &bytes[..bytes.len() / 2]).unwrap();
    run(async {
        let answered = ask(&directory, "/traces").await;
        assert_eq!(answered.status, StatusCode::OK);
        let (text, _) = read(&answered.text());
        assert!(text.contains("could not be read in full"), "{text}");
        let gone = ask(
            &directory,
            &format!("/traces/{:032x}", workload::request(SEED, 0).trace_id),
        )
        .await;
        assert!(
            [StatusCode::OK, StatusCode::NOT_FOUND].contains(&gone.status),
            "{}",
            gone.status
        );
        assert!(Handle::try_current().is_ok());
    });
}

#[test]
fn a_request_is_shown_before_its_path_is_known_and_then_with_it() {
    let directory = directory(REQUESTS, |_| {});
    let site = Site::new(
        Arc::new(NoVerbs),
        SiteOptions::of(directory.path(), &QueryMemory::unbounded()),
        Vec::new(),
    );
    let router = crate::traces::routes().with_state(site.clone());
    let id = format!("{:032x}", workload::request(SEED, 3).trace_id);
    let address = format!("/traces/{id}");
    let has_path = |columns: &Answered| {
        let head = String::from_utf8_lossy(&columns.bytes);
        head.contains("\"has_path\":true")
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let making = site.models().hold_making();
    runtime.block_on(async {
        // Another page waits for the model, and occupies a slot for readings of the store.
        let list = tokio::spawn({
            let router = router.clone();
            async move { get(&router, "/traces").await }
        });
        let page = get(&router, &address).await.text();
        assert!(
            page.contains(&format!("data-awaits=\"{address}/path\"")),
            "{page}"
        );
        assert!(!page.contains("<h2 id=\"path\">"), "{page}");
        assert!(!page.contains("no model of the store"), "{page}");
        let columns = get(&router, &format!("{address}/columns")).await;
        assert_eq!(columns.status, StatusCode::OK);
        assert!(!has_path(&columns));
        drop(making);
        let known = get(&router, &format!("{address}/path")).await;
        assert_eq!(
            (known.status, known.text().as_str()),
            (StatusCode::OK, "known\n")
        );
        let page = get(&router, &address).await.text();
        assert!(!page.contains("data-awaits"), "{page}");
        assert!(page.contains("<h2 id=\"path\">"), "{page}");
        assert!(has_path(&get(&router, &format!("{address}/columns")).await));
        assert_eq!(list.await.unwrap().status, StatusCode::OK);
    });
}
