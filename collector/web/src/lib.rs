//! Web UI over a store, as an axum `Router` that is independent of the server.
//!
//! Modules from the bottom up; each uses only those before it:
//!
//! - [`verbs`]: the subcommands of the command line, as pages use them.
//! - [`store_verbs`]: the reports over a data directory, as such subcommands.
//! - `progress`: progress of an answer.
//! - `answer_cache`: cache of answers; concurrent requests for one answer share its computation.
//! - `refreshed`: answers that open pages poll.
//! - `rates`: requests over time, from all files.
//! - `model`: the store as it was opened last, and its model.
//! - `site`: the store, its caches, and the limits of concurrency.
//! - `scope`: time range and root operation of a page; `range_strip`: their form, and the rate of
//!   requests.
//! - `respond`: sends an answer as a page, at once if it is cached, and in pieces if it takes long.
//! - `asset_files`: the JavaScript modules that pages load.
//! - `command_line`: the command line that gives the content of a page.
//! - `periods`: two periods as addresses.
//! - `changes`: the changes found in a store, with links that compare before and after.
//! - `verb_form`: the form of a subcommand's options; `verb_page`: its answer.
//! - `heatmap`: latency over time, as a picture.
//! - `root_series`: rate, failures and latency of root operations over time, as small pictures.
//! - `overview`: the first page.
//! - `traces`: everything under `/traces` and `/bursts`.
//! - `router`: routes and navigation.
#![allow(
    missing_docs,
    reason = "what is known by its name needs no sentence; the users are the crates beside this one"
)]

mod answer_cache;
mod asset_files;
mod changes;
mod command_line;
mod heatmap;
mod model;
mod overview;
mod periods;
mod progress;
mod range_strip;
mod rates;
mod refreshed;
mod respond;
mod root_series;
mod router;
mod scope;
mod site;
pub mod store_verbs;
mod traces;
mod verb_form;
mod verb_page;
pub mod verbs;

pub use router::{navigation, site};
pub use site::SiteOptions;
