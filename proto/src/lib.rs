//! Wire types between the Stroboscope SDK and its collector. This crate contains no logic.
//!
//! The messages are defined, with their units and meaning, in `proto/stroboscope/v1/*.proto`; the
//! Rust code is generated from them and committed, so that building needs no protobuf compiler.
//! `tests/regenerate.rs` checks that the two agree.

/// Version 1 of the protocol: package `stroboscope.v1`.
#[allow(missing_docs, clippy::all, clippy::pedantic, unreachable_pub)]
#[rustfmt::skip]
pub mod v1 {
    include!("generated/stroboscope.v1.rs");
}
