//! Shredding: attributes become typed columns of their own, `int:user`, `text:http.route`. The
//! column `attributes` stores the others as JSON.
//!
//! Each file has the columns that suit its rows, up to [`COLUMNS_MAX`]. The type is part of a
//! column's name. So columns of the same name have the same type in all files, whatever services
//! send, and any reader can combine files by name. Nothing is stored twice, and nothing is lost: a
//! value goes into a column only if it can be written back exactly. A row's attributes are the
//! values of its columns plus its JSON.
//!
//! The term comes from Parquet's VARIANT. A shredded VARIANT takes the same bytes, but readers do
//! not see its columns yet: DuckDB takes 9 to 40 times as long to read one attribute, and pyarrow
//! returns raw bytes only.

mod fold;
mod members;
mod name;
mod read;
mod write;

pub(super) use fold::{fold, folded};
pub(super) use name::AttributeColumn;
pub(super) use read::ShreddedColumns;
pub(super) use write::{HasAttributes, Shredder};

/// Maximum columns of attributes in a file, for its most frequent attributes.
pub(super) const COLUMNS_MAX: usize = 128;
