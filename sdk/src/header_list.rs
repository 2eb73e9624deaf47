//! Iterates over the members of a list header (`tracestate`, `baggage`) up to a limit.
//!
//! Any client can send a header of megabytes. The limit therefore applies during reading, so that
//! the part beyond it costs a request nothing.

/// Limits of reading a header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadLimit {
    /// Maximum bytes of all fields of this name, with a comma between two fields.
    pub(crate) bytes: usize,
    /// Maximum number of members, without empty ones.
    pub(crate) members: usize,
    /// Maximum number of fields of this name. A field may be empty.
    pub(crate) fields: usize,
}

/// Iterator over the members of fields that together form one list. It trims spaces and tabs around
/// members, and skips empty ones.
pub(crate) struct Members<'a, I> {
    fields: I,
    /// Unread part of the current field.
    rest: &'a [u8],
    left: ReadLimit,
    is_cut: bool,
}

impl<'a, I: Iterator<Item = &'a [u8]>> Members<'a, I> {
    pub(crate) fn new(fields: impl IntoIterator<IntoIter = I>, limit: ReadLimit) -> Self {
        Self {
            fields: fields.into_iter(),
            rest: &[],
            left: limit,
            is_cut: false,
        }
    }

    /// Reports whether the list continues beyond the limit. Call it after the last member.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Begins the next field, or as many whole members of it as the limit allows. Returns `None`
    /// after the last field, and if the limit allows no further member.
    #[inline(never)]
    fn begin_field(&mut self) -> Option<()> {
        if self.is_cut {
            return None;
        }
        let field = self.fields.next()?;
        let Some(left) = self.left.fields.checked_sub(1) else {
            self.is_cut = true;
            return None;
        };
        self.left.fields = left;
        if field.len() <= self.left.bytes {
            self.rest = field;
            self.left.bytes = self.left.bytes.saturating_sub(field.len() + 1);
            return Some(());
        }
        self.is_cut = true;
        let read = &field[..self.left.bytes];
        self.rest = match field[read.len()] {
            b',' => read,
            // A partial member would look like a whole one.
            _ => &read[..read.iter().rposition(|&byte| byte == b',')?],
        };
        Some(())
    }
}

impl<'a, I: Iterator<Item = &'a [u8]>> Iterator for Members<'a, I> {
    type Item = &'a [u8];

    // Inlined, while the rare `begin_field` is not. Otherwise unrelated modules influence the
    // compiler's choice, which may cost one instruction per byte.
    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let start = loop {
            if let Some(start) = member_start(self.rest) {
                break start;
            }
            self.rest = &[];
            self.begin_field()?;
        };
        let Some(left) = self.left.members.checked_sub(1) else {
            (self.rest, self.is_cut) = (&[], true);
            return None;
        };
        self.left.members = left;
        let rest = &self.rest[start..];
        let end = rest.iter().position(|&byte| byte == b',');
        let (member, rest) = rest.split_at(end.unwrap_or(rest.len()));
        self.rest = rest;
        let length = member
            .iter()
            .rposition(|byte| !is_separator(byte))
            .map_or(0, |last| last + 1);
        Some(&member[..length])
    }
}

fn is_separator(byte: &u8) -> bool {
    matches!(byte, b',' | b' ' | b'\t')
}

/// Returns the position of the first byte that is no separator. Not inlined, so that its
/// instructions per byte do not depend on the caller.
#[inline(never)]
fn member_start(rest: &[u8]) -> Option<usize> {
    rest.iter().position(|byte| !is_separator(byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMIT: ReadLimit = ReadLimit {
        bytes: 1_000,
        members: 20,
        fields: 10,
    };

    /// Returns the members of a list within this limit, and whether it was cut.
    fn read(fields: &[String], limit: ReadLimit) -> (Vec<String>, bool) {
        let mut members = Members::new(fields.iter().map(String::as_bytes), limit);
        let text = |member: &[u8]| String::from_utf8(member.to_vec()).unwrap();
        let read = members.by_ref().map(text).collect();
        (read, members.is_cut())
    }

    /// Splits a list with the standard library.
    fn plainly(fields: &[String]) -> Vec<String> {
        fields
            .join(",")
            .split(',')
            .map(|member| member.trim_matches([' ', '\t']).to_owned())
            .filter(|member| !member.is_empty())
            .collect()
    }

    proptest! {
        #[test]
        fn within_the_limit_all_is_read(fields in prop::collection::vec("[a-c=, \t]{0,40}", 0..6)) {
            let limit = ReadLimit { members: usize::MAX, ..LIMIT };
            prop_assert_eq!(read(&fields, limit), (plainly(&fields), false));
        }

        #[test]
        fn beyond_it_a_whole_prefix(
            fields in prop::collection::vec("[a-c=, \t]{0,40}", 0..6),
            bytes in 0usize..100,
            members in 0usize..10,
            count in 0usize..6,
        ) {
            let limit = ReadLimit { bytes, members, fields: count };
            let (read, is_cut) = read(&fields, limit);
            let all = plainly(&fields);
            prop_assert_eq!(&read[..], &all[..read.len()]);
            prop_assert!(is_cut || read.len() == all.len());
            let is_within = fields.join(",").len() <= bytes && all.len() <= members && fields.len() <= count;
            prop_assert!(!(is_cut && is_within));
        }
    }

    /// Checks that reading stops at the limit, regardless of the size of the input.
    #[test]
    fn nothing_beyond_the_limit_is_looked_at() {
        let (long, many) = (400_000, 100_000);
        let forms = [
            vec![",".repeat(long)],
            vec![" ".repeat(long)],
            vec![" ,\t".repeat(long / 3)],
            vec!["a".repeat(long)],
            vec!["a=1,".repeat(long / 4)],
            vec![format!("a={}", "b".repeat(long))],
            vec![format!("a=1{}", ";".repeat(long))],
            vec![String::new(); many],
            vec!["a=1".to_owned(); many],
            vec![",,".to_owned(); many],
        ];
        for fields in forms {
            let mut pulled = 0;
            let counted = fields.iter().map(|field| {
                pulled += 1;
                field.as_bytes()
            });
            let mut members = Members::new(counted, LIMIT);
            let (count, bytes) = members.by_ref().fold((0, 0), |(count, bytes), member| {
                (count + 1, bytes + member.len())
            });
            let what = &fields[0][..fields[0].len().min(10)];
            assert!(members.is_cut(), "{what:?}");
            assert!(count <= LIMIT.members && bytes <= LIMIT.bytes, "{what:?}");
            assert!(pulled <= LIMIT.fields + 1, "{what:?}: {pulled} fields");
        }
    }
}
