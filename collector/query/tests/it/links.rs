//! Requests that follow others by the links of their spans.

use std::collections::BTreeMap;

use stroboscope_fixtures::random::Random;
use stroboscope_query::{
    AcrossAnswer, Inference, LinkOrder, LinkedPath, RequestAsked, Selection, Source, infer,
    linked_path_of, request,
};
use stroboscope_store::record::{Rows, SpanRow};
use stroboscope_store::tables::{PartitionRule, Store, write_rows};

const EPOCH_NS: i64 = 1_767_322_800_000_000_000;

/// Trace that writes the trace ids in its links in upper case.
const UPPER_CASE: u128 = 12;

/// Span with its links. Times are in ns after [`EPOCH_NS`].
#[derive(Clone)]
struct Span {
    trace: u128,
    id: u64,
    parent: u64,
    name: &'static str,
    host: &'static str,
    from_ns: i64,
    to_ns: i64,
    links: Vec<(u128, u64)>,
}

struct Fixture {
    _directory: tempfile::TempDir,
    _runtime: tokio::runtime::Runtime,
    source: Source,
    inference: Inference,
}

impl Fixture {
    fn of(spans: &[Span], selection: Selection) -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let store = Store::local(directory.path(), runtime.handle().clone()).unwrap();
        let mut rows = Rows::default();
        for span in spans {
            let link = |(trace, linked): &(u128, u64)| {
                let ids = format!(r#""trace_id":"{trace:032x}","span_id":"{linked:016x}""#);
                // Some sources write ids in upper case.
                match span.trace {
                    UPPER_CASE => ids.replace(&format!("{trace:x}"), &format!("{trace:X}")),
                    _ => ids,
                }
            };
            let link = |one| format!("{{{}}}", link(one));
            let links: Vec<String> = span.links.iter().map(link).collect();
            let links = format!(r#"{{"links":[{}]}}"#, links.join(","));
            rows.spans.push(SpanRow {
                trace_id: span.trace,
                trace_name: None,
                span_id: span.id,
                parent_id: span.parent,
                service: rows.strings.intern("shop"),
                name: rows.strings.intern(span.name),
                host: rows.strings.intern(span.host),
                process: 0,
                start_ns: EPOCH_NS + span.from_ns,
                end_ns: EPOCH_NS + span.to_ns,
                flags: 0,
                attributes: (!span.links.is_empty()).then(|| links.into()),
            });
        }
        let rule = PartitionRule::received(EPOCH_NS, EPOCH_NS);
        write_rows(&store, "seg-0000000001", rows, &rule).unwrap();
        let source = Source::open(directory.path(), runtime.handle().clone()).unwrap();
        let inference = infer(&source, selection, 0.0).unwrap();
        Self {
            _directory: directory,
            _runtime: runtime,
            source,
            inference,
        }
    }

    fn path(&self, trace: u128) -> LinkedPath {
        let found = linked_path_of(&self.source, &self.inference, trace, true);
        let (path, notes) = found.unwrap();
        assert!(notes.damage.is_empty());
        path.unwrap()
    }
}

/// Creates a request that publishes a message: a root span, and below it the span that publishes.
fn producer(trace: u128, from_ns: i64, [until, publishes, goes_on]: [i64; 3]) -> [Span; 2] {
    let (sends_ns, sent_ns) = (from_ns + until, from_ns + until + publishes);
    let span = |id, parent, name, from_ns, to_ns| Span {
        trace,
        id,
        parent,
        name,
        host: "a",
        from_ns,
        to_ns,
        links: Vec::new(),
    };
    [
        span(1, 0, "order", from_ns, sent_ns + goes_on),
        span(2, 1, "publish", sends_ns, sent_ns),
    ]
}

fn batch(trace: u128, from_ns: i64, to_ns: i64, links: Vec<(u128, u64)>) -> Span {
    Span {
        trace,
        id: 1,
        parent: 0,
        name: "batch",
        host: "a",
        from_ns,
        to_ns,
        links,
    }
}

/// Creates orders 1 to 3, which publish, and batch 9, which links to all three and to spans that do
/// not exist.
fn shop() -> Vec<Span> {
    let mut spans: Vec<Span> = [
        producer(1, 0, [10, 5, 1]),
        producer(2, 20, [10, 5, 30]),
        producer(3, 25, [30, 60, 1]),
    ]
    .concat();
    let links = vec![(1, 2), (2, 2), (3, 2), (7, 7), (1, 8), (2, 2)];
    spans.push(batch(9, 50, 90, links));
    spans
}

#[test]
fn a_batch_goes_on_at_the_message_that_was_published_last() {
    let shop = Fixture::of(&shop(), Selection::default());
    let found = shop.path(9);
    let follows = &found.follows;
    let counts = (
        follows.links,
        follows.found,
        follows.before,
        follows.missing(),
    );
    assert_eq!(counts, (5, 3, 2, 2));
    assert_eq!((follows.unknown, follows.unread), (0, 0));
    let first = follows.first.iter().map(|follow| {
        let (trace, operation) = (follow.producer.request.0, &*follow.producer.operation);
        (
            trace,
            operation.to_owned(),
            follow.waited_ns(),
            follow.order,
        )
    });
    let publish = || "shop:publish".to_owned();
    let expected = [
        (2, publish(), Some(15), LinkOrder::Before),
        (1, publish(), Some(35), LinkOrder::Before),
        (3, publish(), None, LinkOrder::Overlaps),
    ];
    assert_eq!(first.collect::<Vec<_>>(), expected);
    assert_eq!(found.answer.path.latency_ns, 40);
    assert_eq!(
        legs(found.across.as_ref().unwrap()),
        [(2, 20, 35, 0), (9, 50, 90, 15)]
    );
    assert_eq!(found.across.unwrap().missing, 2);
    assert_eq!(found.followers.links, 0);
    let asked = RequestAsked::whole(9);
    let page = request(&shop.source, None, asked).unwrap().unwrap();
    assert_eq!(page.follows.first, follows.first);
    assert!(page.aligned.attributes.is_empty());
}

/// A segment of the own request that ended after the producer precedes the linking span on the
/// path. A link of the root, or of a span that begins with it, has no such segment.
#[test]
fn what_ran_in_the_request_until_the_span_began_comes_before_its_producer() {
    for (child_ns, expected) in [(60, vec![9]), (50, vec![2, 9])] {
        let mut spans = shop();
        let links = std::mem::take(&mut spans.last_mut().unwrap().links);
        spans.push(Span {
            id: 2,
            parent: 1,
            name: "process",
            ..batch(9, child_ns, 80, links)
        });
        let found = Fixture::of(&spans, Selection::default()).path(9);
        let legs = legs(found.across.as_ref().unwrap());
        let traces: Vec<u128> = legs.iter().map(|leg| leg.0).collect();
        assert_eq!(traces, expected);
        assert_eq!(
            found.follows.first[0].waited_ns(),
            Some(child_ns as u64 - 35)
        );
        assert_eq!(&*found.follows.first[0].consumer.operation, "shop:process");
    }
}

#[test]
fn a_producer_knows_its_followers() {
    let mut spans = shop();
    spans.push(batch(10, 60, 70, vec![(2, 2), (2, 99), (3, 1)]));
    // A link within a request does not count, nor does a link to an id that contains the same
    // digits.
    spans[3].links.push((2, 1));
    spans.push(batch(11, 60, 70, vec![(0x20, 2), (12, 2)]));
    let shop = Fixture::of(&spans, Selection::default());
    let followers = shop.path(2).followers;
    let waits = followers.first.iter().map(|follow| {
        let consumer = &follow.consumer;
        (consumer.request.0, &*consumer.root, follow.waited_ns())
    });
    let expected = [(9, "shop:batch", Some(15)), (10, "shop:batch", Some(25))];
    assert_eq!(waits.collect::<Vec<_>>(), expected);
    assert_eq!((followers.links, followers.unread), (2, 0));
    assert_eq!(shop.path(2).follows.links, 0);
}

#[test]
fn ids_in_links_may_be_in_upper_case() {
    let mut spans = producer(0xab, 0, [10, 5, 1]).to_vec();
    spans.push(batch(UPPER_CASE, 50, 90, vec![(0xab, 2)]));
    let shop = Fixture::of(&spans, Selection::default());
    assert_eq!(shop.path(UPPER_CASE).follows.found, 1);
    assert_eq!(shop.path(0xab).followers.found, 1);
}

#[test]
fn without_common_time_the_order_is_unknown_unless_clocks_are_trusted() {
    let mut spans = shop();
    spans.last_mut().unwrap().host = "b";
    let shop = Fixture::of(&spans, Selection::default());
    let found = shop.path(9);
    assert_eq!((found.follows.found, found.follows.unknown), (3, 3));
    assert_eq!(legs(found.across.as_ref().unwrap()), [(9, 50, 90, 0)]);
    assert_eq!(found.across.unwrap().unknown, 3);
    let trusting = Selection {
        trust_clocks: true,
        ..Selection::default()
    };
    let found = Fixture::of(&spans, trusting).path(9);
    assert_eq!((found.follows.before, found.follows.unknown), (2, 0));
    assert_eq!(legs(&found.across.unwrap()).len(), 2);
}

#[test]
fn links_are_read_up_to_a_maximum() {
    const TRACES: u128 = 30;
    const SPANS: u64 = 400;
    let message = |trace, id| Span {
        trace,
        id,
        parent: u64::from(id > 1),
        name: if id == 1 { "order" } else { "publish" },
        host: "a",
        from_ns: 10 * id as i64,
        to_ns: if id == 1 { 9_000 } else { 10 * id as i64 + 5 },
        links: Vec::new(),
    };
    let ids = (1..=TRACES).flat_map(|trace| (1..=SPANS).map(move |id| (trace, id)));
    let mut spans: Vec<Span> = ids.clone().map(|(trace, id)| message(trace, id)).collect();
    spans.push(batch(99, 10_000, 10_100, ids.collect()));
    let found = Fixture::of(&spans, Selection::default()).path(99);
    let follows = &found.follows;
    assert_eq!((follows.links, follows.unread), (12_000, 2_000));
    assert_eq!((follows.found, follows.missing()), (10_000, 0));
    assert_eq!(follows.first.len(), 50);
    assert_eq!(found.across.unwrap().missing, 2_000);
}

/// Returns the legs of a path: trace, start, end, and the time queued before the leg.
fn legs(across: &AcrossAnswer) -> Vec<(u128, i64, i64, u64)> {
    assert!(!across.path.is_cut);
    let legs = across.path.legs.iter().zip(&across.requests);
    let legs = legs.map(|(leg, request)| {
        let (from_ns, to_ns) = (leg.start_ns - EPOCH_NS, leg.end_ns - EPOCH_NS);
        (request.id.0, from_ns, to_ns, leg.queued_ns)
    });
    legs.collect()
}

/// Creates random requests that each publish once, and link to other requests or to none.
fn random_spans(random: &mut Random) -> Vec<Span> {
    let mut spans = Vec::new();
    let traces = 2 + random.below(20) as u128;
    for trace in 1..=traces {
        let mut takes = || 1 + random.below(40) as i64;
        let parts = [takes(), takes(), takes()];
        let mut of_trace = producer(trace, random.below(600) as i64, parts);
        for _ in 0..random.below(8) {
            let to = 1 + random.below(traces as usize) as u128;
            let link = (to, 1 + random.below(3) as u64);
            if to != trace {
                of_trace[0].links.push(link);
            }
        }
        spans.extend(of_trace);
    }
    spans
}

/// Finds the path by comparing all producers of each request. `by` is the span at whose end the
/// path leaves the request.
fn expected(spans: &BTreeMap<(u128, u64), Span>, by: (u128, u64)) -> Vec<(u128, i64, i64)> {
    let root = &spans[&(by.0, 1)];
    let leg = (by.0, root.from_ns, spans[&by].to_ns);
    let producers = root.links.iter().filter_map(|link| spans.get(link));
    let before = producers.filter(|producer| producer.to_ns <= root.from_ns);
    let latest = before.max_by_key(|producer| (producer.to_ns, producer.trace, producer.id));
    let rest = latest.map_or_else(Vec::new, |producer| {
        expected(spans, (producer.trace, producer.id))
    });
    [rest, vec![leg]].concat()
}

#[test]
fn paths_are_those_found_by_trying_all_producers() {
    let mut hops = 0;
    for seed in 1..=25 {
        let spans = random_spans(&mut Random(seed));
        let fixture = Fixture::of(&spans, Selection::default());
        let by_id = spans
            .iter()
            .map(|span| ((span.trace, span.id), span.clone()));
        let by_id: BTreeMap<(u128, u64), Span> = by_id.collect();
        for root in spans.iter().filter(|span| span.id == 1) {
            let across = fixture.path(root.trace).across.unwrap();
            let expected = expected(&by_id, (root.trace, 1));
            let found = legs(&across);
            let places = found
                .iter()
                .map(|(trace, from, to, _)| (*trace, *from, *to));
            assert_eq!(places.collect::<Vec<_>>(), expected, "seed {seed}");
            let mut length_ns = 0;
            for leg in &across.path.legs {
                let steps = leg.steps.iter().map(|(_, timing)| timing.weight_ns());
                length_ns += leg.queued_ns + steps.sum::<u64>() + leg.tail_wait_ns;
            }
            assert_eq!(length_ns, across.path.length_ns());
            assert_eq!(length_ns as i64, root.to_ns - expected[0].1);
            hops += expected.len() - 1;
        }
    }
    assert!(hops > 100, "{hops}");
}
