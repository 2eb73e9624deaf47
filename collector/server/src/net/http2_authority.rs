//! Replaces `%` and `/`, which h2 rejects, in authorities of HTTP/2 requests on a unix socket.
//!
//! gRPC's C core (Python, C++, Ruby) sends the socket's percent-encoded path as `:authority`; gRPC
//! for Java sends the path itself. h2 accepts neither. It resets the stream with PROTOCOL_ERROR
//! before any handler sees the request, and has no setting that changes this. The authority has no
//! meaning on a unix socket. So [`AuthorityFilter`] replaces each `%` and `/` in it by `-`, in
//! place, while the bytes arrive. Frame lengths and the sizes of HPACK's dynamic table stay as the
//! client expects.
//!
//! The filter finds the value without the dynamic table: `:authority` has the static index 1, or is
//! written out. Huffman-coded values pass unchanged: the C core uses no Huffman code for strings,
//! and Java none below 512 bytes.

const NAME: &[u8] = b":authority";
const STATIC_INDEX: usize = 1;
const PREFACE_BYTES: usize = 24;
const HEAD_BYTES: usize = 9;

/// Filter for the bytes that a client sends on a connection, from the first byte on.
#[derive(Debug)]
pub(super) struct AuthorityFilter {
    head: [u8; HEAD_BYTES],
    head_bytes: usize,
    /// True if the next byte of the frame is the length of its padding.
    is_padded: bool,
    /// Bytes left of the preface or frame: those before a header block fragment, the fragment, and
    /// those after it.
    before: usize,
    fragment: usize,
    after: usize,
    block: Block,
}

impl AuthorityFilter {
    pub(super) fn new() -> Self {
        Self {
            head: [0; HEAD_BYTES],
            head_bytes: 0,
            is_padded: false,
            before: PREFACE_BYTES,
            fragment: 0,
            after: 0,
            block: Block::default(),
        }
    }

    /// Filters the next bytes, which may be cut anywhere. Leaves checks of the protocol to h2.
    pub(super) fn filter(&mut self, mut bytes: &mut [u8]) {
        while let Some(&first) = bytes.first() {
            let left = bytes.len();
            let taken = if self.is_padded {
                self.is_padded = false;
                self.after = self.fragment.min(first.into());
                self.fragment -= self.after;
                1
            } else if self.before > 0 {
                take(&mut self.before, left)
            } else if self.fragment > 0 {
                let taken = take(&mut self.fragment, left);
                self.block.filter(&mut bytes[..taken]);
                taken
            } else if self.after > 0 {
                take(&mut self.after, left)
            } else {
                self.head[self.head_bytes] = first;
                self.head_bytes += 1;
                if self.head_bytes == HEAD_BYTES {
                    self.head_bytes = 0;
                    self.begin_frame();
                }
                1
            };
            bytes = &mut bytes[taken..];
        }
    }

    fn begin_frame(&mut self) {
        const HEADERS: u8 = 1;
        const CONTINUATION: u8 = 9;
        const PADDED: u8 = 0x8;
        const PRIORITY: u8 = 0x20;
        let [high, middle, low, kind, flags, ..] = self.head;
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        self.before = length;
        if kind == HEADERS {
            self.block = Block::default();
            self.is_padded = flags & PADDED != 0 && length > 0;
            self.before = if flags & PRIORITY != 0 { 5 } else { 0 };
        } else if kind == CONTINUATION {
            self.before = 0;
        }
        self.fragment = length.saturating_sub(self.before + usize::from(self.is_padded));
    }
}

/// Reduces the count `left` by at most `most`, and returns the reduction.
fn take(left: &mut usize, most: usize) -> usize {
    let taken = most.min(*left);
    *left -= taken;
    taken
}

/// State of an HPACK header block (RFC 7541).
#[derive(Debug, Default)]
struct Block {
    expected: HeaderPart,
    is_authority: bool,
}

