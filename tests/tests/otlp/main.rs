//! OTLP over the network: answers, stored data, and the data of other programs.

mod clients;
mod logs;
mod readers;
mod retries;
mod rust;
mod samplers;
mod store;
mod wire;
