//! The room for a trace while it grows.

/// Memory of a record while its trace is analysed, with its segments and their path, beside its attributes.
pub const ANALYSED_RECORD_BYTES: usize = 960;
/// The room for a trace is asked for each time that it has grown by so much.
const ROOM_STEP_BYTES: usize = 1 << 20;

/// The room for one trace, asked for in steps.
pub(super) struct TraceRoom<'a> {
    room: &'a mut dyn FnMut(usize) -> bool,
    bytes: usize,
    /// Bytes requested so far.
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

    /// One record more, with so many bytes of attributes.
    pub(super) fn grow(&mut self, attributes: usize) {
        self.bytes += ANALYSED_RECORD_BYTES + attributes;
        if self.bytes > self.asked {
            self.asked = self.bytes + ROOM_STEP_BYTES;
            self.is_there = (self.room)(self.asked);
        }
    }

    /// So many records less.
    pub(super) fn shrink(&mut self, records: usize) {
        self.bytes = self.bytes.saturating_sub(records * ANALYSED_RECORD_BYTES);
    }
}
