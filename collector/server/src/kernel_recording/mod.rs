//! Records kernel events into the store: one thread drains the recorder's buffers, another writes
//! chunks of some seconds.
//!
//! No sender waits for an acknowledgement of kernel events, so there is no write-ahead log. Each
//! chunk is one object, made durable before it counts as stored. A crash loses the events that are
//! not in a written chunk, usually those of the last seconds (`RecordingSettings::chunk`). If the
//! disk cannot keep up, the kernel's buffers fill, and events that do not fit are counted as lost.
//!
//! A recording ends its chunk at the instant from which it applies another burst-config.
//!
//! On systems other than Linux, and without the feature `kernel`, starting a recording returns an
//! error. With the cfg `stroboscope_portable`, the compiler checks that variant on Linux.

#[cfg(all(target_os = "linux", feature = "kernel", not(stroboscope_portable)))]
mod chunks;
#[cfg(all(target_os = "linux", feature = "kernel", not(stroboscope_portable)))]
mod run;
mod settings;
#[cfg(not(all(target_os = "linux", feature = "kernel", not(stroboscope_portable))))]
mod unsupported;

#[cfg(all(target_os = "linux", feature = "kernel", not(stroboscope_portable)))]
pub use run::{ConfigSwitch, KernelRecording, PreparedRecording};
pub use settings::{RecordingSettings, RecordingSummary};
#[cfg(all(target_os = "linux", feature = "kernel", not(stroboscope_portable)))]
pub use stroboscope_kernel::StartError;
#[cfg(not(all(target_os = "linux", feature = "kernel", not(stroboscope_portable))))]
pub use unsupported::{ConfigSwitch, KernelRecording, PreparedRecording, StartError};
