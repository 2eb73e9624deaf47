//! The tests of queries, each a module: one program links in a fraction of the time of several.

mod kutrace;
mod links;
mod memory;
mod others_data;
mod parts;
mod random_store;
mod search;
mod uneven_parts;
