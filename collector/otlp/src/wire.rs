//! Protobuf's wire format, for walking over messages without decoding them.

/// A field of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    pub number: u32,
    /// Content of a length-delimited field; `None` for a field that is a number.
    pub payload: Option<&'a [u8]>,
}

/// Iterates over the fields of a message in their order; an error ends the iteration.
pub fn fields(bytes: &[u8]) -> impl Iterator<Item = Result<Field<'_>, ()>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let field = field(&mut rest);
        if field.is_none() {
            rest = &[];
        }
        Some(field.ok_or(()))
    })
}

/// Removes the first field from the bytes and returns it; `None` if the bytes do not begin with a
/// valid field.
pub(crate) fn field<'a>(rest: &mut &'a [u8]) -> Option<Field<'a>> {
    let tag = varint(rest)?;
    let number = u32::try_from(tag >> 3).ok().filter(|number| *number > 0)?;
    let payload = match tag & 7 {
        0 => varint(rest).map(|_| None)?,
        1 => rest.split_off(..8).map(|_| None)?,
        5 => rest.split_off(..4).map(|_| None)?,
        2 => {
            let length = usize::try_from(varint(rest)?).ok()?;
            Some(rest.split_off(..length)?)
        }
        _ => return None,
    };
    Some(Field { number, payload })
}

/// Removes a varint from the front of the bytes and returns its lowest 64 bits; `None` if the bytes
/// do not begin with one of at most ten bytes.
pub fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *rest.split_off_first()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}
