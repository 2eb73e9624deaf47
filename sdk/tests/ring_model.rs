//! Every interleaving of the ring's producer and consumer, tried by `loom`:
//! `RUSTFLAGS="--cfg stroboscope_loom" cargo test -p stroboscope --release --test ring_model`.
//!
//! The ring is compiled again in here, with records and a capacity of a few words. Without the flag there is nothing.

#![cfg(stroboscope_loom)]

#[allow(dead_code)]
#[path = "../src/ring.rs"]
mod ring;
