//! The columns are read back by a decoder that knows the format's description only; the pages are asked for over HTTP.

mod columns;
mod kernel;
mod pages;
