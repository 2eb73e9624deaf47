//! Tests that Tempo's API and `search` find the traces that a simple search of the OTLP JSON finds.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use stroboscope_query::{SearchSettings, Selection, search_requests};
use stroboscope_search::parse;

use crate::served::{Served, data};
use crate::tempo::escaped;

const T0_NS: u64 = 1_790_000_000_000_000_000;

/// Generator of pseudorandom numbers, which are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % bound
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len() as u64) as usize]
    }
}

fn text(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

fn int(key: &str, value: u64) -> Value {
    json!({"key": key, "value": {"intValue": value.to_string()}})
}

/// Returns a span with random values of the fields that queries name, and with attributes whose
/// names the store uses for other fields.
fn span(numbers: &mut Numbers, trace: u64, number: u64, parent: Option<u64>) -> Value {
    // Most times are not multiples of 1 µs, because the resolution of a clock is estimated from its
    // times.
    let start_ns = T0_NS + trace * 1_000_000_000 + number * 1_000_000 + numbers.below(1_000);
    let mut attributes = vec![int("shard", numbers.below(4))];
    if numbers.below(3) == 0 {
        attributes.push(text("zone", numbers.one(&["own", "eu-1"])));
    }
    if numbers.below(5) == 0 {
        attributes.push(text("kind", "special"));
    }
    if numbers.below(4) == 0 {
        attributes.push(json!({"key": "error", "value": {"boolValue": true}}));
    }
    if numbers.below(5) == 0 {
        attributes.push(text("span.kind", "client"));
    }
    let event = |numbers: &mut Numbers, at: u64| {
        let tier = text("tier", numbers.one(&["cold", "warm"]));
        let attributes = match numbers.below(4) {
            0 => vec![],
            1 => vec![tier, int("size", numbers.below(3))],
            _ => vec![tier],
        };
        json!({
            "timeUnixNano": (start_ns + at * 100).to_string(),
            "name": numbers.one(&["cache_miss", "retry", "flush"]),
            "attributes": attributes,
        })
    };
    let events: Vec<Value> = (0..numbers.below(4)).map(|at| event(numbers, at)).collect();
    let links: Vec<Value> = (0..numbers.below(3))
        .map(|_| {
            json!({
                "traceId": format!("{:032x}", 0xa000 + numbers.below(3)),
                "spanId": format!("{:016x}", 0xb000 + numbers.below(3)),
                "attributes": [text("why", numbers.one(&["batch", "retry"]))],
            })
        })
        .collect();
    let mut span = json!({
        "traceId": format!("{trace:032x}"),
        "spanId": format!("{:016x}", trace * 100 + number),
        "name": numbers.one(&["get", "put"]),
        "kind": numbers.below(6),
        "startTimeUnixNano": start_ns.to_string(),
        "endTimeUnixNano": (start_ns + 1_000 + numbers.below(900_000)).to_string(),
        "attributes": attributes,
        "events": events,
        "links": links,
    });
    if let Some(parent) = parent {
        span["parentSpanId"] = json!(format!("{:016x}", trace * 100 + parent));
    }
    match numbers.below(4) {
        0 => span["status"] = json!({"code": 2, "message": numbers.one(&["late", "lost"])}),
        1 => span["status"] = json!({"code": 1}),
        _ => {}
    }
    span
}

/// Returns messages with requests of two services; each message is stored as a file.
fn messages() -> Vec<Value> {
    let mut numbers = Numbers(7);
    let mut trace = 0;
    let mut message = |file: u64| {
        let mut spans = [vec![], vec![]];
        for _ in 0..20 {
            trace += 1;
            for number in 0..1 + numbers.below(4) {
                let parent = (number > 0).then(|| numbers.below(number));
                let of = numbers.below(2) as usize;
                spans[of].push(span(&mut numbers, trace, number, parent));
            }
        }
        let [web, store] = spans;
        json!({"resourceSpans": [
            {
                "resource": {"attributes": [text("service.name", "web"), text("zone", &format!("eu-{file}"))]},
                "scopeSpans": [{
                    "scope": {"name": "http", "version": "1", "attributes": [text("mode", "fast")]},
                    "spans": web,
                }],
            },
            {
                "resource": {"attributes": [text("service.name", "store"), text("host.name", &format!("h{file}"))]},
                "scopeSpans": [{"scope": {"name": "db"}, "spans": store}],
            },
        ]})
    };
    (0..4).map(&mut message).collect()
}

/// A span with its resource and scope.
struct Read<'a> {
    resource: &'a Value,
    scope: &'a Value,
    span: &'a Value,
}

