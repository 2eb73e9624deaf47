//! Records the kernel into the store: a thread empties the recorder's buffers, another writes chunks of some seconds.
//!
//! Nobody waits for an acknowledgement of kernel events, so there is no write-ahead log: each chunk is one object, made
//! durable before it counts as stored, and a crash costs at most what came since the chunk before (`RecordingSettings::chunk`).
//! Where the disk cannot keep up, the kernel's buffers fill, and what does not fit is counted as lost.

//!
//! On systems that are not Linux a recording does not start, and says why; all else of the crate is the same. The cfg
//! `stroboscope_portable` lets the compiler look at that half on Linux.

#[cfg(all(target_os = "linux", not(stroboscope_portable)))]
mod chunks;
#[cfg(not(all(target_os = "linux", not(stroboscope_portable))))]
mod elsewhere;
#[cfg(all(target_os = "linux", not(stroboscope_portable)))]
mod run;
mod settings;

#[cfg(not(all(target_os = "linux", not(stroboscope_portable))))]
pub use elsewhere::{KernelRecording, PreparedRecording, StartError};
#[cfg(all(target_os = "linux", not(stroboscope_portable)))]
pub use run::{KernelRecording, PreparedRecording};
pub use settings::{RecordingSettings, RecordingSummary};
#[cfg(all(target_os = "linux", not(stroboscope_portable)))]
pub use stroboscope_kernel::StartError;
