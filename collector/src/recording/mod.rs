//! Records the kernel into the store: a thread empties the recorder's buffers, another writes chunks of some seconds.
//!
//! Nobody waits for an acknowledgement of kernel events, so there is no write-ahead log: each chunk is one object, made
//! durable before it counts as stored, and a crash costs at most what came since the chunk before (`Settings::chunk`).
//! Where the disk cannot keep up, the kernel's buffers fill, and what does not fit is counted as lost.

mod chunks;
mod run;

pub use run::{KernelRecording, Settings, Summary};
