//! The store: Hive-partitioned Parquet behind `object_store`. `schema.rs` documents the tables, `partition.rs` the
//! names of files.

mod attach;
mod attributes;
mod checksum;
mod columns;
mod compact;
mod cursor;
mod id_range;
mod kernel;
mod kinds;
mod listing;
mod lists;
mod merge;
mod objects;
mod operations;
mod parquet_source;
mod partition;
mod probe;
mod reader;
mod records;
mod row_group_facts;
mod row_merge;
mod runs;
mod schema;
mod segments;
mod shredding;
mod sorted_file;
mod spill;
mod staged;
mod texts;
mod trace_rows;
mod traces;
mod values;
mod verify;
mod write;

pub use attach::{EventAttacher, EventRead};
pub use attributes::parse_attributes;
pub use attributes::{AttributeKeys, AttributeValues, ELEMENT};
pub use columns::ColumnInfo;
pub use compact::{MergeError, MergedFile, Retried, merge_files};
pub use id_range::IdRange;
pub use kernel::{KernelChunk, KernelFile, list_kernel, read_kernel, write_kernel};
pub use listing::Covered;
pub use merge::{Merge, SortedRun};
pub use objects::{REPLACED, Store, StoreError, replaced};
pub use operations::inner_operations;
pub use partition::{Hour, PartitionRule, StoreTable};
pub use probe::{Probed, ProbedGroup, RowProbe};
pub use reader::{Damage, ReadBudget, TableReader};
pub use records::{RecordDecoder, add_span, event_read, span_record};
pub use row_group_facts::{ColumnFacts, RowGroupFacts};
pub use runs::{BatchRead, FileRun};
pub use schema::SCHEMA_VERSION;
pub use segments::Segments;
pub use shredding::{attribute_field, attribute_fields};
pub use staged::is_part;
pub use trace_rows::{SpanRead, TraceRows};
pub use traces::{
    LeftOut, SortedRows, TraceFiles, TraceReader, damage_of, read_batches, read_batches_of,
};
pub use verify::{Flaw, is_readable, verify_file};
pub use write::{WrittenObjects, write_rows};
