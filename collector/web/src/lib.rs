//! The pages over a store, as a router. Whoever serves it, it does not know.
//!
//! The modules, from the bottom up; each knows only those before it:
//!
//! - [`verbs`]: the verbs of the command line, as pages have them.
//! - `progress`: how far an answer has come.
//! - `answers`: answers that were made, kept in memory; each is made once at a time.
//! - `site`: the store, who answers, and how much at once.
//! - `respond`: an answer as a page, at once where it is there, and in pieces where it takes long.
//! - `asset_files`: the stylesheet and the modules.
//! - `traces`: everything under `/traces`.
//! - `router`: all of it.
#![allow(
    missing_docs,
    reason = "what is known by its name needs no sentence; the users are the crates beside this one"
)]

mod answers;
mod asset_files;
mod progress;
mod respond;
mod router;
mod site;
mod traces;
pub mod verbs;

pub use router::site;
pub use site::SiteOptions;