fn find(attributes: &Value, key: &str) -> Option<String> {
    let found = attributes
        .as_array()?
        .iter()
        .find(|one| one["key"] == key)?;
    let value = found["value"].as_object()?.values().next()?;
    Some(
        value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned),
    )
}

impl Read<'_> {
    fn own(&self, key: &str) -> Option<String> {
        find(&self.span["attributes"], key)
    }

    fn resource(&self, key: &str) -> Option<String> {
        find(&self.resource["attributes"], key)
    }

    fn any(&self, key: &str) -> Option<String> {
        self.own(key).or_else(|| self.resource(key))
    }

    fn status(&self) -> u64 {
        self.span["status"]["code"].as_u64().unwrap_or(0)
    }

    fn some(&self, list: &str, is_it: impl Fn(&Value) -> bool) -> bool {
        self.span[list]
            .as_array()
            .is_some_and(|all| all.iter().any(is_it))
    }

    fn event(&self, is_it: impl Fn(&Value) -> bool) -> bool {
        self.some("events", is_it)
    }

    fn took_ns(&self) -> u64 {
        let ns = |key: &str| self.span[key].as_str().unwrap().parse::<u64>().unwrap();
        ns("endTimeUnixNano") - ns("startTimeUnixNano")
    }
}

fn is(value: Option<String>, wanted: &str) -> bool {
    value.is_some_and(|value| value == wanted)
}

fn of_event(event: &Value, key: &str) -> Option<String> {
    find(&event["attributes"], key)
}

