//! Tests interleavings of the ring's producer and consumer with `loom`:
//! `RUSTFLAGS="--cfg stroboscope_loom" cargo test -p stroboscope --release --test ring_model`.
//!
//! The ring's source is compiled into this test, with a capacity of a few words. Without the flag,
//! this file is empty.

#![cfg(stroboscope_loom)]

#[allow(dead_code)]
#[path = "../src/ring.rs"]
mod ring;
