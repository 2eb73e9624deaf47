//! Tables as lists of declared columns. An entry in `schema.rs` or `kernel_schema.rs` determines
//! how its column is written, read, documented and shown in SQL.

use std::fmt::Debug;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field, Fields};

use super::texts::{TextColumns, TextReader};

/// Description of a column, for documents and other engines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnInfo {
    pub name: &'static str,
    pub data_type: DataType,
    pub is_nullable: bool,
    /// Meaning of the column, for users; empty if its name is clear.
    pub meaning: &'static str,
    /// True if readers read this column into a cell.
    pub(super) is_cell: bool,
    /// True if the writer builds no dictionary of this column.
    pub(super) is_distinct: bool,
}

/// Column that is written from a `Row`.
pub(super) struct Column<Row> {
    pub(super) info: fn() -> ColumnInfo,
    pub(super) write: WriteColumn<Row>,
}

type WriteColumn<Row> = fn(&[Row], &TextColumns) -> Result<ArrayRef, ArrowError>;

/// Table, or item type of a list column, that [`table!`] declares.
pub(super) trait DeclaredTable {
    /// Row from which the table is written.
    type Row: 'static;
    /// Struct of the columns of a row that are read.
    type Cells: Clone + Debug;
    /// Columns in the order of the file.
    const COLUMNS: &'static [Column<Self::Row>];

    /// Returns the cells that a reader would get after this row was written. Texts are indexes into
    /// the strings of the written rows.
    fn cells_of(row: &Self::Row) -> Self::Cells;

    /// Appends the rows of a batch to `rows`. Finds columns by their names.
    fn read(
        batch: &RecordBatch,
        texts: &mut TextReader<'_>,
        rows: &mut Vec<Self::Cells>,
    ) -> Result<(), String>;
}

/// Returns the columns of a table.
pub(super) fn infos<T: DeclaredTable>() -> Vec<ColumnInfo> {
    T::COLUMNS.iter().map(|column| (column.info)()).collect()
}

/// Returns the Arrow fields of a table.
pub(super) fn fields<T: DeclaredTable>() -> Fields {
    let field = |info: ColumnInfo| Field::new(info.name, info.data_type, info.is_nullable);
    infos::<T>().into_iter().map(field).collect()
}

/// Returns the names of the columns that cells are built from.
pub(super) fn cell_columns<T: DeclaredTable>() -> Vec<&'static str> {
    let cells = infos::<T>().into_iter().filter(|info| info.is_cell);
    cells.map(|info| info.name).collect()
}

/// Converts rows to the Arrow columns of a table, in the order of the file.
pub(super) fn write_columns<T: DeclaredTable>(
    rows: &[T::Row],
    texts: &TextColumns,
) -> Result<Vec<ArrayRef>, ArrowError> {
    let write = |column: &Column<T::Row>| (column.write)(rows, texts);
    T::COLUMNS.iter().map(write).collect()
}

/// Declares a table: `pub(super) NAME(row: ROW) => struct CELLS { … }`, with an entry for
/// each column:
///
/// ```text
/// name: Kind = how it is written from the row => the cell it is read into, "its meaning";
/// ```
///
/// A column that is not read into `CELLS` has no cell. Without `struct`, `CELLS` is an existing
/// struct. `kinds.rs` and `lists.rs` define the kinds.
macro_rules! table {
    (
        $(#[$about:meta])*
        $vis:vis $Table:ident($row:ident: $Row:ty) => struct $Cells:ident {
            $($name:ident: $kind:ty = $from:expr $(=> $cell:ident)?, $meaning:literal;)*
        }
    ) => {
        #[doc = concat!("Columns of a row of [`", stringify!($Table), "`].")]
        #[derive(Clone, Debug)]
        $vis struct $Cells {
            $($($vis $cell: <$kind as $crate::tables::kinds::ReadKind>::Cell,)?)*
        }

        $crate::tables::columns::table! {
            $(#[$about])*
            $vis $Table($row: $Row) => $Cells {
                $($name: $kind = $from $(=> $cell)?, $meaning;)*
            }
        }
    };
    (
        $(#[$about:meta])*
        $vis:vis $Table:ident($row:ident: $Row:ty) => $Cells:ident {
            $($name:ident: $kind:ty = $from:expr $(=> $cell:ident)?, $meaning:literal;)*
        }
    ) => {
        $(#[$about])*
        #[derive(Debug)]
        $vis enum $Table {}

        impl $crate::tables::columns::DeclaredTable for $Table {
            type Row = $Row;
            type Cells = $Cells;

            const COLUMNS: &'static [$crate::tables::columns::Column<$Row>] = &[$(
                $crate::tables::columns::Column {
                    info: || $crate::tables::columns::ColumnInfo {
                        name: stringify!($name),
                        data_type: <$kind as $crate::tables::kinds::ColumnKind>::data_type(),
                        is_nullable: <$kind as $crate::tables::kinds::ColumnKind>::IS_NULLABLE,
                        meaning: $meaning,
                        is_cell: $crate::tables::columns::table!(@is_cell $($cell)?),
                        is_distinct: <$kind as $crate::tables::kinds::ColumnKind>::IS_DISTINCT,
                    },
                    write: |rows: &[$Row], texts: &$crate::tables::texts::TextColumns| {
                        let values = rows.iter().map(|$row| $from);
                        <$kind as $crate::tables::kinds::ColumnKind>::write(values, texts)
                    },
                },
            )*];

            #[inline]
            #[allow(unused_variables, reason = "items of which nothing is read")]
            fn cells_of($row: &$Row) -> $Cells {
                $Cells { $($($cell: <$kind as $crate::tables::kinds::ReadKind>::cell_of($from),)?)* }
            }

            #[allow(unused_variables, reason = "items of which nothing is read")]
            fn read(
                batch: &arrow_array::RecordBatch,
                texts: &mut $crate::tables::texts::TextReader<'_>,
                rows: &mut Vec<$Cells>,
            ) -> Result<(), String> {
                $($(let $cell =
                    <$kind as $crate::tables::kinds::ReadKind>::open(batch, stringify!($name), texts)?;)?)*
                rows.extend((0..batch.num_rows()).map(|row| $Cells {
                    $($($cell: <$kind as $crate::tables::kinds::ReadKind>::cell(&$cell, row),)?)*
                }));
                Ok(())
            }
        }
    };
    (@is_cell) => { false };
    (@is_cell $cell:ident) => { true };
}
pub(super) use table;
