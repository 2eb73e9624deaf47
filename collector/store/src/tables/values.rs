//! Counts the values in columns.

use parquet::file::metadata::ParquetMetaData;

/// Returns the number of values in each column of a row group, from the footer; without statistics,
/// the number of rows.
pub(super) fn values(metadata: &ParquetMetaData) -> impl Iterator<Item = (String, u64)> {
    metadata.row_groups().iter().flat_map(|group| {
        group.columns().iter().map(|column| {
            let rows = u64::try_from(column.num_values()).unwrap_or(0);
            let nulls = column.statistics().and_then(|found| found.null_count_opt());
            let name = column.column_path().parts().first().cloned();
            (
                name.unwrap_or_default(),
                rows.saturating_sub(nulls.unwrap_or(0)),
            )
        })
    })
}
