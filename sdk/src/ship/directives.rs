//! What the collector directs, as long as the connection lives.
//!
//! A message is looked through before it is parsed: two bytes on the wire can be hundreds in memory.

use std::sync::Arc;

use prost::Message as _;
use prost::bytes::{Buf as _, Bytes};
use prost::encoding::{WireType, decode_key, decode_varint, skip_field};
use stroboscope_burst::BurstConfig;
use stroboscope_proto::v1;
use stroboscope_tradeoff::{KEYS_MAX, POINTS_MAX, SLACK_COMPONENTS_MAX, SLACK_EDGES_MAX};
use tonic::Status;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;

use crate::address::Authorized;
use crate::gate::timer::Timer;
use crate::tradeoff;

/// A model of slack takes most of it.
const DIRECTIVE_BYTES_MAX: usize = 4 << 20;
/// All points of a policy, with their models.
const POINTS_BYTES_MAX: usize = 1 << 20;

/// Does what the collector directs.
pub(super) async fn follow(channel: Authorized, process: v1::Process, timer: Arc<Timer>) {
    let request = v1::ControlRequest {
        process: Some(process),
    };
    let mut client = Grpc::new(channel).max_decoding_message_size(DIRECTIVE_BYTES_MAX);
    if client.ready().await.is_err() {
        return;
    }
    let path = PathAndQuery::from_static("/stroboscope.v1.Collector/Control");
    // It says something when there is something to say, at any time: there is no deadline.
    let Ok(response) = client
        .server_streaming(tonic::Request::new(request), path, BoundedCodec)
        .await
    else {
        return;
    };
    let mut directives = response.into_inner();
    while let Ok(Some(directive)) = directives.message().await {
        match directive {
            Ok(Some(v1::directive::Kind::SetBurstConfig(set))) => timer.switch(
                BurstConfig::from_bits(set.burst_config),
                set.at_ns.cast_signed(),
            ),
            Ok(Some(v1::directive::Kind::SetTradeoffs(policy))) => tradeoff::directed(policy),
            Ok(None) => {}
            Err(problem) => tradeoff::refused(problem),
        }
    }
}

/// What a message says, or why it is refused. Later messages come all the same.
type Directed = Result<Option<v1::directive::Kind>, String>;

struct BoundedCodec;

