//! Shredding: attributes become typed columns of their own, `int:user`, `text:http.route`. What has none is in the column
//! `attributes`, as JSON.
//!
//! Each file has the columns that its rows call for, up to [`COLUMNS_MAX`]. The type is part of a column's name, so that
//! columns of the same name in several files are of the same type, whatever services say, and any reader can put files
//! together by name. Nothing is told twice, and nothing is lost: a value goes into a column only if it can be written again
//! as it stood, and all of a row's attributes are its columns' values and what its JSON says.
//!
//! Shredding is the word of Parquet's VARIANT. VARIANT itself, shredded, takes the same bytes, but readers do not yet
//! see its columns: DuckDB takes 9 to 40 times as long to read one attribute, pyarrow has its bytes only.

mod fold;
mod members;
mod name;
mod read;
mod write;

pub(super) use fold::{fold, folded};
pub(super) use name::AttributeColumn;
pub(super) use read::ShreddedColumns;
pub(super) use write::{HasAttributes, Shredder};

/// Columns of attributes that a file has at most: its most frequent attributes.
pub(super) const COLUMNS_MAX: usize = 128;
