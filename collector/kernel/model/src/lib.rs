//! Recordings of the kernel, on every system: settings, clocks, imports and exports. This crate
//! does not record.
//!
//! The recorder itself is `stroboscope-kernel`, for Linux. [`stroboscope_analysis::kernel`] defines
//! the events and their meaning.
//!
//! - [`Settings`]: the settings of a recording.
//! - [`Recording`]: the result of a recording, with a [`ClockLog`] that converts the kernel's
//!   monotonic time to wall time. A [`ConfigLog`] has the burst-configs that applied.
//! - [`import`]: reads the text of `perf script` and `strace`, instead of a recorder's events.
//! - [`export`]: writes timelines as text, JSON and Perfetto's protobufs.

mod clock;
mod config_log;
pub mod export;
pub mod import;
mod recording;
mod settings;

pub use clock::{ClockLog, ClockSample};
pub use config_log::ConfigLog;
pub use recording::Recording;
pub use settings::{Facility, Processes, Settings};
