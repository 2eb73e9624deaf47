//! What a recording of the kernel is, for who reads, imports or shows one: without a recorder, on every system.
//!
//! The recorder itself is `stroboscope-kernel`, for Linux. The events, and what they mean, are
//! [`stroboscope_analysis::kernel`].
//!
//! - [`Settings`]: what is to be recorded.
//! - [`Recording`]: what came of it, with its [`ClockLog`] from the kernel's monotonic clock to wall time.
//! - [`import`]: the text of `perf script` and `strace`, instead of a recorder's events.
//! - [`export`]: timelines as text, JSON and Perfetto's protobufs.

mod clock;
pub mod export;
pub mod import;
mod recording;
mod settings;

pub use clock::{ClockLog, ClockSample};
pub use recording::Recording;
pub use settings::{Facility, Processes, Settings};
