//! The store in an object store: what a collector has finished is published there, and readers mirror it.
//!
//! Under the URL, each collector owns `collectors/ID/`, ID being a random number that its data folder keeps. Objects there
//! are written once and never changed, under names of their own; `manifest.json` names those that count, and is the only
//! object that is replaced, by a conditional write. So a reader never sees half a file, nor a file beside the one that
//! covers it; and of two collectors with copies of one data folder, one finds the manifest changed, and stops.
//!
//! The modules, from the bottom up:
//!
//! - [`address`]: a URL, as an object store.
//! - `manifest`: what is published, and the conditional write of it.
//! - `identity`: what a data folder remembers of what it published.
//! - `naming`: what the names of files say.
//! - `upload`: a file becomes an object.
//! - [`publish`]: the thread that publishes.
//! - [`mirror`]: a local folder with what is published.
#![allow(
    missing_docs,
    reason = "what is known by its name needs no sentence; the user is the crate beside this one"
)]

pub mod address;
mod identity;
mod manifest;
pub mod mirror;
mod naming;
pub mod publish;
mod upload;
