//! Counts the values in the columns of a file, by its footer.

use parquet::file::metadata::ParquetMetaData;

/// Returns the name and the number of non-null values of each column of each row group. Without
/// statistics, nulls count as values.
pub(super) fn values(metadata: &ParquetMetaData) -> impl Iterator<Item = (String, u64)> {
    metadata.row_groups().iter().flat_map(|group| {
        group.columns().iter().map(|column| {
            let rows = u64::try_from(column.num_values()).unwrap_or(0);
            let nulls = column.statistics().and_then(|found| found.null_count_opt());
            let name = column.column_path().parts().first().cloned();
            let values = rows.saturating_sub(nulls.unwrap_or(0));
            (name.unwrap_or_default(), values)
        })
    })
}
