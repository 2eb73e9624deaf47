//! Tests baggage: headers that are written and read again, limits, the three scopes, and the way
//! from process to process.

use std::collections::BTreeMap;

use proptest::prelude::*;
use stroboscope::baggage::{
    self, BYTES_MAX, Baggage, ComponentExt as _, Entry, MEMBERS_MAX, Provenance, Scope,
    SlackPrediction, Tradeoff, TradeoffKind, Value,
};
use stroboscope::propagation::{self, BAGGAGE};
use stroboscope::{FutureExt as _, in_current_context};

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<i64>().prop_map(Value::Int),
        any::<u64>().prop_map(Value::Uint),
        any::<f64>()
            .prop_filter("equal to itself", |v| !v.is_nan())
            .prop_map(Value::Double),
        any::<bool>().prop_map(Value::Bool),
        any::<String>().prop_map(Value::Text),
        "[ -~]{0,300}".prop_map(Value::Text),
    ]
}

fn entry() -> impl Strategy<Value = Entry> {
    (
        "[!#$%&'*+.^_`|~0-9a-zA-Z-]{1,20}",
        value(),
        any::<bool>(),
        0u8..10,
    )
        .prop_map(|(key, value, component, importance)| {
            let scope = if component {
                Scope::Component
            } else {
                Scope::Request
            };
            Entry::new(scope, key, value).with_importance(importance)
        })
}

fn baggage_of(entries: &[Entry], foreign: &[String]) -> Baggage {
    let mut baggage = Baggage::parse(&foreign.join(","));
    for entry in entries {
        baggage.set(entry.clone());
    }
    baggage
}

fn assert_within_limits(header: &str) {
    assert!(header.len() <= BYTES_MAX, "{}", header.len());
    assert!(header.split(',').count() <= MEMBERS_MAX);
    assert!(
        header
            .bytes()
            .all(|byte| (0x21..=0x7e).contains(&byte) || byte == b' '),
        "{header}"
    );
    http::HeaderValue::from_str(header).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 64 }))]

    /// Checks that the header keeps the limits, that no dropped entry has a higher importance than
    /// a kept one, and that members of others are dropped only if no entry is kept.
    #[test]
    fn over_the_limits_the_least_important_go(
        entries in prop::collection::vec(entry(), 0..400),
        foreign in prop::collection::vec("[a-z]{1,4}[0-9]{1,4}=[a-z]{0,60}", 0..300),
    ) {
        let mut baggage = Baggage::default();
        for entry in &entries {
            baggage.set(entry.clone());
        }
        let baggage = baggage.and(Baggage::parse(&foreign.join(",")));
        let Some(header) = baggage.to_header() else { return Ok(()) };
        assert_within_limits(&header);
        let kept = Baggage::parse(&header);
        let is_kept = |entry: &&Entry| kept.entries().any(|other| other == *entry);
        let (kept_entries, dropped): (Vec<_>, Vec<_>) = baggage.entries().partition(is_kept);
        let least_kept = kept_entries.iter().map(|entry| entry.importance).min();
        let most_dropped = dropped.iter().map(|entry| entry.importance).max();
        if let (Some(least_kept), Some(most_dropped)) = (least_kept, most_dropped) {
            prop_assert!(most_dropped <= least_kept);
        }
        if kept.foreign().count() < baggage.foreign().count() {
            prop_assert!(kept_entries.is_empty(), "others' members go last");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 256 }))]

    #[test]
    fn what_fits_comes_back_as_it_was(
        entries in prop::collection::vec(entry(), 0..8),
        foreign in prop::collection::vec("[a-z]{1,8}=[!-+.-:<-\\[a-z]{0,20}(;[a-z]{1,5}(=[a-z0-9]{0,5})?)?", 0..8),
    ) {
        let baggage = baggage_of(&entries, &foreign);
        match baggage.to_header() {
            None => prop_assert!(baggage.is_empty()),
            Some(header) => {
                assert_within_limits(&header);
                prop_assert_eq!(Baggage::parse(&header), baggage);
            }
        }
    }

    /// Checks that no header causes a panic, and that the header that is written from the parsed
    /// baggage keeps the limits, and does not change if it is parsed and written again.
    #[test]
    fn any_header_is_survived(header in "[ -~\t]{0,200}|([a-z.;=%,0-9]{0,40},){0,300}") {
        let baggage = Baggage::parse(&header);
        if let Some(written) = baggage.to_header() {
            assert!(written.len() <= BYTES_MAX && written.split(',').count() <= MEMBERS_MAX);
            prop_assert_eq!(Baggage::parse(&written).to_header(), Some(written));
        }
    }

    #[test]
    fn provenance_comes_back(pairs in prop::collection::btree_map("[a-z.]{1,10}", value(), 0..8)) {
        let provenance = pairs.iter().fold(Provenance::default(), |made, (key, value)| made.with(key, value.clone()));
        let mut headers = http::HeaderMap::new();
        provenance.attach(&mut headers);
        let back: BTreeMap<String, Value> =
            Provenance::of(&headers).pairs().map(|(key, value)| (key.to_owned(), value.clone())).collect();
        if provenance.to_text().len() < BYTES_MAX / 2 {
            prop_assert_eq!(back, pairs);
        }
    }
}

