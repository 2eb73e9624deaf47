//! The tests of queries, each a module: one program links in a fraction of the time of several.

mod others_data;
mod parts;
mod uneven_parts;
