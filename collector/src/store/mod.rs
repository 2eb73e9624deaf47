//! The store: Hive-partitioned Parquet behind `object_store`. `schema.rs` documents the tables, `partition.rs` the
//! names of files.

mod columns;
mod kernel;
mod lists;
mod merge;
mod objects;
mod partition;
mod reader;
mod runs;
mod schema;
mod traces;
mod write;

pub use kernel::{KernelChunk, KernelFile, list_kernel, read_kernel, write_kernel};
pub use merge::{Merge, Run};
pub use objects::{Store, StoreError};
pub use partition::{Filing, Hour, Table};
pub use reader::{Damage, Share, TableReader};
pub use runs::{BatchRead, EventRead, FileRun, SpanRead};
pub use schema::SCHEMA_VERSION;
pub use traces::{LeftOut, TraceReader, TraceRows, damage_of, read_batches, read_spans};
pub use write::{Written, write_rows};
