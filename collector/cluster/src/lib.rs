//! Runs tasks on worker processes, by Apache DataFusion Distributed. Empty without the feature
//! `datafusion`.
//!
//! A task and its result are bytes, such as a shard of a report and the resulting part. This crate
//! neither reads a store nor knows a report. [`worker_routes`] is the gRPC service of a worker, and
//! [`Cluster`] distributes tasks over workers. A task travels as a plan of one node (`task_node`),
//! so the engine provides transport, registry and session. `ShardPlan` of the store cuts the
//! shards, and `cluster/rounds.rs` of the reports makes tasks of them.
//!
//! A driver sends each task itself, as a query of one stage. The engine's planner would run a stage
//! with one task in the driver's own process, and end a query of several tasks if one worker
//! failed. So the driver chooses the worker of each task, and retries a failed task on any worker.
#![cfg(feature = "datafusion")]
#![allow(
    missing_docs,
    reason = "what is known by its name needs no sentence; the users are the crates beside this one"
)]

mod connection;
mod driver;
mod error;
mod resolution;
mod runner;
mod task_node;
mod worker;

pub use connection::{Access, ClientCertificate};
pub use driver::{Cluster, ClusterSettings, TaskEvent};
pub use error::{ClusterError, WorkerFailure};
pub use runner::TaskRunner;
pub use worker::worker_routes;