#[test]
fn a_pair_of_exactly_the_maximum_length_fits() {
    let of = |bytes: usize| Provenance::default().with("k", "x".repeat(bytes - "k=".len()));
    let longest = of(BYTES_MAX);
    assert_eq!(longest.to_text().len(), BYTES_MAX);
    assert_eq!(Provenance::from_text(&longest.to_text()), longest);
    assert_eq!(of(BYTES_MAX + 1).to_text(), "");
    let two = of(BYTES_MAX - "l=,".len()).with("l", "");
    assert_eq!(two.to_text().len(), BYTES_MAX);
    assert_eq!(Provenance::from_text(&two.to_text()), two);
}

/// The field is public, so a service may exceed the maximum.
#[test]
fn an_importance_above_the_maximum_does_not_displace_members_of_others() {
    let foreign = format!("other={}", "x".repeat(BYTES_MAX / 2));
    let mut baggage = Baggage::parse(&foreign);
    for key in ["a", "b"] {
        let mut entry = Entry::new(Scope::Request, key, "y".repeat(BYTES_MAX / 4));
        entry.importance = u8::MAX;
        assert!(baggage.set(entry));
    }
    assert!(baggage.entries().all(|entry| entry.importance == 9));
    let header = baggage.to_header().unwrap();
    let kept = Baggage::parse(&header);
    assert_eq!(kept.foreign().collect::<Vec<_>>(), [foreign]);
    let keys = kept.entries().map(|entry| &*entry.key);
    assert_eq!(keys.collect::<Vec<_>>(), ["a"]);
}

fn check(header: &str, expected: &str) {
    assert_eq!(
        Baggage::parse(header).to_header().as_deref().unwrap_or(""),
        expected,
        "{header:?}"
    );
}

#[test]
fn headers() {
    check("", "");
    check(" a = 1 ; x=y , sb.k=v", "a = 1 ; x=y,sb.k=v");
    check("a=1,,b=2", "a=1,b=2");
    check("novalue,=x,a b=c,ok=1", "ok=1");
    check("sb.n=7;t=u;s=c;i=9;ttl=3", "sb.n=7;t=u;s=c;i=9;ttl=3");
    check("sb.n=7 ; t = u", "sb.n=7;t=u");
    check("sb.n=x;t=u,sb.m=1;t=z,sb.=1", "sb.n=x;t=u,sb.m=1;t=z,sb.=1");
    check("sb.t=a%20%C3%BC%2C,sb.t=b", "sb.t=b");
    check("sb.t=a%20%c3%bc%2C", "sb.t=a%20%C3%BC%2C");
}

fn dropped() -> u64 {
    let losses = stroboscope::stats().losses;
    losses
        .iter()
        .find(|(cause, _)| cause.name() == "baggage_dropped")
        .map_or(0, |&(_, count)| count)
}

#[test]
fn what_is_dropped_is_counted() {
    let before = dropped();
    let mut baggage = Baggage::default();
    assert!(!baggage.set(Entry::new(Scope::Request, "no token", 1u64)));
    assert!(!baggage.set(Entry::new(Scope::Request, "long", "x".repeat(5_000))));
    for i in 0..MEMBERS_MAX + 20 {
        baggage.set(Entry::new(Scope::Request, format!("k{i}"), i));
    }
    assert_eq!(
        Baggage::parse(&baggage.to_header().unwrap())
            .entries()
            .count(),
        MEMBERS_MAX
    );
    // Other tests in this process may drop entries as well.
    assert!(dropped() >= before + 22);
}

#[test]
fn a_value_that_does_not_fit_is_not_set() {
    let _request = baggage::enter_request(Baggage::default());
    for i in 0..MEMBERS_MAX {
        assert!(baggage::set(Scope::Request, &format!("k{i}"), i));
    }
    assert!(!baggage::set(Scope::Request, "late", 1u64));
    assert_eq!(baggage::get("late"), None);
    assert!(baggage::set_with_importance(
        Scope::Request,
        "late",
        1u64,
        9
    ));
    assert_eq!(baggage::get("late"), Some(1u64.into()));
}

