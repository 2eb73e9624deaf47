//! Repairs texts of a protobuf message that are not UTF-8. Protobuf's decoder rejects a whole
//! message for one such text.

use super::ResourceLogs;
use super::message::ResourceSpans;
use crate::wire;

/// Maximum nesting of messages; deeper ones are left unchanged, because the decoder rejects them.
const DEPTH_MAX: usize = 100;
const LENGTH_DELIMITED: u64 = 2;

/// Fields of a message that are texts, and nested messages with texts.
#[derive(Debug)]
pub struct Shape {
    texts: &'static [u32],
    messages: &'static [(u32, &'static Shape)],
}

/// A message whose texts can be replaced.
pub trait HasTexts {
    /// Fields of the message that are texts or contain texts.
    const SHAPE: &'static Shape;
}

impl HasTexts for ResourceSpans {
    const SHAPE: &'static Shape = &RESOURCE_SPANS;
}

impl HasTexts for ResourceLogs {
    const SHAPE: &'static Shape = &RESOURCE_LOGS;
}

const fn shape(texts: &'static [u32], messages: &'static [(u32, &'static Shape)]) -> Shape {
    Shape { texts, messages }
}

static ANY: Shape = shape(&[1], &[(5, &ARRAY), (6, &PAIRS)]);
static ARRAY: Shape = shape(&[], &[(1, &ANY)]);
static PAIRS: Shape = shape(&[], &[(1, &PAIR)]);
static PAIR: Shape = shape(&[1], &[(2, &ANY)]);
static RESOURCE: Shape = shape(&[], &[(1, &PAIR)]);
static SCOPE: Shape = shape(&[1, 2], &[(3, &PAIR)]);
static EVENT: Shape = shape(&[2], &[(3, &PAIR)]);
static LINK: Shape = shape(&[3], &[(4, &PAIR)]);
static STATUS: Shape = shape(&[2], &[]);
static SPAN: Shape = shape(
    &[3, 5],
    &[(9, &PAIR), (11, &EVENT), (13, &LINK), (15, &STATUS)],
);
static SCOPE_SPANS: Shape = shape(&[3], &[(1, &SCOPE), (2, &SPAN)]);
static RESOURCE_SPANS: Shape = shape(
    &[3],
    &[(1, &RESOURCE), (2, &SCOPE_SPANS), (1_000, &SCOPE_SPANS)],
);
static LOG_RECORD: Shape = shape(&[3, 12], &[(5, &ANY), (6, &PAIR)]);
static SCOPE_LOGS: Shape = shape(&[3], &[(1, &SCOPE), (2, &LOG_RECORD)]);
static RESOURCE_LOGS: Shape = shape(&[3], &[(1, &RESOURCE), (2, &SCOPE_LOGS)]);

/// Returns the message with U+FFFD in place of bytes that are not UTF-8, and the number of texts it
/// changed. Returns `None` if all texts are valid, or if the message is damaged in another way.
#[must_use]
pub fn with_valid_texts<M: HasTexts>(message: &[u8]) -> Option<(Vec<u8>, u64)> {
    let (mut valid, mut replaced) = (Vec::new(), 0);
    replace(message, M::SHAPE, DEPTH_MAX, &mut valid, &mut replaced)?;
    (replaced > 0).then_some((valid, replaced))
}

fn replace(
    message: &[u8],
    shape: &Shape,
    depth: usize,
    valid: &mut Vec<u8>,
    replaced: &mut u64,
) -> Option<()> {
    let mut rest = message;
    while !rest.is_empty() {
        let from = rest;
        let field = wire::field(&mut rest)?;
        let as_it_is = &from[..from.len() - rest.len()];
        let inner = |(number, _): &&(u32, &'static Shape)| *number == field.number;
        let inner = shape.messages.iter().find(inner);
        match (field.payload, inner) {
            (Some(text), _) if shape.texts.contains(&field.number) => {
                if std::str::from_utf8(text).is_ok() {
                    valid.extend_from_slice(as_it_is);
                } else {
                    *replaced += 1;
                    put(
                        field.number,
                        String::from_utf8_lossy(text).as_bytes(),
                        valid,
                    );
                }
            }
            (Some(payload), Some((_, shape))) if depth > 0 => {
                let (mut inner, before) = (Vec::new(), *replaced);
                replace(payload, shape, depth - 1, &mut inner, replaced)?;
                if *replaced == before {
                    valid.extend_from_slice(as_it_is);
                } else {
                    put(field.number, &inner, valid);
                }
            }
            _ => valid.extend_from_slice(as_it_is),
        }
    }
    Some(())
}

fn put(number: u32, payload: &[u8], into: &mut Vec<u8>) {
    put_varint(u64::from(number) << 3 | LENGTH_DELIMITED, into);
    put_varint(payload.len() as u64, into);
    into.extend_from_slice(payload);
}

fn put_varint(mut value: u64, into: &mut Vec<u8>) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::message::{AnyKind, AnyValue, ArrayValue, KeyValue, ScopeSpans, Span};
    use crate::{LogRecord, ScopeLogs};

    /// Text whose last byte is later replaced by one that is not UTF-8.
    const MARK: &str = "bad\u{7f}";

    fn text(text: &str) -> Option<AnyValue> {
        let kind = Some(AnyKind::Text(text.to_owned()));
        Some(AnyValue { kind })
    }

    fn pair(key: &str, value: Option<AnyValue>) -> KeyValue {
        let key = key.to_owned();
        KeyValue { key, value }
    }

    /// Replaces the last byte of each mark in the message by one that is not UTF-8.
    fn spoilt(message: &impl Message) -> Vec<u8> {
        let mut bytes = message.encode_to_vec();
        bytes
            .iter_mut()
            .filter(|byte| **byte == 0x7f)
            .for_each(|byte| *byte = 0xff);
        bytes
    }

    #[test]
    fn texts_are_replaced_wherever_they_are_and_the_rest_stays() {
        let list = ArrayValue {
            values: vec![AnyValue {
                kind: Some(AnyKind::Text(MARK.to_owned())),
            }],
        };
        let list = Some(AnyValue {
            kind: Some(AnyKind::Array(list)),
        });
        let of = |mark: &str, list: Option<AnyValue>| ResourceSpans {
            scope_spans: vec![ScopeSpans {
                spans: vec![
                    Span {
                        name: mark.to_owned(),
                        trace_id: vec![1; 16],
                        attributes: vec![
                            pair("a", text(mark)),
                            pair(mark, text("v")),
                            pair("l", list),
                        ],
                        ..Span::default()
                    },
                    Span {
                        name: "good".to_owned(),
                        ..Span::default()
                    },
                ],
                ..ScopeSpans::default()
            }],
            ..ResourceSpans::default()
        };
        let sent = spoilt(&of(MARK, list));
        assert!(ResourceSpans::decode(&sent[..]).is_err());
        let (valid, replaced) = with_valid_texts::<ResourceSpans>(&sent).unwrap();
        let list = Some(AnyValue {
            kind: Some(AnyKind::Array(ArrayValue {
                values: text("bad\u{fffd}").into_iter().collect(),
            })),
        });
        assert_eq!(
            ResourceSpans::decode(&valid[..]).unwrap(),
            of("bad\u{fffd}", list)
        );
        assert_eq!(replaced, 4);
        assert_eq!(with_valid_texts::<ResourceSpans>(&valid), None);
        assert_eq!(with_valid_texts::<ResourceSpans>(&sent[1..]), None);
    }

    #[test]
    fn log_records_have_texts_too() {
        let of = |mark: &str| ResourceLogs {
            scope_logs: vec![ScopeLogs {
                log_records: vec![LogRecord {
                    severity_text: mark.to_owned(),
                    body: text(mark),
                    ..LogRecord::default()
                }],
                ..ScopeLogs::default()
            }],
            ..ResourceLogs::default()
        };
        let (valid, replaced) = with_valid_texts::<ResourceLogs>(&spoilt(&of(MARK))).unwrap();
        assert_eq!(ResourceLogs::decode(&valid[..]).unwrap(), of("bad\u{fffd}"));
        assert_eq!(replaced, 2);
    }
}
