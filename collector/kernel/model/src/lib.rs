//! Recordings of the kernel, on every system: settings, clocks, imports and exports. This crate
//! does not record.
//!
//! The recorder itself is `stroboscope-kernel`, for Linux. [`stroboscope_analysis::kernel`] defines
//! the events and their meaning.
//!
//! - [`Settings`]: the settings of a recording.
//! - [`Recording`]: its result, with its [`ClockLog`] from the kernel's monotonic clock to wall
//!   time.
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
