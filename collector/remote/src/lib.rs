//! Publishes finished files of the store to an object store, from which readers mirror them.
//!
//! Below the URL, each collector owns `collectors/ID/`, where ID is a random number kept in its
//! data directory. `manifest.json` there lists the published files and is replaced by a conditional
//! write. All other objects are written once under unique names, and later only deleted. Therefore
//! a reader never sees half a file, nor a file together with the one that covers it. If two
//! collectors run on copies of one data directory, one of them finds the manifest changed and stops
//! publishing.
//!
//! The modules, from the bottom up:
//!
//! - [`address`]: parses the URL of an object store.
//! - `manifest`: lists the published files, and replaces the list by a conditional write.
//! - `identity`: id of a data directory, and nonces of the manifests it wrote.
//! - `naming`: file names and which files cover others.
//! - `upload`: uploads a file as an object.
//! - [`publish`]: the thread that publishes.
//! - [`mirror`]: local directory with the published files.
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

pub use identity::is_published;