/// Next part of a header block.
#[derive(Clone, Copy, Debug, Default)]
enum HeaderPart {
    /// The first byte of a field.
    #[default]
    Field,
    /// The first byte of a string's length.
    Length(Text),
    /// A further byte of an integer.
    Integer(Integer, usize, u32),
    /// Bytes of a string: the number left, and true if they are Huffman-coded.
    Text(Text, usize, bool),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Text {
    Name,
    Value,
}

#[derive(Clone, Copy, Debug)]
enum Integer {
    /// An indexed field, or a size update of the dynamic table: nothing follows.
    Whole,
    /// Index of a name; 0 if the name is written out.
    Name,
    /// Length of a string, and true if it is Huffman-coded.
    Length(Text, bool),
}

impl Block {
    fn filter(&mut self, mut bytes: &mut [u8]) {
        while let Some(&first) = bytes.first() {
            let mut taken = 1;
            self.expected = match self.expected {
                HeaderPart::Field => match first {
                    0x80.. => self.begin(Integer::Whole, first, 7),
                    0x40.. => self.begin(Integer::Name, first, 6),
                    0x20.. => self.begin(Integer::Whole, first, 5),
                    _ => self.begin(Integer::Name, first, 4),
                },
                HeaderPart::Length(text) => {
                    self.begin(Integer::Length(text, first & 0x80 != 0), first, 7)
                }
                HeaderPart::Integer(of, value, shift) => {
                    let more = usize::from(first & 0x7f).checked_shl(shift);
                    let value = value.saturating_add(more.unwrap_or(usize::MAX));
                    if first & 0x80 == 0 {
                        self.complete(of, value)
                    } else {
                        HeaderPart::Integer(of, value, shift.saturating_add(7))
                    }
                }
                HeaderPart::Text(text, mut left, is_coded) => {
                    let at = NAME.len().saturating_sub(left);
                    taken = take(&mut left, bytes.len());
                    let part = &mut bytes[..taken];
                    match text {
                        Text::Name => self.is_authority &= NAME[at..].starts_with(part),
                        Text::Value if self.is_authority && !is_coded => replace(part),
                        Text::Value => {}
                    }
                    match (left, text) {
                        (0, Text::Name) => HeaderPart::Length(Text::Value),
                        (0, Text::Value) => HeaderPart::Field,
                        _ => HeaderPart::Text(text, left, is_coded),
                    }
                }
            };
            bytes = &mut bytes[taken..];
        }
    }

    /// Reads the first byte of an integer, whose low `bits` bits belong to the integer.
    fn begin(&mut self, of: Integer, first: u8, bits: u32) -> HeaderPart {
        let most = (1 << bits) - 1;
        match usize::from(first) & most {
            value if value == most => HeaderPart::Integer(of, value, 0),
            value => self.complete(of, value),
        }
    }

    fn complete(&mut self, of: Integer, value: usize) -> HeaderPart {
        match of {
            Integer::Whole => HeaderPart::Field,
            Integer::Name if value == 0 => HeaderPart::Length(Text::Name),
            Integer::Name => {
                self.is_authority = value == STATIC_INDEX;
                HeaderPart::Length(Text::Value)
            }
            Integer::Length(Text::Value, _) if value == 0 => HeaderPart::Field,
            Integer::Length(text, is_coded) => {
                if text == Text::Name {
                    self.is_authority = !is_coded && value == NAME.len();
                }
                HeaderPart::Text(text, value, is_coded)
            }
        }
    }
}

fn replace(value: &mut [u8]) {
    for byte in value {
        if matches!(byte, b'%' | b'/') {
            *byte = b'-';
        }
    }
}

#[cfg(test)]
mod tests {
    use h2::server;
    use proptest::prelude::*;
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    const PATH: &[u8] = b"%2Ftmp%2Fx.sock";

    fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = length[1..].to_vec();
        frame.extend([kind, flags, 0, 0, 0, stream]);
        frame.extend(payload);
        frame
    }

    fn text(bytes: &[u8]) -> Vec<u8> {
        [&[u8::try_from(bytes.len()).unwrap()], bytes].concat()
    }

