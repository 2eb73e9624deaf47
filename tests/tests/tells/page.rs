//! The page of the live model, of connected processes, and of rejections.

use serde_json::Value;
use stroboscope_fixtures::batches::batch;
use stroboscope_proto::v1::Batch;
use stroboscope_tests::Program;

use crate::{collect, get, ship, wait_for};

const REQUESTS: u64 = 8;
/// Name of a hostile service.
const NAME: &str = "<script>alert('web')</script>";

/// A request of 1 ms, whose first call takes 300 µs. The second call follows and takes 400 µs.
fn request(sequence: u64) -> Batch {
    let mut request = batch(5, sequence, 3);
    request.process.as_mut().expect("a process").service = NAME.to_owned();
    request.events = None;
    request.losses = Vec::new();
    request.clock_steps = Vec::new();
    let spans = request.spans.as_mut().expect("spans");
    let root = spans.span_ids[0];
    spans.parent_ids = vec![0, root, root];
    spans.name_string = vec![1, 2, 3];
    // Each as much later than the one before.
    spans.start_ns = vec![0, 100_000, 400_000];
    spans.duration_ns = vec![1_000_000, 300_000, 400_000];
    request
}

fn json(pages: &str, path: &str) -> Value {
    serde_json::from_str(&get(pages, path)).expect("JSON")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_shows_what_requests_wait_for_and_who_ships() {
    let program = Program::new();
    let arguments = ["--flush-interval", "100ms", "--live-quiet", "100ms"];
    let mut collector = collect(&program, &arguments, &[]);
    let pages = collector.pages.clone();
    assert_eq!(json(&pages, "/api/critical-path")["requests"], 0);
    assert_eq!(json(&pages, "/api/processes")["known"], 0);
    assert!(get(&pages, "/fleet").contains("No complete request in the last 5 minutes"));
    let replies = ship(&collector.grpc, (0..REQUESTS).map(request).collect()).await;
    assert_eq!(replies.len() as u64, REQUESTS);
    wait_for("all requests", || {
        json(&pages, "/api/critical-path")["requests"] == REQUESTS
    });

    let path = json(&pages, "/api/critical-path");
    let share = |value: &Value| value.as_f64().expect("a number");
    let segments = path["segments"].as_array().expect("segments");
    let of = |name: &str| -> f64 {
        let named = segments.iter().filter(|one| {
            one["segment"]
                .as_str()
                .is_some_and(|text| text.contains(name))
        });
        named.map(|one| share(&one["mean_share"])).sum()
    };
    assert!((of(":put [start … end]") - 0.3).abs() < 1e-6, "{path:#}");
    assert!((of(":key [start … end]") - 0.4).abs() < 1e-6, "{path:#}");
    let operations = path["operations"].as_array().expect("operations");
    // The requests are alike, so shares of their time equal means of shares.
    for [key, of_others, of_tail] in [
        ["mean_share", "others_mean_share", "mean_tail_share"],
        [
            "share_of_time",
            "others_share_of_time",
            "tail_share_of_time",
        ],
    ] {
        let sum = |rows: &[Value]| -> f64 { rows.iter().map(|one| share(&one[key])).sum() };
        let tail = share(&path[of_tail]);
        for all in [
            sum(segments) + share(&path[of_others]) + tail,
            sum(operations) + tail,
        ] {
            assert!((all - 1.0).abs() < 1e-6, "{key}: {all} in {path:#}");
        }
        assert!((share(&segments[0][key]) - 0.4).abs() < 1e-6, "{path:#}");
    }

    // The same by operation, with how long its own work takes.
    assert_eq!(path["operations_known"], operations.len());
    let put = operations.iter().find(|one| {
        one["operation"]
            .as_str()
            .is_some_and(|name| name.ends_with(":put"))
    });
    let put = put.expect("an operation");
    assert_eq!(put["occurrences"], REQUESTS);
    for (of, ns) in [("duration", 300_000.0), ("slack", 0.0)] {
        for percentile in ["p50_ns", "p95_ns", "p99_ns"] {
            let found = share(&put[of][percentile]);
            // The percentiles are exact to 0.2 %.
            assert!(
                (found - ns).abs() <= ns * 2e-3,
                "{of} {percentile}: {put:#}"
            );
        }
    }

    let processes = json(&pages, "/api/processes");
    let process = &processes["processes"][0];
    assert_eq!(
        (&processes["known"], &process["service"]),
        (&1.into(), &NAME.into())
    );
    assert_eq!(
        (&process["host"], &process["pid"]),
        (&"alpha".into(), &7.into())
    );
    assert_eq!(process["records"], 3 * REQUESTS);
    assert_eq!(
        (
            &process["windows"]["count"],
            &process["windows"]["burst_config"]
        ),
        (&REQUESTS.into(), &28.into())
    );
    assert_eq!(
        (&process["missing_batches"], &process["lost"]),
        (&0.into(), &serde_json::json!({}))
    );
    assert!(
        process["last_seen_ns"]
            .as_i64()
            .is_some_and(|ns| ns > 1_700_000_000_000_000_000)
    );
    assert!(
        process["clock"]["timestamps"]
            .as_u64()
            .is_some_and(|n| n > 0),
        "{process:#}"
    );

    // A request with a foreign host name is rejected.
    {
        use std::io::{Read as _, Write as _};
        let mut stream = std::net::TcpStream::connect(&pages).expect("it listens");
        let request = "GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).expect("it is read");
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
    }
    let doors = json(&pages, "/api/doors");
    let door = doors["doors"]
        .as_array()
        .expect("doors")
        .iter()
        .find(|one| one["door"] == "pages")
        .expect("pages");
    assert_eq!(
        door["turned_away"],
        serde_json::json!({"host": 1}),
        "{doors:#}"
    );

    let page = get(&pages, "/fleet");
    for text in [
        "Recent critical path",
        "of 8 requests",
        "Processes",
        "Ports",
        "host 1",
        "0b11100",
    ] {
        assert!(page.contains(text), "{text} is not in {page}");
    }
    assert!(
        page.contains("&lt;script&gt;") && !page.contains("<script>"),
        "{page}"
    );
    assert!(collector.server.stop(libc::SIGTERM).success());
}

#[test]
fn without_a_live_model_the_rest_is_there() {
    let program = Program::new();
    let collector = collect(&program, &["--no-live-model"], &[]);
    assert!(get(&collector.pages, "/fleet").contains("Ports"));
    assert_eq!(json(&collector.pages, "/api/processes")["known"], 0);
}

/// At the address of the live model's page, programs get the model as JSON, and browsers get the
/// page.
#[test]
fn the_model_is_a_page_for_browsers() {
    use std::io::{Read as _, Write as _};
    let program = Program::new();
    let collector = collect(&program, &[], &[]);
    let kind_of = |path: &str, accept: &str| {
        let mut stream = std::net::TcpStream::connect(&collector.pages).expect("it listens");
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).expect("it is read");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let kind = answer
            .lines()
            .find_map(|line| line.strip_prefix("content-type: "));
        kind.expect("a type").to_owned()
    };
    let browser = "text/html,application/xhtml+xml,*/*;q=0.8";
    for path in ["/model", "/model?focus=web%3Aget", "/model?all=on"] {
        assert_eq!(kind_of(path, browser), "text/html; charset=utf-8", "{path}");
        assert_eq!(kind_of(path, "*/*"), "application/json", "{path}");
    }
    assert_eq!(kind_of("/api/model", browser), "application/json");
    let fleet = get(&collector.pages, "/fleet");
    assert!(fleet.contains("<a href=\"/api/model\">"), "{fleet}");
}
