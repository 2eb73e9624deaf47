//! The program `stroboscope`: its verbs and its demo.
//!
//! What it is made of are crates of their own, beside this one: `stroboscope-store` keeps, `stroboscope-server` collects,
//! `stroboscope-import` reads what others recorded, `stroboscope-query` answers, `stroboscope-analysis` infers,
//! `stroboscope-reports` says what an answer is, `stroboscope-present` shows it.

#[cfg(target_os = "linux")]
mod allocator;
pub mod cli;
#[cfg(feature = "demo")]
pub mod demo;
