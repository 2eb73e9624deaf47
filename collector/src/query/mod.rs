//! The batch driver: streams whole traces out of the store through the analysis.

mod anomalies;
mod categories;
mod causal_graph;
mod infer;
mod inner;
mod kernel;
mod losses;
mod paths;
mod recorded;
pub mod request_tree;
mod source;
#[cfg(feature = "sql")]
mod sql;
pub mod timeline;
mod what_if;

pub use anomalies::{AnomalyReport, anomalies};
pub use categories::CategoryTotals;
pub use causal_graph::CausalGraph;
pub use infer::{InferSettings, Inference, infer, infer_with};
pub use kernel::KernelPart;
pub use losses::losses;
pub use paths::{Paths, TraceAnswer, aggregate, each_path};
pub use recorded::Recorded;
pub use source::{Notes, QueryError, Selection, Source};
#[cfg(feature = "sql")]
pub use sql::{SqlError, SqlRows, sql};
pub use what_if::{WhatIfReport, what_if};
