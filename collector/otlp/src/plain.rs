//! Fast path of the receivers: checks whether a protobuf request is valid without decoding it.
//!
//! It walks over the bytes and allocates nothing. Anything that is not plainly valid (an id of
//! zeros, a text that is too long, a field of another wire type, a group) goes to the slow path,
//! [`spans_of`](super::spans_of), which reports the defects. The fast path may therefore leave a
//! valid request to the slow path, but it never accepts an invalid one; a test compares the two.

use crate::SpanLimits;

/// Maximum nesting of values; more than people write, and below prost's limit of 100.
const DEPTH_MAX: u32 = 16;
/// Maximum number of attributes synthesized from other fields of an event, or of a span, its scope
/// and its resource: status, kind, state, counts, links …
const MADE_ATTRIBUTES: usize = 24;

/// Returns the number of spans and events in a request if the whole request is plainly valid, and
/// `None` otherwise.
#[must_use]
pub fn plain_records(request: &[u8], limits: SpanLimits) -> Option<u64> {
    let mut walk = Walk { limits, records: 0 };
    walk.request(request)?;
    Some(walk.records)
}

/// Reports whether one `ResourceSpans` is plainly valid, by the checks of [`plain_records`].
#[must_use]
pub fn is_plain(resource_spans: &[u8], limits: SpanLimits) -> bool {
    let mut walk = Walk { limits, records: 0 };
    walk.resource_spans(resource_spans).is_some()
}

/// A field's value by its wire type.
#[derive(Clone, Copy)]
pub(super) enum Wire<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32(u32),
}

impl<'a> Wire<'a> {
    pub(super) fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    pub(super) fn fixed64(self) -> Option<u64> {
        match self {
            Self::Fixed64(value) => Some(value),
            _ => None,
        }
    }

    pub(super) fn text(self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    pub(super) fn varint(self) -> Option<u64> {
        match self {
            Self::Varint(value) => Some(value),
            _ => None,
        }
    }

    pub(super) fn fixed32(self) -> Option<u32> {
        match self {
            Self::Fixed32(value) => Some(value),
            _ => None,
        }
    }

    fn is_varint(self) -> Option<()> {
        self.varint().map(drop)
    }

    fn is_fixed32(self) -> Option<()> {
        self.fixed32().map(drop)
    }
}

/// Calls `take` for each field of a message. Returns `None` as soon as `take` does, or if the
/// message is malformed.
pub(super) fn each_field<'a>(
    mut rest: &'a [u8],
    mut take: impl FnMut(u32, Wire<'a>) -> Option<()>,
) -> Option<()> {
    while !rest.is_empty() {
        let tag = u32::try_from(varint(&mut rest)?).ok()?;
        let value = match tag & 7 {
            0 => Wire::Varint(varint(&mut rest)?),
            1 => {
                let (bytes, behind) = rest.split_first_chunk::<8>()?;
                rest = behind;
                Wire::Fixed64(u64::from_le_bytes(*bytes))
            }
            2 => {
                let length = usize::try_from(varint(&mut rest)?).ok()?;
                let (bytes, behind) = rest.split_at_checked(length)?;
                rest = behind;
                Wire::Bytes(bytes)
            }
            5 => {
                let (bytes, behind) = rest.split_first_chunk::<4>()?;
                rest = behind;
                Wire::Fixed32(u32::from_le_bytes(*bytes))
            }
            _ => return None,
        };
        let number = tag >> 3;
        if number == 0 {
            return None;
        }
        take(number, value)?;
    }
    Some(())
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let (first, behind) = rest.split_first()?;
    if *first < 0x80 {
        *rest = behind;
        return Some(u64::from(*first));
    }
    let mut value = 0;
    for (at, byte) in rest.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if *byte < 0x80 {
            *rest = &rest[at + 1..];
            // The tenth byte has room for one bit.
            return (at < 9 || *byte <= 1).then_some(value);
        }
    }
    None
}

struct Walk {
    limits: SpanLimits,
    records: u64,
}

impl Walk {
    fn request(&mut self, bytes: &[u8]) -> Option<()> {
        each_field(bytes, |number, value| match number {
            1 => self.resource_spans(value.bytes()?),
            _ => Some(()),
        })
    }

    fn resource_spans(&mut self, bytes: &[u8]) -> Option<()> {
        let mut of_resource = 0;
        // The resource may follow its spans.
        each_field(bytes, |number, value| match number {
            1 => each_field(value.bytes()?, |number, value| match number {
                1 => {
                    of_resource += 1;
                    self.pair(value.bytes()?, Some(self.limits.string_bytes_max))
                }
                2 => value.is_varint(),
                _ => Some(()),
            }),
            3 => value.text().map(drop),
            // The field of old versions of OTLP that preceded `scope_spans`.
            1000 => None,
            _ => Some(()),
        })?;
        each_field(bytes, |number, value| match number {
            2 => self.scope_spans(value.bytes()?, of_resource),
            _ => Some(()),
        })
    }

