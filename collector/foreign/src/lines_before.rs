//! On which line of a record a part of it begins.

/// Counts the line ends before the parts of a record, which are asked for in their order: each byte is looked at once.
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

    /// Lines before `part`, which is a part of the record.
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