impl Codec for BoundedCodec {
    type Encode = v1::ControlRequest;
    type Decode = Directed;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for BoundedCodec {
    type Item = v1::ControlRequest;
    type Error = Status;

    fn encode(&mut self, item: Self::Item, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        item.encode(into)
            .map_err(|error| Status::internal(error.to_string()))
    }
}

impl Decoder for BoundedCodec {
    type Item = Directed;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Directed>, Status> {
        Ok(Some(decode(from.copy_to_bytes(from.remaining()))))
    }
}

fn decode(message: Bytes) -> Directed {
    check(message.clone())?;
    match v1::Directive::decode(message) {
        Ok(directive) => Ok(directive.kind),
        Err(error) => Err(format!("a directive is malformed: {error}")),
    }
}

/// Counts what parsing would make many small things of.
fn check(directive: Bytes) -> Result<(), String> {
    // All policies of one message, of which the last counts: parsing merges them.
    let (mut points, mut points_bytes) = (0, 0);
    let (mut components, mut edges, mut keys_bytes) = (0, 0, 0);
    each_field(directive, |tag, policy| {
        if tag != SET_TRADEOFFS {
            return Ok(());
        }
        each_field(policy, |tag, part| match tag {
            POINTS => {
                points += 1;
                points_bytes += part.len();
                Ok(())
            }
            SLACK => each_field(part, |tag, part| {
                match tag {
                    COMPONENTS => components += 1,
                    EDGES => edges += 1,
                    KEYS => keys_bytes += part.len(),
                    _ => {}
                }
                Ok(())
            }),
            _ => Ok(()),
        })
    })?;
    for (what, count, max) in [
        ("points", points, POINTS_MAX),
        ("bytes of points", points_bytes, POINTS_BYTES_MAX),
        ("components with slack", components, SLACK_COMPONENTS_MAX),
        ("edges between components", edges, SLACK_EDGES_MAX),
        ("bytes of keys", keys_bytes, 8 * KEYS_MAX),
    ] {
        if count > max {
            return Err(format!("the policy has {count} {what}; {max} are accepted"));
        }
    }
    Ok(())
}

// As `proto/stroboscope/v1/` numbers them; a test compares.
const SET_TRADEOFFS: u32 = 4;
const POINTS: u32 = 4;
const SLACK: u32 = 5;
const COMPONENTS: u32 = 2;
const EDGES: u32 = 3;
const KEYS: u32 = 4;

/// Hands on the fields of a message that have a length; of another kind, as many empty bytes as a number takes.
fn each_field(
    mut message: Bytes,
    mut take: impl FnMut(u32, Bytes) -> Result<(), String>,
) -> Result<(), String> {
    while message.has_remaining() {
        let malformed = |error| format!("a directive is malformed: {error}");
        let (tag, kind) = decode_key(&mut message).map_err(malformed)?;
        if kind != WireType::LengthDelimited {
            let context = prost::encoding::DecodeContext::default();
            skip_field(kind, tag, &mut message, context).map_err(malformed)?;
            // A number of a list, by itself.
            take(tag, Bytes::from_static(&[0; 8]))?;
            continue;
        }
        let length = decode_varint(&mut message).map_err(malformed)?;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > message.remaining() {
            return Err("a directive is malformed: it is cut".to_owned());
        }
        take(tag, message.split_to(length))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directive(policy: v1::TradeoffPolicy) -> Bytes {
        let directive = v1::Directive {
            kind: Some(v1::directive::Kind::SetTradeoffs(policy)),
        };
        directive.encode_to_vec().into()
    }

    fn policy() -> v1::TradeoffPolicy {
        v1::TradeoffPolicy {
            version: 7,
            points: vec![v1::TradeoffPoint::default(); POINTS_MAX],
            slack: Some(v1::SlackModel {
                components: vec!["component".to_owned(); SLACK_COMPONENTS_MAX],
                edges: vec![v1::SlackEdge::default(); SLACK_EDGES_MAX],
                keys: vec![u64::MAX; KEYS_MAX],
                slack_us: vec![1; KEYS_MAX * SLACK_COMPONENTS_MAX],
                ..v1::SlackModel::default()
            }),
            ..v1::TradeoffPolicy::default()
        }
    }

    #[track_caller]
    fn refused(change: impl Fn(&mut v1::TradeoffPolicy, &mut v1::SlackModel), expected: &str) {
        let mut policy = policy();
        let mut slack = policy.slack.take().unwrap();
        change(&mut policy, &mut slack);
        policy.slack = Some(slack);
        let problem = decode(directive(policy)).expect_err(expected);
        assert!(problem.contains(expected), "{problem}");
    }

    #[test]
    fn the_largest_policy_is_taken_and_larger_ones_are_not() {
        let kind = v1::directive::Kind::SetTradeoffs(policy());
        assert!(directive(policy()).len() < DIRECTIVE_BYTES_MAX);
        assert_eq!(decode(directive(policy())), Ok(Some(kind)));
        refused(
            |policy, _| policy.points.push(v1::TradeoffPoint::default()),
            "257 points; 256",
        );
        refused(
            |policy, _| policy.points[0].point = "p".repeat(POINTS_BYTES_MAX),
            "bytes of points",
        );
        refused(
            |_, slack| slack.components.push(String::new()),
            "components",
        );
        refused(
            |_, slack| slack.edges.push(v1::SlackEdge::default()),
            "edges",
        );
        refused(|_, slack| slack.keys.push(0), "bytes of keys");
    }

    #[test]
    fn keys_that_come_one_by_one_are_counted_too() {
        let mut slack = Vec::new();
        for _ in 0..=KEYS_MAX {
            prost::encoding::fixed64::encode(KEYS, &1, &mut slack);
        }
        let mut policy = Vec::new();
        prost::encoding::bytes::encode(SLACK, &slack, &mut policy);
        let mut sent = Vec::new();
        prost::encoding::bytes::encode(SET_TRADEOFFS, &policy, &mut sent);
        let problem = decode(sent.into()).expect_err("too many");
        assert!(problem.contains("bytes of keys"), "{problem}");
    }

    #[test]
    fn what_is_no_directive_is_refused() {
        for wrong in [
            &b"\xff\xff\xff"[..],
            b"\x22\x05\x22\x01",
            b"\x22\x03\x22\x7f\x00",
        ] {
            assert!(decode(Bytes::copy_from_slice(wrong)).is_err(), "{wrong:?}");
        }
        assert_eq!(decode(Bytes::new()), Ok(None));
    }
}
