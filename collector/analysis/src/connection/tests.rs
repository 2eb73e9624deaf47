use std::collections::BTreeMap;

use super::known::operation;
use super::{ConnectionLearning, Connections, connection_ids, request_id, requests_below};
use crate::record::{AttributeRecord, RecordOwner, SpanFlags, SpanRecord, TraceId, TraceRecords};
use proptest::prelude::*;

const MS: i64 = 1_000_000;

fn span(span_id: u64, parent_id: u64, name: &str, start_ns: i64, end_ns: i64) -> SpanRecord {
    SpanRecord {
        span_id,
        parent_id,
        service: "redis".into(),
        name: name.into(),
        host: "h".into(),
        process: 1,
        start_ns,
        end_ns,
        flags: SpanFlags(0),
        events: Vec::new(),
    }
}

/// Returns a connection of 2 s. Every 100 ms, it runs a command, which writes.
fn connection(has_root: bool) -> TraceRecords {
    let root = has_root.then(|| span(1, 0, "run", 0, 2_000 * MS));
    let commands = (0..20u64).flat_map(|number| {
        let start = 100 * MS * number as i64;
        let name = ["get", "set"][number as usize % 2];
        [
            span(10 + number, 1, name, start, start + 2 * MS),
            span(
                100 + number,
                10 + number,
                "write",
                start + MS,
                start + 2 * MS,
            ),
        ]
    });
    TraceRecords {
        id: TraceId(7 << 64 | 5),
        spans: root.into_iter().chain(commands).collect(),
        ..TraceRecords::default()
    }
}

fn learned(traces: &[TraceRecords]) -> Connections {
    let mut learning = ConnectionLearning::default();
    traces.iter().for_each(|trace| _ = learning.observe(trace));
    learning.note_root("redis", "get");
    learning.learned()
}

#[test]
fn commands_of_a_connection_are_requests() {
    for has_root in [true, false] {
        let mut trace = connection(has_root);
        trace.attributes = vec![
            AttributeRecord {
                owner: RecordOwner::Span(12),
                key: "k".into(),
                value: "of get".into(),
            },
            AttributeRecord {
                owner: RecordOwner::InSpan(103, 0),
                key: "k".into(),
                value: "of set's write".into(),
            },
        ];
        let connections = learned(&[trace.clone()]);
        assert_eq!(
            connections.names(),
            if has_root { vec!["redis:run"] } else { vec![] }
        );
        let division = connections.divide(&mut trace).unwrap();
        assert_eq!(division.connections.len(), usize::from(has_root));
        assert_eq!(division.requests.len(), 20);
        for (number, request) in division.requests.iter().enumerate() {
            let expected = ["redis:get", "redis:set"][number % 2];
            assert_eq!(request.root_operation().as_deref(), Some(expected));
            assert_eq!(request.spans.len(), 2);
            assert_eq!(request.id, TraceId(7 << 64 | (10 + number as u128)));
            assert_eq!(request.attribute("k").is_some(), [2, 3].contains(&number));
            let (_, (from, to)) = connection_ids(request.id);
            assert!(from <= TraceId(7 << 64 | 5) && TraceId(7 << 64 | 5) <= to);
        }
    }
}

#[test]
fn a_short_connection_of_a_known_operation_is_divided_too() {
    let connections = learned(&[connection(true)]);
    let mut short = connection(true);
    short.spans.truncate(3);
    short.spans[0].end_ns = 5 * MS;
    assert_eq!(connections.divide(&mut short).unwrap().requests.len(), 1);
    let mut other = connection(true);
    other.spans[0].name = "job".into();
    assert!(connections.divide(&mut other).is_none());
}

#[test]
fn ten_seconds_or_requests_without_a_parent_are_evidence() {
    let mut learning = ConnectionLearning::default();
    learning.observe(&connection(true));
    assert!(learning.learned().is_empty());
    learning.note_root("redis", "write");
    learning.note_root("other", "get");
    assert!(learning.learned().is_empty());
    let mut long = connection(true);
    long.spans[0].end_ns = 10_000 * MS;
    learning.observe(&long);
    assert_eq!(learning.learned().names(), ["redis:run"]);
}

#[test]
fn what_is_left_of_a_marked_connection_is_no_request() {
    let mut rest = connection(true);
    rest.spans.truncate(1);
    assert!(learned(&[rest.clone()]).divide(&mut rest.clone()).is_none());
    rest.spans[0].flags = SpanFlags::CONNECTION;
    let connections = learned(&[rest.clone()]);
    // A span of the operation without children is a connection, too.
    rest.spans[0].flags = SpanFlags(0);
    let division = connections.divide(&mut rest).unwrap();
    assert!(division.requests.is_empty());
    assert_eq!(division.connections, ["redis:run"]);
}

#[test]
fn children_of_a_span_are_requests_whether_or_not_it_was_recorded() {
    for has_root in [true, false] {
        let mut trace = connection(has_root);
        // Its parent has not ended, so the parent was not recorded.
        trace.spans.push(span(900, 800, "late", MS, 2 * MS));
        let mut requests = requests_below(&mut trace, 1);
        if !has_root {
            let rest = requests.iter().position(|request| request.root().is_none());
            let rest = requests.remove(rest.unwrap());
            assert_eq!((rest.spans.len(), rest.spans[0].span_id), (1, 900));
        }
        assert_eq!(requests.len(), 20);
        for (number, request) in (10..).zip(&requests) {
            let spans: Vec<(u64, u64)> = (request.spans.iter())
                .map(|span| (span.span_id, span.parent_id))
                .collect();
            assert_eq!(spans, [(number, 0), (90 + number, number)]);
        }
    }
    assert_eq!(requests_below(&mut TraceRecords::default(), 1), []);
}