    fn scope_spans(&mut self, bytes: &[u8], of_resource: usize) -> Option<()> {
        let mut shared = of_resource + MADE_ATTRIBUTES;
        each_field(bytes, |number, value| match number {
            1 => each_field(value.bytes()?, |number, value| match number {
                1 | 2 => value.text().map(drop),
                3 => {
                    shared += 1;
                    self.pair(value.bytes()?, None)
                }
                4 => value.is_varint(),
                _ => Some(()),
            }),
            3 => value.text().map(drop),
            _ => Some(()),
        })?;
        each_field(bytes, |number, value| match number {
            2 => self.span(value.bytes()?, shared),
            _ => Some(()),
        })
    }

    fn span(&mut self, bytes: &[u8], shared: usize) -> Option<()> {
        let (mut trace_id, mut span_id, mut parent_id): (&[u8], &[u8], &[u8]) = (&[], &[], &[]);
        let (mut start_ns, mut end_ns) = (0, 0);
        let mut attributes = shared;
        each_field(bytes, |number, value| {
            match number {
                1 => trace_id = value.bytes()?,
                2 => span_id = value.bytes()?,
                3 => drop(value.text()?),
                4 => parent_id = value.bytes()?,
                5 => self.name(value)?,
                6 | 10 | 12 | 14 => value.is_varint()?,
                7 => start_ns = value.fixed64()?,
                8 => end_ns = value.fixed64()?,
                9 => {
                    attributes += 1;
                    self.pair(value.bytes()?, None)?;
                }
                11 => self.event(value.bytes()?)?,
                13 => self.link(value.bytes()?)?,
                15 => each_field(value.bytes()?, |number, value| match number {
                    2 => value.text().map(drop),
                    1 | 3 => value.is_varint(),
                    _ => Some(()),
                })?,
                16 => value.is_fixed32()?,
                _ => {}
            }
            Some(())
        })?;
        let is_id =
            |id: &[u8], length: usize| id.len() == length && id.iter().any(|byte| *byte > 0);
        let is_root = parent_id.iter().all(|byte| *byte == 0) && [0, 8].contains(&parent_id.len());
        let is_plain = is_id(trace_id, 16)
            && is_id(span_id, 8)
            && (is_root || is_id(parent_id, 8))
            && i64::try_from(start_ns.max(end_ns)).is_ok()
            && (end_ns == 0 || start_ns <= end_ns)
            && attributes <= self.limits.attributes_max;
        self.records += 1;
        is_plain.then_some(())
    }

    fn name(&self, value: Wire<'_>) -> Option<()> {
        let text = value.text()?;
        let fits = text.len() <= self.limits.string_bytes_max && !text.contains('\0');
        fits.then_some(())
    }

    fn event(&mut self, bytes: &[u8]) -> Option<()> {
        let mut attributes = MADE_ATTRIBUTES;
        each_field(bytes, |number, value| match number {
            1 => i64::try_from(value.fixed64()?).ok().map(drop),
            2 => self.name(value),
            3 => {
                attributes += 1;
                self.pair(value.bytes()?, None)
            }
            4 => value.is_varint(),
            _ => Some(()),
        })?;
        self.records += 1;
        (attributes <= self.limits.attributes_max).then_some(())
    }

    fn link(&self, bytes: &[u8]) -> Option<()> {
        each_field(bytes, |number, value| match number {
            1 | 2 => value.bytes().map(drop),
            3 => value.text().map(drop),
            4 => self.pair(value.bytes()?, None),
            5 => value.is_varint(),
            6 => value.is_fixed32(),
            _ => Some(()),
        })
    }

    /// Checks an attribute. With `name_max`, texts of more bytes and texts with NUL are not plainly
    /// valid. Only texts of a resource have this limit, because they may become names. Returns
    /// `None` if the attribute is not plainly valid.
    fn pair(&self, bytes: &[u8], name_max: Option<usize>) -> Option<()> {
        pair(bytes, name_max, 0)
    }
}

fn pair(bytes: &[u8], name_max: Option<usize>, depth: u32) -> Option<()> {
    each_field(bytes, |number, value| match number {
        1 => value.text().map(drop),
        2 => any(value.bytes()?, name_max, depth),
        _ => Some(()),
    })
}

fn any(bytes: &[u8], name_max: Option<usize>, depth: u32) -> Option<()> {
    if depth > DEPTH_MAX {
        return None;
    }
    each_field(bytes, |number, value| match number {
        1 => {
            let text = value.text()?;
            let fits = name_max.is_none_or(|max| text.len() <= max && !text.contains('\0'));
            fits.then_some(())
        }
        2 | 3 => value.is_varint(),
        4 => value.fixed64().map(drop),
        5 => each_field(value.bytes()?, |number, value| match number {
            1 => any(value.bytes()?, name_max, depth + 1),
            _ => Some(()),
        }),
        6 => each_field(value.bytes()?, |number, value| match number {
            1 => pair(value.bytes()?, name_max, depth + 1),
            _ => Some(()),
        }),
        7 => value.bytes().map(drop),
        _ => Some(()),
    })
}
