//! Reports as tools for agents, by the Model Context Protocol.
//!
//! The modules, from the bottom up; each uses only those before it:
//!
//! - `bounds`: cuts the lists of an answer that is too large.
//! - `arguments`: the arguments of a call, from JSON to the fields of a report's form.
//! - `schemas`: JSON schemas of arguments and answers.
//! - `links`: addresses of pages.
//! - [`tools`]: the tools over a data directory, and their answers.
//! - [`server`]: the protocol, over standard input and output or over HTTP.

mod arguments;
mod bounds;
mod links;
mod schemas;
pub mod server;
pub mod tools;
