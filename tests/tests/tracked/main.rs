//! Two services that track their bytes and a collector, each a process of its own: queries name the
//! sources of an answer across both. The pages of the newsfeed, whose processes track their bytes.

mod newsfeed;

use std::process::Command;

use serde_json::Value;
use stroboscope::baggage::Provenance;
use stroboscope::span;
use stroboscope::tracked::{self, DataLinkage, TrackedBuf};
use stroboscope_tests::{Program, Server};

const ROLE: &str = "STROBOSCOPE_TEST_ROLE";
const MESSAGE: &str = "STROBOSCOPE_TEST_MESSAGE";

/// Returns a price with a currency, and the metadata that travels with it.
fn quote() -> (String, Provenance) {
    let row = tracked::source("row of apples", "apples;12;EUR");
    let mut answer = row.slice(7..9).expect("the price");
    answer.extend(&row.slice(10..13).expect("the currency"));
    let provenance = tracked::send(&answer, "quote");
    let text = String::from_utf8(answer.into_bytes()).expect("a text");
    (text, provenance)
}

/// Makes an invoice from a message with a quote.
fn invoice(message: &str) -> String {
    let (provenance, quote) = message.split_once(' ').expect("metadata and a quote");
    let quote = tracked::receive(&Provenance::from_text(provenance), "quote", quote);
    let quantity = tracked::source("form", "quantity=3");
    let number = |text: Option<TrackedBuf>| {
        let number = text.expect("digits").parse::<u64, DataLinkage>();
        number.expect("a number")
    };
    let mut invoice = TrackedBuf::from(&b"sum="[..]);
    invoice.push_text(&(number(quote.slice(0..2)) * number(quantity.slice(9..10))));
    invoice.extend(&quote.slice(2..5).expect("the currency"));
    tracked::send_with_content(&invoice, "invoice", 100);
    String::from_utf8(invoice.into_bytes()).expect("a text")
}

/// Runs one of the services in a process of its own. `STROBOSCOPE_TEST_ROLE` selects it. Does
/// nothing without the variable.
#[test]
fn service() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let _tracing = stroboscope::init(&role).expect("recording starts");
    while stroboscope::stats().windows == 0 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let said = span!("request").scope(|| {
        tracked::scope(|| match role.as_str() {
            "shop" => {
                let (quote, provenance) = quote();
                format!("{} {quote}", provenance.to_text())
            }
            _ => invoice(&std::env::var(MESSAGE).expect("a message")),
        })
    });
    println!("\nsaid: {said}");
}

/// Runs a service, and returns its answer.
fn run(role: &str, collector: &str, message: &str) -> String {
    let output = Command::new(std::env::current_exe().expect("this program has a path"))
        .args(["--exact", "service", "--nocapture"])
        .env(ROLE, role)
        .env(MESSAGE, message)
        .env("STROBOSCOPE_COLLECTOR", collector)
        .env("STROBOSCOPE_BURST_CONFIG", "always")
        .output()
        .expect("the service runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = text.lines().find_map(|line| line.strip_prefix("said: "));
    said.unwrap_or_else(|| panic!("{output:?}")).to_owned()
}

/// Returns the names and ranges of items in a report, sorted.
fn items(items: &Value) -> Vec<(String, String)> {
    let items = items.as_array().expect("a list");
    let mut items: Vec<_> = items
        .iter()
        .map(|item| {
            let name = item["name"].as_str().unwrap_or_default().to_owned();
            (name, item["ranges"].to_string())
        })
        .collect();
    items.sort();
    items
}

/// Starts a collector, and returns it with its address.
fn collect(program: &Program) -> (Server, String) {
    let mut collect = program.command(&["collect", "--listen", "127.0.0.1:0"]);
    collect.args(["--http", "127.0.0.1:0", "--otlp-http", "none"]);
    let mut collector = Server::start(collect);
    let address = format!("http://{}", collector.collector_address());
    (collector, address)
}

#[test]
fn bytes_of_an_answer_are_traced_through_two_services() {
    let program = Program::new();
    let (mut collector, address) = collect(&program);
    let message = run("shop", &address, "");
    assert!(message.ends_with(" 12EUR"), "{message}");
    assert_eq!(run("web", &address, &message), "sum=36EUR");
    collector.stop(libc::SIGTERM);

    let ask = |arguments: &[&str]| {
        let all = [&["provenance"], arguments, &["--json"]].concat();
        program.run(&all).succeeds().json()
    };
    let list = ask(&["show"]);
    let id_of = |kind: &str, name: &str| {
        let listed = list["items"].as_array().expect("a list").iter();
        let mut found = listed.filter(|item| item["kind"] == kind && item["name"] == name);
        let item = found.next().unwrap_or_else(|| panic!("{name}: {list}"));
        item["id"].as_str().expect("an id").to_owned()
    };

    let why = ask(&["why", &id_of("output", "invoice")]);
    let pair = |name: &str, ranges: &str| (name.to_owned(), ranges.to_owned());
    assert_eq!(
        items(&why["ends"]),
        [
            pair("form", "[[9,10]]"),
            pair("row of apples", "[[7,9],[10,13]]")
        ]
    );
    assert_eq!(items(&why["through"]), [pair("quote", "[[0,5]]")]);
    let content = why["content"].as_array().expect("parts");
    let parts: Vec<_> = content
        .iter()
        .map(|part| (part["text"].to_string(), part["sources"].to_string()))
        .collect();
    let part = |text: &str, sources: &str| (format!("{text:?}"), sources.to_owned());
    assert_eq!(
        parts,
        [
            part("sum=", "[]"),
            part("36", r#"["form 9..10","row of apples 7..9"]"#),
            part("EUR", r#"["row of apples 10..13"]"#),
        ]
    );

    let of = ask(&[
        "of",
        &format!("{}:10..12", id_of("source", "row of apples")),
    ]);
    assert_eq!(items(&of["ends"]), [pair("invoice", "[[6,8]]")]);

    // Within one request only, the quote has no source.
    let trace = why["item"]["log"]
        .as_str()
        .and_then(|log| log.split_once(' '));
    let (service, trace) = trace.expect("a service and a request");
    assert_eq!(service, "web");
    let why = ask(&["why", &id_of("output", "invoice"), "--trace", trace]);
    assert_eq!(
        items(&why["ends"]),
        [pair("form", "[[9,10]]"), pair("quote", "[[0,5]]")]
    );
    let none = ["provenance", "show", "--trace", "1234"];
    program
        .run(&none)
        .fails_with(2, &["no provenance logs", "tracked"]);

    // If all files are damaged, the error says so.
    let hours = program.data().join("provenance");
    let mut damaged = 0;
    for date in std::fs::read_dir(hours).expect("dates") {
        for hour in std::fs::read_dir(date.expect("a date").path()).expect("hours") {
            for file in std::fs::read_dir(hour.expect("an hour").path()).expect("files") {
                std::fs::write(file.expect("a file").path(), "PAR1").expect("damaged");
                damaged += 1;
            }
        }
    }
    assert!(damaged > 0);
    program
        .run(&["provenance", "show"])
        .fails_with(2, &["no provenance logs", "damaged"]);
}
