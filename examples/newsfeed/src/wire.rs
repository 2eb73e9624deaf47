//! The messages and services of `proto/newsfeed.proto`, generated and committed.

#![allow(missing_docs, clippy::all, clippy::pedantic, unreachable_pub)]

include!("generated/newsfeed.v1.rs");
