//! Tracked values: values and buffers that carry labels.

mod buffer;
mod runs;
mod value;

pub use buffer::{ParseError, TrackedBuf};
pub use value::Tracked;
