//! Burst-configs, which define when recording is on; see [`BurstConfig`]. They are defined in a
//! separate crate that the kernel recorder and the collector share.

pub use stroboscope_burst::BurstConfig;
pub use stroboscope_burst::BurstConfigError;
pub use stroboscope_burst::ParsedConfig;
