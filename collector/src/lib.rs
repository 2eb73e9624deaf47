//! The program `stroboscope`: its subcommands and its demo.
//!
//! Other crates do most of the work. Among them, `stroboscope-store` stores data,
//! `stroboscope-server` collects it, `stroboscope-import` reads the recordings of other systems,
//! `stroboscope-query` answers queries, `stroboscope-analysis` infers models, `stroboscope-reports`
//! defines reports, and `stroboscope-render` renders them.

#[cfg(all(target_os = "linux", feature = "jemalloc"))]
mod allocator;
pub mod cli;
#[cfg(feature = "demo")]
pub mod demo;
