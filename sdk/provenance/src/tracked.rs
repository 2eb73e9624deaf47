//! Tracked values: values and buffers that carry labels.

mod buffer;
#[cfg(feature = "serde")]
mod json;
mod runs;
mod value;

pub use buffer::{ParseError, TrackedBuf};
#[cfg(feature = "serde")]
pub use json::{from_json, to_json};
pub use value::Tracked;
