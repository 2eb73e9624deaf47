//! Actions of a Delta log: one JSON object a line.

use parquet::file::metadata::ParquetMetaData;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use super::schema::{DeltaSchema, PARTITIONS};
use crate::tables::id_range::{nulls, times_ns};

/// Feature of the protocol that no other program supports.
const WRITER_FEATURE: &str = "stroboscope";

/// One line of a commit. For an action of another kind, all fields are `None`.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Action {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) commit_info: Option<CommitInfo>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) protocol: Option<Protocol>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) meta_data: Option<MetaData>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) add: Option<AddFile>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) remove: Option<RemoveFile>,
}

/// Origin of a commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CommitInfo {
    /// Time of the commit, in ms since the Unix epoch.
    #[serde(default)]
    pub(super) timestamp: i64,
    #[serde(default)]
    pub(super) operation: String,
    #[serde(default)]
    pub(super) engine_info: String,
}

impl CommitInfo {
    pub(super) fn at(timestamp: i64) -> Self {
        Self {
            timestamp,
            operation: "WRITE".into(),
            engine_info: concat!("stroboscope/", env!("CARGO_PKG_VERSION")).into(),
        }
    }
}

/// Requirements of the protocol for readers and writers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Protocol {
    pub(super) min_reader_version: i32,
    pub(super) min_writer_version: i32,
    #[serde(default)]
    pub(super) writer_features: Vec<String>,
}

impl Protocol {
    pub(super) fn ours() -> Self {
        Self {
            min_reader_version: 1,
            min_writer_version: 7, // the first with named features
            writer_features: vec![WRITER_FEATURE.into()],
        }
    }

    /// Reports whether this program wrote the log.
    pub(super) fn is_ours(&self) -> bool {
        self.writer_features.iter().any(|one| one == WRITER_FEATURE)
    }
}

/// Schema and identity of the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MetaData {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) format: Format,
    /// [`DeltaSchema`] as JSON.
    pub(super) schema_string: String,
    pub(super) partition_columns: Vec<String>,
    pub(super) configuration: BTreeMap<String, String>,
    /// Time of the log's first commit, in ms since the Unix epoch.
    pub(super) created_time: i64,
}

/// Format of the table's files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Format {
    pub(super) provider: String,
    #[serde(default)]
    pub(super) options: BTreeMap<String, String>,
}

impl MetaData {
    pub(super) fn new(id: String, name: &str, schema: &DeltaSchema, created_time: i64) -> Self {
        Self {
            id,
            name: name.into(),
            format: Format {
                provider: "parquet".into(),
                options: BTreeMap::new(),
            },
            schema_string: schema.json(),
            partition_columns: PARTITIONS.map(str::to_owned).to_vec(),
            configuration: BTreeMap::new(),
            created_time,
        }
    }
}

/// A file that became part of the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AddFile {
    /// Path below the table's directory.
    pub(super) path: String,
    pub(super) partition_values: BTreeMap<String, String>,
    /// Size in bytes.
    pub(super) size: u64,
    /// Time of the last modification, in ms since the Unix epoch.
    pub(super) modification_time: i64,
    pub(super) data_change: bool,
    /// [`FileStatistics`] as JSON.
    pub(super) stats: String,
}

/// A file that is no longer part of the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RemoveFile {
    pub(super) path: String,
    /// Time of the commit, in ms since the Unix epoch.
    pub(super) deletion_timestamp: i64,
    pub(super) data_change: bool,
}

/// Facts by which readers skip files.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct FileStatistics {
    num_records: i64,
    min_values: BTreeMap<String, i64>,
    max_values: BTreeMap<String, i64>,
    null_count: BTreeMap<String, u64>,
}

/// Returns the statistics of a file as JSON: its number of rows, and the bounds and numbers of
/// nulls of these columns. Leaves out columns without bounds of 64-bit integers.
pub(super) fn statistics<'a>(
    metadata: &ParquetMetaData,
    times: impl Iterator<Item = &'a str>,
) -> String {
    let mut found = FileStatistics {
        num_records: metadata.file_metadata().num_rows(),
        ..FileStatistics::default()
    };
    for name in times {
        if let Some((least, greatest)) = times_ns(metadata, name) {
            found.min_values.insert(name.into(), least);
            found.max_values.insert(name.into(), greatest);
            if let Some(nulls) = nulls(metadata, name) {
                found.null_count.insert(name.into(), nulls);
            }
        }
    }
    serde_json::to_string(&found).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{ArrayRef, Int64Array, RecordBatch};
    use parquet::arrow::ArrowWriter;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    use std::sync::Arc;

    #[test]
    fn statistics_state_the_nulls_of_each_column() {
        let column =
            |values: &[Option<i64>]| Arc::new(Int64Array::from(values.to_vec())) as ArrayRef;
        let batch = RecordBatch::try_from_iter_with_nullable([
            ("from_ns", column(&[Some(3), Some(1), Some(2)]), false),
            ("error_ns", column(&[None, Some(5), None]), true),
            ("never_ns", column(&[None; 3]), true),
        ])
        .expect("columns of one length");
        let mut bytes = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), None).expect("a schema");
        writer.write(&batch).expect("memory");
        writer.close().expect("memory");
        let file = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(bytes));
        let names = ["from_ns", "error_ns", "never_ns"];
        let found = statistics(file.expect("a file").metadata(), names.into_iter());
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&found).expect("JSON"),
            serde_json::json!({
                "numRecords": 3,
                "minValues": {"from_ns": 1, "error_ns": 5},
                "maxValues": {"from_ns": 3, "error_ns": 5},
                "nullCount": {"from_ns": 0, "error_ns": 2},
            })
        );
    }
}
