//! Memory reservation for a trace while it is read.

/// Assumed memory of a record while its trace is analysed, in bytes. It includes its segments and
/// their critical path, but not its attributes.
pub const ANALYSED_RECORD_BYTES: usize = 960;
/// Growth of a trace after which more memory is reserved, in bytes.
const ROOM_STEP_BYTES: usize = 1 << 20;

/// Memory for one trace, which is reserved in steps.
pub(super) struct TraceRoom<'a> {
    room: &'a mut dyn FnMut(usize) -> bool,
    bytes: usize,
    /// Bytes up to which no further reservation is needed.
    asked: usize,
    pub(super) is_there: bool,
}

impl<'a> TraceRoom<'a> {
    pub(super) fn of(room: &'a mut dyn FnMut(usize) -> bool) -> Self {
        Self {
            room,
            bytes: 0,
            asked: ROOM_STEP_BYTES,
            is_there: true,
        }
    }

    /// Adds one record with `attributes` bytes of attributes, and reserves more memory if
    /// necessary.
    pub(super) fn grow(&mut self, attributes: usize) {
        self.bytes += ANALYSED_RECORD_BYTES + attributes;
        if self.bytes > self.asked {
            self.asked = self.bytes + ROOM_STEP_BYTES;
            self.is_there = (self.room)(self.asked);
        }
    }

    /// Subtracts the memory of `records` records, without their attributes.
    pub(super) fn shrink(&mut self, records: usize) {
        self.bytes = self.bytes.saturating_sub(records * ANALYSED_RECORD_BYTES);
    }
}
