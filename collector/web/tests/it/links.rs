//! Tests of links between requests, on their pages.

use axum::http::StatusCode;
use stroboscope_analysis::record::SpanFlags;
use stroboscope_fixtures::workload;
use stroboscope_store::record::{Rows, SpanRow};

use crate::fixture::Fixture;

/// Returns the root span that begins first, and the one that begins last.
fn roots(rows: &Rows) -> [SpanRow; 2] {
    let roots = || rows.spans.iter().filter(|span| span.parent_id == 0);
    let key = |span: &&SpanRow| (span.start_ns, span.trace_id);
    let ends = [roots().min_by_key(key), roots().max_by_key(key)];
    ends.map(|root| root.unwrap().clone())
}

/// Adds to the last request a link to the first one, and a link to a span that does not exist.
fn linked(rows: &mut Rows) {
    let [first, last] = roots(rows);
    let link = |trace: u128, span: u64| {
        format!(r#"{{"trace_id":"{trace:032x}","span_id":"{span:016x}"}}"#)
    };
    let links = [link(first.trace_id, first.span_id), link(7, 7)].join(",");
    let attributes = format!(r#"{{"links":[{links}]}}"#);
    let is_last =
        |span: &&mut SpanRow| (span.trace_id, span.span_id) == (last.trace_id, last.span_id);
    let span = rows.spans.iter_mut().find(is_last).unwrap();
    span.attributes = Some(attributes.into());
}

#[tokio::test(flavor = "multi_thread")]
async fn linked_requests_lead_to_each_other() {
    let fixture = Fixture::of_requests(linked).await;
    let [first, last] = roots(&workload::rows(7, 300, 0)).map(|root| root.trace_id);
    let got = fixture.get(&format!("/traces/{last:032x}")).await;
    assert_eq!(got.status, StatusCode::OK, "{}", got.text);
    for part in [
        "<h2 id=\"follows\">Spans that it links to</h2>",
        "2 links · 1 to spans that are not in the store",
        &format!("<a href=\"/traces/{first:032x}\">"),
    ] {
        assert!(got.text.contains(part), "{part}: {}", got.text);
    }
    let got = fixture.get(&format!("/traces/{first:032x}")).await;
    assert!(!got.text.contains("id=\"follows\""), "{}", got.text);
    let (before, _) = got
        .text
        .split_once("\">Requests that link to it</a>")
        .unwrap();
    let (_, address) = before.rsplit_once("href=\"").unwrap();
    let got = fixture.get(&address.replace("&amp;", "&")).await;
    assert_eq!(got.status, StatusCode::OK, "{}", got.text);
    assert!(
        got.text.contains(&format!("/traces/{last:032x}")),
        "{}",
        got.text
    );
    assert!(
        !got.text.contains(&format!("/traces/{first:032x}")),
        "{}",
        got.text
    );
}

/// Gives each request a root operation of its own. Requests of the later half of the time fail.
fn many_roots(rows: &mut Rows) {
    let [first, last] = roots(rows);
    let middle_ns = first.start_ns.midpoint(last.start_ns);
    let letters = || 'a'..='z';
    let mut names = letters().flat_map(|one| letters().map(move |other| format!("{one}{other}")));
    for span in rows.spans.iter_mut().filter(|span| span.parent_id == 0) {
        let name = format!("page {}", names.next().unwrap());
        span.name = rows.strings.intern(&name);
        if span.start_ns > middle_ns {
            span.flags |= SpanFlags::PANICKED.0;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_further_root_operations_leads_to_all_requests() {
    let fixture = Fixture::of_reports(many_roots).await;
    let got = fixture.get("/compare").await;
    let (_, change) = got.text.split_once("<h2>Changes found</h2>").unwrap();
    assert!(change.contains("of (other) fail rather than"), "{change}");
    assert!(!change.contains("%28other%29"), "{change}");
}