/// Returns the traces with at least `least` spans for which `is_it` is true.
fn traces(messages: &[Value], least: usize, is_it: &dyn Fn(&Read<'_>) -> bool) -> BTreeSet<u128> {
    let mut found = std::collections::BTreeMap::<u128, usize>::new();
    for of_resource in messages
        .iter()
        .flat_map(|one| one["resourceSpans"].as_array().unwrap())
    {
        for of_scope in of_resource["scopeSpans"].as_array().unwrap() {
            for span in of_scope["spans"].as_array().unwrap() {
                let read = Read {
                    resource: &of_resource["resource"],
                    scope: &of_scope["scope"],
                    span,
                };
                if is_it(&read) {
                    let id = span["traceId"].as_str().unwrap();
                    *found
                        .entry(u128::from_str_radix(id, 16).unwrap())
                        .or_default() += 1;
                }
            }
        }
    }
    let many = found.into_iter().filter(|(_, count)| *count >= least);
    many.map(|(id, _)| id).collect()
}

fn by_tempo(served: &Served, query: &str) -> BTreeSet<u128> {
    let answer = served.json(&format!(
        "/tempo/api/search?limit=1000&q={}",
        escaped(query)
    ));
    let traces = answer["traces"].as_array().unwrap();
    let id = |trace: &Value| u128::from_str_radix(trace["traceID"].as_str().unwrap(), 16).unwrap();
    traces.iter().map(id).collect()
}

fn by_search(served: &Served, query: &str, reads_all: bool) -> BTreeSet<u128> {
    let settings = SearchSettings {
        formula: parse(query).unwrap_or_else(|error| panic!("{query}: {error}")),
        kept_max: 1_000,
        held_bytes_max: 1 << 30,
        reads_all,
    };
    let found = search_requests(&served.source(), Selection::default(), &settings).unwrap();
    assert_eq!(found.unknown, 0, "{query}");
    found
        .matches
        .into_iter()
        .filter_map(|one| one.trace)
        .collect()
}

type Reference = fn(&Read<'_>) -> bool;

const QUERIES: &[(&str, Reference)] = &[
    ("{ }", |_| true),
    ("{ name = \"get\" }", |span| span.span["name"] == "get"),
    ("{ status = error }", |span| span.status() == 2),
    ("{ span:status = ok }", |span| span.status() == 1),
    ("{ status = unset }", |span| span.status() == 0),
    ("{ status != error && kind = server }", |span| {
        span.status() != 2 && span.span["kind"] == 2
    }),
    ("{ statusMessage = \"late\" }", |span| {
        span.span["status"]["message"] == "late"
    }),
    ("{ kind = unspecified }", |span| span.span["kind"] == 0),
    ("{ kind = internal }", |span| span.span["kind"] == 1),
    ("{ span:kind = client }", |span| span.span["kind"] == 3),
    ("{ kind = consumer && duration > 400us }", |span| {
        span.span["kind"] == 5 && span.took_ns() > 400_000
    }),
    ("{ span.kind = \"special\" }", |span| {
        is(span.own("kind"), "special")
    }),
    ("{ duration < 50us }", |span| span.took_ns() < 50_000),
    ("{ span.shard = 3 }", |span| is(span.own("shard"), "3")),
    ("{ .shard >= 3 }", |span| is(span.own("shard"), "3")),
    ("{ resource.shard = 3 }", |_| false),
    ("{ resource.zone = \"eu-1\" }", |span| {
        is(span.resource("zone"), "eu-1")
    }),
    ("{ span.zone = \"eu-1\" }", |span| {
        is(span.own("zone"), "eu-1")
    }),
    ("{ .zone = \"eu-1\" }", |span| is(span.any("zone"), "eu-1")),
    ("{ .zone = nil }", |span| span.any("zone").is_none()),
    ("{ span.zone != nil && resource.zone = nil }", |span| {
        span.own("zone").is_some() && span.resource("zone").is_none()
    }),
    ("{ resource.zone =~ \"eu-[12]\" }", |span| {
        is(span.resource("zone"), "eu-1") || is(span.resource("zone"), "eu-2")
    }),
    ("{ resource.host.name = \"h2\" }", |span| {
        is(span.resource("host.name"), "h2")
    }),
    (
        "{ resource.service.name = \"store\" && status = error }",
        |span| is(span.resource("service.name"), "store") && span.status() == 2,
    ),
    ("{ instrumentation:name = \"db\" }", |span| {
        span.scope["name"] == "db"
    }),
    (
        "{ instrumentation:version = \"1\" && instrumentation.mode = \"fast\" }",
        |span| span.scope["version"] == "1",
    ),
    ("{ event:name = \"cache_miss\" }", |span| {
        span.event(|event| event["name"] == "cache_miss")
    }),
    ("{ event:name =~ \"re.*\" && status = error }", |span| {
        span.status() == 2 && span.event(|event| event["name"] == "retry")
    }),
    ("{ event.tier = \"cold\" }", |span| {
        span.event(|event| is(of_event(event, "tier"), "cold"))
    }),
    (
        "{ event:name = \"cache_miss\" && event.tier = \"cold\" && event.size > 1 }",
        |span| {
            span.event(|event| {
                event["name"] == "cache_miss"
                    && is(of_event(event, "tier"), "cold")
                    && is(of_event(event, "size"), "2")
            })
        },
    ),
    ("{ !(event:name = \"retry\") }", |span| {
        !span.event(|event| event["name"] == "retry")
    }),
    ("{ event:name = nil }", |span| !span.event(|_| true)),
    ("{ event:timeSinceStart >= 200ns }", |span| {
        span.event(|event| {
            let start = span.span["startTimeUnixNano"].as_str().unwrap();
            let at = event["timeUnixNano"].as_str().unwrap();
            at.parse::<u64>().unwrap() - start.parse::<u64>().unwrap() >= 200
        })
    }),
    ("{ span.tier = \"cold\" }", |_| false),
    (
        "{ link:traceID = \"0000000000000000000000000000a001\" }",
        |span| {
            span.some("links", |link| {
                link["traceId"] == "0000000000000000000000000000a001"
            })
        },
    ),
    (
        "{ link:spanID = \"000000000000b002\" && link.why = \"batch\" }",
        |span| {
            span.some("links", |link| {
                link["spanId"] == "000000000000b002"
                    && is(find(&link["attributes"], "why"), "batch")
            })
        },
    ),
    ("{ rootServiceName = \"nobody\" }", |_| false),
    (
        "{ event:name = \"flush\" || span.shard = 0 } | select(event:name, .zone, status) with (most_recent=true)",
        |span| is(span.own("shard"), "0") || span.event(|event| event["name"] == "flush"),
    ),
];

#[test]
fn every_door_finds_what_the_spans_say() {
    let served = Served::new();
    let messages = messages();
    messages.iter().for_each(|message| served.take(message));
    let (mut apart, mut found) = (Vec::new(), 0);
    let mut check = |query: &str, expected: BTreeSet<u128>| {
        let answers = [
            by_tempo(&served, query),
            by_search(&served, query, false),
            by_search(&served, query, true),
        ];
        let counts = [0, 1, 2].map(|at: usize| answers[at].len());
        if answers.iter().any(|answer| *answer != expected) {
            apart.push(format!(
                "{query}: {} by the JSON, {counts:?}",
                expected.len()
            ));
        }
        found += expected.len();
    };
    for (place, (query, reference)) in QUERIES.iter().enumerate() {
        check(query, traces(&messages, 1, reference));
        if place % 4 == 1 && !query.contains('|') {
            let counted = format!("{query} | count() >= 2");
            check(&counted, traces(&messages, 2, reference));
        }
    }
    // A query for two sets of spans requires both, and counts their spans together.
    let (get, miss): (Reference, Reference) = (QUERIES[1].1, |span| {
        span.event(|event| event["name"] == "cache_miss")
    });
    let both = &traces(&messages, 1, &get) & &traces(&messages, 1, &miss);
    let three = traces(&messages, 3, &|span| get(span) || miss(span));
    let query = "{ name = \"get\" } && { event:name = \"cache_miss\" }";
    check(query, both.clone());
    check(&format!("{query} | count() >= 3"), &both & &three);
    assert!(apart.is_empty(), "{}", apart.join("\n"));
    assert!(found > 500, "{found}");
}

#[test]
fn what_is_not_supported_is_refused_by_every_door() {
    let served = Served::new();
    for (query, name) in [
        ("{ span:childCount > 2 }", "span:childCount"),
        ("{ nestedSetLeft > 2 }", "nestedSetLeft"),
        ("{ parent.zone = \"a\" }", "parent.zone"),
        ("{ trace.zone = \"a\" }", "trace.zone"),
        ("{ event:severity = 1 }", "event:severity"),
        ("{ status = failed }", "failed"),
        ("{} | rate()", "rate"),
    ] {
        let error = parse(query).unwrap_err().to_string();
        assert!(
            error.contains(name) && error.contains("expected"),
            "{error}"
        );
        let answer = served.ask(&format!("/tempo/api/search?q={}", escaped(query)));
        assert_eq!(answer.status, 400, "{query}");
        assert!(answer.text().contains(name), "{}", answer.text());
    }
}

/// The file has twenty traces of one span each, all in one zone and with one event.
#[test]
fn scopes_of_the_case_are_found() {
    let Some(path) = data("cases/sampled-and-scopes.json") else {
        return;
    };
    let served = Served::new();
    served.import(&path);
    for (query, count) in [
        ("{ resource.zone = \"eu-1\" }", 20),
        ("{ event:name = \"cache_miss\" }", 20),
        ("{ event.tier = \"cold\" }", 20),
        ("{ status = error }", 0),
        ("{ status = unset && kind = server }", 20),
    ] {
        assert_eq!(by_search(&served, query, false).len(), count, "{query}");
        assert_eq!(by_tempo(&served, query).len(), count, "{query}");
    }
}
