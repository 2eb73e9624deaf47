//! Shape of a JSON text, inferred from its first bytes. The text may be cut anywhere, and need not
//! be JSON at all.

/// The outline of a JSON text, from its first bytes.
#[derive(Debug, Default)]
pub(super) struct JsonShape {
    /// True if the outermost value is an array.
    pub(super) is_array: bool,
    /// Keys of the outermost object, or of the first object in the outermost arrays, each with the
    /// first byte of its value (0 where the text is cut before it).
    pub(super) keys: Vec<(String, u8)>,
    /// True if the first line that is not blank is a whole object or array.
    pub(super) is_lines: bool,
}

/// Nesting at the current position in the text.
#[derive(Default)]
struct Walk {
    depth: u32,
    /// Depth inside the object whose keys are wanted; 0 until it is found.
    object_depth: u32,
    is_past_object: bool,
    is_key_next: bool,
}

impl JsonShape {
    /// Determines the shape of the text that begins with `text`.
    pub(super) fn of(text: &[u8]) -> Self {
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        let text = text.trim_ascii_start();
        let mut shape = Self {
            is_array: text.first() == Some(&b'['),
            ..Self::default()
        };
        if !shape.is_array && text.first() != Some(&b'{') {
            return shape;
        }
        let mut walk = Walk::default();
        let mut at = 0;
        while let Some(&byte) = text.get(at) {
            at += 1;
            match byte {
                b'"' => {
                    let Some(length) = string_length(&text[at..]) else {
                        break;
                    };
                    if walk.is_key_next && walk.depth == walk.object_depth {
                        let key = String::from_utf8_lossy(&text[at..at + length]).into_owned();
                        let first = first_of_value(&text[at + length + 1..]);
                        shape.keys.push((key, first));
                        walk.is_key_next = false;
                    }
                    at += length + 1;
                }
                b'{' | b'[' => walk.open(byte == b'{'),
                b'}' | b']' => {
                    walk.close();
                    if walk.depth == 0 {
                        shape.is_lines = !text[..at].contains(&b'\n') && is_line_end(&text[at..]);
                        break;
                    }
                }
                b',' if walk.depth == walk.object_depth => walk.is_key_next = !walk.is_past_object,
                _ => {}
            }
        }
        shape
    }

    /// Reports whether the object has this key.
    pub(super) fn has(&self, key: &str) -> bool {
        self.keys.iter().any(|seen| seen.0 == key)
    }

    /// Reports whether the object has this key and its value begins with this byte.
    pub(super) fn opens(&self, key: &str, byte: u8) -> bool {
        self.keys.iter().any(|seen| seen.0 == key && seen.1 == byte)
    }
}

impl Walk {
    fn open(&mut self, is_object: bool) {
        self.depth += 1;
        if is_object && self.object_depth == 0 && !self.is_past_object {
            self.object_depth = self.depth;
            self.is_key_next = true;
        }
    }

    fn close(&mut self) {
        if self.depth == self.object_depth {
            self.is_past_object = true;
            self.is_key_next = false;
        }
        self.depth = self.depth.saturating_sub(1);
    }
}

/// Returns the number of bytes of a string up to its closing quote; `None` if it does not end.
fn string_length(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match text.get(at)? {
            b'"' => return Some(at),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Returns the first byte of the value after a key; 0 if there is none.
fn first_of_value(rest: &[u8]) -> u8 {
    let mut rest = rest.iter().filter(|byte| !byte.is_ascii_whitespace());
    match rest.next() {
        Some(b':') => rest.next().copied().unwrap_or_default(),
        _ => 0,
    }
}

fn is_line_end(rest: &[u8]) -> bool {
    let after = rest
        .iter()
        .find(|byte| ![b' ', b'\t', b'\r'].contains(byte));
    after.is_none_or(|byte| *byte == b'\n')
}
