//! The batch driver: streams whole traces out of the store through the analysis.

mod causal_graph;
mod infer;
mod losses;
mod paths;
mod recorded;
mod source;
#[cfg(feature = "sql")]
mod sql;

pub use causal_graph::CausalGraph;
pub use infer::{Inference, infer};
pub use losses::losses;
pub use paths::{Paths, TraceAnswer, aggregate, each_path};
pub use recorded::Recorded;
pub use source::{Notes, QueryError, Selection, Source};
#[cfg(feature = "sql")]
pub use sql::{SqlError, SqlRows, sql};
