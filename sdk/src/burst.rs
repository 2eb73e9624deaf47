//! When recording is on; see [`BurstConfig`]. In a crate of its own, which the kernel recorder and the collector share.

pub use stroboscope_burst::BurstConfig;
pub use stroboscope_burst::BurstConfigError;
pub use stroboscope_burst::Parsed;