#[test]
fn ids_of_64_bits_are_kept_whole() {
    let id = request_id(TraceId(0xabc), 9);
    assert_eq!(id, TraceId(0xabc << 64 | 9));
    assert_eq!(connection_ids(id).0, TraceId(0xabc));
}

#[test]
fn jobs_and_requests_are_none() {
    let change = |change: &dyn Fn(&mut SpanRecord)| {
        let mut trace = connection(true);
        trace.spans.iter_mut().for_each(change);
        learned(&[trace])
    };
    let of_root = |change: fn(&mut SpanRecord)| {
        move |span: &mut SpanRecord| {
            if span.parent_id == 0 {
                change(span);
            }
        }
    };
    let of_children = |change: fn(&mut SpanRecord)| {
        move |span: &mut SpanRecord| {
            if span.parent_id == 1 {
                change(span);
            }
        }
    };
    let is_none: [&dyn Fn(&mut SpanRecord); 5] = [
        // The root is a server span.
        &of_root(|root| root.flags = SpanFlags::SERVER),
        // The root lasts less than a second.
        &of_root(|root| root.end_ns = 999 * MS),
        // Each child of the root is a client span.
        &of_children(|child| child.flags = SpanFlags::CLIENT),
        // Children run for more than a third of the time.
        &of_children(|child| child.end_ns = child.start_ns + 35 * MS),
        // Each child is of another operation.
        &of_children(|child| child.name = format!("step{}", child.span_id).into()),
    ];
    for (number, is_none) in is_none.iter().enumerate() {
        assert!(change(is_none).is_empty(), "{number}");
    }
    assert!(!change(&|_| ()).is_empty());
    // Most spans of the operation have too few children.
    let busy = {
        let mut trace = connection(true);
        trace.spans.retain(|span| span.span_id < 14);
        trace
    };
    assert!(learned(&[connection(true), busy.clone(), busy]).is_empty());
}

#[test]
fn a_declared_operation_is_a_request_inside_of_any() {
    let write = ["redis:write".to_owned()];
    let connections = Connections::default().with_requests(&write);
    let mut trace = connection(true);
    let division = connections.divide(&mut trace).unwrap();
    assert_eq!(
        (division.requests.len(), division.connections.len()),
        (20, 0)
    );
    assert!(
        division
            .requests
            .iter()
            .all(|request| request.spans.len() == 1)
    );
    // A declared span inside another one does not begin a request.
    let mut nested = TraceRecords {
        spans: vec![
            span(1, 0, "a", 0, 9),
            span(2, 1, "write", 1, 8),
            span(3, 2, "write", 2, 7),
        ],
        ..TraceRecords::default()
    };
    assert_eq!(
        connections.divide(&mut nested).unwrap().requests[0]
            .spans
            .len(),
        2
    );
    let mut root = TraceRecords {
        spans: vec![span(2, 0, "write", 1, 8)],
        ..TraceRecords::default()
    };
    assert!(connections.divide(&mut root).is_none());
}

/// Reference implementation: maps the id of each span to that of the outermost span, among the span
/// and its ancestors, that begins a request.
fn reference(connections: &Connections, trace: &TraceRecords) -> BTreeMap<u64, Option<u64>> {
    let find = |id: u64| trace.spans.iter().find(|span| span.span_id == id);
    let outermost = |span: &SpanRecord| {
        let (mut found, mut next) = (None, Some(span));
        while let Some(span) = next {
            let above = find(span.parent_id).filter(|_| span.parent_id != 0);
            let is_inside = above.is_some_and(|above| {
                above.parent_id == 0 && connections.connections.contains(&operation(above))
            }) || above.is_none()
                && span.parent_id != 0
                && connections.requests.contains(&operation(span));
            if is_inside || connections.is_declared(span) {
                found = Some(span.span_id);
            }
            next = above;
        }
        found
    };
    trace
        .spans
        .iter()
        .map(|span| (span.span_id, outermost(span)))
        .collect()
}

proptest! {
    #[test]
    fn each_span_is_in_its_outermost_request(
        parents in prop::collection::vec((0u64..40, 0usize..4), 1..40),
    ) {
        let write = ["redis:write".to_owned()];
        let connections = learned(&[connection(true)]).with_requests(&write);
        // Recorded parents have smaller ids. Ids from 101 on are absent, and 0 means no parent.
        let spans = parents.iter().zip(1u64..).map(|(&(parent, name), id)| {
            let parent = if parent < id { parent } else { parent + 100 };
            span(id, parent, ["run", "get", "write", "other"][name], 0, 1)
        });
        let mut trace = TraceRecords { spans: spans.collect(), ..TraceRecords::default() };
        let expected = reference(&connections, &trace);
        let whole = trace.clone();
        let Some(division) = connections.divide(&mut trace) else {
            let is_root = |id: &u64| whole.spans.iter().any(|span| span.span_id == *id && span.parent_id == 0);
            prop_assert!(expected.values().flatten().all(is_root));
            return Ok(());
        };
        let mut seen = BTreeMap::new();
        for request in &division.requests {
            let root = request.root().map(|root| root.span_id);
            for span in &request.spans {
                prop_assert!(seen.insert(span.span_id, root).is_none());
            }
        }
        for (id, owner) in expected {
            if owner.is_some() {
                prop_assert_eq!(seen.get(&id), Some(&owner));
            }
        }
    }
}
