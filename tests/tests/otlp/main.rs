//! OTLP as it comes over the network: what is said, what is stored, what others' programs send.

mod clients;
mod logs;
mod readers;
mod retries;
mod rust;
mod samplers;
mod store;
mod wire;
