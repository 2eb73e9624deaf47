//! Tests that a request whose answer exceeds the memory of a query fails with advice, and releases
//! the memory.

use serde_json::json;
use stroboscope_store::query_memory::QueryMemory;

use crate::served::Served;

const SPANS: usize = 20_000;
const LARGE: u128 = 7;
const T0_NS: u64 = 1_767_225_600_000_000_000;

/// Creates a store with a trace of many spans, the first of which are in a later file, and with a
/// small trace.
fn served(memory: &QueryMemory) -> Served {
    let served = Served::within(memory.clone());
    let span = |trace: u128, number: usize| {
        let start_ns = T0_NS + 1_000 * number as u64;
        json!({
            "traceId": format!("{trace:032x}"),
            "spanId": format!("{:016x}", number + 1),
            "name": "work",
            "startTimeUnixNano": start_ns.to_string(),
            "endTimeUnixNano": (start_ns + 500).to_string(),
            "attributes": [{"key": "number", "value": {"intValue": number.to_string()}}],
        })
    };
    for numbers in [SPANS / 2..SPANS, 0..SPANS / 2] {
        let spans: Vec<_> = numbers.map(|number| span(LARGE, number)).collect();
        served.take(&json!({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}));
    }
    served.take(&json!({"resourceSpans": [{"scopeSpans": [{"spans": [span(6, 0)]}]}]}));
    served
}

#[test]
fn what_is_too_large_is_refused_and_its_part_is_given() {
    let memory = QueryMemory::new(16 << 20);
    let served = served(&memory);
    for path in [
        "/api/traces/7?",
        "/api/traces?traceID=7&",
        "/api/v3/traces/7?",
        "/tempo/api/traces/7?",
        "/tempo/api/v2/traces/7?",
    ] {
        let refused = served.ask(path);
        let words = refused.text();
        assert_eq!(refused.status, 413, "{path}: {words}");
        for part in ["20000 spans", "8 MiB", "max_spans=10000"] {
            assert!(words.contains(part), "{path}: {words}");
        }
        let part = served.ask(&format!("{path}max_spans=100"));
        let text = part.text();
        assert_eq!(part.status, 200, "{path}: {text}");
        let name = if path.starts_with("/api/traces") {
            "operationName"
        } else {
            "\"name\":\"work\""
        };
        assert_eq!(text.matches(name).count(), 100, "{path}");
        // The response has the spans that began first, from any file.
        let all_first = (0..100).all(|number| text.contains(&format!("{:016x}", number + 1)));
        assert!(all_first, "{path}: {text}");
        assert_eq!(memory.lent(), 0, "{path}");
    }
    let whole = served.json("/api/traces/6");
    assert_eq!(whole["data"][0]["spans"].as_array().unwrap().len(), 1);
    let part = served.json("/api/traces/7?max_spans=100");
    let said = part["data"][0]["warnings"][0].as_str().unwrap();
    assert_eq!(said, "these are the first 100 of the trace's 20000 spans");
    // A search that ends early has a warning.
    let found = served.json("/api/traces?limit=10");
    let traces = found["data"].as_array().unwrap();
    assert_eq!(
        (traces.len(), &traces[0]["traceID"]),
        (1, &json!(format!("{:032x}", 6)))
    );
    let said = traces[0]["warnings"][0].as_str().unwrap();
    assert!(said.contains("the next trace has 20000 spans"), "{said}");
    // The responses of the other APIs have no field for a warning.
    let times = "query.startTimeMin=2026-01-01T00:00:00Z&query.startTimeMax=2026-01-01T00:00:01Z";
    for path in [
        "/tempo/api/search?limit=10",
        &format!("/api/v3/traces?{times}"),
    ] {
        let refused = served.ask(path);
        let words = refused.text();
        assert_eq!(refused.status, 413, "{path}: {words}");
        assert!(words.contains("20000 spans"), "{path}: {words}");
    }
    let found = served.json("/tempo/api/search?limit=1");
    assert_eq!(found["traces"].as_array().unwrap().len(), 1);
    let [(_, of_query), (_, of_all)] = memory.refused();
    assert!(of_query >= 5 && of_all == 0);
}
