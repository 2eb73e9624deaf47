//! Tests of the pages under `/traces` over HTTP, and of the timeline's columns by an independent
//! decoder.

mod columns;
mod kernel;
mod pages;
