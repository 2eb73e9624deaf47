//! Finds the line of a record on which a part of it begins.

/// Counts the line ends before the parts of a record. The parts must be passed in order, so that
/// each byte is read once.
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
        let passed = self
            .record
            .as_bytes()
            .get(self.at..offset)
            .unwrap_or_default();
        self.lines += memchr::memchr_iter(b'\n', passed).count() as u64;
        self.at = self.at.max(offset);
        self.lines
    }
}
