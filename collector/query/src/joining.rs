//! Detects lost trace context: parts of a request that were recorded as requests of their own.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stroboscope_analysis::record::{SpanFlags, SpanRecord, TraceRecords};

/// Minimum number of requests or calls that count as a sign of lost context.
const REQUESTS_MIN: u64 = 20;

/// Service and name of a span.
type Operation = (Arc<str>, Arc<str>);

/// Counts of requests and calls that show whether context travels between services.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct JoinCounts {
    requests: u64,
    /// Number of requests, by operation, with a single SDK-recorded span that is neither a server
    /// span, nor a client span, nor declared to be a request.
    alone: BTreeMap<Operation, u64>,
    /// Number of client spans, and number of client spans with a server span as a child, by
    /// operation.
    calls: BTreeMap<Operation, [u64; 2]>,
    /// Number of server spans without a parent, by operation.
    served: BTreeMap<Operation, u64>,
}

impl JoinCounts {
    pub(super) fn observe(&mut self, records: &TraceRecords) {
        self.requests += 1;
        let operation = |span: &SpanRecord| (Arc::clone(&span.service), Arc::clone(&span.name));
        let (mut answered, mut has_calls) = (foldhash::HashSet::<u64>::default(), false);
        for span in &records.spans {
            has_calls |= span.flags.contains(SpanFlags::CLIENT);
            if span.flags.contains(SpanFlags::SERVER) {
                match span.parent_id {
                    0 => *self.served.entry(operation(span)).or_default() += 1,
                    parent_id => drop(answered.insert(parent_id)),
                }
            }
        }
        if has_calls {
            let is_client = |span: &&SpanRecord| span.flags.contains(SpanFlags::CLIENT);
            for call in records.spans.iter().filter(is_client) {
                let [all, met] = self.calls.entry(operation(call)).or_default();
                *all += 1;
                *met += u64::from(answered.contains(&call.span_id));
            }
        } else if let [one] = &records.spans[..]
            && one.process != 0
            && !one.flags.contains(SpanFlags::SERVER)
            && !one.flags.contains(SpanFlags::REQUEST)
        {
            *self.alone.entry(operation(one)).or_default() += 1;
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.requests += other.requests;
        for (operation, count) in other.alone {
            *self.alone.entry(operation).or_default() += count;
        }
        for (operation, count) in other.served {
            *self.served.entry(operation).or_default() += count;
        }
        for (operation, [all, met]) in other.calls {
            let known = self.calls.entry(operation).or_default();
            *known = [known[0] + all, known[1] + met];
        }
    }

    /// Returns a sentence for each sign of lost context. With `expects_callers`, many requests of a
    /// single span count as a sign.
    pub(super) fn signs(&self, expects_callers: bool) -> Vec<String> {
        let mut signs = Vec::new();
        let alone: u64 = self.alone.values().sum();
        if let Some(((service, name), _)) = self.alone.iter().max_by_key(|(_, count)| **count)
            && expects_callers
            && alone >= REQUESTS_MIN
            && 2 * alone > self.requests
        {
            signs.push(format!(
                "{alone} of {} requests are a single span without a caller, such as {service}:{name}. If they are parts of requests, no \
                 context reaches them: put stroboscope::tower::ServerLayer around the server, or record its framework's request spans.",
                self.requests
            ));
        }
        for ((caller, name), [calls, met]) in &self.calls {
            let servers = self.served.iter().filter(|((service, served), requests)| {
                service != caller && served == name && **requests >= REQUESTS_MIN
            });
            for ((service, _), requests) in servers.filter(|_| *calls >= REQUESTS_MIN && *met == 0)
            {
                signs.push(format!(
                    "None of {calls} calls {caller}:{name} meets a request of {service}, where {requests} requests of that name have \
                     no caller. If {service} is what these calls reach, no context travels there: put \
                     stroboscope::tower::ClientLayer around the client and ServerLayer around the server, or a propagator of W3C \
                     traceparent."
                ));
            }
        }
        signs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(id: u64, parent_id: u64, operation: (&str, &str), flags: SpanFlags) -> SpanRecord {
        SpanRecord {
            span_id: id,
            parent_id,
            service: operation.0.into(),
            name: operation.1.into(),
            host: "h".into(),
            process: 1,
            start_ns: 0,
            end_ns: 1,
            flags,
            events: Vec::new(),
        }
    }

    fn signs(requests: &[(u64, Vec<SpanRecord>)]) -> Vec<String> {
        let mut parts = [JoinCounts::default(), JoinCounts::default()];
        for (count, spans) in requests {
            let records = TraceRecords {
                spans: spans.clone(),
                ..TraceRecords::default()
            };
            (0..*count).for_each(|n| parts[n as usize % 2].observe(&records));
        }
        let [mut all, other] = parts;
        all.merge(other);
        all.signs(true)
    }

    const SERVER: SpanFlags = SpanFlags::SERVER;
    const CLIENT: SpanFlags = SpanFlags::CLIENT;
    const NONE: SpanFlags = SpanFlags(0);

    #[test]
    fn functions_without_a_request_are_a_sign() {
        let function = vec![span(1, 0, ("back", "look_up"), NONE)];
        let request = vec![
            span(1, 0, ("front", "GET /"), SERVER),
            span(2, 1, ("front", "page"), NONE),
        ];
        let said = signs(&[(40, function.clone()), (20, request.clone())]);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(
            said[0].starts_with("40 of 60 requests are a single span"),
            "{said:?}"
        );
        assert!(said[0].contains("such as back:look_up."), "{said:?}");
        // Functions are a minority, or too few; or the spans are of requests or servers.
        assert_eq!(signs(&[(20, function.clone()), (40, request)]), [""; 0]);
        assert_eq!(signs(&[(19, function)]), [""; 0]);
        let command = vec![span(1, 0, ("cache", "get"), SpanFlags::REQUEST)];
        assert_eq!(signs(&[(40, command)]), [""; 0]);
        assert_eq!(
            signs(&[(40, vec![span(1, 0, ("back", "GET /"), SERVER)])]),
            [""; 0]
        );
    }

    #[test]
    fn calls_without_a_joined_request_are_a_sign() {
        let name = "GET /stock/{id}";
        let call = |answer: Option<SpanRecord>| {
            let spans = [
                span(1, 0, ("front", "GET /"), SERVER),
                span(2, 1, ("front", name), CLIENT),
            ];
            spans.into_iter().chain(answer).collect::<Vec<_>>()
        };
        let served = vec![span(9, 0, ("back", name), SERVER)];
        let said = signs(&[(30, call(None)), (25, served.clone())]);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(
            said[0].starts_with(
                "None of 30 calls front:GET /stock/{id} meets a request of back, where 25"
            ),
            "{said:?}"
        );
        // One call is joined; no service has such requests; the requests of the service have
        // another name.
        let joined = call(Some(span(3, 2, ("back", name), SERVER)));
        assert_eq!(
            signs(&[(30, call(None)), (1, joined), (25, served)]),
            [""; 0]
        );
        assert_eq!(signs(&[(30, call(None))]), [""; 0]);
        let other = vec![span(9, 0, ("back", "GET /other"), SERVER)];
        assert_eq!(signs(&[(30, call(None)), (25, other)]), [""; 0]);
    }
}