    /// Returns the bytes of one connection: requests with all encodings of the authority that
    /// clients send, and a last one for "good".
    fn requests() -> Vec<u8> {
        const END: u8 = 0x4 | 0x1;
        // POST, http and "/".
        let rest = [0x83, 0x86, 0x84];
        let written_out = [&[0x40][..], &text(NAME), &text(PATH), &rest].concat();
        let of_static_table = [&rest[..], &[0x41], &text(b"/tmp/x.sock")].concat();
        let never_indexed = [
            &rest[..],
            &[0x11],
            &text(PATH),
            &[0x00],
            &text(b"a"),
            &text(b"%/"),
        ]
        .concat();
        // The first two requests insert their authorities into the dynamic table. This index refers
        // to that of the first one.
        let of_dynamic_table = [&rest[..], &[0xbf]].concat();
        let padded = [&[3, 0, 0, 0, 0, 9][..], &of_static_table, &[0; 3]].concat();
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        bytes.extend(frame(4, 0, 0, &[]));
        bytes.extend(frame(1, 0x4, 1, &written_out));
        bytes.extend(frame(0, 0x1, 1, b"\x00\x00\x09\x01\x41\x01/%"));
        bytes.extend(frame(1, END, 3, &of_static_table));
        bytes.extend(frame(1, END, 5, &never_indexed));
        bytes.extend(frame(1, END, 7, &of_dynamic_table));
        bytes.extend(frame(1, END | 0x28, 9, &padded));
        let (one, two) = written_out.split_at(20);
        bytes.extend(frame(1, 0x1, 11, one));
        bytes.extend(frame(9, 0x4, 11, two));
        let good = [&rest[..], &[0x11], &text(b"good")].concat();
        bytes.extend(frame(1, END, 13, &good));
        bytes
    }

    fn filtered(bytes: &[u8], piece_bytes: usize) -> Vec<u8> {
        let mut filter = AuthorityFilter::new();
        let mut bytes = bytes.to_vec();
        for piece in bytes.chunks_mut(piece_bytes) {
            filter.filter(piece);
        }
        bytes
    }

    /// Returns the authorities of the requests that h2 accepts, up to the last one, "good".
    async fn taken(bytes: &[u8]) -> Vec<String> {
        let (mut client, server) = tokio::io::duplex(1 << 16);
        client.write_all(bytes).await.unwrap();
        let mut connection = server::handshake(server).await.unwrap();
        let mut taken = Vec::new();
        while taken.last().is_none_or(|last| last != "good") {
            let (request, _) = connection.accept().await.unwrap().unwrap();
            taken.push(request.uri().authority().unwrap().to_string());
            if let Some(value) = request.headers().get("a") {
                assert_eq!(value, "%/", "other headers stay as they are");
            }
        }
        taken
    }

    #[tokio::test]
    async fn h2_takes_paths_of_sockets_for_authorities() {
        let requests = requests();
        assert_eq!(taken(&requests).await, ["good"], "without the filter");
        let [coded, plain] = ["-2Ftmp-2Fx.sock", "-tmp-x.sock"];
        let expected = [coded, plain, coded, coded, plain, coded, "good"];
        for piece_bytes in [1, 2, 3, 7, 64, requests.len()] {
            let filtered = filtered(&requests, piece_bytes);
            assert_eq!(taken(&filtered).await, expected, "pieces of {piece_bytes}");
            // Bytes outside of authorities are untouched: the body of the first request looks like
            // one.
            let body = b"\x00\x00\x09\x01\x41\x01/%";
            assert!(filtered.windows(body.len()).any(|window| window == body));
        }
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference_and_nothing_else_changes(
            mut bytes in proptest::collection::vec(prop_oneof![any::<u8>(), 0..16u8, Just(b'%')], 0..400),
            is_ours: bool,
            piece_bytes in 1..50usize,
        ) {
            if is_ours {
                bytes.splice(..0, requests());
            }
            let whole = filtered(&bytes, usize::MAX);
            prop_assert_eq!(&filtered(&bytes, piece_bytes), &whole);
            for (&before, &after) in bytes.iter().zip(&whole) {
                let is_replaced = matches!(before, b'%' | b'/') && after == b'-';
                prop_assert!(before == after || is_replaced);
            }
        }
    }
}
