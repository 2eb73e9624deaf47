//! How results are shown, once for all of them.
//!
//! - [`findings`]: pictures of what the analysis finds.
//! - [`humanise`]: numbers as people read them.
//! - [`show`]: what a result says, as a document for terminals, pages and tables.
//! - [`picture`]: pictures as SVG.
//! - [`page`]: documents as pages of a site, and as files that need nothing else: no network, no font.
//! - [`roots`]: requests by root operation, as several documents have them.
#![allow(
    missing_docs,
    reason = "what is known by its name needs no sentence; the users are the crates beside this one"
)]

pub mod findings;
pub mod humanise;
pub mod page;
pub mod picture;
pub mod roots;
pub mod show;
