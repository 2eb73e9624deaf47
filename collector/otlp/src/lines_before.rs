//! Finds the line of a record on which a part of it begins.

/// Counts the line ends before the parts of a record. Each part that lies before the previous one
/// makes it count from the beginning again.
pub struct LinesBefore<'a> {
    record: &'a str,
    at: usize,
    lines: u64,
}

impl<'a> LinesBefore<'a> {
    pub fn of(record: &'a str) -> Self {
        Self {
            record,
            at: 0,
            lines: 0,
        }
    }

    /// Returns the number of lines before `part`, which must be a slice of the record.
    pub fn before(&mut self, part: &str) -> u64 {
        let offset = (part.as_ptr() as usize).saturating_sub(self.record.as_ptr() as usize);
        if offset < self.at {
            (self.at, self.lines) = (0, 0);
        }
        let passed = self
            .record
            .as_bytes()
            .get(self.at..offset)
            .unwrap_or_default();
        self.lines += memchr::memchr_iter(b'\n', passed).count() as u64;
        self.at = offset;
        self.lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_in_any_order() {
        let record = "a\nb\nc";
        let mut lines = LinesBefore::of(record);
        for (at, expected) in [(0, 0), (4, 2), (2, 1), (4, 2)] {
            assert_eq!(lines.before(&record[at..]), expected);
        }
    }
}