#[test]
fn values_live_as_long_as_their_scope() {
    assert!(!baggage::set(Scope::Request, "nobody", 1u64), "no request");
    let request = baggage::enter_request(Baggage::parse("theirs=1"));
    assert!(baggage::set(Scope::Request, "kind", "free"));
    {
        let _ranker = baggage::enter_component();
        assert!(baggage::set(Scope::Component, "candidates", 300u64));
        {
            let _generator = baggage::enter_component();
            assert_eq!(
                baggage::get("candidates"),
                Some(Value::Uint(300)),
                "what it calls sees it"
            );
            assert!(baggage::set(Scope::Component, "candidates", 12u64));
            assert!(baggage::set(Scope::Request, "seen", true));
            let mut headers = http::HeaderMap::new();
            propagation::inject(&mut headers);
            assert_eq!(
                headers[BAGGAGE],
                "theirs=1,sb.kind=free,sb.seen=true;t=b,sb.candidates=12;t=u;s=c"
            );
        }
        assert_eq!(
            baggage::get("candidates"),
            Some(Value::Uint(300)),
            "the inner one's went with it"
        );
    }
    assert_eq!(baggage::get("candidates"), None);
    assert_eq!(
        baggage::get("seen"),
        Some(Value::Bool(true)),
        "to the end of the request"
    );
    assert!(baggage::remove("seen") && !baggage::remove("seen"));
    drop(request);
    assert_eq!(baggage::get("kind"), None);
}

#[test]
fn all_tasks_of_a_request_share_it() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(
        async {
            baggage::set(Scope::Request, "a", 1u64);
            let task = tokio::spawn(
                async {
                    assert_eq!(baggage::get("a"), Some(Value::Uint(1)));
                    tokio::task::yield_now().await;
                    baggage::set(Scope::Component, "only.here", 1u64);
                    baggage::note(
                        &Tradeoff::new("ranker", "features", TradeoffKind::Omit).proactive(),
                    );
                }
                .in_component()
                .in_current_span(),
            );
            task.await.unwrap();
            let work = in_current_context(|| {
                baggage::note(&Tradeoff::new("store", "photo", TradeoffKind::LowFidelity))
            });
            assert!(std::thread::spawn(work).join().unwrap());
            assert_eq!(baggage::get("only.here"), None);
            let tradeoffs = baggage::tradeoffs();
            assert_eq!(tradeoffs.len(), 2);
            assert_eq!(
                (tradeoffs[0].component.as_str(), tradeoffs[0].proactive),
                ("ranker", true)
            );
            assert_eq!(
                (tradeoffs[1].what.as_str(), tradeoffs[1].kind),
                ("photo", TradeoffKind::LowFidelity)
            );
        }
        .with_baggage(Baggage::default()),
    );
    assert!(baggage::snapshot().is_empty());
}

/// Checks that baggage passes from process to process in header maps, and that values that the
/// callee sets do not reach the caller.
#[test]
fn the_next_process_has_it() {
    let _request = baggage::enter_request(Baggage::default());
    let prediction = SlackPrediction::default()
        .with("web", 0)
        .with("ranker", 1_500_000)
        .with_edge("web", "ranker");
    assert!(baggage::predict_slack(&prediction));
    assert!(baggage::carry_load(Scope::Request, "web", baggage::load()));
    assert!(baggage::note(&Tradeoff::new(
        "web",
        "ads",
        TradeoffKind::Default
    )));
    let mut headers = http::HeaderMap::new();
    headers.insert(BAGGAGE, "users=own".parse().unwrap());
    propagation::inject(&mut headers);
    let here = baggage::snapshot();

    let incoming = propagation::extract(&headers);
    assert_eq!(
        incoming.baggage().foreign().collect::<Vec<_>>(),
        ["users=own"]
    );
    incoming.scope("/rank", || {
        assert_eq!(
            baggage::slack().unwrap().slack_ns("ranker"),
            Some(1_500_000)
        );
        assert!(matches!(
            baggage::get("load.web.cpu_cores"),
            Some(Value::Double(_))
        ));
        assert_eq!(baggage::tradeoffs().len(), 1);
        baggage::set(Scope::Request, "callee", 1u64);
    });
    assert_eq!(baggage::snapshot(), here);
}

#[cfg(feature = "tower")]
#[tokio::test]
async fn the_tower_layers_carry_it() {
    use stroboscope::tower::{ClientLayer, ServerLayer};
    use tower::{Layer as _, ServiceExt as _, service_fn};

    type Answer = Result<http::Response<String>, std::convert::Infallible>;
    let callee = ServerLayer::new().layer(service_fn(|request: http::Request<()>| async move {
        tokio::task::yield_now().await;
        assert_eq!(request.headers()[BAGGAGE], "sb.hop=first");
        assert_eq!(baggage::get("hop"), Some("first".into()));
        baggage::set(Scope::Request, "hop", "second");
        Answer::Ok(http::Response::new("called".to_owned()))
    }));
    let client = ClientLayer::new().layer(callee);
    let caller = ServerLayer::new().layer(service_fn(move |_: http::Request<()>| {
        let client = client.clone();
        async move {
            tokio::task::yield_now().await;
            baggage::set(Scope::Request, "hop", "first");
            let response = client.oneshot(http::Request::new(())).await;
            assert_eq!(
                baggage::get("hop"),
                Some("first".into()),
                "what the callee sets stays there"
            );
            response
        }
    }));
    let response = caller.oneshot(http::Request::new(())).await.unwrap();
    assert_eq!(response.status(), 200);
    assert!(
        baggage::snapshot().is_empty(),
        "nothing is left on this thread"
    );
}
