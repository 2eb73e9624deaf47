//! Simulated senders: processes with an SDK and OTLP exporters, which remember the answers they
//! got.

use prost::Message as _;
use stroboscope_fixtures::batches;
use stroboscope_fixtures::random::Random;
use stroboscope_otlp::message::{ResourceSpans, ScopeSpans, Span};
use stroboscope_proto::v1::Batch;
use stroboscope_store::decode::{CheckedBatch, OtlpTaken};
use stroboscope_store::limits::Limits;
use stroboscope_store::wal::{Payload, PayloadKind};

use crate::ingest::committer::NewItem;

const HOUR_NS: u64 = 3_600_000_000_000;
const INCARNATIONS: usize = 3;

/// A message to store.
pub(super) struct Message {
    pub(super) content: Content,
    /// Ids of its spans.
    pub(super) span_ids: Vec<u64>,
    pub(super) is_acknowledged: bool,
    pub(super) sent: usize,
}

pub(super) enum Content {
    Batch(Box<Batch>),
    Otlp(PayloadKind, Vec<u8>),
}

impl Message {
    /// Returns the incarnation and the sequence number of a batch; `None` for an OTLP request.
    pub(super) fn key(&self) -> Option<(u128, u64)> {
        let Content::Batch(batch) = &self.content else {
            return None;
        };
        let process = batch.process.as_ref()?;
        let incarnation = u128::from_be_bytes(process.incarnation[..].try_into().ok()?);
        Some((incarnation, batch.sequence))
    }

    pub(super) fn is_otlp(&self) -> bool {
        matches!(self.content, Content::Otlp(..))
    }

    /// Converts the message to the form that the servers pass to the intake.
    pub(super) fn incoming(&self, received_ns: u64) -> (NewItem, Payload) {
        match &self.content {
            Content::Batch(batch) => {
                let checked = CheckedBatch::check((**batch).clone(), &Limits::default()).unwrap();
                let payload = Payload::of(received_ns, batch);
                (NewItem::Batch(Box::new(checked)), payload)
            }
            Content::Otlp(kind, bytes) => {
                let spans = OtlpTaken {
                    records: self.span_ids.len() as u64,
                    ..OtlpTaken::default()
                };
                let payload = Payload {
                    received_ns,
                    kind: *kind,
                    bytes: bytes.clone(),
                };
                (NewItem::Otlp(spans), payload)
            }
        }
    }
}

#[derive(Clone, PartialEq, prost::Message)]
struct Request {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

/// Senders with all their messages.
pub(super) struct Senders {
    random: Random,
    pub(super) messages: Vec<Message>,
    next_sequence: [u64; INCARNATIONS],
    next_span: u64,
}

impl Senders {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            random: Random(seed),
            messages: Vec::new(),
            next_sequence: [0; INCARNATIONS],
            next_span: 1,
        }
    }

    /// Picks the next message: a new one, an unacknowledged one, or one whose acknowledgement was
    /// lost.
    pub(super) fn next(&mut self, now_ns: u64) -> usize {
        let is_open = |message: &Message| !message.is_acknowledged;
        match self.random.below(10) {
            0 | 1 => self.any(is_open),
            // An acknowledged OTLP request is not sent again.
            2 => self.any(|message| message.is_acknowledged && !message.is_otlp()),
            _ => None,
        }
        .unwrap_or_else(|| self.new_message(now_ns))
    }

    fn any(&mut self, is_it: impl Fn(&Message) -> bool) -> Option<usize> {
        let found = (0..self.messages.len()).filter(|&at| is_it(&self.messages[at]));
        let found: Vec<usize> = found.collect();
        (!found.is_empty()).then(|| found[self.random.below(found.len())])
    }

    fn new_message(&mut self, now_ns: u64) -> usize {
        let spans = 1 + self.random.below(4);
        let span_ids: Vec<u64> = (self.next_span..).take(spans).collect();
        self.next_span += spans as u64;
        // Some clocks are far off.
        let hours = [0, 1, 2, 2, 2, 2, 2, 2, 2, 40][self.random.below(10)];
        let start_ns = now_ns + 2 * HOUR_NS - hours * HOUR_NS;
        let content = match self.random.below(5) {
            0 => Content::Otlp(PayloadKind::OtlpProtobuf, protobuf(&span_ids, start_ns)),
            1 => Content::Otlp(PayloadKind::OtlpJson, json(&span_ids, start_ns)),
            _ => self.batch(&span_ids, start_ns),
        };
        self.messages.push(Message {
            content,
            span_ids,
            is_acknowledged: false,
            sent: 0,
        });
        self.messages.len() - 1
    }

    fn batch(&mut self, span_ids: &[u64], start_ns: u64) -> Content {
        let incarnation = self.random.below(INCARNATIONS);
        let next = &mut self.next_sequence[incarnation];
        let sequence = *next;
        *next += 1 + u64::from(self.random.happens(50));
        let mut batch = batches::batch(77 + incarnation as u128, sequence, span_ids.len());
        let spans = batch.spans.as_mut().unwrap();
        spans.span_ids.copy_from_slice(span_ids);
        spans.base_ns = start_ns;
        if let Some(events) = &mut batch.events {
            events.base_ns = start_ns;
            let ids = span_ids.iter().step_by(2);
            events
                .span_ids
                .iter_mut()
                .zip(ids)
                .for_each(|(to, id)| *to = *id);
        }
        // Makes some groups longer than a sector, and some longer than a page.
        let length = [10, 600, 5_000][self.random.below(3)];
        batch.strings[4] = (0..length)
            .map(|_| char::from(b'a' + self.random.below(26) as u8))
            .collect();
        Content::Batch(Box::new(batch))
    }
}

fn protobuf(span_ids: &[u64], start_ns: u64) -> Vec<u8> {
    let span = |id: &u64| Span {
        trace_id: u128::from(*id).to_be_bytes().to_vec(),
        span_id: id.to_be_bytes().to_vec(),
        name: "pay".to_owned(),
        start_time_unix_nano: start_ns,
        end_time_unix_nano: start_ns + 1_000,
        ..Span::default()
    };
    let scope_spans = vec![ScopeSpans {
        spans: span_ids.iter().map(span).collect(),
        ..ScopeSpans::default()
    }];
    let resource_spans = vec![ResourceSpans {
        scope_spans,
        ..ResourceSpans::default()
    }];
    Request { resource_spans }.encode_to_vec()
}

fn json(span_ids: &[u64], start_ns: u64) -> Vec<u8> {
    let span = |id: &u64| {
        serde_json::json!({
            "traceId": format!("{id:032x}"), "spanId": format!("{id:016x}"), "name": "pay",
            "startTimeUnixNano": start_ns.to_string(), "endTimeUnixNano": (start_ns + 1_000).to_string(),
        })
    };
    let spans: Vec<_> = span_ids.iter().map(span).collect();
    serde_json::json!({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})
        .to_string()
        .into_bytes()
}
