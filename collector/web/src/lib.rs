//! The pages over a store, as a router.
//!
//! The modules, from the bottom up; each knows only those before it:
//!
//! - [`verbs`]: the verbs of the command line, as pages have them.
//! - `progress`: how far an answer has come.
//! - `answers`: answers that were made, kept in memory; each is made once at a time.
//! - `refreshed`: what pages that are open ask for again.
//! - `rates`: requests over time, of the files that there are.
//! - `model`: the store as it was opened last, and the model of it.
//! - `site`: the store, who answers, and how much at once.
//! - `scope`: time range and root operation of a page; `range_strip`: their form, and the rate of requests.
//! - `respond`: an answer as a page, at once where it is there, and in pieces where it takes long.
//! - `asset_files`: the modules that pages load.
//! - `command_line`: what to type for the same.
//! - `verb_form`: the form of a verb's options; `verb_page`: what it says.
//! - `periods`: two periods as addresses.
//! - `heatmap`: latency over time, as a picture.
//! - `overview`: the first page.
//! - `traces`: everything under `/traces`.
//! - `router`: all of it.
#![allow(
    missing_docs,
    reason = "what is known by its name needs no sentence; the users are the crates beside this one"
)]

mod answers;
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
