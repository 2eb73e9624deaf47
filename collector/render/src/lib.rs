//! Rendering of results, shared by all reports.
//!
//! - [`checks`]: outcomes of checks, for CI systems.
//! - [`findings`]: charts and timelines of the analysis's results.
//! - [`humanise`]: numbers as text for people.
//! - [`show`]: results as documents, for terminals, pages and tables.
//! - [`picture`]: pictures as SVG.
//! - [`page`]: documents as pages of a site, and as self-contained files without network access or
//!   fonts.
//! - [`roots`]: requests by root operation, for several documents.
#![allow(
    missing_docs,
    reason = "what is known by its name needs no sentence; the users are the crates beside this one"
)]

pub mod checks;
pub mod findings;
pub mod humanise;
pub mod page;
pub mod picture;
pub mod roots;
pub mod show;
