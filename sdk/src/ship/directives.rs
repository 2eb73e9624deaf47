//! Follows the collector's directives while the connection is open.
//!
//! Each message is scanned before it is parsed, because two bytes on the wire can become hundreds
//! in memory.

use std::sync::Arc;

use prost::Message as _;
use prost::bytes::{Buf as _, Bytes};
use prost::encoding::{WireType, decode_key, decode_varint, skip_field};
use stroboscope_burst::BurstConfig;
use stroboscope_proto::v1;
use tonic::Status;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;

use crate::address::AuthorizedChannel;
use crate::gate::timer::Timer;

#[cfg(any(test, not(feature = "tradeoff")))]
#[cfg_attr(
    feature = "tradeoff",
    expect(
        dead_code,
        reason = "here for its test, which runs beside those of policies"
    )
)]
mod no_policy;
#[cfg(feature = "tradeoff")]
mod policy;

#[cfg(not(feature = "tradeoff"))]
use no_policy as policy;

/// Maximum size of a directive in bytes. A slack model may take most of it.
const DIRECTIVE_BYTES_MAX: usize = 4 << 20;

/// Receives and applies the collector's directives until the stream ends.
pub(super) async fn follow(channel: AuthorizedChannel, process: v1::Process, timer: Arc<Timer>) {
    let request = v1::ControlRequest {
        process: Some(process),
        is_agent: false,
    };
    let mut client = Grpc::new(channel).max_decoding_message_size(DIRECTIVE_BYTES_MAX);
    if client.ready().await.is_err() {
        return;
    }
    let path = PathAndQuery::from_static("/stroboscope.v1.Collector/Control");
    // The collector sends directives at any time, so there is no deadline.
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
            Ok(Some(v1::directive::Kind::SetTradeoffs(policy))) => policy::install(policy),
            // A directive for agents only, an empty one, or one of a later version.
            Ok(Some(v1::directive::Kind::SetRoute(_) | v1::directive::Kind::Probe(_)) | None) => {}
            Err(problem) => policy::refuse(&problem),
        }
    }
}

/// Directive in a message, or the reason for rejecting it. `None` means an empty directive, or one
/// of an unknown kind. A rejected message does not end the stream.
type DirectiveResult = Result<Option<v1::directive::Kind>, String>;

struct BoundedCodec;

impl Codec for BoundedCodec {
    type Encode = v1::ControlRequest;
    type Decode = DirectiveResult;
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
    type Item = DirectiveResult;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<DirectiveResult>, Status> {
        Ok(Some(decode(from.copy_to_bytes(from.remaining()))))
    }
}

fn decode(message: Bytes) -> DirectiveResult {
    policy::check(message.clone())?;
    match v1::Directive::decode(message) {
        Ok(directive) => Ok(directive.kind),
        Err(error) => Err(format!("a directive is malformed: {error}")),
    }
}

/// Number of the field with a policy in a directive, as in `proto/stroboscope/v1/`; tests fail if
/// they differ.
const SET_TRADEOFFS: u32 = 4;

/// Passes the number and content of each length-delimited field of a message to `take`. For a field
/// of another type, it passes eight zero bytes, the size of a number. Fails if the message is
/// malformed or `take` fails.
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
            // It may be a number of a list that is not packed.
            take(tag, Bytes::from_static(&[0; 8]))?;
            continue;
        }
        let length = decode_varint(&mut message).map_err(malformed)?;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > message.remaining() {
            return Err("a directive is malformed: it is truncated".to_owned());
        }
        take(tag, message.split_to(length))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
